"""`reconciler drift`: each event once since the last check, and `drift.ignore`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.emulator import Job
from tests.cli.conftest import Reconciler, Result, World, write

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas/drift.schema.json").read_text(encoding="utf-8"))
HEAD = ["format_version", "reconciler_version", "created_at", "stack", "target", "manifest_digest"]


@pytest.fixture
def job(world: World) -> Job:
    """One job, applied and running."""
    world.write("a")
    world.ends(0, "apply --yes")
    world.time.sleep(60)
    [made] = world.store.jobs()
    return made


def classes(result: Result) -> list[str]:
    return [entry["class"] for entry in result.document["drift"]]


def test_document_has_the_head_of_a_plan_and_its_own_lists(reconciler: Reconciler, job: Job) -> None:
    result = reconciler.ends(0, "drift --json")
    lists = ["drift", "pending", "ignored"]
    assert list(result.document) == [*HEAD, "complete", *lists, "summary", "warnings"]
    assert list(result.document)[: len(HEAD)] == list(reconciler("plan --json").document)[: len(HEAD)]


def test_destroyed_declared_job_is_terminated_drift_then_pending_once_forgotten(
    world: World, job: Job
) -> None:
    world.ends(0, "destroy --yes")
    world.time.sleep(600)
    assert world.store.find(job.id).life.phase == "Terminated"
    result = world("drift --json")
    assert (result.code, classes(result), result.document["pending"]) == (2, ["terminated"], [])
    [drift] = result.document["drift"]
    assert "terminated by destroy (" in drift["detail"]
    assert drift["fix"] == "reconciler apply --only a starts it again; or remove a from the manifest"
    world.store.delete(job.project, job.id)
    world.time.sleep(60)
    result = world("drift --json")
    assert (result.code, classes(result), [item["key"] for item in result.document["pending"]]) == (
        0,
        [],
        ["a"],
    )


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


@pytest.fixture
def failed(world: World) -> Job:
    """Two jobs; `a` has failed since."""
    world.write("a", "b")
    world.ends(0, "apply --yes")
    world.time.sleep(7200)
    job = next(job for job in world.store.jobs() if job.name == "a")
    world.store.set_phase(job.id, "Failed")
    return job


def with_rule(world: World, rule: str) -> None:
    more = f"drift:\n  ignore:\n  - {rule}\n"
    world.write("a", "b", more=more)


def lists(result: Result) -> dict[str, list[tuple[str, str]]]:
    document = result.document
    names = ("drift", "ignored", "new", "changed", "gone")
    return {name: [(one["key"], one["class"]) for one in document.get(name, ())] for name in names}


def check(reconciler: Reconciler, *more: str) -> Result:
    result = reconciler("drift --json", *more)
    Draft202012Validator(SCHEMA).validate(result.document)
    return result


A_FAILED = [("a", "failed")]


# --- since the last check


def test_first_check_since_the_last_finds_everything_new_and_the_second_nothing(
    reconciler: Reconciler, failed: Job
) -> None:
    first = check(reconciler, "--since-last")
    assert (first.code, lists(first)["new"], first.document["compared_with"]) == (2, A_FAILED, None)
    second = check(reconciler, "--since-last")
    assert (second.code, lists(second)) == (
        0, {"drift": A_FAILED, "ignored": [], "new": [], "changed": [], "gone": []}
    )  # fmt: skip
    assert second.document["compared_with"] == first.document["created_at"]
    [entry] = second.document["drift"]
    assert entry["since"] == first.document["created_at"]
    assert 1.9 < entry["node_hours"] < 2.1
    assert entry["fix"].startswith("reconciler jobs logs a; then edit `lifecycle.rerun` of a")
    plain = check(reconciler)
    assert (plain.code, {"new", "changed", "gone", "compared_with"} & set(plain.document)) == (2, set())


def test_text_shows_new_drift_first(world: World, failed: Job) -> None:
    assert "New; no earlier check is recorded:" in world("drift --since-last").out
    [other] = [job for job in world.store.jobs() if job.name == "b"]
    world.store.set_phase(other.id, "Terminated")
    lines = world("drift --since-last").out.splitlines()
    titles = [line for line in lines if line.endswith(":")]
    assert [title.partition(" since ")[0] for title in titles] == ["New", "Lasting:"]
    assert lines.index(titles[0]) < next(n for n, line in enumerate(lines) if "terminated b" in line)
    assert lines.index(titles[1]) < next(n for n, line in enumerate(lines) if "failed     a" in line)
    assert lines[-1] == "Drift: 1 failed, 1 terminated; 1 new, 0 changed, 0 gone; 0 pending, 2 compared."


# --- rules of the manifest


def test_ignored_drift_is_listed_and_does_not_count(world: World, failed: Job) -> None:
    with_rule(world, "{key: 'a*', class: failed, until: 2999-12-31, reason: known gap in the data}")
    result = check(world)
    assert (result.code, lists(result)["drift"], lists(result)["ignored"]) == (0, [], A_FAILED)
    [entry] = result.document["ignored"]
    assert (entry["reason"], entry["until"]) == ("known gap in the data", "2999-12-31")
    assert entry["rule"] == {"file": "jobs.yaml", "line": 7, "column": 5}
    assert result.document["summary"]["failed"] == 0
    text = world("drift").out
    assert "ignored by rule jobs.yaml:7 until 2999-12-31: known gap in the data" in text
    assert text.splitlines()[-1] == "Drift: none; 1 ignored, 0 pending, 2 compared."


def test_expired_rule_ignores_nothing_and_is_a_warning_with_its_location(world: World, failed: Job) -> None:
    with_rule(world, "{key: a, class: failed, until: 2020-01-31, reason: known gap}")
    result = check(world)
    assert (result.code, lists(result)["drift"], lists(result)["ignored"]) == (2, A_FAILED, [])
    [warning] = result.document["warnings"]
    assert warning["what"] == "expired rule of drift.ignore"
    assert warning["why"].startswith("jobs.yaml:7:5: it ignored failed of a until 2020-01-31")


def test_history_lists_drift_checks(world: World, failed: Job) -> None:
    world.ends(2, "drift")
    world.store.set_phase(failed.id, "Running")
    world.ends(0, "drift")
    out = world("history").out
    assert "1 failed, 1 new" in out
    assert "new       failed a: a ended as Failed" in out
    runs: list[dict[str, Any]] = world("history a --json").document["runs"]
    expected = [("drift", ["gone"]), ("drift", ["new"]), ("apply", ["done"])]
    assert [(run["kind"], [one["status"] for one in run["actions"]]) for run in runs] == expected
