"""`kill -9` at any moment of an apply: nothing starts twice, and the next apply completes it.

Kill points: one apply of the real command line is paused at every moment, two for each request (right
before it is sent, right after its response) and two for each transaction of the record store (right before
and after its commit), see `hooks`. The disk then is as a kill would leave it. Another process applies from
there, at once or a minute later, once for each distinct state of the disk. Real kills at some of the moments
check that the state is the same.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable
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
    NOT_OURS,
    PLANNED,
    Place,
    StillLife,
    World,
    a_world,
    check_it_ended_well,
    check_none_is_there_twice,
    check_the_next_apply_does_the_rest,
    still_lives,
)
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.hooks import AFTER, BEFORE, KILL, STAND, Accident
from tests.scenarios.over_http import a_service, entry

RecordProperty = Callable[[str, object], None]

#: Shards, for parallel workers.
CHUNKS = 4
#: Lower bounds that detect broken counting: moments, and states of the disk.
MOMENTS, STATES = 200, 60
CALLS = {
    "CreateTrainingJob": "create",
    "ChangeTrainingJobDescription": "update",
    "StopTrainingJob": "terminate",
}


@pytest.fixture(scope="module")
def states(
    world: World, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> list[StillLife]:
    return still_lives(world, tmp_path_factory.mktemp("states"), fork_server)


def test_world_plan_has_every_kind_of_action(world: World, fork_server: ForkServer) -> None:
    document = json.loads(fork_server.run(world.place.home, "plan", "--json").out)
    found = {a["key"]: (a["action"], a["reason"]) for a in document["actions"] if a["action"] != "keep"}
    assert found == PLANNED
    assert {*KEPT, *NOT_OURS} <= world.place.fates().keys()


def test_kill_points_are_before_and_after_each_request_and_write(states: list[StillLife]) -> None:
    assert len(states) >= STATES
    moments = [moment for state in states for moment in state.moments]
    assert len(moments) == len(set(moments)) >= MOMENTS
    names = {moment.partition(" ")[2] for moment in moments}
    assert {f"{when} {name}" for when in (BEFORE, AFTER) for name in names} == set(moments)
    assert {operation for operation in CALLS for name in names if name.startswith(operation)} == set(CALLS)
    assert sum(name.startswith("write ") for name in names) >= MOMENTS // 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_apply_killed_at_any_moment_is_completed_by_the_next_apply(
    world: World,
    states: list[StillLife],
    fork_server: ForkServer,
    chunk: int,
    record_property: RecordProperty,
) -> None:
    # By name, so that all workers form the same shards.
    chosen = [state for state in states if crc32(state.moments[0].encode()) % CHUNKS == chunk]
    locked = _repair_each(world, chosen, fork_server)
    assert locked >= len(chosen) * 0.8
    moments = sum(len(state.moments) for state in chosen)
    record_property("figure", ["moments at which an apply stood still", moments])
    record_property("figure", ["states of the disk then, each completed by another apply", len(chosen)])
    record_property("figure", ["of these left a lock behind that kept nobody out", locked])


def test_kill_leaves_the_disk_as_at_the_kill_point(
    world: World, fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    chosen = random.Random("killed").sample(range(1, MOMENTS), 10)
    for number in chosen:
        place = world.place.copy(tmp_path / str(number))
        stands = fork_server.start(place.home, *APPLY, accidents=[Accident(f"moment #{number}", STAND)])
        assert stands.stands()
        state = place.state()
        os.kill(stands.pid, signal.SIGKILL)
        assert stands.end().code == -signal.SIGKILL
        assert place.state() == state, number
    record_property("figure", ["kills that left the disk as it was", len(chosen)])


def test_apply_killed_without_records_is_completed_by_the_next_apply(
    fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """The store is created during the apply, with an empty history. Later moments are like those above."""
    world = a_world(tmp_path, fork_server, with_records=False)
    states = still_lives(world, tmp_path, fork_server)
    first = next(place for place, state in enumerate(states) if "StopTrainingJob" in str(state.moments))
    chosen = [*states[:first], *states[first::12]]
    assert len(chosen) >= 12
    _repair_each(world, chosen, fork_server)
    record_property("figure", ["kill points in a directory that had lost its records", len(chosen)])


def test_apply_killed_among_350_foreign_jobs_is_completed_by_the_next_apply(
    fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """Every plan on the way reads a workspace of eight pages."""
    world = a_world(tmp_path, fork_server, foreign=350)
    chosen = random.Random("foreign").sample(still_lives(world, tmp_path, fork_server), 8)
    _repair_each(world, chosen, fork_server)
    record_property("figure", ["kill points among 350 foreign jobs", len(chosen)])


def test_apply_killed_with_several_actions_in_flight_is_completed_by_the_next_apply(
    world: World, fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    """With the default parallelism the order varies, so this is a sample."""
    requests = [f"{when} {name}" for name in world.requests for when in (BEFORE, AFTER)]
    killed = 0
    for number, moment in enumerate(random.Random("in flight").sample(requests, 10)):
        place = world.place.copy(tmp_path / str(number))
        run = fork_server.run(place.home, "apply", "--yes", accidents=[Accident(moment, KILL)])
        assert run.code in (-signal.SIGKILL, 0), run.err
        if run.code:
            killed += 1
            _check_the_journal(place, moment)
        _repair(world, place, fork_server, number, moment)
    assert killed >= 5
    record_property("figure", ["kill points with several actions in flight", killed])


@pytest.mark.parametrize("seed", range(2))
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
    states = still_lives(world, tmp_path, fork_server, apply=APPLY_SAVED)
    after_a_change = tuple(f"{AFTER} {operation}" for operation in CALLS)
    some = [state for state in states if any(m.startswith(after_a_change) for m in state.moments)][::2]
    chosen, stale = [*states[::24], *some, states[-1]], 0
    for number, (place, moments) in enumerate(chosen):
        check_none_is_there_twice(place)
        left = place.fates()
        again = fork_server.run(place.home, *APPLY_SAVED)
        assert again.code in (0, ExitCode.STALE), (moments, again.err)
        if again.code == ExitCode.STALE:
            stale += 1
            assert "stale plan" in again.err
            assert place.fates() == left, "nothing is changed by a plan that does not hold any more"
        else:
            lives, before = (
                {name: fate.past for name, fate in fates.items()} for fates in (left, world.place.fates())
            )
            assert lives == before, "it holds where no job came or went"
        check_the_next_apply_does_the_rest(world, place, fork_server, moments, with_plan=number % 3 == 0)
    assert len(chosen) // 2 < stale < len(chosen)
    record_property("figure", ["kill points of a saved plan, each repaired by a fresh one", len(chosen)])
    place = world.place.copy(tmp_path / "applied")
    assert fork_server.run(place.home, *APPLY_SAVED).code == 0
    assert fork_server.run(place.home, *APPLY_SAVED).code == ExitCode.STALE
    place.let_pass(60)
    check_it_ended_well(world, place)


# --- how it is repaired


def _repair_each(world: World, states: Iterable[StillLife], fork_server: ForkServer) -> int:
    """Let another apply complete each; return how many had left a lock."""
    locked = 0
    for number, (place, moments) in enumerate(states):
        locked += place.is_locked()
        for moment in moments:
            _check_the_journal(place, moment)
        _repair(world, place, fork_server, number, moments)
    return locked


def _repair(world: World, place: Place, fork_server: ForkServer, number: int, after: object) -> None:
    check_none_is_there_twice(place)
    if number % 2:
        place.let_pass(60)
    check_the_next_apply_does_the_rest(world, place, fork_server, after, with_plan=number % 3 == 0)
    shutil.rmtree(place.home)


def _check_the_journal(place: Place, moment: str) -> None:
    """Check that a call that may have taken effect has a journal line without an outcome."""
    _, operation, *rest = moment.split()
    if operation in CALLS:
        assert (CALLS[operation], rest[0]) in place.open_lines(), moment
