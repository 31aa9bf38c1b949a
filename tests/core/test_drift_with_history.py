"""docs/drift.md with a history store: what was last applied, and what the stack never had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot, PastRevision
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import timestamp
from reconciler.decide.drift import DriftReport, make_drift_report
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.secrets import SecretText
from tests.builders import HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import DONE, OLD, TD, F, P, R

APPLIED = a_job(description="applied")
ENDS = ("Completed", "Failed", "Terminated", "Abnormal")
QUEUED: dict[str, Any] = {"spec__schedule_policy": {"priority": 2}}


def report(stack: Stack, *jobs: ObservedJob, memory: HistorySnapshot = NO_HISTORY) -> DriftReport:
    declared = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    look = Snapshot(sort_by_key(Observation(jobs), STACK, declared), memory=memory)
    return make_drift_report(
        stack, look, PlanContext(STACK, at_s=NOW), TARGET, manifest_digest="sha256:0", version="0"
    )


def classes(found: DriftReport) -> list[str]:
    return [item.class_.value for item in found.drift]


def edited(desired: DesiredJob, **said: Any) -> ObservedJob:
    """A job of this declaration, described otherwise by hand."""
    return seen(desired, text="edited by hand", **said)


# --- stuck: since the first look that saw the termination, or since the duration stands still


@pytest.mark.parametrize(
    ("seen_s_ago", "ended_s_ago", "ran_s", "expected"),
    [
        (2 * HOUR, 0.0, 5 * HOUR, ["stuck"]),  # a duration that goes on
        (2 * HOUR, 0.0, 0.0, ["stuck"]),  # no duration at all
        (HOUR / 2, 0.0, 5 * HOUR, []),
        (HOUR / 2, 2 * HOUR, 60.0, ["stuck"]),  # ended before anybody looked
    ],
)
def test_termination_is_stuck_an_hour_after_it_was_first_seen(
    seen_s_ago: float, ended_s_ago: float, ran_s: float, expected: list[str]
) -> None:
    job = seen(APPLIED, phase="Terminating", ended_s_ago=ended_s_ago, ran_s=ran_s)
    looks = (("Running", NOW - 9 * HOUR), ("Terminating", NOW - seen_s_ago))
    found = report(a_stack(APPLIED), job, memory=a_memory(past(APPLIED)._replace(phases=looks)))
    assert classes(found) == expected
    since = timestamp(NOW - max(seen_s_ago, ended_s_ago))
    assert [item.began_at for item in found.drift] == [since for _ in expected]


# --- modified: other than what was last applied


@pytest.mark.parametrize(
    ("declared", "job", "expected"),
    [
        (APPLIED, seen(APPLIED), []),
        (APPLIED, edited(APPLIED), ["modified"]),
        # the manifest was edited ahead: that is no drift
        (a_job(description="declared anew"), seen(APPLIED), []),
        # both: what somebody did on the service is
        (a_job(description="declared anew"), edited(APPLIED), ["modified"]),
        # somebody did on the service what the manifest says by now: it is not what was applied
        (a_job(description="edited by hand"), edited(APPLIED), ["modified"]),
        (a_job(description="applied", **OLD), seen(APPLIED), []),
        (a_job(description="applied", **OLD), edited(APPLIED), ["modified"]),
    ],
)
def test_modified_compares_with_the_last_applied_declaration(
    declared: DesiredJob, job: ObservedJob, expected: list[str]
) -> None:
    assert classes(report(a_stack(declared), job, memory=a_memory(past(APPLIED, 1, R)))) == expected


def test_modified_without_history_compares_with_the_manifest() -> None:
    ahead = a_stack(a_job(description="declared anew"))
    for memory in (NO_HISTORY, a_memory(past(APPLIED, 1, R, is_declared_known=False))):
        [item] = report(ahead, seen(APPLIED), memory=memory).drift
        said = 'differs from what is declared: description "declared anew" -> "applied"'
        assert (item.class_.value, item.detail) == ("modified", said)


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
def test_protection_is_compared_with_the_one_that_was_applied(
    was_protected: bool | None, is_protected: bool, is_declared: bool | None
) -> None:
    applied = a_job(lifecycle={"protect": was_protected})
    declared = a_job(lifecycle={"protect": is_declared})
    found = report(
        a_stack(declared), seen(applied, protected=is_protected), memory=a_memory(past(applied, 1, R))
    )
    is_drift = was_protected is not None and was_protected != is_protected
    assert classes(found) == (["modified"] if is_drift else [])


@pytest.mark.parametrize("phase", [DONE, F, TD])
def test_ended_job_with_another_description_is_not_modified(phase: Phase) -> None:
    found = report(a_stack(APPLIED), edited(APPLIED, phase=phase), memory=a_memory(past(APPLIED, 1, phase)))
    assert "modified" not in classes(found)


# --- missing, pending, or neither


OTHER = a_job("b")


@pytest.mark.parametrize(
    ("memory", "drift", "pending"),
    [
        # nobody knows whether the stack ever had it
        (NO_HISTORY, ["missing"], []),
        (HistorySnapshot(problem="unavailable"), ["unknown"], []),
        (a_memory(elsewhere=("other.example",)), ["missing"], []),
        # looks were recorded, and no apply
        (a_memory(past(OTHER, 1, R, is_declared_known=False)), ["missing"], []),
        # the store knows the stack, and never saw the key
        (a_memory(past(OTHER, 1, R)), [], ["a"]),
        # it was there, and is gone
        (a_memory(past(APPLIED, 1, R)), ["missing"], []),
        (a_memory(past(APPLIED, 1, F)), ["missing"], []),
        (a_memory(past(APPLIED, 1, TD)), ["missing"], []),
        # it has completed, and is declared otherwise by now
        (a_memory(past(a_job(**OLD), 1, DONE)), [], ["a"]),
        # it was there, is gone, and is declared otherwise by now
        (a_memory(past(a_job(**OLD), 1, R)), ["missing"], ["a"]),
        # we stopped it, and it is declared again
        (a_memory(past(APPLIED, 1, TD, is_stopped=True)), [], ["a"]),
        (a_memory(past(APPLIED, 1, R, is_stopped=True)), [], ["a"]),
        (a_memory(past(APPLIED, 1, F, is_stopped=True)), ["missing"], []),
        # it has completed, and aged out
        (a_memory(past(APPLIED, 1, DONE)), [], []),
        (a_memory(past(APPLIED, 1, F), past(APPLIED, 2, DONE)), [], []),
    ],
)
def test_key_without_a_job_is_missing_or_pending_by_history(
    memory: HistorySnapshot, drift: list[str], pending: list[str]
) -> None:
    found = report(a_stack(APPLIED, OTHER), seen(OTHER), memory=memory)
    assert classes(found) == drift
    assert [item.key for item in found.pending] == pending
    assert found.has_drifted is (drift == ["missing"])


def test_key_new_to_the_stack_is_reported_as_new() -> None:
    [item] = report(a_stack(APPLIED), memory=a_memory(past(OTHER, 1, R))).pending
    assert (item.key, item.job, item.detail) == ("a", None, "new in the manifest")


def test_renamed_key_without_a_job_is_missing() -> None:
    renamed = replace(APPLIED, key="new", formerly=("a",))
    found = report(a_stack(renamed, OTHER), seen(OTHER), memory=a_memory(past(APPLIED, 1, R)))
    assert (classes(found), found.pending) == (["missing"], ())


def test_older_failure_beside_an_aged_out_completed_job_is_no_drift() -> None:
    jobs = seen(APPLIED, revision=1, phase=F), seen(OTHER)
    found = report(a_stack(APPLIED, OTHER), *jobs, memory=a_memory(past(APPLIED, 2, DONE)))
    assert (classes(found), found.pending) == ([], ())


def test_unmanaged_job_with_our_name_is_drift_beside_an_aged_out_job() -> None:
    found = report(a_stack(APPLIED), seen(APPLIED, description=""), memory=a_memory(past(APPLIED, 2, DONE)))
    assert classes(found) == ["unowned"]


def test_job_that_lost_its_marker_is_drift_under_any_name() -> None:
    by_hand: dict[str, Any] = {"name": "by-hand", "job_id": "12345678-aaaa"}
    memory = a_memory(past(APPLIED, 1, R, id_part="12345678", **by_hand))
    [unowned] = report(a_stack(APPLIED), seen(description="", **by_hand), memory=memory).drift
    assert (unowned.class_.value, unowned.job) == ("unowned", by_hand["job_id"])
    assert unowned.detail == "by-hand is known from history; its marker was removed"


def test_deleted_job_and_another_with_its_name_are_two_drift_items() -> None:
    memory = a_memory(past(APPLIED, 1, R))
    somebodys = seen(APPLIED, description="", job_id="12345678-aaaa")
    assert classes(report(a_stack(APPLIED), somebodys, memory=memory)) == ["unowned", "missing"]


def test_edited_manifest_is_pending_with_a_history() -> None:
    found = report(a_stack(a_job(**OLD)), seen(a_job()), memory=a_memory(past(a_job(), 1, R)))
    assert (classes(found), [item.key for item in found.pending]) == ([], ["a"])


def test_unreadable_history_is_a_warning() -> None:
    [warning] = report(a_stack(APPLIED), seen(APPLIED), memory=HistorySnapshot(problem="no route")).warnings
    assert warning.what == "the history could not be read"


# --- pending: edited in the manifest, and not applied yet


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (a_job(description="declared anew"), "description changed"),
        (a_job(description="applied", lifecycle={"protect": True}), "lifecycle.protect changed"),
        (
            a_job(description="applied", spec__schedule_policy={"priority": 3}),
            "spec.schedule_policy.priority changed",
        ),
        (
            a_job(description="applied", spec__notification={"topic_urn": "urn:x", "events": []}),
            "spec.notification changed",
        ),
        (
            a_job(description="declared anew", **OLD),
            "changed since r1 (Pending): algorithm.parameters.lr changed; description changed",
        ),
    ],
)
def test_edit_that_was_not_applied_is_pending_and_no_drift(declared: DesiredJob, expected: str) -> None:
    found = report(a_stack(declared), seen(APPLIED, phase=P), memory=a_memory(past(APPLIED, 1, P)))
    assert (classes(found), [item.detail for item in found.pending]) == ([], [expected])


def test_edit_on_both_sides_is_drift_and_pending() -> None:
    found = report(
        a_stack(a_job(description="declared anew")), edited(APPLIED), memory=a_memory(past(APPLIED, 1, R))
    )
    [item] = found.drift
    [change] = item.changes
    assert (change.before, change.after) == ("applied", "edited by hand")
    assert [pending.detail for pending in found.pending] == ["description changed"]


def test_declaration_equal_to_an_outside_edit_is_not_pending() -> None:
    found = report(
        a_stack(a_job(description="edited by hand")), edited(APPLIED), memory=a_memory(past(APPLIED, 1, R))
    )
    assert (classes(found), found.pending) == (["modified"], ())


def test_edit_not_allowed_in_the_phase_is_a_warning_only() -> None:
    urgent = a_job(description="applied", spec__schedule_policy={"priority": 3})
    found = report(a_stack(urgent), seen(APPLIED), memory=a_memory(past(APPLIED, 1, R)))
    assert (classes(found), found.pending) == ([], ())
    assert [warning.what for warning in found.warnings] == ["deferred"]


@pytest.mark.parametrize(
    ("recorded", "now", "expected"),
    [
        ("we (sensitive) things", "we train things", []),
        ("(sensitive)", "we train things", []),
        ("we (sensitive) things", "by hand", ["modified"]),
        ("we (sensitive)", "we train things by hand", ["modified"]),
        ("we train (sensitive) and more", "we train things", ["modified"]),
    ],
)
def test_redacted_record_of_ordinary_text_is_no_drift(recorded: str, now: str, expected: list[str]) -> None:
    desired = a_job(description="we train things")
    memory = a_memory(past(desired, 1, R, declared=replace(desired, description=recorded)))
    assert classes(report(a_stack(desired), seen(desired, text=now), memory=memory)) == expected


def test_description_with_a_secret_is_compared_by_its_value() -> None:
    secret = a_job(description=SecretText("tell-nobody-1", "${var.text}"))
    secret = replace(secret, description=SecretText("tell-nobody-1", "${var.text}"))
    memory = a_memory(past(secret, 1, R, declared=replace(secret, description="${var.text}")))
    assert classes(report(a_stack(secret), seen(secret, text="tell-nobody-1"), memory=memory)) == []
    assert classes(report(a_stack(secret), seen(secret, text="by hand"), memory=memory)) == ["modified"]
    plain = a_job(description="plain")
    found = report(a_stack(plain), seen(secret, text="tell-nobody-1"), memory=memory)
    assert (classes(found), [item.detail for item in found.pending]) == ([], ["description changed"])


# --- orphaned, or pending


@pytest.mark.parametrize("entry", [None, absent()], ids=["removed", "state: absent"])
@pytest.mark.parametrize(
    ("memory", "job", "drift", "pending"),
    [
        # nobody knows of an apply
        (NO_HISTORY, {}, ["orphaned"], 0),
        (a_memory(past(a_job("b"), 1, R)), {}, ["orphaned"], 0),
        # it was seen, and never declared by an apply that is on record
        (a_memory(past(APPLIED, 1, R, is_declared_known=False)), {}, ["orphaned"], 0),
        # the last apply declared it
        (a_memory(past(APPLIED, 1, R)), {}, [], 1),
        (a_memory(past(APPLIED, 1, R)), {"protected": True}, [], 1),
        # the last apply ended it, and somebody started it again
        (a_memory(past(APPLIED, 1, TD)), {"stopped": True}, ["orphaned"], 0),
        # it has ended, or is about to
        (a_memory(past(APPLIED, 1, R)), {"phase": "Completed"}, [], 0),
        (a_memory(past(APPLIED, 1, R)), {"phase": "Terminating", "stopped": True, "ended_s_ago": 60}, [], 0),
        # nobody can say
        (HistorySnapshot(problem="unavailable"), {}, ["unknown"], 0),
        (HistorySnapshot(problem="unavailable"), {"phase": "Completed"}, [], 0),
    ],
)
def test_undeclared_job_is_orphaned_or_pending_by_history(
    entry: DesiredJob | None, memory: HistorySnapshot, job: dict[str, Any], drift: list[str], pending: int
) -> None:
    stack = a_stack(OTHER, *([entry] if entry else []))
    found = report(stack, seen(OTHER), seen(APPLIED, **job), memory=memory)
    assert (classes(found), len(found.pending)) == (drift, pending)
    assert found.complete is ("unknown" not in drift)


def test_removed_entry_with_two_jobs_is_pending_once_and_a_duplicate() -> None:
    jobs = seen(APPLIED), seen(APPLIED, revision=2)
    found = report(a_stack(OTHER), seen(OTHER), *jobs, memory=a_memory(past(APPLIED, 1, R)))
    assert classes(found) == ["duplicate"]
    assert [item.detail for item in found.pending] == [
        "no longer in the manifest; a (Running), a-r2 (Running) will be terminated"
    ]


# --- a history that cannot be read


UNAVAILABLE = HistorySnapshot(problem="unavailable")


@pytest.mark.parametrize(
    ("declared", "jobs", "expected"),
    [
        # what rests on it is unknown
        (APPLIED, [], ["unknown"]),
        (APPLIED, [seen(APPLIED, description="")], ["unowned", "unknown"]),
        (APPLIED, [edited(APPLIED)], ["unknown"]),
        # everything else is not
        (APPLIED, [seen(APPLIED)], []),
        (APPLIED, [seen(APPLIED, phase=DONE)], []),
        (APPLIED, [seen(APPLIED, phase=F)], ["failed"]),
        (APPLIED, [seen(APPLIED, phase=TD)], ["terminated"]),
        (APPLIED, [seen(APPLIED), seen(APPLIED, revision=2)], ["duplicate"]),
        (a_job(description="applied", **OLD), [seen(APPLIED)], []),
    ],
)
def test_drift_that_depends_on_an_unreadable_history_is_unknown(
    declared: DesiredJob, jobs: list[ObservedJob], expected: list[str]
) -> None:
    found = report(a_stack(declared), *jobs, memory=UNAVAILABLE)
    assert classes(found) == expected
    assert found.complete is ("unknown" not in expected)


# --- older revisions that the service still lists


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (past(APPLIED, 2, DONE), []),
        (past(APPLIED, 2, F), ["failed"]),
        (past(APPLIED, 2, TD), ["terminated"]),
        (past(APPLIED, 2, TD, is_stopped=True), []),
        (past(APPLIED, 2, R), ["terminated"]),
    ],
)
def test_deleted_newer_revision_counts_with_its_recorded_end(
    newest: PastRevision, expected: list[str]
) -> None:
    found = report(a_stack(APPLIED), seen(APPLIED, phase=F), memory=a_memory(past(APPLIED, 1, F), newest))
    assert classes(found) == expected
    assert [item.job for item in found.drift] == [None] * len(expected)


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


def test_unexpected_phase_change_says_what_was_expected() -> None:
    [warning] = report(a_stack(APPLIED), seen(APPLIED), memory=a_memory(past(APPLIED, 1, DONE))).warnings
    assert warning.why == "a was Completed and is Running; expected next: Creating, Pending"
