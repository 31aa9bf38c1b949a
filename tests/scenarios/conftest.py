"""The command line as processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.every_action import World, a_world
from tests.scenarios.fork_server import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """The server that forks a process for each run."""
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="session")
def world(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A stack whose next apply has every kind of action."""
    return a_world(tmp_path_factory.mktemp("world"), fork_server)


@pytest.fixture
def _rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll for long jobs every five minutes instead of every ten seconds."""
    for module in ("reconciler.apply.waiter", "reconciler.rollout"):
        monkeypatch.setattr(f"{module}.LONGEST_PAUSE_S", 300.0)
