"""docs/concepts/decisions.md: the rows that ask the history store.

Also: the effect of a store that is unavailable or not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.plan import Action, Reason
from reconciler.decide.planner import details_needed, needs_history
from reconciler.secrets import SecretText
from tests.builders import NOW, a_job, a_stack, absent, an_entry, seen
from tests.core.history import a_memory, past, recorded_declaration
from tests.core.test_decision_table import (
    DONE,
    OLD,
    TD,
    F,
    P,
    R,
    T,
    decided_everywhere,
    outcome,
    plan_everywhere,
)
from tests.core.worlds import a_look

NEW = a_job()
BEFORE = a_job(**OLD)


# --- the newest revision has aged out of the service


@pytest.mark.parametrize("protect", [None, False, True])
def test_create_is_blocked_beside_an_older_protected_active_revision(protect: bool | None) -> None:
    """The declaration completed in r2 and was followed by another one in r3: it would rerun as r4."""
    desired = a_job(lifecycle={"protect": protect})
    older = seen(BEFORE, protected=True), seen(desired, revision=2, phase=DONE)
    plan = plan_everywhere(a_stack(desired), *older, memory=a_memory(past(BEFORE, 3, DONE)))
    own, beside = sorted(plan.actions, key=lambda action: action.before is not None)
    assert beside.reason is (Reason.PROTECTION_RELEASED if protect is False else Reason.PROTECTED)
    assert (own.action, own.reason, own.after) == (Action.BLOCKED, Reason.PROTECTED, None)
    assert own.detail.startswith("a is active, and protected; ")


def test_change_of_an_aged_out_job_without_recorded_declaration_names_no_fields() -> None:
    action = decided_everywhere(NEW, memory=a_memory(past(BEFORE, is_declared_known=False)))
    assert outcome(action) == (Action.CREATE, Reason.IMMUTABLE_CHANGED, 2)
    assert action.changes == ()


def test_job_without_an_end_time_completed_at_its_first_completed_observation() -> None:
    looks = (("Running", NOW - 9 * 86_400), ("Completed", NOW - 2 * 86_400))
    done = past(NEW)._replace(duration_s=None, phases=looks)
    action = decided_everywhere(NEW, memory=a_memory(done))
    assert action.detail == "completed on 2027-01-13; its record has aged out of the service"


def test_active_job_missing_from_an_incomplete_list_is_unknown() -> None:
    """It may exist under a name that was not searched for."""
    plan = plan_everywhere(a_stack(NEW), is_whole=False, memory=a_memory(past(NEW, 1, R)))
    assert [action.action for action in plan.actions] == [Action.UNKNOWN]
    plan = plan_everywhere(a_stack(NEW), is_whole=False, memory=a_memory(past(NEW, 1, F)))
    assert [action.action for action in plan.actions] == [Action.KEEP], "it had ended when it was seen"


# --- the number of the next revision


@pytest.mark.parametrize(
    ("owned", "remembered", "names", "number"),
    [
        ([3], [4], [6], 7),
        ([8], [4], [6], 9),
        ([3], [9], [6], 10),
    ],
)
def test_next_revision_number_is_above_all_ever_seen(
    owned: list[int], remembered: list[int], names: list[int], number: int
) -> None:
    there = [seen(BEFORE, revision=n, phase=DONE) for n in owned]
    # Names the key had before it was renamed.
    away = [seen(key="b", revision=n, name=f"a-r{n}", job_id=f"{n:08}-0", id_part=f"{n:08}") for n in names]
    memory = a_memory(*(past(BEFORE, n, F) for n in remembered))
    [made] = (a for a in plan_everywhere(a_stack(NEW), *there, *away, memory=memory).actions if a.key == "a")
    assert made.after is not None
    assert made.after.revision == number


# --- an owned job that lost its marker


@pytest.mark.parametrize(
    ("desired", "made_of", "flag"),
    [(NEW, NEW, ""), (NEW, BEFORE, ""), (a_job(lifecycle={"protect": True}), NEW, ".protected")],
    ids=["as declared", "edited since", "protected"],
)
def test_restored_marker_replaces_the_description_and_has_the_digest_of_the_creation(
    desired: DesiredJob, made_of: DesiredJob, flag: str
) -> None:
    wiped = seen(made_of, description="mine now")
    found = decided_everywhere(desired, wiped, memory=a_memory(past(made_of, 1, R)))
    assert outcome(found) == (Action.UPDATE, Reason.MARKER_RESTORED, 1)
    assert found.desired is not None
    assert found.desired["description"] == f"reconciler.vision.a.r1.{made_of.digest}{flag}"
    assert (found.before and found.before.id) == wiped.id


def test_wiped_marker_of_an_adopted_job_is_restored_under_any_name() -> None:
    by_hand: dict[str, Any] = {"name": "by-hand", "job_id": "12345678-aaaa"}
    wiped = seen(NEW, description="", **by_hand)
    found = decided_everywhere(NEW, wiped, memory=a_memory(past(NEW, 1, R, id_part="12345678", **by_hand)))
    assert outcome(found) == (Action.UPDATE, Reason.MARKER_RESTORED, 1)
    assert found.desired is not None
    assert found.desired["description"] == f"reconciler.vision.a.r1.{NEW.digest}.id12345678"


@pytest.mark.parametrize("entries", [(a_job("b"),), (a_job("b"), absent())], ids=["undeclared", "absent"])
def test_wiped_marker_of_an_undeclared_job_is_not_restored(entries: tuple[Any, ...]) -> None:
    plan = plan_everywhere(
        a_stack(*entries), seen(NEW, description=""), seen(a_job("b")), memory=a_memory(past(NEW))
    )
    assert [(a.key, a.action) for a in plan.actions] == [("b", Action.KEEP)]


# --- the earlier declaration


def test_earlier_declaration_comes_from_the_history_without_details_requests() -> None:
    stack, job, memory = a_stack(NEW), seen(BEFORE), a_memory(past(BEFORE, 1, R))
    assert details_needed(stack, a_look(stack, job, memory=memory)) == ()
    assert details_needed(stack, a_look(stack, job)) == (job.id,)
    found = decided_everywhere(NEW, job, memory=memory, details={})
    assert outcome(found) == (Action.REPLACE, Reason.IMMUTABLE_CHANGED, 2)
    assert [(c.path, c.before, c.after) for c in found.changes] == [("algorithm.parameters.lr", "0.5", "0.1")]


@pytest.mark.parametrize(
    ("then", "now", "path"),
    [
        ({}, {"annotations": {"k": "v"}}, "annotations"),
        ({"annotations": {"k": "v"}}, {}, "annotations"),
        ({"annotations": {"k": "v"}}, {"annotations": {"k": "w"}}, "annotations.k"),
        ({}, {"lifecycle": {"rerun": "again"}}, "lifecycle.rerun"),
        ({"lifecycle": {"rerun": "once"}}, {"lifecycle": {"rerun": "twice"}}, "lifecycle.rerun"),
        ({"spec__auto_stop": {"time_unit": "HOURS", "duration": 2}}, {}, "spec.auto_stop"),
    ],
)
def test_changed_unreported_fields_are_named_from_the_history(
    then: dict[str, Any], now: dict[str, Any], path: str
) -> None:
    old, new = a_job(**then), a_job(**now)
    found = decided_everywhere(new, seen(old, phase=DONE), memory=a_memory(past(old)), details={})
    assert (found.action, found.reason) == (Action.CREATE, Reason.IMMUTABLE_CHANGED)
    assert {change.path.removesuffix(".duration").removesuffix(".time_unit") for change in found.changes} == {
        path
    }


@pytest.mark.parametrize(
    "remembered",
    [
        past(BEFORE, 1, R, declared=NEW),  # not what the digest covers
        past(BEFORE, 1, R, is_declared_known=False),
        past(BEFORE, 1, R, job=seen(BEFORE, job_id="another job")),
    ],
    ids=["another declaration", "nothing", "of another job"],
)
def test_history_not_matching_the_digest_is_ignored(remembered: Any) -> None:
    stack, job, memory = a_stack(NEW), seen(BEFORE), a_memory(remembered)
    assert details_needed(stack, a_look(stack, job, memory=memory)) == (job.id,)
    found = decided_everywhere(NEW, job, memory=memory)
    assert outcome(found) == (Action.REPLACE, Reason.IMMUTABLE_CHANGED, 2)
    assert decided_everywhere(NEW, job, memory=memory, details={}).action is Action.UNKNOWN


# --- the guard: a known stack without jobs


def test_stack_known_on_another_target_only_is_a_warning_that_names_it() -> None:
    """The first apply to a second target."""
    elsewhere = a_memory(elsewhere=("other.example, project p, workspace 0",))
    plan = plan_everywhere(a_stack(NEW), memory=elsewhere)
    assert plan.applyable
    assert not plan_everywhere(a_stack(NEW, a_job("b")), seen(a_job("b")), memory=elsewhere).warnings
    assert ["other.example" in warning.why for warning in plan.warnings] == [True]
    both = plan_everywhere(a_stack(NEW), memory=a_memory(past(BEFORE, 1, R), elsewhere=("other.example",)))
    assert "--allow found-nothing" in str(both.refusals[0].fix)
    assert not both.warnings


# --- a store that is unavailable, and one that need not be read


UNREADABLE = HistorySnapshot(problem="the record store is unavailable: no route to host")


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        # needed to create a key with no owned revision
        ([], Action.UNKNOWN),
        # needed for the owner of a name, and to restore a marker
        ([seen(NEW, description="")], Action.UNKNOWN),
        ([seen(NEW, stack="other")], Action.UNKNOWN),
        ([seen(NEW), seen(NEW, revision=2, description="")], Action.UNKNOWN),
        # owned revisions decide without it
        ([seen(NEW)], Action.KEEP),
        ([seen(NEW, phase=DONE)], Action.KEEP),
        ([seen(BEFORE)], Action.REPLACE),
        ([seen(BEFORE, phase=DONE)], Action.CREATE),
        ([seen(NEW, phase=TD, stopped=True)], Action.CREATE),
    ],
)
def test_key_that_depends_on_an_unreadable_history_is_unknown(
    jobs: list[ObservedJob], expected: Action
) -> None:
    plan = plan_everywhere(a_stack(NEW), *jobs, memory=UNREADABLE)
    assert [action.action for action in plan.actions] == [expected]
    assert plan.complete is (expected is not Action.UNKNOWN)
    [warning] = plan.warnings
    assert warning.what == "the history could not be read"
    assert "no route to host" in warning.why


def test_absent_key_is_terminated_despite_an_unreadable_history() -> None:
    plan = plan_everywhere(a_stack(absent(), a_job("b")), seen(NEW), seen(a_job("b")), memory=UNREADABLE)
    assert [action.action for action in plan.actions] == [Action.TERMINATE, Action.KEEP]


@pytest.mark.parametrize(
    ("stack", "jobs", "asks"),
    [
        (a_stack(NEW), [seen(NEW)], False),
        (a_stack(NEW), [seen(NEW, phase=P)], False),
        (a_stack(NEW), [seen(NEW, phase=DONE)], False),
        (a_stack(NEW, a_job("b")), [seen(NEW), seen(a_job("b"), phase=DONE)], False),
        (a_stack(NEW), [seen(BEFORE, phase=DONE), seen(NEW, revision=2)], False),
        (a_stack(a_job(description="new")), [seen(NEW)], False),
        (a_stack(absent()), [seen(NEW)], False),
        (a_stack(a_job("b")), [seen(NEW), seen(a_job("b"))], False),
        (a_stack(replace(a_job("b"), needs=("a",)), NEW), [seen(NEW), seen(a_job("b"))], False),
        (a_stack(replace(a_job("b"), formerly=("a",))), [seen(a_job("a"))], False),
        (a_stack(NEW), [], True),
        (a_stack(NEW), [seen(BEFORE)], True),
        (a_stack(NEW), [seen(NEW, phase=F)], True),
        (a_stack(NEW), [seen(NEW, phase=TD)], True),
        (a_stack(NEW), [seen(NEW, phase=T)], True),
        (a_stack(NEW), [seen(NEW), seen(BEFORE, revision=2, phase=F)], True),
        (a_stack(NEW), [seen(NEW), seen(NEW, revision=2, description="")], True),
        (a_stack(NEW, a_job("b")), [seen(NEW)], True),
    ],
)
def test_plan_without_changes_reads_no_history(stack: Stack, jobs: list[ObservedJob], asks: bool) -> None:
    assert needs_history(stack, a_look(stack, *jobs), {}) is asks


def test_changed_upstream_out_of_view_reads_the_history() -> None:
    needy = replace(a_job("b"), needs=("a",))
    stack = a_stack(needy, is_partial=True, whole={"a": NEW, "b": needy})
    assert needs_history(stack, a_look(stack, seen(a_job("b"))), {})
    assert not needs_history(stack, a_look(stack, seen(NEW), seen(a_job("b"))), {})


# --- recorded, and read back


def test_secret_recorded_by_name_is_no_change() -> None:
    secret = SecretText("s3cr3t-value", "Bearer ${var.token}")
    algorithm = {**an_entry()["algorithm"], "environments": {"TOKEN": secret}}
    before = a_job(algorithm=algorithm)
    now = a_job(algorithm={**algorithm, "parameters": {"lr": "0.7"}})
    action = decided_everywhere(now, seen(before, phase=R), memory=a_memory(past(before, phase=R)))
    assert [c.path for c in action.changes if "environments" in c.path] == []
    assert action.changes


def test_update_of_a_kept_revision_keeps_its_recorded_declaration() -> None:
    now = a_job(lr="0.7", description="new words", lifecycle={"on_change": "keep"})
    action = decided_everywhere(now, seen(BEFORE, phase=R), memory=a_memory(past(BEFORE, phase=R)))
    assert action.action is Action.UPDATE
    assert action.declared is not None
    assert action.declared.immutable == recorded_declaration(BEFORE).immutable
    assert action.declared.description == "new words"
