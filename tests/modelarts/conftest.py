"""Backends to test: the emulator in-process or over HTTP, with each credential."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from reconciler.emulator.app import Application, create_app
from reconciler.emulator.database import ManualClock
from reconciler.emulator.store import Store
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.connect import ModelArtsBackend, WsgiAdapter
from reconciler.modelarts.http import ServiceSession, SessionOptions
from tests.modelarts.building import PROJECT, StoppedClock, a_body
from tests.modelarts.locations import EMULATED, Place, emulated, live, live_variables_missing


class LocalBackend(ModelArtsBackend):
    def __init__(self, emulator: Application, clock: StoppedClock | None = None) -> None:
        self.emulator = emulator
        options = SessionOptions(clock=clock, make_adapter=lambda: WsgiAdapter(emulator))
        super().__init__(ServiceSession("http://localhost", Anonymous(), options), PROJECT)

    def add(self, *names: str) -> list[str]:
        with self.emulator.store.database.transaction(write=True):
            return [self.emulator.store.create(PROJECT, a_body(name)).id for name in names]


@pytest.fixture
def emulator() -> Iterator[Application]:
    with Store(clock=ManualClock()) as store:
        yield create_app(store, project_id=PROJECT)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def local(emulator: Application, clock: StoppedClock) -> Iterator[LocalBackend]:
    with LocalBackend(emulator, clock) as backend:
        yield backend


@pytest.fixture(params=EMULATED if live_variables_missing(os.environ) else [*EMULATED, "live"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each backend in turn, the live service last; the contract holds for all."""
    with live() if request.param == "live" else emulated(request.param) as opened:
        yield opened
