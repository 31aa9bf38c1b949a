"""docs/semantics.md, "Decisions": what becomes of a job whose upstream has completed a newer revision since.

Each row is decided in the three workspaces of the decision table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.decide.wait import Followed, may_start
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, C, F, P, R, T, plan_for
from tests.core.test_decision_table import around as around  # the three workspaces

RERUN = {"on_upstream": "rerun"}
STARTS = (Action.CREATE, Reason.UPSTREAM_NEWER)
COMPLETED = (Action.KEEP, Reason.COMPLETED)
DEFERRED = (Action.DEFER, Reason.NEEDS_PENDING)
FIX = "`lifecycle.on_upstream: rerun` runs it again, and so does an edit of `lifecycle.rerun`"

UP = a_job("up")
#: It ran for 60 s, and was created 10 s before: 20 hours ago, and 22 hours ago.
NEWER = seen(UP, revision=2, phase=DONE, ended_s_ago=20 * HOUR)
OLDER = seen(UP, phase=DONE, ended_s_ago=24 * HOUR)


def down(*needs: str, **more: Any) -> DesiredJob:
    more.setdefault("lifecycle", RERUN)
    return replace(a_job("down", **more), needs=needs or ("up",))


def made(desired: DesiredJob | None = None, **more: Any) -> ObservedJob:
    """The downstream job as it was created between the two revisions of the upstream."""
    return seen(desired or down(), **{"phase": DONE, "ended_s_ago": 22 * HOUR, **more})


def of_down(plan: Plan) -> PlannedAction:
    [action] = [action for action in plan.actions if action.key == "down"]
    return action


def decided(desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlannedAction:
    return of_down(plan_for(a_stack(UP, desired), *jobs, **more))


def outcome(action: PlannedAction) -> tuple[Action, Reason]:
    return action.action, action.reason


def warned(plan: Plan) -> list[str]:
    return [warning.what for warning in plan.warnings if warning.key == "down"]


# --- the rule


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (DONE, STARTS),
        (F, STARTS),
        (AB, STARTS),
        (TD, STARTS),
        (T, (Action.CREATE, Reason.WAITS_FOR_TERMINATION)),
        (C, (Action.KEEP, Reason.UNCHANGED)),
        (P, (Action.KEEP, Reason.UNCHANGED)),
        (R, (Action.KEEP, Reason.UNCHANGED)),
    ],
)
def test_upstream_rerun_reruns_an_ended_job_and_leaves_a_running_one(
    phase: Phase, expected: tuple[Action, Reason]
) -> None:
    action = decided(down(), OLDER, NEWER, made(phase=phase))
    assert outcome(action) == expected


def test_next_revision_names_its_upstream_and_counts_as_a_rerun() -> None:
    plan = plan_for(a_stack(UP, down()), OLDER, NEWER, made())
    action = of_down(plan)
    assert action.after is not None
    assert (action.after.revision, action.rerun_of) == (2, 1)
    assert action.detail == "made from an older up; on_upstream: rerun"
    assert plan.last_line.endswith("1 of them run finished work again.")
    assert warned(plan) == []


@pytest.mark.parametrize("lifecycle", [{}, {"on_upstream": "keep"}])
@pytest.mark.parametrize("phase", [DONE, R])
def test_job_without_on_upstream_rerun_is_kept_with_a_warning(
    lifecycle: dict[str, Any], phase: Phase
) -> None:
    desired = down(lifecycle=lifecycle)
    plan = plan_for(a_stack(UP, desired), OLDER, NEWER, made(desired, phase=phase))
    assert of_down(plan).action is Action.KEEP
    [warning] = [warning for warning in plan.warnings if warning.key == "down"]
    assert (warning.what, warning.fix) == ("made from an older up", FIX)
    assert warning.why == "up completed r2 at 2027-01-14T12:00:00Z, after down was created"


def test_running_job_is_announced_to_rerun_after_it_has_ended() -> None:
    plan = plan_for(a_stack(UP, down()), OLDER, NEWER, made(phase=R))
    [warning] = [warning for warning in plan.warnings if warning.key == "down"]
    assert warning.fix == "it runs again once it has ended (on_upstream: rerun)"


@pytest.mark.parametrize(
    "upstream",
    [
        [OLDER],
        [OLDER, seen(UP, revision=2, phase=F, ended_s_ago=20 * HOUR)],
        [OLDER, seen(UP, revision=2, phase=TD, ended_s_ago=20 * HOUR)],
        [OLDER, replace(NEWER, started_at_s=None, created_at_s=None)],
    ],
    ids=["one revision", "failed", "terminated", "no times"],
)
@pytest.mark.parametrize("lifecycle", [{}, RERUN])
def test_upstream_without_a_newer_completion_changes_nothing(
    upstream: list[ObservedJob], lifecycle: dict[str, Any]
) -> None:
    desired = down(lifecycle=lifecycle)
    plan = plan_for(a_stack(UP, desired), *upstream, made(desired))
    assert outcome(of_down(plan)) == COMPLETED
    assert warned(plan) == []


@pytest.mark.parametrize(
    "upstream", [[OLDER, seen(UP, revision=2, phase=R)], []], ids=["running", "not there yet"]
)
def test_upstream_that_runs_again_changes_nothing_for_a_job_that_keeps(upstream: list[ObservedJob]) -> None:
    desired = down(lifecycle={})
    plan = plan_for(a_stack(UP, desired), *upstream, made(desired))
    assert outcome(of_down(plan)) == COMPLETED
    assert warned(plan) == []


def test_job_without_a_time_of_creation_is_kept() -> None:
    assert outcome(decided(down(), NEWER, replace(made(), created_at_s=None))) == COMPLETED


@pytest.mark.parametrize("s_later", [0.0, 0.9])
def test_upstream_that_ended_when_the_job_was_created_is_not_newer(s_later: float) -> None:
    """The service rounds its times: what it was made from must not start it a second time."""
    job = made()
    assert job.created_at_s is not None
    assert NEWER.duration_s is not None
    up = replace(NEWER, started_at_s=job.created_at_s + s_later - NEWER.duration_s)
    assert outcome(decided(down(), up, job)) == COMPLETED


def test_rerun_newer_than_its_upstream_is_kept() -> None:
    again = seen(down(), revision=2, phase=DONE, ended_s_ago=19 * HOUR)
    plan = plan_for(a_stack(UP, down()), OLDER, NEWER, made(), again)
    assert outcome(of_down(plan)) == COMPLETED
    assert warned(plan) == []


# --- beside what else is decided


@pytest.mark.parametrize(
    ("lifecycle", "expected"),
    [
        ({}, (Action.CREATE, Reason.IMMUTABLE_CHANGED)),
        ({"on_change": "replace"}, (Action.CREATE, Reason.IMMUTABLE_CHANGED)),
        ({"on_change": "keep"}, STARTS),
        ({"on_change": "fail"}, (Action.CONFLICT, Reason.CHANGE_REFUSED)),
    ],
)
def test_edited_job_follows_on_change_and_a_rerun_includes_an_ignored_edit(
    lifecycle: dict[str, Any], expected: tuple[Action, Reason]
) -> None:
    action = decided(down(lifecycle={**RERUN, **lifecycle}), NEWER, made(a_job("down", **OLD)))
    assert outcome(action) == expected
    assert [change.path for change in action.changes] == ["algorithm.parameters.lr"]


@pytest.mark.parametrize(
    ("upstream", "expected", "detail"),
    [
        (seen(UP, revision=3, phase=R), DEFERRED, "up runs again"),
        (
            seen(UP, revision=3, phase=F),
            (Action.BLOCKED, Reason.NEEDS_FAILED),
            "needs up, which ended as Failed; blocks create: made from an older up; on_upstream: rerun",
        ),
        (
            seen(key="up-r3", description="by hand"),
            DEFERRED,
            "waiting for up, then create: made from an older up; on_upstream: rerun",
        ),
    ],
    ids=["running", "failed", "in conflict"],
)
def test_upstream_not_completed_defers_or_blocks_the_rerun(
    upstream: ObservedJob, expected: tuple[Action, Reason], detail: str
) -> None:
    action = decided(down(), OLDER, NEWER, upstream, made())
    assert (outcome(action), action.detail) == (expected, detail)


def test_single_newer_upstream_causes_a_rerun_that_waits_for_the_others() -> None:
    other = a_job("other")
    stack = a_stack(UP, other, down("up", "other"))
    jobs = (OLDER, NEWER, made())
    settled = seen(other, phase=DONE, ended_s_ago=30 * HOUR)
    assert outcome(of_down(plan_for(stack, *jobs, settled))) == STARTS
    assert of_down(plan_for(stack, *jobs, seen(other))).detail == "other runs again"


def test_many_newer_upstreams_are_counted() -> None:
    several = [a_job(f"up-{n}") for n in range(5)]
    desired = down(*(job.key for job in several), lifecycle={})
    upstream = [seen(job, phase=DONE, ended_s_ago=20 * HOUR) for job in several]
    plan = plan_for(a_stack(*several, desired), *upstream, made(desired))
    assert warned(plan) == ["made from an older up-0, up-1, up-2 and 2 more"]


def test_reruns_that_on_upstream_asks_for_are_not_counted_by_their_guard() -> None:
    keys = [f"down-{n}" for n in range(5)]
    entries = [replace(a_job(key, lifecycle=RERUN), needs=("up",)) for key in keys]
    jobs = [seen(entry, phase=DONE, ended_s_ago=22 * HOUR) for entry in entries]
    stack = a_stack(UP, *entries)
    plan = plan_for(stack, NEWER, *jobs)
    assert (plan.summary[Action.CREATE], plan.blocked) == (5, ())
    assert plan.last_line.endswith("5 of them run finished work again.")


def test_job_declared_absent_is_not_rerun() -> None:
    stack = a_stack(UP, replace(absent("down"), needs=("up",)))
    assert [action.key for action in plan_for(stack, OLDER, NEWER, made()).actions] == ["up"]


def test_upstream_declared_absent_causes_no_rerun() -> None:
    action = of_down(plan_for(a_stack(absent("up"), down()), OLDER, NEWER, made()))
    assert outcome(action) == COMPLETED


def test_renamed_upstream_counts_by_its_new_key() -> None:
    stack = a_stack(replace(a_job("new-up"), formerly=("up",)), down("new-up"))
    action = of_down(plan_for(stack, OLDER, NEWER, made()))
    assert (outcome(action), action.detail) == (
        STARTS,
        "made from an older new-up; on_upstream: rerun",
    )


# --- what the service has forgotten


def test_recorded_completion_of_an_upstream_that_has_aged_out_counts() -> None:
    memory = a_memory(past(UP, 1, job=OLDER), past(UP, 2, job=NEWER), past(down(), 1, job=made()))
    assert outcome(decided(down(), made(), memory=memory)) == STARTS


def test_aged_out_job_reruns_for_a_newer_upstream() -> None:
    memory = a_memory(past(UP, 1, job=OLDER), past(UP, 2, job=NEWER), past(down(), 1, job=made()))
    action = decided(down(), OLDER, NEWER, memory=memory)
    assert outcome(action) == STARTS
    assert action.after is not None
    assert action.after.revision == 2


# --- waiting


def test_wait_starts_a_rerun_only_if_the_plan_announced_it() -> None:
    later = decided(down(), OLDER, NEWER, made())
    kept = decided(down(), OLDER, made())
    announced = decided(down(), OLDER, NEWER, seen(UP, revision=3, phase=R), made())
    assert not may_start(Followed.of(kept), later)
    assert may_start(Followed.of(announced), later)
