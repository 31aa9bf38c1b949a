"""Real processes at one store: races, and holders that are killed or stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from reconciler.errors import LockHeld
from reconciler.records import file as store_file
from tests.records.locations import BOB, LEASE_S, SCOPE, Place, nothing_lost
from tests.records.process import Process

ROUNDS = 20


@pytest.fixture
def start(place: Place) -> Iterator[Callable[[], Process]]:
    """Start a process that ends with the test."""
    with ExitStack() as started:

        def start() -> Process:
            process = Process(place)
            started.callback(process.close)
            return process

        yield start


def _take(place: Place) -> None:
    with place.open().locked(SCOPE, BOB, lease_s=LEASE_S, on_lost=nothing_lost):
        pass


def test_lock_race_of_two_processes_has_one_winner(place: Place, start: Callable[[], Process]) -> None:
    # They also race to create the tables.
    racers = [start(), start()]
    for _ in range(ROUNDS):
        for racer in racers:
            racer.tell("take")
        answers = [racer.answer() for racer in racers]
        assert sorted(answers) == ["done", "held"]
        winner = racers[answers.index("done")]
        assert winner.ask("write") == "done"
        assert winner.ask("leave") == "done"
    assert len(place.open().runs(SCOPE)) == ROUNDS


def test_lock_of_a_killed_process_is_free_at_once_or_after_its_lease(
    place: Place, start: Callable[[], Process]
) -> None:
    holder = start()
    assert holder.ask("take") == "done"
    with pytest.raises(LockHeld):
        _take(place)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    if place.kind == "postgresql":  # it may have run on any machine
        with pytest.raises(LockHeld):
            _take(place)
        place.advance(LEASE_S)
    assert place.open().holder(SCOPE) is None
    _take(place)


def test_stopped_process_resumes_without_the_lock(place: Place, start: Callable[[], Process]) -> None:
    holder, successor = start(), start()
    assert holder.ask("take") == "done"
    assert holder.ask("write") == "done"
    holder.send_signal(signal.SIGSTOP)
    assert successor.ask("take") == "held"
    place.advance(LEASE_S)
    assert successor.ask("take") == "done"
    holder.send_signal(signal.SIGCONT)
    assert holder.ask("write") == "lost"
    assert successor.ask("write") == "done"
    assert holder.ask("leave") == "done"
    assert successor.ask("write") == "done"


def test_child_process_does_not_keep_a_dead_parent_alive(sqlite: Place) -> None:
    """A forked child inherits open files, including the process lock."""
    before = set(store_file._held)
    with sqlite.open().locked(SCOPE, BOB, lease_s=LEASE_S, on_lost=nothing_lost):
        (held,) = set(store_file._held) - before
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"open" if held._descriptor is not None else b"closed")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"closed"
        os.close(reading)
        os.close(writing)
        with pytest.raises(LockHeld):
            _take(sqlite)
