"""A saved plan whose apply is killed midway: the same plan is stale by then, and a fresh one does the rest.

Kill points are counted as in `test_killed_everywhere`, which has all of them for the same executor. Here is
every other one of those that come right after a call that changes something, and a few of the others.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.scenarios.every_action import (
    APPLY_SAVED,
    Fate,
    World,
    a_world,
    check_it_ended_well,
    check_none_is_there_twice,
    check_the_next_apply_does_the_rest,
)
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.hooks import AFTER, KILL, Accident

RecordProperty = Callable[[str, object], None]
CHANGING = ("CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob")
STALE = 4


@pytest.fixture(scope="module")
def world(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    return a_world(tmp_path_factory.mktemp("world"), fork_server, apply=APPLY_SAVED)


def _moments(world: World) -> list[str]:
    changing = tuple(f"{AFTER} {operation}" for operation in CHANGING)
    some = [moment for moment in world.moments if moment.startswith(changing)][::2]
    return [*world.moments[::72], *some, world.moments[-1]]


def _lives(fates: Mapping[str, Fate]) -> dict[str, tuple[str, ...]]:
    return {name: fate.past for name, fate in fates.items()}


def test_killed_saved_plan_is_stale_or_unchanged_and_a_fresh_apply_does_the_rest(
    world: World, fork_server: ForkServer, tmp_path: Path, record_property: RecordProperty
) -> None:
    chosen, stale = _moments(world), 0
    for number, moment in enumerate(chosen):
        place = world.place.copy(tmp_path / str(number))
        killed = fork_server.run(place.home, *APPLY_SAVED, accidents=[Accident(moment, KILL)])
        assert killed.code in (-signal.SIGKILL, 0), killed.err
        check_none_is_there_twice(place)
        left = place.fates()
        again = fork_server.run(place.home, *APPLY_SAVED)
        assert again.code in (0, STALE), (moment, again.err)
        if again.code == STALE:
            stale += 1
            assert "stale plan" in again.err
            assert place.fates() == left, "nothing is changed by a plan that does not hold any more"
        else:
            assert _lives(left) == _lives(world.place.fates()), "it holds where no job came or went"
        check_the_next_apply_does_the_rest(world, place, fork_server, moment, with_plan=number % 3 == 0)
        shutil.rmtree(place.home)
    assert len(chosen) // 2 < stale < len(chosen)
    record_property("figure", ["kill points of a saved plan, each repaired by a fresh one", len(chosen)])


def test_saved_plan_is_stale_after_it_was_applied(
    world: World, fork_server: ForkServer, tmp_path: Path
) -> None:
    place = world.place.copy(tmp_path / "copy")
    assert fork_server.run(place.home, *APPLY_SAVED).code == 0
    assert fork_server.run(place.home, *APPLY_SAVED).code == STALE
    place.let_pass(60)
    check_it_ended_well(world, place)
