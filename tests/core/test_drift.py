"""docs/concepts/drift.md: changes on the service, distinguished from changes in the manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import timestamp
from reconciler.decide.drift import DriftReport, make_drift_report
from reconciler.decide.key_state import Snapshot
from reconciler.render import Content, View, render
from reconciler.secrets import SecretText
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import DONE, OLD, TD, F, P, R
from tests.core.worlds import a_context


def report(
    stack: Stack,
    *jobs: ObservedJob,
    memory: HistorySnapshot = NO_HISTORY,
    cloud: Cloud = Cloud.HUAWEI,
    **observation: Any,
) -> DriftReport:
    names = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    look = Snapshot(sort_by_key(Observation(jobs, **observation), STACK, names), memory=memory)
    situation = a_context(cloud=cloud)
    return make_drift_report(stack, look, situation, TARGET)


def classes(found: DriftReport) -> list[str]:
    return [item.class_.value for item in found.drift]


NEW, OTHER = a_job(), a_job("b")
EDITED = a_job(algorithm__parameters={"lr": 9})
PROTECTED = a_job(lifecycle={"protect": True})
RETRIED = a_job(lifecycle={"on_failure": "retry"})
RETRIED_ONCE = [seen(RETRIED, phase=F), seen(RETRIED, revision=2, phase=F)]
STOPPING = a_job(spec__auto_stop={"time_unit": "HOURS", "duration": 2})
TERMINATING = seen(NEW, phase="Terminating", ended_s_ago=60)
STOPPED = seen(NEW, phase="Terminating", stopped=True, ended_s_ago=60)
TERMINATING_LONG = seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR)
FORMERLY_A = replace(NEW, key="new", formerly=("a",))
APPLIED, AHEAD = a_job(description="applied"), a_job(description="declared anew")
TRAINS, FORMER = a_job(description="we train things"), a_job(description="applied", **OLD)
URGENT = a_job(description="applied", spec__schedule_policy={"priority": 3})
RENAMED = replace(APPLIED, key="new", formerly=("a",))
SOMEBODYS = seen(APPLIED, description="", job_id="12345678-aaaa")
RAN, DID = a_memory(past(APPLIED, 1, R)), a_memory(past(APPLIED, 1, DONE))
LOOKS_ONLY = a_memory(past(OTHER, 1, R, is_declared_known=False))
NEVER_SEEN = a_memory(past(OTHER, 1, R))
UNAVAILABLE = HistorySnapshot(problem="unavailable")
AGAIN, IN_NO_FILE = "declared again; r1 was stopped by us", a_stack(OTHER)


def by_hand(desired: DesiredJob, **members: Any) -> ObservedJob:
    return seen(desired, text="edited by hand", **members)


def redacted(text: str) -> HistorySnapshot:
    """A history in which part of the description was redacted as a secret."""
    return a_memory(past(TRAINS, 1, R, declared=replace(TRAINS, description=text)))


Row = tuple[Stack | DesiredJob, list[ObservedJob], HistorySnapshot, list[str], str]
#: A declaration beside the running key `b`; jobs; a history; drift classes; the pending change.
EXPECTATIONS: dict[str, list[Row]] = {
    "by job and declaration": [
        (NEW, [], NO_HISTORY, ["missing"], ""),
        (NEW, [seen(NEW)], NO_HISTORY, [], ""),
        (NEW, [seen(NEW, phase=DONE)], NO_HISTORY, [], ""),
        (NEW, [seen(NEW, phase=F)], NO_HISTORY, ["failed"], ""),
        (NEW, [seen(NEW, phase="Abnormal")], NO_HISTORY, ["failed"], ""),
        (RETRIED, RETRIED_ONCE, NO_HISTORY, ["failed"], ""),
        (RETRIED, [seen(RETRIED, phase=TD)], NO_HISTORY, ["terminated"], ""),
        (STOPPING, [seen(STOPPING, phase=F, ran_s=2 * HOUR)], NO_HISTORY, [], ""),
        (STOPPING, [seen(STOPPING, phase=TD, ran_s=2 * HOUR)], NO_HISTORY, [], ""),
        (NEW, [seen(NEW, phase=TD)], NO_HISTORY, ["terminated"], ""),
        (NEW, [seen(NEW, phase=F), seen(NEW, revision=2)], NO_HISTORY, [], ""),
        (NEW, [seen(NEW, phase="Terminating", ended_s_ago=2 * HOUR, ran_s=0)], NO_HISTORY, [], ""),
        (NEW, [TERMINATING], NO_HISTORY, [], ""),
        (NEW, [TERMINATING_LONG], NO_HISTORY, ["stuck"], ""),
        (NEW, [by_hand(NEW)], NO_HISTORY, ["modified"], ""),
        (NEW, [by_hand(NEW, phase=DONE)], NO_HISTORY, [], ""),
        (NEW, [by_hand(NEW, phase=F, protected=True)], NO_HISTORY, ["failed"], ""),
        (PROTECTED, [seen(PROTECTED, phase=TD)], NO_HISTORY, ["terminated"], ""),
        (PROTECTED, [seen(PROTECTED, phase=DONE)], NO_HISTORY, ["modified"], ""),
        (NEW, [seen(NEW), seen(NEW, revision=2)], NO_HISTORY, ["duplicate"], ""),
        (NEW, [TERMINATING, seen(NEW, revision=2)], NO_HISTORY, ["duplicate"], ""),
        (NEW, [STOPPED, seen(NEW, revision=2)], NO_HISTORY, [], ""),
        (NEW, [seen(NEW, description="")], NO_HISTORY, ["unowned"], ""),
        (NEW, [seen(NEW, description=""), seen(NEW, revision=2)], NO_HISTORY, ["unowned"], ""),
        (NEW, [seen(NEW), seen(NEW, revision=2, description="")], NO_HISTORY, ["unowned"], ""),
        (NEW, [seen(NEW, stack="other")], NO_HISTORY, ["missing"], ""),
        (NEW, [seen(NEW, digest="z" + "0" * 12)], NO_HISTORY, ["unknown"], ""),
        (NEW, [seen(NEW, phase="Frozen")], NO_HISTORY, ["unknown"], ""),
        (NEW, [seen(NEW, phase="Frozen"), seen(NEW, revision=2)], NO_HISTORY, ["unknown"], ""),
    ],
    "not declared": [
        (IN_NO_FILE, [seen(NEW)], NO_HISTORY, ["orphaned"], ""),
        (IN_NO_FILE, [seen(NEW), seen(NEW, revision=2)], NO_HISTORY, ["orphaned", "orphaned"], ""),
        (IN_NO_FILE, [seen(NEW, phase=DONE)], NO_HISTORY, [], ""),
        (IN_NO_FILE, [TERMINATING], NO_HISTORY, [], ""),
        (a_stack(OTHER, is_partial=True), [seen(NEW)], NO_HISTORY, [], ""),
    ],
    "changed in the manifest": [
        (NEW, [seen(EDITED)], NO_HISTORY, [], "changed since r1 (Running)"),
        (NEW, [seen(EDITED, phase=F)], NO_HISTORY, ["failed"], "changed since r1 (Failed)"),
        # back to what ended badly before
        (NEW, [seen(NEW, phase=F), seen(EDITED, revision=2)], NO_HISTORY, [], "changed since r2 (Running)"),
        (NEW, [seen(NEW, phase=TD, stopped=True)], NO_HISTORY, [], AGAIN),
        (NEW, [STOPPED], NO_HISTORY, [], AGAIN),
        (FORMERLY_A, [seen(NEW)], NO_HISTORY, [], "formerly a: the marker follows"),
        (FORMERLY_A, [seen(NEW), seen(a_job("new"))], NO_HISTORY, [], "formerly: a, but new already has"),
    ],
    "other than what was last applied": [
        (APPLIED, [seen(APPLIED)], RAN, [], ""),
        (APPLIED, [by_hand(APPLIED)], RAN, ["modified"], ""),
        (APPLIED, [by_hand(APPLIED, phase=DONE)], DID, [], ""),
        # a change on the service is drift, whatever the manifest says now
        (AHEAD, [seen(APPLIED)], RAN, [], "description changed"),
        (AHEAD, [by_hand(APPLIED)], RAN, ["modified"], "description changed"),
        (a_job(description="edited by hand"), [by_hand(APPLIED)], RAN, ["modified"], ""),
        (FORMER, [seen(APPLIED)], RAN, [], "changed since r1"),
        (FORMER, [by_hand(APPLIED)], RAN, ["modified"], "changed since r1"),
        (URGENT, [seen(APPLIED)], RAN, [], ""),  # cannot be changed in this phase
        (RENAMED, [], RAN, ["missing"], ""),
    ],
    "a redacted record of ordinary text": [
        (TRAINS, [seen(TRAINS)], redacted("we (sensitive) things"), [], ""),
        (TRAINS, [seen(TRAINS)], redacted("(sensitive)"), [], ""),
        (TRAINS, [seen(TRAINS, text="by hand")], redacted("we (sensitive) things"), ["modified"], "changed"),
        (TRAINS, [seen(TRAINS, text="we by hand")], redacted("we (sensitive)"), ["modified"], "changed"),
        (TRAINS, [seen(TRAINS)], redacted("we train (sensitive) and more"), ["modified"], ""),
    ],
    "missing, pending, or neither": [
        (APPLIED, [], a_memory(elsewhere=("other.example",)), ["missing"], ""),
        (APPLIED, [], LOOKS_ONLY, ["missing"], ""),  # only observations were recorded, no apply
        (APPLIED, [], NEVER_SEEN, [], "new in the manifest"),
        (APPLIED, [], RAN, ["missing"], ""),  # it existed, and is gone
        (APPLIED, [], a_memory(past(APPLIED, 1, F)), ["missing"], ""),
        (APPLIED, [], a_memory(past(APPLIED, 1, TD)), ["missing"], ""),
        (APPLIED, [], a_memory(past(a_job(**OLD), 1, DONE)), [], "changed since r1 (Completed)"),
        (APPLIED, [], a_memory(past(a_job(**OLD), 1, R)), ["missing"], "changed since r1"),
        (APPLIED, [], a_memory(past(APPLIED, 1, TD, is_stopped=True)), [], AGAIN),
        (APPLIED, [], a_memory(past(APPLIED, 1, R, is_stopped=True)), [], AGAIN),
        (APPLIED, [], a_memory(past(APPLIED, 1, F, is_stopped=True)), ["missing"], ""),
        (APPLIED, [], DID, [], ""),  # completed, and aged out
        (APPLIED, [], a_memory(past(APPLIED, 1, F), past(APPLIED, 2, DONE)), [], ""),
        # a foreign job with the name of one that has completed, or was deleted
        (APPLIED, [SOMEBODYS], a_memory(past(APPLIED, 2, DONE)), ["unowned"], ""),
        (APPLIED, [SOMEBODYS], RAN, ["unowned", "missing"], ""),
    ],
    "a history that cannot be read": [
        (APPLIED, [], UNAVAILABLE, ["unknown"], ""),
        (APPLIED, [seen(APPLIED, description="")], UNAVAILABLE, ["unowned", "unknown"], ""),
        (APPLIED, [by_hand(APPLIED)], UNAVAILABLE, ["unknown"], ""),
        # independent of it, so known
        (APPLIED, [seen(APPLIED)], UNAVAILABLE, [], ""),
        (APPLIED, [seen(APPLIED, phase=TD)], UNAVAILABLE, ["terminated"], ""),
        (APPLIED, [seen(APPLIED), seen(APPLIED, revision=2)], UNAVAILABLE, ["duplicate"], ""),
        (FORMER, [seen(APPLIED)], UNAVAILABLE, [], "changed since r1"),
    ],
    "a newer revision that was deleted counts with its recorded end": [
        (APPLIED, [seen(APPLIED, phase=F)], a_memory(past(APPLIED, 1, F), newest), expected, pending)
        for newest, expected, pending in (
            (past(APPLIED, 2, DONE), [], ""),
            (past(APPLIED, 2, F), ["failed"], ""),
            (past(APPLIED, 2, TD), ["terminated"], ""),
            (past(APPLIED, 2, TD, is_stopped=True), [], "declared again; r2 was stopped by us"),
            (past(APPLIED, 2, R), ["terminated"], ""),
        )
    ],
    # left by `--only a` or a removed file: the last declaration decides
    "not declared any more": [
        (entry, [seen(APPLIED, **job)], memory, drift, pending)
        for entry, ends in ((IN_NO_FILE, "no longer in the manifest"), (absent(), "state: absent"))
        for memory, job, drift, pending in (
            (NEVER_SEEN, {}, ["orphaned"], ""),
            (a_memory(past(APPLIED, 1, R, is_declared_known=False)), {}, ["orphaned"], ""),
            (RAN, {}, [], f"{ends}; a (Running) will be terminated"),
            (RAN, {"protected": True}, [], f"{ends}; a (Running) will not be terminated while protected"),
            # terminated by the last apply, and restarted outside
            (a_memory(past(APPLIED, 1, TD)), {"stopped": True}, ["orphaned"], ""),
            # it has ended, or is about to
            (RAN, {"phase": DONE}, [], ""),
            (RAN, {"phase": "Terminating", "stopped": True, "ended_s_ago": 60}, [], ""),
            # unknown
            (UNAVAILABLE, {}, ["unknown"], ""),
            (UNAVAILABLE, {"phase": DONE}, [], ""),
        )
    ],
}


@pytest.mark.parametrize(
    ("entry", "jobs", "memory", "drift", "pending"),
    [
        pytest.param(*row, id=f"{about} {number}")
        for about, rows in EXPECTATIONS.items()
        for number, row in enumerate(rows)
    ],
)
def test_drift_and_pending_change_of_a_key(
    entry: Stack | DesiredJob,
    jobs: list[ObservedJob],
    memory: HistorySnapshot,
    drift: list[str],
    pending: str,
) -> None:
    stack = entry if isinstance(entry, Stack) else a_stack(entry, OTHER)
    found = report(stack, seen(OTHER), *jobs, memory=memory)
    assert classes(found) == drift
    assert len(found.pending) == bool(pending)
    assert all(item.detail.startswith(pending) or item.detail.endswith(pending) for item in found.pending)
    assert found.complete is ("unknown" not in drift)
    assert found.has_drifted is any(name != "unknown" for name in drift)
    assert found.summary == {name: drift.count(name.value) for name in found.summary}
    for item in found.pending:
        assert (item.job is None) is (not jobs or len(memory.by_key.get("a", ())) == 2)
    if len(memory.by_key.get("a", ())) == 2:
        assert [item.job for item in found.drift] == [None] * len(drift)


def test_missing_job_names_the_job_that_holds_its_name() -> None:
    [item] = report(a_stack(NEW, OTHER), seen(OTHER), seen(NEW, stack="other")).drift
    assert "declared, but no job exists; a is held by job" in item.detail


def test_never_applied_stack_is_pending() -> None:
    found = report(a_stack(NEW))
    assert (classes(found), [item.detail for item in found.pending]) == ([], ["new in the manifest"])


def test_active_revisions_of_a_removed_key_are_named_together() -> None:
    found = report(IN_NO_FILE, seen(OTHER), seen(APPLIED), seen(APPLIED, revision=2), memory=RAN)
    [pending] = found.pending
    text = "no longer in the manifest; a (Running), a-r2 (Running) will be terminated"
    assert (classes(found), pending.detail) == (["duplicate"], text)


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


def test_changed_secret_is_not_shown() -> None:
    secret = SecretText("tell-nobody-1", "${var.topic}")
    declared = replace(a_job(spec__notification={"topic_urn": secret, "events": []}), description=secret)
    old = a_job(spec__notification={"topic_urn": "tell-nobody-2", "events": []})
    found = report(a_stack(declared), seen(declared, text="tell-nobody-2", body=old.body))
    [entry] = found.document()["drift"]
    assert [change["path"] for change in entry["changes"]] == ["description", "spec.notification.topic_urn"]
    assert all(change["sensitive"] for change in entry["changes"])
    assert "tell-nobody" not in json.dumps(found.document())


FAILED_B = seen(a_job("b"), phase="Failed", ended_s_ago=HOUR)


def test_drift_entry_has_changes_only_when_modified() -> None:
    found = report(a_stack(NEW, a_job("b")), seen(NEW, text="edited"), FAILED_B)
    modified, failed = found.document()["drift"]
    assert list(failed) == ["key", "class", "job", "detail", "since", "began_at", "node_hours", "fix"]
    assert set(modified) == {*failed, "changes"}
    assert failed["began_at"] == "2027-01-15T07:00:00Z", "when it ended"


@pytest.mark.parametrize(
    ("ended_s_ago", "detail"),
    [
        (60.0, f"r1 ended as Failed; retry 1 of 1 at {timestamp(NOW + 60)}"),
        (600.0, "r1 ended as Failed; attempt 1 of 1 is due"),
    ],
)
def test_failed_job_with_a_retry_is_pending_with_its_time(ended_s_ago: float, detail: str) -> None:
    found = report(a_stack(RETRIED), seen(RETRIED, phase="Failed", ended_s_ago=ended_s_ago, text="by hand"))
    assert (classes(found), [item.detail for item in found.pending]) == ([], [detail])


@pytest.mark.parametrize(
    ("lifecycle", "phase", "fix"),
    [
        ({}, "Failed", "set `lifecycle.on_failure: retry`"),
        ({"on_failure": "retry", "max_retries": 0}, "Failed", "raise `lifecycle.max_retries`"),
        ({}, "Terminated", "set `lifecycle.on_terminated: recreate`"),
        ({"on_terminated": "recreate"}, "Terminated", "run reconciler apply, which starts it again while"),
        (
            {"on_failure": "retry", "max_retries": 0, "rerun": "2"},
            "Failed",
            "then run reconciler apply, which",
        ),
        ({"on_terminated": "recreate", "rerun": "2"}, "Terminated", "then run reconciler apply, which"),
        ({"on_change": "keep", "rerun": "2"}, "Failed", "set `lifecycle.on_failure: retry`"),
    ],
)
def test_fix_omits_settings_already_set(lifecycle: dict[str, Any], phase: str, fix: str) -> None:
    jobs = [a_job(key, lifecycle=lifecycle) for key in "abcde"]
    found = report(a_stack(*jobs), *(seen(a_job(job.key), phase=phase) for job in jobs))
    assert all(fix in (item.fix or "") for item in found.drift)
    assert render(Content.DRIFT, found, "text", View()).count(fix) == 1, "of all together"


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


def test_key_out_of_view_or_unknown_is_not_compared() -> None:
    whole, partial = report(a_stack(NEW), seen(NEW)), report(a_stack(NEW, is_partial=True), seen(NEW))
    unknown = report(a_stack(NEW), seen(NEW, phase="Frozen"))
    judged = [[found.is_conclusive(key) for key in ("a", "gone")] for found in (whole, partial, unknown)]
    assert judged == [[True, True], [True, False], [False, True]]


def test_unreadable_list_compares_no_key() -> None:
    found = report(a_stack(NEW), problem="timeout", is_whole=False)
    assert classes(found) == ["unknown"]
    assert found.compared == 0
    assert not found.has_drifted


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


@pytest.mark.parametrize(
    ("jobs", "what", "why"),
    [
        (
            [seen(NEW), seen(NEW, revision=2, phase=DONE)],
            "superseded revision is active",
            "a is Running, and a-r2 is Completed",
        ),
        ([seen(NEW), seen(NEW, revision=2, stack="other")], "name taken", "a-r2 is held by job"),
    ],
)
def test_odd_state_is_a_warning_and_no_drift(jobs: list[ObservedJob], what: str, why: str) -> None:
    found = report(a_stack(NEW), *jobs)
    [warning] = found.warnings
    assert (classes(found), warning.what, warning.key, why in warning.why) == ([], what, "a", True)


# --- with a history: last applied, and never known to the stack

ENDS = ("Completed", "Failed", "Terminated", "Abnormal")
QUEUED: dict[str, Any] = {"spec__schedule_policy": {"priority": 2}}


# --- stuck: since the termination was first seen, or since the duration stopped growing


@pytest.mark.parametrize(
    ("seen_s_ago", "ended_s_ago", "ran_s", "expected"),
    [
        (2 * HOUR, 0.0, 5 * HOUR, ["stuck"]),  # a growing duration
        (2 * HOUR, 0.0, 0.0, ["stuck"]),  # no duration at all
        (HOUR / 2, 0.0, 5 * HOUR, []),
        (HOUR / 2, 2 * HOUR, 60.0, ["stuck"]),  # ended before the first observation
    ],
)
def test_termination_is_stuck_an_hour_after_its_first_observation(
    seen_s_ago: float, ended_s_ago: float, ran_s: float, expected: list[str]
) -> None:
    job = seen(APPLIED, phase="Terminating", ended_s_ago=ended_s_ago, ran_s=ran_s)
    looks = (("Running", NOW - 9 * HOUR), ("Terminating", NOW - seen_s_ago))
    found = report(a_stack(APPLIED), job, memory=a_memory(past(APPLIED)._replace(phases=looks)))
    assert classes(found) == expected
    since = timestamp(NOW - max(seen_s_ago, ended_s_ago))
    assert [item.began_at for item in found.drift] == [since for _ in expected]


# --- modified: other than what was last applied


def test_modified_without_history_compares_with_the_manifest() -> None:
    for memory in (NO_HISTORY, a_memory(past(APPLIED, 1, R, is_declared_known=False))):
        [item] = report(a_stack(AHEAD), seen(APPLIED), memory=memory).drift
        text = 'differs from what is declared: description "declared anew" -> "applied"'
        assert (item.class_.value, item.detail) == ("modified", text)


def test_modified_detail_names_both_sides_of_each_difference() -> None:
    queued = a_job(description="applied", **QUEUED)
    somebodys = a_job(spec__schedule_policy={"priority": 3})
    job = seen(queued, text="edited by hand", phase=P, body=somebodys.body)
    [item] = report(a_stack(APPLIED), job, memory=a_memory(past(queued, 1, P))).drift
    assert item.detail == (
        'differs from what was last applied: description "applied" -> "edited by hand"; '
        'spec.schedule_policy.priority "2" -> "3"'
    )


@pytest.mark.parametrize("was_protected", [True, False, None])
@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.parametrize("is_declared", [True, False, None])
def test_protection_is_compared_with_the_applied_one(
    was_protected: bool | None, is_protected: bool, is_declared: bool | None
) -> None:
    applied = a_job(lifecycle={"protect": was_protected})
    declared = a_job(lifecycle={"protect": is_declared})
    found = report(
        a_stack(declared), seen(applied, protected=is_protected), memory=a_memory(past(applied, 1, R))
    )
    is_drift = was_protected is not None and was_protected != is_protected
    assert classes(found) == (["modified"] if is_drift else [])


RESTARTED = "a was Completed and is Running; expected next: Creating, Pending"


@pytest.mark.parametrize(
    ("declared", "memory", "what", "why"),
    [
        (URGENT, RAN, "deferred", "priority"),
        (APPLIED, HistorySnapshot(problem="no route"), "the history could not be read", "no route"),
        (APPLIED, a_memory(past(APPLIED, 1, DONE)), "unexpected phase", RESTARTED),
    ],
)
def test_history_mismatch_is_a_warning(
    declared: DesiredJob, memory: HistorySnapshot, what: str, why: str
) -> None:
    [warning] = report(a_stack(declared), seen(APPLIED), memory=memory).warnings
    assert (warning.what, why in warning.why) == (what, True)


def test_job_that_lost_its_marker_is_drift_under_any_name() -> None:
    place: dict[str, Any] = {"name": "by-hand", "job_id": "12345678-aaaa"}
    memory = a_memory(past(APPLIED, 1, R, id_part="12345678", **place))
    [unowned] = report(a_stack(APPLIED), seen(description="", **place), memory=memory).drift
    assert (unowned.class_.value, unowned.job) == ("unowned", place["job_id"])
    assert unowned.detail == "by-hand is known from history; its marker was removed"


# --- pending: edited in the manifest, and not applied yet


SENT: dict[str, Any] = {"topic_urn": "urn:x", "events": []}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (AHEAD, "description changed"),
        (a_job(description="applied", lifecycle={"protect": True}), "lifecycle.protect changed"),
        (URGENT, "spec.schedule_policy.priority changed"),
        (a_job(description="applied", spec__notification=SENT), "spec.notification changed"),
        (
            a_job(description="declared anew", **OLD),
            "changed since r1 (Pending): algorithm.parameters.lr changed; description changed",
        ),
    ],
)
def test_unapplied_edit_is_pending_and_no_drift(declared: DesiredJob, expected: str) -> None:
    found = report(a_stack(declared), seen(APPLIED, phase=P), memory=a_memory(past(APPLIED, 1, P)))
    assert (classes(found), [item.detail for item in found.pending]) == ([], [expected])


def test_description_with_a_secret_is_compared_by_its_value() -> None:
    secret = a_job(description=SecretText("tell-nobody-1", "${var.text}"))
    secret = replace(secret, description=SecretText("tell-nobody-1", "${var.text}"))
    memory = a_memory(past(secret, 1, R, declared=replace(secret, description="${var.text}")))
    assert classes(report(a_stack(secret), seen(secret, text="tell-nobody-1"), memory=memory)) == []
    assert classes(report(a_stack(secret), seen(secret, text="by hand"), memory=memory)) == ["modified"]
    plain = a_job(description="plain")
    found = report(a_stack(plain), seen(secret, text="tell-nobody-1"), memory=memory)
    assert (classes(found), [item.detail for item in found.pending]) == ([], ["description changed"])


# --- steps


PROGRESS = [
    (before, now)
    for before in ("Creating", "Pending", "Running")
    for now in ("Creating", "Pending", "Running", "Terminating", *ENDS)
]
EXPECTED = [
    *PROGRESS,
    *[("Terminating", now) for now in ("Terminating", *ENDS)],
    *[(end, now) for end in ENDS for now in (end, "Creating", "Pending")],
]


@pytest.mark.parametrize("now", [phase.value for phase in Phase])
@pytest.mark.parametrize("before", [phase.value for phase in Phase])
def test_unexpected_phase_change_is_a_warning(before: str, now: str) -> None:
    memory = a_memory(past(APPLIED, 1, before))
    found = report(a_stack(APPLIED), seen(APPLIED, phase=now, ended_s_ago=60), memory=memory)
    warned = [warning for warning in found.warnings if warning.what == "unexpected phase"]
    assert (not warned) is ((before, now) in EXPECTED)
    assert found.has_drifted is (now in ("Failed", "Abnormal", "Terminated")), "a step alone is no drift"
