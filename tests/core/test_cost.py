"""docs/concepts/guards.md, "Costs": what a plan costs, and the budget that blocks it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.stack import Limits, Prices
from reconciler.decide.cost import spell_cost
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Action, Cost, Plan, without_growing
from tests.builders import HOUR, a_job, a_stack, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import plan_for

FLAVOR = "modelarts.vm.cpu.2u"
PRICES = Prices.model_validate({"currency": "CNY", "node_hour": {FLAVOR: 2.5, "gpu": 28.5}})


def bounded(key: str = "a", hours: int = 48, nodes: int = 8, **changed: Any) -> Any:
    """A job with an auto_stop."""
    stop = {"time_unit": "HOURS", "duration": hours}
    resource = {"flavor_id": FLAVOR, "node_count": nodes}
    return a_job(key, spec={"resource": resource, "auto_stop": stop}, **changed)


def cost(plan: Plan, key: str = "a") -> Cost:
    """Return the cost of one action."""
    found = next(action.cost for action in plan.actions if action.key == key)
    assert found is not None
    return found


def total(plan: Plan) -> Cost:
    """Return the cost of all actions."""
    assert plan.cost is not None
    return plan.cost


@pytest.mark.parametrize(
    ("job", "prices", "most", "price"),
    [
        (bounded(), PRICES, 384.0, 960.0),
        (bounded(), Prices(), 384.0, None),
        (a_job(), PRICES, None, None),
        (bounded(nodes=1, hours=1), PRICES, 1.0, 2.5),
        (a_job(spec={"resource": {"flavor_id": "other"}}), PRICES, None, None),
    ],
    ids=["bounded", "no prices", "unbounded", "one hour", "unknown flavor"],
)
def test_maximum_cost_of_a_create_follows_from_auto_stop(
    job: Any, prices: Prices, most: float | None, price: float | None
) -> None:
    found = cost(plan_for(a_stack(job, prices=prices)))
    assert (found.node_hours_max, found.cost_max) == (most, price)
    assert found.node_hours_expected is None


@pytest.mark.parametrize("hours", [0, -5, 1e308, True, "48", [48], float("nan")])
def test_invalid_auto_stop_leaves_the_cost_unknown(hours: Any) -> None:
    raw = {"spec": {"auto_stop": {"time_unit": "HOURS", "duration": hours}}}
    plan = plan_for(a_stack(bounded("a", raw=raw), bounded("b"), prices=PRICES))
    assert (cost(plan).node_hours_max, cost(plan).cost_max) == (None, None)
    assert total(plan).node_hours_max is None
    json.dumps(plan.document(), allow_nan=False)


@pytest.mark.parametrize("nodes", [0, -8, 1.5, True, "8", {"a": 1}, [8]])
def test_invalid_node_count_leaves_the_cost_unknown(nodes: Any) -> None:
    raw = {"spec": {"resource": {"node_count": nodes}}}
    plan = plan_for(a_stack(bounded("a", raw=raw), bounded("b"), prices=PRICES))
    assert (cost(plan).node_hours_max, cost(plan).cost_max) == (None, None)
    assert total(plan).cost_max is None


def test_overflowing_cost_is_unknown() -> None:
    prices = Prices.model_validate({"currency": "CNY", "node_hour": {FLAVOR: 1e308}})
    plan = plan_for(a_stack(bounded(nodes=1, hours=1), bounded("b", nodes=1, hours=1), prices=prices))
    assert (cost(plan).cost_max, total(plan).cost_max) == (1e308, None)
    assert cost(plan_for(a_stack(bounded(), prices=prices))).cost_max is None


def test_cost_of_each_task_counts_with_its_own_flavor() -> None:
    tasks = [
        {"role": "a", "task_resource": {"flavor_id": FLAVOR, "node_count": 2}},
        {"role": "b", "task_resource": {"flavor_id": "gpu", "node_count": 1}},
    ]
    stop = {"time_unit": "HOURS", "duration": 10}
    job = a_job(tasks=tasks, spec={"auto_stop": stop})
    found = cost(plan_for(a_stack(job, prices=PRICES)))
    assert (found.node_hours_max, found.cost_max) == (30.0, 335.0)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [([1.0], 2.0), ([1.0, 3.0], 4.0), ([1.0, 2.0, 9.0], 4.0), ([], None)],
)
def test_expected_cost_is_the_median_of_the_completed_revisions(
    hours: list[float], expected: float | None
) -> None:
    old = a_job(algorithm__parameters={"lr": 9})
    done = [
        seen(old, revision=number, phase="Completed", ran_s=one * HOUR, node_count=2)
        for number, one in enumerate(hours, 1)
    ]
    failed = seen(old, revision=len(hours) + 1, phase="Failed", ran_s=HOUR * 99)
    found = cost(plan_for(a_stack(a_job(), prices=PRICES), *done, failed))
    assert found.node_hours_expected == expected
    assert found.cost_expected == (None if expected is None else expected * 2.5)


def test_expected_cost_counts_aged_out_revisions() -> None:
    done = past(a_job(algorithm__parameters={"lr": 9}), phase="Completed", ran_s=2 * HOUR)
    found = cost(plan_for(a_stack(a_job()), memory=a_memory(done)))
    assert found.node_hours_expected == 2.0


def test_replace_has_a_cost_but_keep_and_terminate_do_not() -> None:
    kept, ended, edited = a_job("kept"), a_job("ended"), bounded("edited")
    jobs = [seen(kept), seen(ended), seen(bounded("edited", hours=1))]
    plan = plan_for(a_stack(kept, edited), *jobs)
    assert {action.key: action.cost is not None for action in plan.actions} == {
        "edited": True,
        "ended": False,
        "kept": False,
    }


def test_total_cost_is_the_sum_and_unknown_if_one_cost_is_unknown() -> None:
    known = plan_for(a_stack(bounded("a"), bounded("b", hours=2), prices=PRICES)).cost
    assert known == Cost(node_hours_max=400.0, cost_max=1000.0, currency="CNY")
    unknown = plan_for(a_stack(bounded("a"), a_job("b"), prices=PRICES)).cost
    assert unknown == Cost(currency="CNY")
    nothing = plan_for(a_stack(prices=PRICES)).cost
    assert nothing is not None
    assert (nothing.node_hours_max, nothing.cost_max) == (0.0, 0.0)


def test_create_waiting_for_its_turn_has_its_full_cost() -> None:
    members = [replace(bounded(key, hours=1, nodes=1), sweep="s", max_parallel=1) for key in "ab"]
    plan = plan_for(a_stack(*members))
    assert plan.summary[Action.DEFER] == 1
    assert cost(plan, "b") == cost(plan, "a")
    assert total(plan).node_hours_max == 2


def test_costs_are_not_part_of_the_plan_digest() -> None:
    document = plan_for(a_stack(bounded(), prices=PRICES)).document()
    assert document["cost"]["cost_max"] == 960.0
    left = without_growing(document)
    assert "cost" not in left
    assert "cost" not in left["actions"][0]


# --- the budget


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"node_hours": 383},
            "guard budget: more than 383 node-hours would be started in all; add --allow budget",
        ),
        ({"cost": 959}, "guard budget: more than CNY 959 would be spent in all; add --allow budget"),
        ({"node_hours": 384, "cost": 960}, None),
        ({}, None),
    ],
)
def test_create_over_budget_is_blocked(limits: dict[str, float], message: str | None) -> None:
    stack = a_stack(bounded(), prices=PRICES, limits=Limits.model_validate(limits))
    plan = plan_for(stack)
    assert [str(message) in action.detail for action in plan.blocked] == ([True] if message else [])
    assert plan.applyable is (message is None)
    assert plan_for(stack, allow=("budget",)).applyable


@pytest.mark.parametrize("limits", [{"node_hours": 1e9}, {"cost": 1e9}])
def test_job_without_auto_stop_exceeds_every_limit(limits: dict[str, float]) -> None:
    stack = a_stack(bounded("a"), a_job("endless"), prices=PRICES, limits=Limits.model_validate(limits))
    text = (
        "endless may run indefinitely, which exceeds every limit; set spec.auto_stop, or add --allow budget"
    )
    assert [text in action.detail for action in plan_for(stack).blocked] == [True, True]


def test_flavor_without_a_price_exceeds_a_limit_of_cost() -> None:
    resource = {"flavor_id": "new.flavor", "node_count": 1}
    job = a_job(spec={"resource": resource, "auto_stop": {"time_unit": "HOURS", "duration": 1}})
    [action] = plan_for(a_stack(job, prices=PRICES, limits=Limits(cost=100))).blocked
    assert "the cost is unknown: no price for new.flavor; add it to prices.node_hour" in action.detail


def test_budget_detail_includes_creates_waiting_for_a_blocked_key() -> None:
    waiting = replace(bounded("b"), needs=("a",))
    [diagnostic] = blockers(plan_for(a_stack(bounded("a"), waiting, limits=Limits(node_hours=500))))
    assert diagnostic.why == "blocks a: at most 768 node-hours would be started"


def test_plan_without_creates_is_within_every_budget() -> None:
    job = a_job()
    assert plan_for(a_stack(job, limits=Limits(node_hours=0, cost=0)), seen(job)).blocked == ()


# --- words


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Cost(), ""),
        (Cost(node_hours_max=384.0), "at most 384 node-hours"),
        (
            Cost(node_hours_max=384.0, cost_max=10944.0, currency="CNY"),
            "at most 384 node-hours (CNY 10,944.00)",
        ),
        (
            Cost(node_hours_expected=12.5, cost_expected=31.25, currency="CNY"),
            "12 node-hours expected (CNY 31.25)",
        ),
        (Cost(node_hours_expected=0.0001), ""),
    ],
)
def test_cost_is_rendered_for_people(found: Cost, text: str) -> None:
    assert spell_cost(found) == text
