"""A replace that cannot be finished, as people and programs see it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import World, write


def running(world: World) -> str:
    world.apply(world.manifest("a"))
    world.time.sleep(10)
    return world.store.jobs()[0].id


def test_what_the_target_took_once_is_offered_although_no_list_has_it(world: World) -> None:
    """An emulator that is not strict takes names that its catalog lacks; another client sends them."""
    text = world.manifest("a").replace("modelarts.vm.cpu.2u", "my.own.flavor")
    text = text.replace("engine_id: ", "engine_id: my-own-")
    write(text)
    world("plan --no-preflight --out plan.json")
    [action] = json.loads(Path("plan.json").read_bytes())["actions"]
    world.store.create("p1", action["desired"])
    world.time.sleep(10)
    world.apply(text.replace("lr: 0.1", "lr: 0.5"))
    assert [job.name for job in world.store.jobs()] == ["a", "a-r2"]


def test_refused_create_is_said_in_result_events_journal_and_history(world: World) -> None:
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
