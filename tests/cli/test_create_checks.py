"""A replace that cannot be finished, as people and programs see it."""

from __future__ import annotations

import json
import time as wall
from pathlib import Path

import pytest

from reconciler.emulator import Effect, Fault, database
from reconciler.modelarts.clock import SystemClock
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Service, manifest, write


@pytest.fixture
def time(service: Service, monkeypatch: pytest.MonkeyPatch) -> SharedTime:
    """Our clock is the emulator's: waiting moves it, and takes no time."""
    shared = SharedTime(service.clock)
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: shared)
    return shared


def running(reconciler: Reconciler, service: Service) -> str:
    reconciler.apply(manifest("a", url=service.url))
    service.clock.advance(seconds=10)
    return service.store.jobs()[0].id


def test_typo_is_said_with_its_place_and_the_nearest_offer(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    old = running(reconciler, service)
    write(manifest("a", url=service.url).replace("modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x"))
    said = reconciler("apply", "--yes")
    assert said.code == 5
    words = (
        'spec.resource.flavor_id "modelarts.vm.cpu.2x" is not offered by the target; '
        'did you mean "modelarts.vm.cpu.2u"? (jobs.yaml:6:3); a was left unchanged'
    )
    assert words in said.out
    assert service.store.find(old).life.phase == "Running"
    [run, _] = reconciler("history", "--json").document["runs"]
    assert words in run["actions"][0]["detail"]


def test_what_the_target_took_once_is_offered_although_no_list_has_it(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    """An emulator that is not strict takes names that its catalog lacks; another client sends them."""
    text = manifest("a", url=service.url).replace("modelarts.vm.cpu.2u", "my.own.flavor")
    text = text.replace("engine_id: ", "engine_id: my-own-")
    write(text)
    reconciler("plan", "--out", "plan.json")
    [action] = json.loads(Path("plan.json").read_bytes())["actions"]
    service.store.create("p1", action["desired"])
    service.clock.advance(seconds=10)
    reconciler.apply(text.replace("lr: 0.1", "lr: 0.5"))
    assert [job.name for job in service.store.jobs()] == ["a", "a-r2"]


def test_refused_create_is_said_in_result_events_journal_and_history(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    old = running(reconciler, service)
    write(manifest("a", url=service.url, lr="0.5"))
    service.app.faults.add(
        Fault(Effect.ANSWER, operation="CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    )
    said = reconciler("apply", "--yes", "--json")
    assert said.code == 5
    words = "r1 was ended; r2 could not be made: the service rejected the request: full"
    [event] = [event for event in said.events if event["type"] == "action_failed"]
    assert (event["job"], event["code"]) == (old, "ModelArts.2815")
    assert words in event["detail"]
    assert words in event["message"]
    [run, _] = reconciler("history", "--json").document["runs"]
    assert words in run["actions"][0]["detail"]
    assert words in " ".join(reconciler("history").out.split())
    steps = json.dumps(run["actions"][0])
    assert "ModelArts.2815" in steps
    # The next apply makes what is missing.
    assert reconciler("apply", "--yes").code == 0
    assert [job.life.phase for job in service.store.jobs()] == ["Terminated", "Creating"]


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
