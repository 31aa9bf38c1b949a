"""The command line as processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.every_action import World, a_world
from tests.scenarios.fork_server import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """What forks a process for each run."""
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def world(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A stack whose next apply has something of every kind to do."""
    return a_world(tmp_path_factory.mktemp("world"), zygote)
