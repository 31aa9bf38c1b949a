"""`kill -9` at any moment of an apply: nothing starts twice, and the next apply does the rest.

How kill points are counted: an undisturbed run of the real command line writes down every moment that it
passes, which are two for each request (right before it is sent, right after its answer came) and two for
each transaction of the record store (right before its commit, right after), see `hooks`. For each of
these moments the whole world is made anew, a process is killed when it gets there, and another process
applies what is left, at once or a minute later. A moment may not come a second time, where two
transactions were written as one; those are told apart, and are few.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import FIGURE
from tests.scenarios.every_action import (
    APPLY,
    NOT_OURS,
    PLANNED,
    Fate,
    Place,
    build,
    see_that_none_is_there_twice,
    see_that_one_is_active,
)
from tests.scenarios.hooks import AFTER, BEFORE, KILL, Accident
from tests.scenarios.zygote import Zygote

RecordProperty = Callable[[str, object], None]

#: Parts of the work, for several workers.
CHUNKS = 6
#: Far fewer than there are would mean that nothing is counted any more.
AT_LEAST = 200
CALLS = {
    "CreateTrainingJob": "create",
    "ChangeTrainingJobDescription": "update",
    "StopTrainingJob": "terminate",
}
SUPERSEDED = [("overlapping", "terminate", "superseded")]


class World(NamedTuple):
    """A place to copy, the moments of an apply there, and what an undisturbed one makes of it."""

    place: Place
    moments: tuple[str, ...]
    end: dict[str, Fate]

    def chunk(self, number: int) -> tuple[str, ...]:
        """A part of the moments."""
        return self.moments[number::CHUNKS]


def a_world(directory: Path, zygote: Zygote, *, with_records: bool) -> World:
    """Build one, and see how an apply goes there."""
    place = build(directory / "first", zygote, with_records=with_records)
    undisturbed, log = place.copy(directory / "undisturbed"), directory / "moments.txt"
    run = zygote.run(undisturbed.home, *APPLY, log=log)
    assert run.code == 0, run.err
    undisturbed.let_pass(60)
    assert _changes(undisturbed, zygote) == []
    return World(place, tuple(log.read_text(encoding="utf-8").splitlines()), undisturbed.fates())


@pytest.fixture(scope="module")
def world(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> World:
    return a_world(tmp_path_factory.mktemp("world"), zygote, with_records=True)


@pytest.fixture(scope="module")
def world_without_records(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> World:
    return a_world(tmp_path_factory.mktemp("world"), zygote, with_records=False)


def test_the_plan_has_every_kind_of_action(world: World, zygote: Zygote) -> None:
    document = json.loads(zygote.run(world.place.home, "plan", "--json").out)
    found = {a["key"]: (a["action"], a["reason"]) for a in document["actions"] if a["action"] != "keep"}
    assert found == PLANNED
    assert {"kept", "kept-done", *PLANNED, *NOT_OURS} >= world.place.fates().keys() - {
        "again-r2",
        "doubled-r2",
        "was-edited",
        "was-here",
    }


def test_moments_are_counted_before_and_after_each_request_and_each_write(world: World) -> None:
    assert len(world.moments) >= AT_LEAST
    names = {moment.partition(" ")[2] for moment in world.moments}
    assert {f"{when} {name}" for when in (BEFORE, AFTER) for name in names} == set(world.moments)
    for operation in CALLS:
        assert any(name.startswith(operation) for name in names)
    assert sum(name.startswith("write ") for name in names) >= AT_LEAST // 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_at_any_moment_the_next_apply_does_the_rest(
    world: World, zygote: Zygote, tmp_path: Path, chunk: int, record_property: RecordProperty
) -> None:
    tally = _kill_at_each(world, world.chunk(chunk), zygote, tmp_path)
    assert tally.killed >= len(world.chunk(chunk)) * 0.9
    assert tally.left_a_lock >= tally.killed * 0.8
    record_property(FIGURE, ["kill points, each followed by an apply that did the rest", tally.killed])
    record_property(FIGURE, ["of these left a lock behind that kept nobody out", tally.left_a_lock])


@pytest.mark.parametrize("chunk", range(2))
def test_killed_in_a_directory_without_records(
    world_without_records: World,
    zygote: Zygote,
    tmp_path: Path,
    chunk: int,
    record_property: RecordProperty,
) -> None:
    """The store is made on the way, and nobody remembers anything. Later moments are like those above."""
    moments = world_without_records.moments
    first = next(place for place, moment in enumerate(moments) if "StopTrainingJob" in moment)
    chosen = (*moments[:first], *moments[first::6])[chunk::2]
    tally = _kill_at_each(world_without_records, chosen, zygote, tmp_path)
    assert tally.killed >= len(chosen) * 0.9
    record_property(FIGURE, ["kill points in a directory that had lost its records", tally.killed])


@dataclass
class Tally:
    """What came of a number of moments."""

    killed: int = 0
    left_a_lock: int = 0


def _kill_at_each(world: World, moments: Iterable[str], zygote: Zygote, directory: Path) -> Tally:
    tally, untouchable = Tally(), world.place.untouchable()
    for number, moment in enumerate(moments):
        place = world.place.copy(directory / str(number))
        killed = zygote.run(place.home, *APPLY, accidents=[Accident(moment, KILL)])
        see_that_none_is_there_twice(place)
        if killed.code == -signal.SIGKILL:
            tally.killed += 1
            tally.left_a_lock += place.is_locked()
            _see_what_the_journal_says(place, moment)
        else:
            assert killed.code == 0, killed.err
        is_later = bool(number % 2)
        place.let_pass(60.0 * is_later)
        _see_that_an_apply_does_the_rest(place, zygote, moment, is_later=is_later)
        assert place.fates() == world.end, moment
        assert place.untouchable() == untouchable, moment
        shutil.rmtree(place.home)
    return tally


def _see_that_an_apply_does_the_rest(place: Place, zygote: Zygote, moment: str, *, is_later: bool) -> None:
    again = zygote.run(place.home, *APPLY)
    assert again.code == 0, (moment, again.err)
    place.let_pass(60)
    left = _changes(place, zygote)
    if left == SUPERSEDED and not is_later:
        # The new one was there and had not shown yet that it runs, so the old one was spared.
        assert zygote.run(place.home, *APPLY).code == 0
        place.let_pass(60)
        left = _changes(place, zygote)
    assert left == [], moment
    see_that_none_is_there_twice(place)
    see_that_one_is_active(place)


def _changes(place: Place, zygote: Zygote) -> list[tuple[str, str, str]]:
    """What the next plan would do."""
    run = zygote.run(place.home, "plan", "--json")
    assert run.code == 0, run.err
    actions = json.loads(run.out)["actions"]
    return [(a["key"], a["action"], a["reason"]) for a in actions if a["action"] not in ("keep", "defer")]


def _see_what_the_journal_says(place: Place, moment: str) -> None:
    """A call that may have had its effect has a line on disk, and none yet that says how it went."""
    _, operation, *rest = moment.split()
    if operation in CALLS:
        assert (CALLS[operation], rest[0]) in place.open_lines(), moment
