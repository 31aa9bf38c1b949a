"""`reconciler drift`, from the manifest to the report: each event once, and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.emulator import Job
from tests.cli.conftest import Reconciler, Said, World, manifest, write

RECORDS = Path(".reconciler/records.sqlite3")
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


def describe(world: World, job: Job, change: Callable[[str], str]) -> None:
    """Edit the description of a job by hand."""
    world.store.edit(
        job.id, lambda body: body["metadata"].update(description=change(body["metadata"]["description"]))
    )


def test_document_has_the_head_of_a_plan_and_its_own_lists(reconciler: Reconciler, job: Job) -> None:
    said = reconciler.ends(0, "drift --json")
    lists = ["drift", "pending", "ignored"]
    assert list(said.document) == [*HEAD, "complete", *lists, "summary", "warnings"]
    assert list(said.document)[: len(HEAD)] == list(reconciler("plan --json").document)[: len(HEAD)]


def test_field_that_was_edited_by_hand_is_shown_before_and_after(world: World, job: Job) -> None:
    describe(world, job, lambda text: text.replace("a of the test", "somebody's text"))
    said = world("drift --json")
    [entry] = said.document["drift"]
    [change] = entry["changes"]
    assert (said.code, entry["class"], entry["job"]) == (2, "modified", job.id)
    expected = ("description", "a of the test", "somebody's text")
    assert (change["path"], change["before"], change["after"]) == expected
    text = world("drift").out
    assert 'description "a of the test" -> "somebody\'s text"' in text
    assert text.splitlines()[-1] == "Drift: 1 modified; 0 pending, 1 compared."


def test_edit_of_the_manifest_is_pending_until_it_is_applied(world: World, job: Job) -> None:
    write(world.manifest("a").replace("a of the test", "another text"))
    said = world("drift --json")
    assert (said.code, classes(said)) == (0, [])
    assert said.document["pending"] == [{"key": "a", "job": job.id, "detail": "description changed"}]
    world.ends(0, "apply --yes")
    said = world("drift --json")
    assert (said.code, classes(said), said.document["pending"]) == (0, [], [])


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


def test_history_that_cannot_be_read_leaves_unknown_what_rests_on_it(world: World, job: Job) -> None:
    RECORDS.write_bytes(b"this is no database" * 100)
    world.ends(0, "drift --json")
    world.write("b")
    said = world("drift --json")
    assert (said.code, classes(said)) == (8, ["unknown", "unknown"])
    assert all("the history could not be read" in entry["detail"] for entry in said.document["drift"])


def test_check_that_could_read_nothing_is_unknown(world: World) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    said = world("drift --json")
    assert (said.code, classes(said)) == (8, ["unknown"])
