"""docs/semantics.md, "Decisions": `needs` holds a start back until the keys that it names are settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.selection import narrow
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, last_line
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, C, F, P, R, T, plan_for

WAITS = (Action.DEFER, Reason.NEEDS_PENDING)
FAILED = (Action.BLOCKED, Reason.NEEDS_FAILED)
STARTS = (Action.CREATE, Reason.NOT_FOUND)

UP = a_job("up")


def needing(*upstream: str, key: str = "down", **said: Any) -> DesiredJob:
    return replace(a_job(key, **said), needs=upstream or ("up",))


def by_key(plan: Plan) -> dict[str, PlannedAction]:
    """The action of each key, of which there is one."""
    assert len({action.key for action in plan.actions}) == len(plan.actions)
    return {action.key: action for action in plan.actions}


def decisions(stack: Stack, *jobs: ObservedJob, **more: Any) -> dict[str, tuple[Action, Reason]]:
    return {key: (a.action, a.reason) for key, a in by_key(plan_for(stack, *jobs, **more)).items()}


# --- one upstream


@pytest.mark.parametrize(
    ("lifecycle", "upstream", "expected"),
    [
        # settled: kept, and completed
        ({}, {"phase": DONE}, STARTS),
        # open: it runs, or is going to
        ({}, None, WAITS),
        ({}, {"phase": C}, WAITS),
        ({}, {"phase": P}, WAITS),
        ({}, {"phase": R}, WAITS),
        ({}, {"phase": T}, WAITS),
        ({"rerun": "again"}, {"phase": DONE}, WAITS),
        ({"on_change": "replace", "rerun": "again"}, {"phase": R}, WAITS),
        ({"on_failure": "retry"}, {"phase": F}, WAITS),
        ({"on_failure": "retry"}, {"phase": F, "ended_s_ago": 60}, WAITS),
        ({"on_terminated": "recreate"}, {"phase": TD}, WAITS),
        ({}, {"phase": TD, "stopped": True}, WAITS),
        # a change that is refused leaves it open, whatever ran before
        ({"on_change": "fail", "rerun": "again"}, {"phase": DONE}, WAITS),
        # failed: it ended badly, and nothing starts it again
        ({}, {"phase": F}, FAILED),
        ({}, {"phase": AB}, FAILED),
        ({}, {"phase": TD}, FAILED),
        ({"on_failure": "retry", "max_retries": 0}, {"phase": F}, FAILED),
        ({"on_change": "keep", "rerun": "again"}, {"phase": F}, FAILED),
        # a change that is ignored leaves what has completed settled
        ({"on_change": "keep", "rerun": "again"}, {"phase": DONE}, STARTS),
    ],
)
def test_downstream_job_starts_waits_or_fails_by_its_upstream(
    lifecycle: Mapping[str, Any], upstream: Mapping[str, Any] | None, expected: tuple[Action, Reason]
) -> None:
    declared = a_job("up", lifecycle=lifecycle)
    jobs = [] if upstream is None else [seen(UP, **upstream)]
    assert decisions(a_stack(declared, needing()), *jobs)["down"] == expected


def test_upstream_ended_by_auto_stop_counts_as_failed() -> None:
    stopping = a_job("up", spec__auto_stop={"time_unit": "HOURS", "duration": 1})
    found = decisions(a_stack(stopping, needing()), seen(stopping, phase=TD, ran_s=HOUR))
    assert found == {"up": (Action.KEEP, Reason.AUTO_STOPPED), "down": FAILED}


@pytest.mark.parametrize("phase", [R, DONE])
def test_upstream_declared_absent_counts_as_failed(phase: Phase) -> None:
    stack = a_stack(absent("up"), needing())
    assert by_key(plan_for(stack, seen(UP, phase=phase)))["down"].reason is Reason.NEEDS_FAILED


def test_unreadable_upstream_is_waited_for() -> None:
    stack = a_stack(UP, needing())
    lost = (Unreadable("status is missing", name="up"),)
    found = decisions(stack, seen(a_job("down", **OLD), phase=DONE), unreadable=lost)
    assert found["up"] == (Action.UNKNOWN, Reason.UNREADABLE)
    assert found["down"] == WAITS


def test_upstream_in_conflict_or_blocked_is_waited_for() -> None:
    stack = a_stack(UP, needing())
    assert decisions(stack, seen(key="up", description="by hand"))["down"] == WAITS
    assert decisions(stack, seen(UP, phase="Frozen"))["down"] == WAITS
    assert decisions(stack, seen(UP, phase=DONE, digest="z" + "0" * 12))["down"] == WAITS


@pytest.mark.parametrize(
    "upstream",
    [
        seen(UP, phase=DONE, protected=True),
        seen(UP, phase=DONE, digest="a" + "f" * 12),
        seen(replace(UP, key="was-up"), phase=DONE),
    ],
    ids=["released", "marker behind", "renamed"],
)
def test_completed_upstream_with_a_pending_update_counts_as_completed(upstream: ObservedJob) -> None:
    declared = replace(a_job("up", lifecycle={"protect": False}), formerly=("was-up",))
    found = decisions(a_stack(declared, needing()), upstream)
    assert found["up"][0] is Action.UPDATE
    assert found["down"] == STARTS


def test_upstream_with_a_marker_to_restore_is_waited_for() -> None:
    """What it was made of may not be what is declared: then it runs again first."""
    stack = a_stack(UP, needing())
    wiped = seen(UP, phase=DONE, description="")
    found = decisions(stack, wiped, memory=a_memory(past(UP, 1, DONE)))
    assert found == {"up": (Action.UPDATE, Reason.MARKER_RESTORED), "down": WAITS}


def test_aged_out_completed_upstream_counts_as_completed() -> None:
    found = decisions(a_stack(UP, needing()), memory=a_memory(past(UP)), force=True)
    assert found == {"up": (Action.KEEP, Reason.AGED_OUT), "down": STARTS}


# --- what is held back, and what is not


@pytest.mark.parametrize(("upstream", "kind"), [(R, WAITS), (F, FAILED)])
def test_replace_with_open_needs_neither_terminates_nor_creates(
    upstream: Phase, kind: tuple[Action, Reason]
) -> None:
    stack = a_stack(UP, needing())
    plan = plan_for(stack, seen(UP, phase=upstream), seen(a_job("down", **OLD), ran_s=999))
    held = by_key(plan)["down"]
    assert (held.action, held.reason) == kind
    assert held.before is not None
    assert (held.after, held.desired, held.lost_node_hours) == (None, None, 0)
    assert [change.path for change in held.changes] == ["algorithm.parameters.lr"]
    assert "replace" in held.detail
    assert plan.lost_node_hours == 0
    assert not plan.applyable


@pytest.mark.parametrize(
    "upstream", [None, seen(UP), seen(UP, phase=F), seen(a_job("up", **OLD), phase=DONE)]
)
@pytest.mark.parametrize("phase", [C, P, R, T, DONE])
def test_unchanged_active_or_completed_job_is_kept_whatever_its_upstream(
    upstream: ObservedJob | None, phase: Phase
) -> None:
    jobs = [seen(a_job("down"), phase=phase), *([upstream] if upstream else [])]
    assert decisions(a_stack(UP, needing()), *jobs)["down"][0] is Action.KEEP


def test_update_of_a_running_job_is_not_deferred() -> None:
    stack = a_stack(UP, needing(description="new"))
    assert decisions(stack, seen(a_job("down"), text="old"))["down"] == (
        Action.UPDATE,
        Reason.MUTABLE_CHANGED,
    )


@pytest.mark.parametrize(
    ("job", "lifecycle"),
    [
        (seen(a_job("down"), phase=F), {"on_failure": "retry"}),
        (seen(a_job("down"), phase=TD, stopped=True), {}),
        (seen(a_job("down", **OLD), phase=DONE), {}),
    ],
    ids=["retry", "declared again", "changed"],
)
def test_create_of_any_reason_is_deferred_until_the_upstream_completes(
    job: ObservedJob, lifecycle: Mapping[str, Any]
) -> None:
    stack = a_stack(UP, needing(lifecycle=lifecycle))
    assert decisions(stack, job, seen(UP))["down"] == WAITS
    assert decisions(stack, job, seen(UP, phase=DONE))["down"][0] is Action.CREATE


def test_retry_not_due_is_deferred_as_such_despite_open_needs() -> None:
    desired = needing(lifecycle={"on_failure": "retry"})
    found = decisions(a_stack(UP, desired), seen(UP), seen(desired, phase=F, ended_s_ago=60))
    assert found["down"] == (Action.DEFER, Reason.RETRY_LATER)


def test_key_declared_absent_does_not_wait_for_its_upstream() -> None:
    gone = replace(absent("down"), needs=("up",))
    assert decisions(a_stack(UP, gone), seen(a_job("down")))["down"] == (
        Action.TERMINATE,
        Reason.STATE_ABSENT,
    )


def test_superseded_revision_is_terminated_while_the_next_one_is_deferred() -> None:
    stack = a_stack(UP, needing())
    jobs = [seen(a_job("down", **OLD), revision=1, ran_s=9), seen(a_job("down", **OLD), revision=2)]
    plan = plan_for(stack, *jobs)
    assert [(a.action, a.reason) for a in plan.actions if a.key == "down"] == [
        (Action.TERMINATE, Reason.SUPERSEDED),
        WAITS,
    ]


# --- several keys


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], {"a": STARTS, "b": WAITS, "c": WAITS}),
        ([seen(a_job("a"))], {"b": WAITS, "c": WAITS}),
        ([seen(a_job("a"), phase=DONE)], {"b": STARTS, "c": WAITS}),
        ([seen(a_job("a"), phase=DONE), seen(a_job("b"))], {"c": WAITS}),
        ([seen(a_job("a"), phase=DONE), seen(a_job("b"), phase=DONE)], {"c": STARTS}),
        ([seen(a_job("a"), phase=F)], {"b": FAILED, "c": WAITS}),
        ([seen(a_job("b"), phase=DONE)], {"a": STARTS, "c": STARTS}),
        ([seen(a_job("a", **OLD), phase=DONE), seen(a_job("b"), phase=DONE)], {"c": STARTS}),
    ],
)
def test_chain_of_needs_is_deferred_at_every_link(
    jobs: list[ObservedJob], expected: dict[str, tuple[Action, Reason]]
) -> None:
    stack = a_stack(a_job("a"), needing("a", key="b"), needing("b", key="c"))
    found = decisions(stack, *jobs)
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (DONE, DONE, STARTS),
        (DONE, R, WAITS),
        (DONE, None, WAITS),
        (R, P, WAITS),
        (DONE, F, FAILED),
        (R, F, FAILED),  # what has failed decides, whatever the other one is up to
        (TD, F, FAILED),
    ],
)
def test_key_with_two_upstreams_waits_for_both(
    left: Phase, right: Phase | None, expected: tuple[Action, Reason]
) -> None:
    stack = a_stack(
        a_job("top"), needing("top", key="l"), needing("top", key="r"), needing("l", "r", key="bottom")
    )
    jobs = [seen(a_job("top"), phase=DONE), seen(a_job("l"), phase=left)]
    jobs += [seen(a_job("r"), phase=right)] if right else []
    assert decisions(stack, *jobs)["bottom"] == expected


def test_deferred_key_names_pending_and_failed_upstreams() -> None:
    stack = a_stack(a_job("a"), a_job("b"), a_job("c"), absent("d"), needing("a", "b", "c", "d"))
    jobs = [seen(a_job("a"), phase=DONE), seen(a_job("c"), phase=F)]
    assert by_key(plan_for(stack, *jobs))["down"].detail == (
        "needs c, which ended as Failed, d, which is absent; blocks create"
    )
    stack = a_stack(a_job("a"), a_job("b"), a_job("c"), needing("a", "b", "c"))
    assert by_key(plan_for(stack, jobs[0], seen(a_job("b"))))["down"].detail == (
        "waiting for b, c, then create"
    )


def test_summary_counts_what_is_deferred_and_blocked() -> None:
    stack = a_stack(UP, a_job("bad"), needing(), needing("bad", key="worse"))
    plan = plan_for(stack, seen(a_job("bad"), phase=F))
    assert plan.summary[Action.DEFER] == plan.summary[Action.BLOCKED] == 1
    assert last_line(plan.summary).endswith("1 deferred, 1 blocked.")
    assert plan.applyable


# --- an upstream out of view


def only(stack: Stack, *keys: str) -> Stack:
    return narrow(replace(stack, whole=stack.jobs), keys, [])


@pytest.mark.parametrize(
    ("phase", "expected"), [(DONE, STARTS), (R, WAITS), (None, WAITS), (F, FAILED), ("Frozen", WAITS)]
)
def test_upstream_out_of_view_counts_and_is_not_shown(
    phase: str | None, expected: tuple[Action, Reason]
) -> None:
    jobs = [seen(UP, phase=phase)] if phase else []
    assert decisions(only(a_stack(UP, needing()), "down"), *jobs) == {"down": expected}


def test_chain_of_needs_is_followed_out_of_view() -> None:
    stack = only(a_stack(a_job("a"), needing("a", key="b"), needing("b", key="c")), "c")
    assert decisions(stack, seen(a_job("a"), phase=DONE)) == {"c": WAITS}
    assert decisions(stack, seen(a_job("b"), phase=DONE)) == {"c": STARTS}


def test_upstream_out_of_view_that_changed_is_compared_like_any_other() -> None:
    stack = only(a_stack(a_job("up", **OLD), needing()), "down")
    assert decisions(stack, seen(UP, phase=DONE)) == {"down": WAITS}
    assert decisions(stack, seen(UP, phase=DONE), details={}) == {"down": WAITS}


@pytest.mark.parametrize(
    ("memory", "up"),
    [(NO_HISTORY, STARTS), (HistorySnapshot(problem="unavailable"), (Action.UNKNOWN, Reason.UNREADABLE))],
)
def test_aged_out_upstream_without_history_is_recreated_first_or_unknown(
    memory: HistorySnapshot, up: tuple[Action, Reason]
) -> None:
    found = decisions(a_stack(UP, needing()), memory=memory)
    assert found == {"up": up, "down": WAITS if up == STARTS else up}


@pytest.mark.parametrize(
    ("phase", "expected"), [(DONE, "starts"), (F, "blocked"), (TD, "blocked"), (R, "blocked")]
)
def test_aged_out_upstream_counts_as_completed_only_if_it_completed(phase: Phase, expected: str) -> None:
    found = decisions(a_stack(UP, needing()), memory=a_memory(past(UP, 1, phase)))["down"]
    assert found == (STARTS if expected == "starts" else (Action.BLOCKED, Reason.NEEDS_FAILED))
