"""`kill -9` at any moment of an apply: nothing starts twice, and the next apply completes it.

How kill points are counted: an undisturbed run of the real command line writes down every moment that it
passes, which are two for each request (right before it is sent, right after its answer came) and two for
each transaction of the record store (right before its commit, right after), see `hooks`. For each of
these moments the whole world is made anew, a process is killed when it gets there, and another process
applies what is left, at once or a minute later. What came in each of several undisturbed runs may still
not come again, where threads shared a transaction or a call had to wait; such a run is not counted.

Before and after a request that only reads there is what the last change left, and a kill there is one more of
the same: of these moments each third is taken, and every one with `EVERY_MOMENT=1`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Event
from zlib import crc32

import pytest

from reconciler.errors import ExitCode
from tests.apply.service import CREATE
from tests.scenarios.every_action import (
    APPLY,
    APPLY_SAVED,
    KEPT,
    MET,
    NOT_OURS,
    PLANNED,
    Place,
    World,
    a_world,
    check_it_ended_well,
    check_none_is_there_twice,
    check_the_next_apply_does_the_rest,
)
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.hooks import AFTER, BEFORE, KILL, Accident
from tests.scenarios.over_http import a_service, entry

RecordProperty = Callable[[str, object], None]

#: Parts of the work, for several workers.
CHUNKS = 8
#: Far fewer than there are would mean that nothing is counted any more.
AT_LEAST = 150
CALLS = {
    "CreateTrainingJob": "create",
    "ChangeTrainingJobDescription": "update",
    "StopTrainingJob": "terminate",
}


def _of_states(moments: Iterable[str]) -> list[str]:
    """The moments around each change, and some of the others; by name, so that each worker takes the same."""
    share = 1 if os.environ.get("EVERY_MOMENT") else 3
    around_a_change = ("write", *CALLS)
    return [
        moment
        for moment in moments
        if moment.partition(" ")[2].startswith(around_a_change) or crc32(moment.encode()) % share == 0
    ]


@pytest.fixture(scope="module")
def world_without_records(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    return a_world(tmp_path_factory.mktemp("world"), fork_server, with_records=False)


def test_world_plan_has_every_kind_of_action(world: World, fork_server: ForkServer) -> None:
    document = json.loads(fork_server.run(world.place.home, "plan", "--json").out)
    found = {a["key"]: (a["action"], a["reason"]) for a in document["actions"] if a["action"] != "keep"}
    assert found == PLANNED
    assert {*KEPT, *NOT_OURS} <= world.place.fates().keys()


def test_kill_points_are_before_and_after_each_request_and_write(world: World) -> None:
    assert len(world.moments) >= AT_LEAST
    names = {moment.partition(" ")[2] for moment in world.moments}
    assert {f"{when} {name}" for when in (BEFORE, AFTER) for name in names} == set(world.moments)
    for operation in CALLS:
        assert any(name.startswith(operation) for name in names)
    assert sum(name.startswith("write ") for name in names) >= AT_LEAST // 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_apply_killed_at_any_moment_is_completed_by_the_next_apply(
    world: World, fork_server: ForkServer, tmp_path: Path, chunk: int, record_property: RecordProperty
) -> None:
    # By its name, so that each worker makes the same parts of what it counts.
    chosen = [m for m in _of_states(world.moments) if crc32(m.encode()[::-1]) % CHUNKS == chunk]
    tally = _kill_at_each(world, chosen, fork_server, tmp_path)
    assert tally.killed >= len(chosen) * MET
    assert tally.left_a_lock >= tally.killed * 0.8
    record_property("figure", ["kill points, each followed by an apply that did the rest", tally.killed])
    record_property("figure", ["of these left a lock behind that kept nobody out", tally.left_a_lock])


@pytest.mark.parametrize("chunk", range(2))
def test_apply_killed_without_records_is_completed_by_the_next_apply(
    world_without_records: World,
    fork_server: ForkServer,
    tmp_path: Path,
    chunk: int,
    record_property: RecordProperty,
) -> None:
    """The store is made on the way, and nobody remembers anything. Later moments are like those above."""
    moments = world_without_records.moments
    first = next(place for place, moment in enumerate(moments) if "StopTrainingJob" in moment)
    chosen = _of_states((*moments[:first], *moments[first::12]))[chunk::2]
    tally = _kill_at_each(world_without_records, chosen, fork_server, tmp_path)
    assert tally.killed >= len(chosen) * MET
    record_property("figure", ["kill points in a directory that had lost its records", tally.killed])


def test_apply_killed_among_350_foreign_jobs_is_completed_by_the_next_apply(
    fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """Every plan on the way reads a workspace of eight pages."""
    world = a_world(tmp_path, fork_server, foreign=350)
    chosen = random.Random("foreign").sample(world.moments, 24)
    tally = _kill_at_each(world, chosen, fork_server, tmp_path)
    assert tally.killed >= 20
    record_property("figure", ["kill points among 350 foreign jobs", tally.killed])


def test_apply_killed_with_several_actions_in_flight_is_completed_by_the_next_apply(
    world: World, fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """With the usual parallelism the order is another one each time, so this is a sample."""
    chosen = random.Random("in flight").sample(world.moments_of_requests, 16)
    tally = _kill_at_each(world, chosen, fork_server, tmp_path, apply=("apply", "--yes"))
    assert tally.killed >= 8
    record_property("figure", ["kill points with several actions in flight", tally.killed])


@pytest.mark.parametrize("seed", range(4))
def test_repeatedly_killed_applies_are_completed_by_a_last_one(
    world: World, fork_server: ForkServer, tmp_path: Path, seed: int, record_property: RecordProperty
) -> None:
    """Each apply gets a little further than the one before, or not at all."""
    chance, place, killed = random.Random(seed), world.place.copy(tmp_path / "copy"), 0
    for _ in range(8):
        accident = Accident(f"moment #{chance.randint(1, 60)}", KILL)
        run = fork_server.run(place.home, *APPLY, accidents=[accident])
        assert run.code in (-signal.SIGKILL, 0), run.err
        killed += run.code != 0
        check_none_is_there_twice(place)
        place.let_pass(chance.choice([0, 0, 1, 60]))
    assert killed > 3
    check_the_next_apply_does_the_rest(world, place, fork_server)
    record_property("figure", ["applies killed one after the other on the same stack", killed])


@pytest.mark.parametrize("arrives", ["before the next create", "after the next apply"])
def test_create_arriving_after_its_sender_was_killed_makes_one_job(
    fork_server: ForkServer, tmp_path: Path, arrives: str
) -> None:
    with a_service(fork_server) as service:
        home, sender = tmp_path / "copy", Queue[int]()
        on_its_way, may_arrive, has_arrived = Event(), Event(), Event()

        def kill_its_sender() -> None:
            os.kill(sender.get(), signal.SIGKILL)
            on_its_way.set()
            may_arrive.wait(20)

        def let_it_arrive() -> None:
            may_arrive.set()
            has_arrived.wait(20)

        service.declare(home, {"a": entry()})
        service.gate.before(CREATE, kill_its_sender)
        killed = service.start(home, *APPLY)
        sender.put(killed.pid)
        assert killed.end().code == -signal.SIGKILL
        assert on_its_way.wait(20)
        if arrives == "before the next create":
            service.gate.before(CREATE, let_it_arrive)
            service.gate.after(CREATE, has_arrived.set)
        assert service.run(home, *APPLY).code == 0
        if arrives == "after the next apply":
            service.gate.after(CREATE, has_arrived.set)
            may_arrive.set()
        assert has_arrived.wait(20)
        assert service.jobs_of_each_revision() == {("a", 1): 1}
        assert service.changes(home) == []


# --- a saved plan


def test_killed_saved_plan_is_stale_or_unchanged_and_a_fresh_apply_does_the_rest(
    fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """Every other moment right after a call that changes something, and a few of the others."""
    world = a_world(tmp_path, fork_server, apply=APPLY_SAVED)
    after_a_change = tuple(f"{AFTER} {operation}" for operation in CALLS)
    some = [moment for moment in world.moments if moment.startswith(after_a_change)][::2]
    chosen, stale = [*world.moments[::72], *some, world.moments[-1]], 0
    for number, moment in enumerate(chosen):
        place = world.place.copy(tmp_path / str(number))
        killed = fork_server.run(place.home, *APPLY_SAVED, accidents=[Accident(moment, KILL)])
        assert killed.code in (-signal.SIGKILL, 0), killed.err
        check_none_is_there_twice(place)
        left = place.fates()
        again = fork_server.run(place.home, *APPLY_SAVED)
        assert again.code in (0, ExitCode.STALE), (moment, again.err)
        if again.code == ExitCode.STALE:
            stale += 1
            assert "stale plan" in again.err
            assert place.fates() == left, "nothing is changed by a plan that does not hold any more"
        else:
            lives, before = (
                {name: fate.past for name, fate in fates.items()} for fates in (left, world.place.fates())
            )
            assert lives == before, "it holds where no job came or went"
        check_the_next_apply_does_the_rest(world, place, fork_server, moment, with_plan=number % 3 == 0)
        shutil.rmtree(place.home)
    assert len(chosen) // 2 < stale < len(chosen)
    record_property("figure", ["kill points of a saved plan, each repaired by a fresh one", len(chosen)])
    place = world.place.copy(tmp_path / "applied")
    assert fork_server.run(place.home, *APPLY_SAVED).code == 0
    assert fork_server.run(place.home, *APPLY_SAVED).code == ExitCode.STALE
    place.let_pass(60)
    check_it_ended_well(world, place)


# --- how it is killed


@dataclass
class Tally:
    """What came of a number of moments."""

    killed: int = 0
    left_a_lock: int = 0


def _kill_at_each(
    world: World,
    moments: Iterable[str],
    fork_server: ForkServer,
    directory: Path,
    *,
    apply: Sequence[str] = APPLY,
) -> Tally:
    tally = Tally()
    for number, moment in enumerate(moments):
        place = world.place.copy(directory / str(number))
        killed = fork_server.run(place.home, *apply, accidents=[Accident(moment, KILL)])
        check_none_is_there_twice(place)
        if killed.code == -signal.SIGKILL:
            tally.killed += 1
            tally.left_a_lock += place.is_locked()
            _see_what_the_journal_says(place, moment)
        else:
            assert killed.code == 0, killed.err
        if number % 2:
            place.let_pass(60)
        check_the_next_apply_does_the_rest(world, place, fork_server, moment, with_plan=number % 3 == 0)
        shutil.rmtree(place.home)
    return tally


def _see_what_the_journal_says(place: Place, moment: str) -> None:
    """A call that may have had its effect has a line on disk, and none yet that says how it went."""
    _, operation, *rest = moment.split()
    if operation in CALLS:
        assert (CALLS[operation], rest[0]) in place.open_lines(), moment
