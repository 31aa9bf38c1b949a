"""A replace that cannot be finished, as people and programs see it."""

from __future__ import annotations

import json
import time as wall
from pathlib import Path

import pytest

from reconciler.emulator import database
from reconciler.modelarts.clock import SystemClock
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Service, World, manifest, write


@pytest.fixture
def time(service: Service, monkeypatch: pytest.MonkeyPatch) -> SharedTime:
    """Our clock is the emulator's: waiting moves it, and takes no time."""
    shared = SharedTime(service.clock)
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: shared)
    return shared


def running(world: World) -> str:
    world.apply(world.manifest("a"))
    world.time.sleep(10)
    return world.store.jobs()[0].id


def test_typo_is_said_with_its_place_and_the_nearest_offer(world: World, time: SharedTime) -> None:
    old = running(world)
    write(world.manifest("a").replace("modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x"))
    said = world.ends(5, "apply --yes")
    words = (
        'spec.resource.flavor_id "modelarts.vm.cpu.2x" is not offered by the target; '
        'did you mean "modelarts.vm.cpu.2u"? (jobs.yaml:6:3); a was left unchanged'
    )
    assert words in said.out
    assert world.store.find(old).life.phase == "Running"
    [run, _] = world("history --json").document["runs"]
    assert words in run["actions"][0]["detail"]


def test_what_the_target_took_once_is_offered_although_no_list_has_it(world: World, time: SharedTime) -> None:
    """An emulator that is not strict takes names that its catalog lacks; another client sends them."""
    text = world.manifest("a").replace("modelarts.vm.cpu.2u", "my.own.flavor")
    text = text.replace("engine_id: ", "engine_id: my-own-")
    write(text)
    world("plan --out plan.json")
    [action] = json.loads(Path("plan.json").read_bytes())["actions"]
    world.store.create("p1", action["desired"])
    world.time.sleep(10)
    world.apply(text.replace("lr: 0.1", "lr: 0.5"))
    assert [job.name for job in world.store.jobs()] == ["a", "a-r2"]


def test_refused_create_is_said_in_result_events_journal_and_history(world: World, time: SharedTime) -> None:
    old = running(world)
    world.write("a", lr="0.5")
    world.fail("CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    said = world.ends(5, "apply --yes --json")
    words = "r1 was ended; r2 could not be made: the service rejected the request: full"
    [event] = [event for event in said.events if event["type"] == "action_failed"]
    assert (event["job"], event["code"]) == (old, "ModelArts.2815")
    assert words in event["detail"]
    assert words in event["message"]
    [run, _] = world("history --json").document["runs"]
    assert words in run["actions"][0]["detail"]
    assert words in " ".join(world("history").out.split())
    steps = json.dumps(run["actions"][0])
    assert "ModelArts.2815" in steps
    # The next apply makes what is missing.
    world.ends(0, "apply --yes")
    assert [job.life.phase for job in world.store.jobs()] == ["Terminated", "Creating"]


def test_local_target_takes_flavors_that_nobody_lists(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = [0.0]

    def sleep(_: object, seconds: float) -> None:
        ahead[0] += seconds

    monkeypatch.setattr(SystemClock, "now", lambda _: wall.time() + ahead[0])
    monkeypatch.setattr(SystemClock, "sleep", sleep)
    monkeypatch.setattr(database, "wall_ms", lambda: round((wall.time() + ahead[0]) * 1000))
    reconciler.apply(manifest("a"))
    reconciler.apply(manifest("a").replace("modelarts.vm.cpu.2u", "modelarts.my.own"))
