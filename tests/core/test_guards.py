"""SEMANTICS 7: what a plan may not do unless somebody says so."""

from __future__ import annotations

import pytest

from reconciler.core.plan import Action, Plan
from reconciler.core.planner import make_destroy_plan
from reconciler.core.stack import Limits
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.test_decision_table import plan_for


def ending(stopping: int, active: int, **limits: float) -> Plan:
    """A plan that ends so many of so many active jobs."""
    kept = [a_job(f"keep-{n}") for n in range(active - stopping)]
    ended = [a_job(f"end-{n}") for n in range(stopping)]
    stack = a_stack(a_job("new"), *kept, limits=Limits.model_validate(limits))
    return plan_for(stack, *(seen(job) for job in (*kept, *ended)))


@pytest.mark.parametrize(
    ("stopping", "active", "is_refused"),
    [
        (4, 4, False),
        (5, 5, True),
        (5, 16, True),
        (5, 17, False),
        (6, 20, True),
        (6, 21, False),
        (0, 9, False),
    ],
)
def test_at_least_5_jobs_and_30_percent(stopping: int, active: int, is_refused: bool) -> None:
    plan = ending(stopping, active)
    assert bool(plan.refusals) is is_refused
    assert plan.applyable is not is_refused


def test_the_limits_are_the_stacks_own() -> None:
    assert ending(1, 100, terminations=1, terminations_percent=0).refusals
    assert not ending(50, 100, terminations=60).refusals
    assert not ending(50, 100, terminations_percent=51).refusals


def test_replacing_counts_like_terminating_and_force_lets_it_pass() -> None:
    old = [a_job(str(n), algorithm__parameters={"lr": 9}) for n in range(5)]
    stack = a_stack(*(a_job(str(n)) for n in range(5)))
    jobs = [seen(job) for job in old]
    assert plan_for(stack, *jobs).refusals
    assert not plan_for(stack, *jobs, force=True).refusals


def test_ended_jobs_are_not_counted_among_the_active_ones() -> None:
    ended = [seen(a_job(f"old-{n}"), phase="Completed") for n in range(50)]
    running = [seen(a_job(f"end-{n}")) for n in range(5)]
    assert plan_for(a_stack(a_job("new")), *ended, *running).refusals


def test_a_manifest_without_any_job_is_refused_unless_it_is_meant() -> None:
    [refusal] = plan_for(a_stack(), seen(a_job())).refusals
    assert refusal.fix is not None
    assert "--allow-empty" in refusal.fix
    assert not plan_for(a_stack(), seen(a_job()), allow_empty=True).refusals
    assert plan_for(a_stack(), seen(a_job()), force=True).refusals
    assert not plan_for(a_stack(absent()), seen(a_job())).refusals


def test_every_stop_shows_what_it_throws_away_and_the_plan_the_sum() -> None:
    stack = a_stack(a_job("new"))
    plan = plan_for(
        stack, seen(a_job("a"), ran_s=30 * HOUR, node_count=8), seen(a_job("b"), ran_s=HOUR, node_count=2)
    )
    details = {action.key: action.detail for action in plan.actions}
    assert "throws away 30 h on 8 nodes" in details["a"]
    assert "throws away 60 min on 2 nodes" in details["b"]
    assert plan.lost_node_hours == 242


def test_destroy_is_exempt_and_spares_what_is_protected() -> None:
    from reconciler.core.draft import Situation
    from reconciler.core.observed import Observation
    from reconciler.core.ownership import sort_by_key
    from reconciler.core.planner import Look

    jobs = [seen(a_job(str(n))) for n in range(6)]
    jobs += [
        seen(a_job("marked"), protected=True),
        seen(a_job("released"), protected=True),
        seen(a_job("declared")),
        seen(a_job("done"), phase="Completed"),
        seen(a_job("other"), stack="other"),
    ]
    stack = a_stack(
        a_job("0"),
        a_job("declared", lifecycle={"protect": True}),
        a_job("released", lifecycle={"protect": False}),
    )
    look = Look(sort_by_key(Observation(tuple(jobs)), "vision", stack.declared_keys), {})
    plan = make_destroy_plan(stack, look, Situation("vision"), TARGET, manifest_digest="", version="0")
    by_action = {a: [x.key for x in plan.actions if x.action is a] for a in Action}
    assert by_action[Action.TERMINATE] == [str(n) for n in range(6)]
    assert by_action[Action.BLOCKED] == ["declared", "marked", "released"]
    assert len(plan.actions) == 9
    assert not plan.refusals
