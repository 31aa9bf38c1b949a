"""SEMANTICS 11 with a history store: what was last applied, and what the stack never had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.draft import Situation
from reconciler.core.drift import DriftReport, make_drift_report
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.planner import Look
from reconciler.core.record import NO_MEMORY, Memory
from reconciler.core.stack import DesiredJob, Stack
from tests.builders import NOW, STACK, TARGET, a_job, a_stack, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import DONE, OLD, TD, F, P, R

APPLIED = a_job(description="applied")
QUEUED: dict[str, Any] = {"spec__schedule_policy": {"priority": 2}}


def report(stack: Stack, *jobs: ObservedJob, memory: Memory = NO_MEMORY) -> DriftReport:
    declared = stack.declared_keys | frozenset(stack.jobs) | stack.former_keys
    look = Look(sort_by_key(Observation(jobs), STACK, declared), memory=memory)
    return make_drift_report(
        stack, look, Situation(STACK, at_s=NOW), TARGET, manifest_digest="sha256:0", version="0"
    )


def classes(found: DriftReport) -> list[str]:
    return [item.class_.value for item in found.drift]


def edited(desired: DesiredJob, **said: Any) -> ObservedJob:
    """A job of this declaration, described otherwise by hand."""
    return seen(desired, text="edited by hand", **said)


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
def test_modified_is_told_against_what_was_last_applied(
    declared: DesiredJob, job: ObservedJob, expected: list[str]
) -> None:
    assert classes(report(a_stack(declared), job, memory=a_memory(past(APPLIED, 1, R)))) == expected


def test_without_a_history_it_is_told_against_what_is_declared() -> None:
    ahead = a_stack(a_job(description="declared anew"))
    for memory in (NO_MEMORY, a_memory(past(APPLIED, 1, R, is_declared_known=False))):
        [item] = report(ahead, seen(APPLIED), memory=memory).drift
        assert (item.class_.value, item.detail) == ("modified", "description differs from what is declared")


def test_what_differs_and_from_what_is_said() -> None:
    queued = a_job(description="applied", **QUEUED)
    somebodys = a_job(spec__schedule_policy={"priority": 3})
    job = seen(queued, text="edited by hand", phase=P, body=somebodys.body)
    [item] = report(a_stack(APPLIED), job, memory=a_memory(past(queued, 1, P))).drift
    assert item.detail == "description, spec.schedule_policy.priority differs from what was last applied"


@pytest.mark.parametrize("was_protected", [True, False, None])
@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.parametrize("is_declared", [True, False, None])
def test_a_protection_is_compared_with_the_one_that_was_applied(
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
def test_what_has_ended_is_not_modified_by_another_text(phase: Phase) -> None:
    found = report(a_stack(APPLIED), edited(APPLIED, phase=phase), memory=a_memory(past(APPLIED, 1, phase)))
    assert "modified" not in classes(found)


# --- missing, pending, or neither


OTHER = a_job("b")


@pytest.mark.parametrize(
    ("memory", "drift", "pending"),
    [
        # nobody knows whether the stack ever had it
        (NO_MEMORY, ["missing"], []),
        (Memory(problem="away"), ["missing"], []),
        (a_memory(elsewhere=("other.example",)), ["missing"], []),
        # the store knows the stack, and never saw the key
        (a_memory(past(OTHER, 1, R)), [], ["a"]),
        # it was there, and is gone
        (a_memory(past(APPLIED, 1, R)), ["missing"], []),
        (a_memory(past(APPLIED, 1, F)), ["missing"], []),
        # what was declared before has completed, and the manifest is ahead of it
        (a_memory(past(a_job(**OLD), 1, DONE)), [], ["a"]),
        # it has completed, and aged out
        (a_memory(past(APPLIED, 1, DONE)), [], []),
        (a_memory(past(APPLIED, 1, F), past(APPLIED, 2, DONE)), [], []),
    ],
)
def test_what_is_not_there(memory: Memory, drift: list[str], pending: list[str]) -> None:
    found = report(a_stack(APPLIED, OTHER), seen(OTHER), memory=memory)
    assert classes(found) == drift
    assert [item.key for item in found.pending] == pending
    assert found.has_drifted is bool(drift)


def test_a_key_that_the_stack_never_had_says_that_it_is_new() -> None:
    [item] = report(a_stack(APPLIED), memory=a_memory(past(OTHER, 1, R))).pending
    assert (item.key, item.job, item.detail) == ("a", None, "new in the manifest")


def test_a_renamed_key_was_had_before() -> None:
    renamed = replace(APPLIED, key="new", formerly=("a",))
    found = report(a_stack(renamed, OTHER), seen(OTHER), memory=a_memory(past(APPLIED, 1, R)))
    assert (classes(found), found.pending) == (["missing"], ())


def test_an_older_end_beside_what_completed_and_aged_out_is_no_drift() -> None:
    jobs = seen(APPLIED, revision=1, phase=F), seen(OTHER)
    found = report(a_stack(APPLIED, OTHER), *jobs, memory=a_memory(past(APPLIED, 2, DONE)))
    assert (classes(found), found.pending) == ([], ())


def test_an_unmanaged_job_on_our_name_is_told_although_what_completed_has_aged_out() -> None:
    found = report(a_stack(APPLIED), seen(APPLIED, description=""), memory=a_memory(past(APPLIED, 2, DONE)))
    assert classes(found) == ["unowned"]


def test_a_job_of_ours_that_lost_its_marker_is_told_whatever_its_name() -> None:
    by_hand: dict[str, Any] = {"name": "by-hand", "job_id": "12345678-aaaa"}
    memory = a_memory(past(APPLIED, 1, R, id_part="12345678", **by_hand))
    [unowned, missing] = report(a_stack(APPLIED), seen(description="", **by_hand), memory=memory).drift
    assert (unowned.class_.value, missing.class_.value) == ("unowned", "missing")
    assert unowned.detail == "by-hand is ours by the history, and has no marker of ours (unmanaged)"


def test_a_manifest_that_is_ahead_is_pending_with_a_history_too() -> None:
    found = report(a_stack(a_job(**OLD)), seen(a_job()), memory=a_memory(past(a_job(), 1, R)))
    assert (classes(found), [item.key for item in found.pending]) == ([], ["a"])


def test_a_store_that_is_away_is_said() -> None:
    [warning] = report(a_stack(APPLIED), seen(APPLIED), memory=Memory(problem="no route")).warnings
    assert warning.what == "the history could not be read"
