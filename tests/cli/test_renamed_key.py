"""A key is renamed while its job runs: with `formerly`, and without."""

from __future__ import annotations

import json

from tests.cli.conftest import Reconciler, Service, manifest, write


def running_for_30_hours(reconciler: Reconciler, service: Service) -> str:
    """The text of a manifest whose job `old` has run for so long on the service."""
    text = manifest("old", url=service.url).replace("description: old of the test", "description: the job")
    write(text)
    assert reconciler("apply", "-y").code == 0
    [job] = service.store.jobs()
    service.clock.advance(minutes=5)
    service.store.hold(job.id)
    service.clock.advance(hours=30)
    return text


def test_renaming_with_formerly_is_an_update_and_the_job_runs_on(
    reconciler: Reconciler, service: Service
) -> None:
    text = running_for_30_hours(reconciler, service)
    write(text.replace("  old:\n", "  new:\n    formerly: old\n"))
    [action] = reconciler("plan", "--json").document["actions"]
    assert (action["key"], action["action"]) == ("new", "update")
    assert reconciler("apply", "-y").code == 0
    [job] = service.store.jobs()
    assert (job.name, job.life.phase) == ("old", "Running")


def test_renaming_without_formerly_is_refused_after_a_long_run_and_the_plan_says_what_to_write(
    reconciler: Reconciler, service: Service
) -> None:
    text = running_for_30_hours(reconciler, service)
    write(text.replace("  old:\n", "  new:\n"))
    said = reconciler("plan", "--json")
    document = json.loads(said.out)
    assert [(action["key"], action["action"]) for action in document["actions"]] == [
        ("new", "create"),
        ("old", "blocked"),
    ]
    assert said.code == 3
    assert [warning["fix"] for warning in document["warnings"]] == [
        "add `formerly: old` to new to keep its job"
    ]
    shown = reconciler("plan")
    assert "--allow lost-work" in shown.out + shown.err
    assert "formerly: old" in shown.out + shown.err
    assert reconciler("apply", "-y").code == 3
    assert {job.name: job.life.phase for job in service.store.jobs()}["old"] == "Running"
