"""docs/semantics.md, "Decisions": a chain of `on_upstream: rerun` is announced whole; each link runs once.

Each row is decided in the three workspaces of the decision table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.selection import narrow
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.decide.planner import propose_plan, with_cost
from reconciler.decide.reports import WaitKind, explain, make_status
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import AB, DONE, OLD, TD, C, F, P, R, T, plan_for
from tests.core.test_decision_table import around as around  # the three workspaces
from tests.core.worlds import a_world

RERUN = {"on_upstream": "rerun"}
NIGHTLY = {"schedule": "0 2 * * *"}
KEPT = (Action.KEEP, "completed")


def prepare(**said: Any) -> DesiredJob:
    return a_job("prepare", **said)


def link(key: str, *needs: str, lifecycle: dict[str, Any] | None = None, **said: Any) -> DesiredJob:
    return replace(a_job(key, lifecycle=RERUN if lifecycle is None else lifecycle, **said), needs=needs)


TRAIN, REPORT = link("train", "prepare"), link("report", "train")
CHAIN = (TRAIN, REPORT)


def done(entry: DesiredJob, hours_ago: float, **more: Any) -> ObservedJob:
    """A completed job, made that many hours ago."""
    return seen(entry, **{"phase": DONE, "ended_s_ago": hours_ago * HOUR, **more})


def decided(plan: Plan) -> dict[str, tuple[Action, str]]:
    """The action of each key, and why."""
    assert len({action.key for action in plan.actions}) == len(plan.actions)
    return {action.key: (action.action, action.detail) for action in plan.actions}


def of(plan: Plan, key: str) -> PlannedAction:
    [action] = [action for action in plan.actions if action.key == key]
    return action


def defer(detail: str) -> tuple[Action, str]:
    return Action.DEFER, detail


ANNOUNCED = {"train": defer("prepare runs again"), "report": defer("train runs again")}
LEFT_ALONE = {"train": KEPT, "report": KEPT}


def links(made: Iterable[ObservedJob] = (), **more: Any) -> dict[str, tuple[Action, str]]:
    """What becomes of train and report, which were made of the first prepare."""
    declared = more.pop("declared", prepare())
    stack = a_stack(declared, *CHAIN)
    found = decided(plan_for(stack, *made, done(TRAIN, 22), done(REPORT, 20), **more))
    return {key: found[key] for key in ("train", "report")}


# --- what makes the upstream run again, and what does not


@pytest.mark.parametrize(
    ("declared", "jobs"),
    [
        (prepare(**OLD), [done(prepare(), 24)]),
        (prepare(lifecycle={"rerun": "again"}), [done(prepare(), 24)]),
        (prepare(lifecycle={"on_change": "replace"}, **OLD), [seen(prepare(), ran_s=60)]),
        (prepare(lifecycle={"on_failure": "retry"}), [done(prepare(), 24, phase=F)]),
        (prepare(lifecycle={"on_failure": "retry"}), [seen(prepare(), phase=F, ended_s_ago=60)]),
        (prepare(lifecycle={"on_terminated": "recreate"}), [done(prepare(), 24, phase=TD)]),
        (prepare(), [done(prepare(), 24, phase=TD, stopped=True)]),
        (prepare(lifecycle=NIGHTLY), [done(prepare(lifecycle=NIGHTLY), 48)]),
        (prepare(), [done(prepare(), 24), seen(prepare(), revision=2, phase=C)]),
        (prepare(), [done(prepare(), 24), seen(prepare(), revision=2, phase=P)]),
        (prepare(), [done(prepare(), 24), seen(prepare(), revision=2, phase=R)]),
        (prepare(**OLD), [seen(prepare(), phase=T)]),
        (prepare(), []),
        # what runs completes once more, whatever is to become of the edit
        (prepare(lifecycle={"on_change": "fail"}, **OLD), [seen(prepare(), ran_s=60)]),
        (prepare(lifecycle={"protect": True}, **OLD), [seen(prepare(), ran_s=60)]),
        (prepare(**OLD), [seen(prepare(), ran_s=10 * HOUR)]),
    ],
    ids=[
        *("edit", "rerun", "replace", "retry due", "retry later", "recreate", "declared again"),
        *("schedule", "creating", "pending", "running", "ending", "not there"),
        *("edit refused", "protected", "would lose work"),
    ],
)
def test_chain_is_deferred_where_its_first_link_runs_again(
    declared: DesiredJob, jobs: list[ObservedJob]
) -> None:
    assert links(jobs, declared=declared) == ANNOUNCED


@pytest.mark.parametrize(
    ("declared", "job"),
    [
        (prepare(), done(prepare(), 24)),
        (prepare(description="new"), done(prepare(), 24, text="old")),
        (prepare(lifecycle={"on_change": "keep"}, **OLD), done(prepare(), 24)),
        (prepare(lifecycle={"on_change": "fail"}, **OLD), done(prepare(), 24)),
        (prepare(), done(prepare(), 24, phase=F)),
        (prepare(), done(prepare(), 24, phase=AB)),
        (prepare(), done(prepare(), 24, phase=TD)),
        (prepare(), done(prepare(), 24, digest="z" + "0" * 12)),
        (prepare(), seen(key="prepare", description="by hand")),
        (absent("prepare"), seen(prepare())),
    ],
    ids=[
        *("completed", "update", "edit ignored", "edit refused", "failed", "abnormal", "terminated"),
        *("unknown digest", "name taken", "absent"),
    ],
)
def test_chain_is_kept_where_its_first_link_does_not_run_again(
    declared: DesiredJob, job: ObservedJob
) -> None:
    assert links([job], declared=declared) == LEFT_ALONE


def test_chain_is_kept_where_its_first_link_could_not_be_read() -> None:
    assert links(unreadable=(Unreadable("status is missing", name="prepare"),)) == LEFT_ALONE


# --- link by link


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], {"prepare": (Action.CREATE, "algorithm.parameters.lr changed"), **ANNOUNCED}),
        ([seen(prepare(**OLD), revision=2)], {"prepare": (Action.KEEP, "running"), **ANNOUNCED}),
        (
            [done(prepare(**OLD), 3, revision=2)],
            {
                "prepare": KEPT,
                "train": (Action.CREATE, "made from an older prepare; on_upstream: rerun"),
                "report": defer("train runs again"),
            },
        ),
        (
            [done(prepare(**OLD), 3, revision=2), seen(TRAIN, revision=2, ended_s_ago=2 * HOUR)],
            {"prepare": KEPT, "train": (Action.KEEP, "running"), "report": defer("train runs again")},
        ),
        (
            [done(prepare(**OLD), 3, revision=2), done(TRAIN, 2, revision=2)],
            {
                "prepare": KEPT,
                "train": KEPT,
                "report": (Action.CREATE, "made from an older train; on_upstream: rerun"),
            },
        ),
        (
            [done(prepare(**OLD), 3, revision=2), done(TRAIN, 2, revision=2), done(REPORT, 1, revision=2)],
            {"prepare": KEPT, **LEFT_ALONE},
        ),
    ],
    ids=["edited", "first runs", "first done", "second runs", "second done", "all done"],
)
def test_chain_runs_link_by_link(jobs: list[ObservedJob], expected: dict[str, tuple[Action, str]]) -> None:
    stack = a_stack(prepare(**OLD), *CHAIN)
    made = done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20)
    assert decided(plan_for(stack, *made, *jobs)) == expected


def test_edited_last_link_waits_for_the_one_before_it_to_run_again() -> None:
    """Else it would run with the old one, and once more."""
    report = link("report", "train", **OLD)
    stack = a_stack(prepare(**OLD), TRAIN, report)
    found = decided(plan_for(stack, done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20)))
    assert found["report"] == defer("waiting for train, then create: algorithm.parameters.lr changed")


def test_new_last_link_waits_for_the_one_before_it_to_run_again() -> None:
    found = decided(plan_for(a_stack(prepare(**OLD), *CHAIN), done(prepare(), 24), done(TRAIN, 22)))
    assert found["report"] == defer("waiting for train, then create")


def test_replace_waits_for_the_link_before_it_to_run_again() -> None:
    report = link("report", "train", lifecycle={"on_change": "replace"}, **OLD)
    plan = plan_for(
        a_stack(prepare(**OLD), TRAIN, report), done(prepare(), 24), done(TRAIN, 22), seen(REPORT)
    )
    assert decided(plan)["report"] == defer(
        "waiting for train, then replace: algorithm.parameters.lr changed"
    )
    assert plan.lost_node_hours == 0


def test_link_that_keeps_ends_the_chain() -> None:
    train = link("train", "prepare", lifecycle={})
    stack = a_stack(prepare(**OLD), train, REPORT)
    found = decided(plan_for(stack, done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20)))
    assert (found["train"], found["report"]) == (KEPT, KEPT)


def test_running_link_is_kept_and_runs_again_for_those_behind_it() -> None:
    stack = a_stack(prepare(**OLD), *CHAIN)
    found = decided(plan_for(stack, done(prepare(), 24), seen(TRAIN), done(REPORT, 20)))
    assert found["train"] == (Action.KEEP, "running")
    assert found["report"] == defer("train runs again")


@pytest.mark.parametrize("phase", [F, AB, TD, T])
def test_link_that_ended_badly_is_deferred_with_the_rest(phase: Any) -> None:
    stack = a_stack(prepare(**OLD), *CHAIN)
    found = decided(plan_for(stack, done(prepare(), 24), done(TRAIN, 22, phase=phase), done(REPORT, 20)))
    assert {key: found[key] for key in ANNOUNCED} == ANNOUNCED


@pytest.mark.parametrize(("on_change", "expected"), [("keep", "prepare runs again"), ("fail", None)])
def test_edit_that_is_ignored_is_deferred_and_one_that_is_refused_stays_in_conflict(
    on_change: str, expected: str | None
) -> None:
    train = link("train", "prepare", lifecycle={**RERUN, "on_change": on_change}, **OLD)
    plan = plan_for(a_stack(prepare(**OLD), train), done(prepare(), 24), done(TRAIN, 22))
    action = of(plan, "train")
    assert [change.path for change in action.changes] == ["algorithm.parameters.lr"]
    if expected is None:
        assert (action.action, action.reason) == (Action.CONFLICT, Reason.CHANGE_REFUSED)
    else:
        assert (action.action, action.detail) == (Action.DEFER, expected)


def test_deferred_link_names_what_it_waits_for_and_is_not_counted_as_a_rerun_yet() -> None:
    plan = plan_for(a_stack(prepare(**OLD), *CHAIN), done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20))
    train = of(plan, "train")
    assert (train.reason, train.waits_for, train.rerun_of) == (Reason.NEEDS_PENDING, ("prepare",), None)
    assert plan.last_line == (
        "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep. 2 deferred. "
        "1 of them run finished work again."
    )


# --- several upstreams

LEFT, RIGHT = link("left", "prepare"), link("right", "prepare")
BOTTOM = link("bottom", "left", "right")


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        (
            [],
            {
                "left": defer("prepare runs again"),
                "right": defer("prepare runs again"),
                "bottom": defer("left, right run again"),
            },
        ),
        (
            [done(prepare(**OLD), 3, revision=2), done(LEFT, 2, revision=2), seen(RIGHT, revision=2)],
            {"left": KEPT, "right": (Action.KEEP, "running"), "bottom": defer("right runs again")},
        ),
        (
            [
                done(prepare(**OLD), 3, revision=2),
                done(LEFT, 2, revision=2),
                done(RIGHT, 2, revision=2, phase=F),
            ],
            {
                "left": KEPT,
                "right": (Action.KEEP, "failed; on_failure: keep"),
                "bottom": (
                    Action.BLOCKED,
                    "needs right, which ended as Failed; "
                    "blocks create: made from an older left; on_upstream: rerun",
                ),
            },
        ),
        (
            [done(prepare(**OLD), 3, revision=2), done(LEFT, 2, revision=2), done(RIGHT, 1, revision=2)],
            {
                "left": KEPT,
                "right": KEPT,
                "bottom": (Action.CREATE, "made from an older left, right; on_upstream: rerun"),
            },
        ),
    ],
    ids=["edited", "one branch done", "one branch failed", "both done"],
)
def test_diamond_waits_for_both_branches(
    jobs: list[ObservedJob], expected: dict[str, tuple[Action, str]]
) -> None:
    stack = a_stack(prepare(**OLD), LEFT, RIGHT, BOTTOM)
    made = done(prepare(), 24), done(LEFT, 22), done(RIGHT, 22), done(BOTTOM, 20)
    found = decided(plan_for(stack, *made, *jobs))
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (DONE, defer("prepare runs again")),
        (R, defer("other, prepare run again")),
        (F, (Action.BLOCKED, "needs other, which ended as Failed; blocks create: prepare runs again")),
    ],
)
def test_link_with_one_upstream_that_runs_again_heeds_the_other(
    other: Any, expected: tuple[Action, str]
) -> None:
    train = link("train", "other", "prepare")
    stack = a_stack(prepare(**OLD), a_job("other"), train)
    jobs = done(prepare(), 24), seen(a_job("other"), phase=other, ended_s_ago=24 * HOUR), done(train, 22)
    assert decided(plan_for(stack, *jobs))["train"] == expected


# --- what is out of view, or forgotten


def only(stack: Stack, *keys: str) -> Stack:
    return narrow(replace(stack, whole=stack.jobs), keys, [])


@pytest.mark.parametrize("key", ["train", "report"])
def test_link_whose_upstream_is_out_of_view_is_deferred_all_the_same(key: str) -> None:
    stack = only(a_stack(prepare(**OLD), *CHAIN), key)
    plan = plan_for(stack, done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20))
    assert decided(plan) == {key: ANNOUNCED[key]}


@pytest.mark.parametrize("forgotten", ["prepare", "train", "report"])
def test_link_that_has_aged_out_is_part_of_the_chain(forgotten: str) -> None:
    made = {"prepare": done(prepare(), 24), "train": done(TRAIN, 22), "report": done(REPORT, 20)}
    entries = {"prepare": prepare(), "train": TRAIN, "report": REPORT}
    memory = a_memory(*(past(entries[key], 1, job=job) for key, job in made.items()))
    jobs = [job for key, job in made.items() if key != forgotten]
    found = decided(plan_for(a_stack(prepare(**OLD), *CHAIN), *jobs, memory=memory))
    assert {key: found[key] for key in ANNOUNCED} == ANNOUNCED
    assert found["prepare"][0] is Action.CREATE


def test_scheduled_link_waits_for_its_upstream_to_run_again() -> None:
    train = link("train", "prepare", lifecycle={**RERUN, **NIGHTLY})
    found = decided(plan_for(a_stack(prepare(**OLD), train), done(prepare(), 70), done(train, 60)))
    assert found["train"][0] is Action.DEFER
    assert found["train"][1].startswith("waiting for prepare, then create: scheduled for")


# --- in the other reports


def test_link_about_to_run_again_is_pending_and_has_not_drifted() -> None:
    jobs = done(prepare(), 24), done(TRAIN, 22, phase=F), done(REPORT, 20, text="by hand")
    world = a_world(a_stack(prepare(**OLD), *CHAIN), *jobs)
    report = world.drift()
    assert report.drift == ()
    assert {one.key: one.detail for one in report.pending} == {
        "prepare": "changed since r1 (Completed)",
        "train": "prepare runs again",
        "report": "train runs again",
    }


def test_link_whose_turn_has_come_is_pending() -> None:
    jobs = done(prepare(), 24), done(prepare(), 21, revision=2), done(TRAIN, 22), done(REPORT, 20)
    report = a_world(a_stack(prepare(), *CHAIN), *jobs).drift()
    assert report.drift == ()
    assert {one.key: one.detail for one in report.pending} == {
        "train": "made from an older prepare; on_upstream: rerun",
        "report": "train runs again",
    }


def test_link_that_keeps_is_neither_pending_nor_drift() -> None:
    train = link("train", "prepare", lifecycle={})
    report = a_world(a_stack(prepare(**OLD), train), done(prepare(), 24), done(train, 22)).drift()
    assert (report.drift, [one.key for one in report.pending]) == ((), ["prepare"])


def test_why_of_a_deferred_link_names_its_rule_and_its_way_out() -> None:
    world = a_world(a_stack(prepare(**OLD), *CHAIN), done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20))
    proposed = propose_plan(world.stack, world.look, world.context, TARGET)
    said = explain("train", proposed, world.plan())
    assert (said.rules[-1].name, said.chosen) == ("upstream-newer", Action.CREATE)
    assert said.actions[0].detail == "prepare runs again"
    assert said.otherwise == (
        "wait until the needed keys have completed",
        "set `lifecycle.on_upstream: keep`, and it is kept, with a warning",
    )
    assert [one.detail for one in said.pending] == ["prepare runs again"]


def test_status_of_a_deferred_link_names_what_it_waits_for() -> None:
    world = a_world(a_stack(prepare(**OLD), *CHAIN), done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20))
    rows = make_status(world.stack, world.look, world.plan(), world.context, {}).jobs
    [train] = [row for row in rows if row.key == "train"]
    assert train.phase == "Completed"
    assert train.waits_for is not None
    assert (train.waits_for.kind, train.waits_for.keys) == (WaitKind.NEEDS, ("prepare",))
    assert train.waits_for.detail == "prepare runs again"


def test_cost_of_a_deferred_link_is_known() -> None:
    world = a_world(a_stack(prepare(**OLD), *CHAIN), done(prepare(), 24), done(TRAIN, 22), done(REPORT, 20))
    chosen = world.decisions()["report"].chosen
    assert chosen is not None
    assert with_cost(chosen, world.stack, world.look).cost is not None
