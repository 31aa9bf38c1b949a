"""docs/drift.md: what changed on the service, told apart from what changed in the manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import timestamp
from reconciler.decide.drift import DriftReport, make_drift_report
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.secrets import SecretText
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen


def report(stack: Stack, *jobs: ObservedJob, cloud: Cloud = Cloud.HUAWEI, **observation: Any) -> DriftReport:
    ownership = sort_by_key(Observation(jobs, **observation), STACK, stack.declared_keys)
    situation = PlanContext(STACK, cloud=cloud, at_s=NOW)
    return make_drift_report(
        stack, Snapshot(ownership, {}), situation, TARGET, manifest_digest="sha256:0", version="0"
    )


def classes(found: DriftReport) -> list[str]:
    return [item.class_.value for item in found.drift]


NEW = a_job()
OLD = a_job(algorithm__parameters={"lr": 9})
PROTECTED = a_job(lifecycle={"protect": True})
RETRIED = a_job(lifecycle={"on_failure": "retry"})
STOPPING = a_job(spec__auto_stop={"time_unit": "HOURS", "duration": 2})


@pytest.mark.parametrize(
    ("stack", "jobs", "expected"),
    [
        (a_stack(NEW, a_job("b")), [seen(a_job("b"))], ["missing"]),
        (a_stack(NEW), [seen(NEW)], []),
        (a_stack(NEW), [seen(NEW, phase="Completed")], []),
        (a_stack(NEW), [seen(NEW, phase="Failed")], ["failed"]),
        (a_stack(NEW), [seen(NEW, phase="Abnormal")], ["failed"]),
        (a_stack(RETRIED), [seen(RETRIED, phase="Failed", ended_s_ago=60)], []),
        (a_stack(RETRIED), [seen(RETRIED, phase="Failed")], []),
        (
            a_stack(RETRIED),
            [seen(RETRIED, phase="Failed"), seen(RETRIED, revision=2, phase="Failed")],
            ["failed"],
        ),
        (a_stack(RETRIED), [seen(RETRIED, phase="Terminated")], ["terminated"]),
        (a_stack(STOPPING), [seen(STOPPING, phase="Failed", ran_s=2 * HOUR)], []),
        (a_stack(STOPPING), [seen(STOPPING, phase="Terminated", ran_s=2 * HOUR)], []),
        (a_stack(NEW), [seen(NEW, phase="Terminated")], ["terminated"]),
        (a_stack(NEW), [seen(NEW, phase="Terminated", stopped=True)], []),
        (a_stack(NEW), [seen(NEW, phase="Failed"), seen(NEW, revision=2)], []),
        (a_stack(NEW), [seen(OLD), seen(NEW, revision=2, phase="Failed")], ["failed"]),
        (a_stack(a_job("b")), [seen(NEW), seen(NEW, revision=2), seen(a_job("b"))], ["orphaned", "orphaned"]),
        (a_stack(NEW), [seen(NEW, description=""), seen(NEW, revision=2)], ["unowned"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR, ran_s=0)], []),
        (a_stack(NEW), [seen(NEW, text="edited by hand")], ["modified"]),
        (a_stack(NEW), [seen(NEW, text="edited by hand", phase="Completed")], []),
        (a_stack(NEW), [seen(NEW), seen(NEW, revision=2)], ["duplicate"]),
        (
            a_stack(NEW),
            [seen(NEW, phase="Terminating", ended_s_ago=60), seen(NEW, revision=2)],
            ["duplicate"],
        ),
        (a_stack(a_job("b")), [seen(NEW), seen(a_job("b"))], ["orphaned"]),
        (a_stack(a_job("b"), is_partial=True), [seen(NEW), seen(a_job("b"))], []),
        (a_stack(absent()), [seen(NEW)], ["orphaned"]),
        (a_stack(a_job("b")), [seen(NEW, phase="Completed"), seen(a_job("b"))], []),
        (a_stack(NEW), [seen(NEW, description="")], ["unowned"]),
        (a_stack(NEW, a_job("b")), [seen(NEW, stack="other"), seen(a_job("b"))], ["missing"]),
        (a_stack(a_job("b")), [seen(NEW, phase="Terminating", ended_s_ago=60), seen(a_job("b"))], []),
        (a_stack(NEW), [seen(NEW, text="edited by hand", phase="Failed", protected=True)], ["failed"]),
        (a_stack(PROTECTED), [seen(PROTECTED, phase="Terminated")], ["terminated"]),
        (a_stack(PROTECTED), [seen(PROTECTED, phase="Completed")], ["modified"]),
        (a_stack(NEW), [seen(NEW, digest="z" + "0" * 12)], ["unknown"]),
        (a_stack(NEW), [seen(NEW, phase="Frozen"), seen(NEW, revision=2)], ["unknown"]),
        (a_stack(NEW), [seen(NEW), seen(NEW, revision=2, description="")], ["unowned"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR)], ["stuck"]),
        (a_stack(NEW), [seen(NEW, phase="Terminating", ended_s_ago=60)], []),
        (a_stack(NEW), [seen(NEW, phase="Frozen")], ["unknown"]),
    ],
)
def test_drift_has_class_by_job_and_declaration(
    stack: Stack, jobs: list[ObservedJob], expected: list[str]
) -> None:
    found = report(stack, *jobs)
    assert classes(found) == expected
    assert found.has_drifted is bool([name for name in expected if name != "unknown"])
    assert found.summary == {name: expected.count(name.value) for name in found.summary}


@pytest.mark.parametrize(
    "phase", ["Creating", "Pending", "Awaiting", "waiting", "等待中", "Running", "Completed"]
)
@pytest.mark.parametrize("ran_s", [0.0, 30 * HOUR])
def test_progress_in_any_response_form_is_no_drift(phase: str, ran_s: float) -> None:
    declared = a_job(
        spec__schedule_policy={"priority": 2, "preemptible": True},
        spec__notification={"topic_urn": "urn:smn:x", "events": ["JobFailed", "JobHanged"]},
        endpoints={"ssh": {"key_pair_names": ["one", "two"]}},
    )
    assert declared.body is not None
    spec = declared.body["spec"] | {
        "schedule_policy": {"priority": "2", "preemptible": "true", "affinity": None},
        "notification": {"events": ["JobHanged", "JobFailed"], "topic_urn": "urn:smn:x"},
        "runtime_type": "production",
    }
    other_forms = {
        **declared.body,
        "spec": spec,
        "endpoints": {"ssh": {"key_pair_names": ["two", "one"], "task_urls": []}},
    }
    job = seen(declared, phase=phase, ran_s=ran_s, body=other_forms)
    found = report(a_stack(declared), job)
    assert (found.drift, found.pending, found.warnings) == ((), (), ())


@pytest.mark.parametrize(
    ("declared", "job", "expected"),
    [
        (NEW, seen(NEW, text="edited by hand"), {"description": (None, "edited by hand")}),
        (a_job(description="text"), seen(NEW), {"description": ("text", None)}),
        (PROTECTED, seen(NEW), {"lifecycle.protect": ("true", "false")}),
        (NEW, seen(NEW, stopped=True), {"marker.stopped": ("false", "true")}),
        (
            a_job(spec__schedule_policy={"priority": 2}),
            seen(a_job(spec__schedule_policy={"priority": 3}), phase="Pending"),
            {"spec.schedule_policy.priority": ("2", "3")},
        ),
        (
            a_job(spec__notification={"topic_urn": "urn:a", "events": ["JobFailed"]}),
            seen(a_job(spec__notification={"topic_urn": "urn:b", "events": ["JobHanged"]})),
            {
                "spec.notification.events": (["JobFailed"], ["JobHanged"]),
                "spec.notification.topic_urn": ("urn:a", "urn:b"),
            },
        ),
        (
            a_job(endpoints={"ssh": {"key_pair_names": ["one"]}}),
            seen(a_job(endpoints={"ssh": {"key_pair_names": ["two"]}})),
            {"endpoints.ssh.key_pair_names": (["one"], ["two"])},
        ),
    ],
    ids=lambda value: "" if not isinstance(value, dict) else next(iter(value)),
)
def test_modified_field_is_shown_before_and_after(
    declared: DesiredJob, job: ObservedJob, expected: dict[str, Any]
) -> None:
    [item] = report(a_stack(declared), job).drift
    assert item.class_.value == "modified"
    assert {change.path: (change.before, change.after) for change in item.changes} == expected
    for path, values in expected.items():
        assert path in item.detail
        for value in values:
            assert ("(none)" if value is None else json.dumps(value)) in item.detail


def test_secret_that_differs_is_not_shown() -> None:
    secret = SecretText("tell-nobody-1", "${var.topic}")
    declared = replace(a_job(spec__notification={"topic_urn": secret, "events": []}), description=secret)
    old = a_job(spec__notification={"topic_urn": "tell-nobody-2", "events": []})
    found = report(a_stack(declared), seen(declared, text="tell-nobody-2", body=old.body))
    [entry] = found.document()["drift"]
    assert [change["path"] for change in entry["changes"]] == [
        "description",
        "spec.notification.topic_urn",
    ]
    assert all(change["sensitive"] for change in entry["changes"])
    assert "tell-nobody" not in json.dumps(found.document())


def test_drift_entry_has_changes_only_when_modified() -> None:
    found = report(a_stack(NEW, a_job("b")), seen(NEW, text="edited"), seen(a_job("b"), phase="Failed"))
    modified, failed = found.document()["drift"]
    assert list(failed) == ["key", "class", "job", "detail", "since", "began_at", "node_hours", "fix"]
    assert set(modified) == {*failed, "changes"}


@pytest.mark.parametrize(
    ("stack", "jobs", "expected"),
    [
        (a_stack(NEW), [seen(OLD)], "changed since r1 (Running)"),
        (a_stack(NEW), [seen(OLD, phase="Failed")], "changed since r1 (Failed)"),
        # back to what ended badly before
        (a_stack(NEW), [seen(NEW, phase="Failed"), seen(OLD, revision=2)], "changed since r2 (Running)"),
        (a_stack(NEW), [seen(NEW, phase="Terminated", stopped=True)], "declared again; r1 was stopped by us"),
        (
            a_stack(NEW),
            [seen(NEW, phase="Terminating", stopped=True, ended_s_ago=60)],
            "declared again; r1 was stopped by us",
        ),
        (
            a_stack(replace(NEW, key="new", formerly=("a",))),
            [seen(NEW)],
            "formerly a: the marker follows",
        ),
        (
            a_stack(replace(NEW, key="new", formerly=("a",))),
            [seen(NEW), seen(a_job("new"))],
            "formerly: a, but new already has revisions",
        ),
    ],
)
def test_change_awaiting_an_apply_is_pending_and_no_drift(
    stack: Stack, jobs: list[ObservedJob], expected: str
) -> None:
    found = report(stack, *jobs)
    assert [item.detail for item in found.pending] == [expected]
    assert classes(found) == (["failed"] if "(Failed)" in expected else [])


@pytest.mark.parametrize(
    ("ended_s_ago", "detail"),
    [
        (60.0, f"r1 ended as Failed; retry 1 of 1 at {timestamp(NOW + 60)}"),
        (600.0, "r1 ended as Failed; attempt 1 of 1 is due"),
    ],
)
def test_failed_job_that_is_retried_is_pending_with_the_time(ended_s_ago: float, detail: str) -> None:
    found = report(a_stack(RETRIED), seen(RETRIED, phase="Failed", ended_s_ago=ended_s_ago, text="by hand"))
    assert (classes(found), [item.detail for item in found.pending]) == ([], [detail])


def test_stack_that_was_never_applied_is_pending_and_no_drift() -> None:
    found = report(a_stack(NEW, a_job("b")))
    assert classes(found) == []
    assert [(item.key, item.detail) for item in found.pending] == [
        ("a", "new in the manifest"),
        ("b", "new in the manifest"),
    ]


def test_edited_manifest_is_pending_and_no_drift() -> None:
    found = report(a_stack(NEW), seen(OLD))
    assert not found.has_drifted
    [pending] = found.pending
    assert (pending.key, pending.job) == ("a", seen(OLD).id)


def test_change_not_possible_in_the_phase_is_deferred_and_no_drift() -> None:
    wanted = a_job(spec__schedule_policy={"priority": 3})
    running = seen(wanted, body=NEW.body)
    assert classes(report(a_stack(wanted), running)) == []
    [warning] = report(a_stack(wanted), running).warnings
    assert (warning.what, warning.key) == ("deferred", "a")
    queued = seen(wanted, phase=Phase.PENDING, body=NEW.body)
    assert classes(report(a_stack(wanted), queued)) == ["modified"]
    assert classes(report(a_stack(wanted), queued, cloud=Cloud.OTC)) == []


def test_unreadable_job_is_unknown_and_hides_no_other_drift() -> None:
    lost = Unreadable("status is missing", name="a")
    found = report(a_stack(NEW, a_job("b")), seen(a_job("b"), phase="Failed"), unreadable=(lost,))
    assert classes(found) == ["unknown", "failed"]
    assert not found.complete
    assert found.compared == 1


def test_unreadable_list_leaves_no_key_compared() -> None:
    found = report(a_stack(NEW), problem="timeout", is_whole=False)
    assert classes(found) == ["unknown"]
    assert found.compared == 0
    assert not found.has_drifted


def test_drift_of_a_failed_job_began_at_its_end() -> None:
    [item] = report(a_stack(NEW), seen(NEW, phase="Failed", ended_s_ago=HOUR)).drift
    assert item.began_at == "2027-01-15T07:00:00Z"


@pytest.mark.parametrize("phase", ["Failed", "Terminated"])
@pytest.mark.parametrize(
    ("lifecycle", "waits"),
    [({}, False), ({"schedule": "0 2 * * *"}, True), ({"schedule": "0 2 * * *", "on_change": "keep"}, False)],
)
def test_fix_says_how_to_run_a_scheduled_key_before_its_time(
    phase: str, lifecycle: dict[str, Any], waits: bool
) -> None:
    job = a_job(lifecycle=lifecycle)
    [item] = report(a_stack(job), seen(job, phase=phase)).drift
    assert "edit `lifecycle.rerun` of a to run it again" in (item.fix or "")
    assert ("set `lifecycle.on_change: replace` and edit" in (item.fix or "")) is waits


def test_revision_that_runs_again_beside_the_one_that_completed_is_a_warning() -> None:
    found = report(a_stack(NEW), seen(NEW), seen(NEW, revision=2, phase="Completed"))
    [warning] = found.warnings
    assert (classes(found), warning.what) == ([], "superseded revision is active")
    assert warning.why == "a is Running, and a-r2 is Completed"


def test_newer_revision_name_held_by_another_stack_is_a_warning() -> None:
    found = report(a_stack(NEW), seen(NEW), seen(NEW, revision=2, stack="other"))
    [warning] = found.warnings
    assert (classes(found), warning.what, warning.key) == ([], "name taken", "a")
