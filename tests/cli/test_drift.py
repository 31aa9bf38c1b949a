"""`reconciler drift`, from the manifest to the report: each event once, and its exit code."""

from __future__ import annotations

import shutil

import pytest

from reconciler.emulator import Job
from tests.cli.conftest import Reconciler, Said, World, write

HEAD = ["format_version", "reconciler_version", "created_at", "stack", "target", "manifest_digest"]


@pytest.fixture
def job(world: World) -> Job:
    """One job, applied and running."""
    world.write("a")
    world.ends(0, "apply --yes")
    world.time.sleep(60)
    [made] = world.store.jobs()
    return made


def classes(said: Said) -> list[str]:
    return [entry["class"] for entry in said.document["drift"]]


def test_document_has_the_head_of_a_plan_and_its_own_lists(reconciler: Reconciler, job: Job) -> None:
    said = reconciler.ends(0, "drift --json")
    lists = ["drift", "pending", "ignored"]
    assert list(said.document) == [*HEAD, "complete", *lists, "summary", "warnings"]
    assert list(said.document)[: len(HEAD)] == list(reconciler("plan --json").document)[: len(HEAD)]


def test_declared_job_that_destroy_ended_is_terminated_and_pending_once_its_record_is_gone(
    world: World, job: Job
) -> None:
    world.ends(0, "destroy --yes")
    world.time.sleep(600)
    assert world.store.find(job.id).life.phase == "Terminated"
    said = world("drift --json")
    assert (said.code, classes(said), said.document["pending"]) == (2, ["terminated"], [])
    assert "terminated by destroy (" in said.document["drift"][0]["detail"]
    world.store.delete(job.project, job.id)
    world.time.sleep(60)
    said = world("drift --json")
    assert (said.code, classes(said), [item["key"] for item in said.document["pending"]]) == (0, [], ["a"])


@pytest.mark.parametrize(
    ("edit", "pending"),
    [
        ({"lr: 0.1": "lr: 0.2"}, ["changed since r1 (Running)"]),
        ({"duration: 4": "duration: 8"}, []),
    ],
)
def test_edit_of_a_field_that_is_not_ignored_is_pending_in_a_fresh_checkout(
    world: World, edit: dict[str, str], pending: list[str]
) -> None:
    rule = "    lifecycle: {ignore_changes: [spec.auto_stop]}\n"
    text = world.manifest("a").replace("  a:\n", f"  a:\n{rule}")
    text = text.replace("    spec:\n", "    spec:\n      auto_stop: {time_unit: HOURS, duration: 4}\n")
    world.apply(text)
    world.set_phase("Running")
    shutil.rmtree(".reconciler")
    for old, new in edit.items():
        text = text.replace(old, new)
    write(text)
    assert [one["detail"] for one in world.ends(0, "drift --json").document["pending"]] == pending
