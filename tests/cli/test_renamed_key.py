"""A key is renamed while its job runs: with `formerly`, and without."""

from __future__ import annotations

import json

from tests.cli.conftest import World, write


def running_for_30_hours(world: World) -> str:
    """The text of a manifest whose job `old` has run for so long on the service."""
    text = world.manifest("old").replace("description: old of the test", "description: the job")
    write(text)
    world.ends(0, "apply -y")
    [job] = world.store.jobs()
    world.time.sleep(300)
    world.store.hold(job.id)
    world.time.sleep(108000)
    return text


def test_renaming_with_formerly_is_an_update_and_the_job_runs_on(world: World) -> None:
    text = running_for_30_hours(world)
    write(text.replace("  old:\n", "  new:\n    formerly: old\n"))
    [action] = world("plan --json").document["actions"]
    assert (action["key"], action["action"]) == ("new", "update")
    world.ends(0, "apply -y")
    [job] = world.store.jobs()
    assert (job.name, job.life.phase) == ("old", "Running")


def test_renaming_without_formerly_is_refused_after_a_long_run_and_the_plan_says_what_to_write(
    world: World,
) -> None:
    text = running_for_30_hours(world)
    write(text.replace("  old:\n", "  new:\n"))
    said = world("plan --json")
    document = json.loads(said.out)
    assert [(action["key"], action["action"]) for action in document["actions"]] == [
        ("new", "create"),
        ("old", "blocked"),
    ]
    assert said.code == 3
    assert [warning["fix"] for warning in document["warnings"]] == [
        "add `formerly: old` to new to keep its job"
    ]
    shown = world("plan")
    assert "--allow lost-work" in shown.out + shown.err
    assert "formerly: old" in shown.out + shown.err
    world.ends(3, "apply -y")
    assert {job.name: job.life.phase for job in world.store.jobs()}["old"] == "Running"
