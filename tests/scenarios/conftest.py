"""The command line as processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.every_action import World, a_world
from tests.scenarios.fork_server import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """What forks a process for each run."""
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="session")
def world(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A stack whose next apply has something of every kind to do."""
    return a_world(tmp_path_factory.mktemp("world"), fork_server)


@pytest.fixture
def _rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a job of hours looks every five minutes, not every ten seconds."""
    for module in ("reconciler.apply.waiter", "reconciler.rollout"):
        monkeypatch.setattr(f"{module}.LONGEST_PAUSE_S", 300.0)
