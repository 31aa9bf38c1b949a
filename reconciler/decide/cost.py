"""What an action costs: the node-hours of the job that it starts, at most and as expected, and their price.

At most is what `auto_stop` allows; without it the job is unbounded. Expected is the median of the key's
completed revisions. Source: docs/concepts/guards.md, "Costs".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from reconciler.core.body import UsedNodes, auto_stop_hours, resources
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.stack import NO_PRICES, Prices
from reconciler.core.values import node_hours
from reconciler.decide.plan import Action, Cost, PlannedAction, spell_work

#: Amounts are rounded to a hundredth of a cent, work to a few node-seconds.
_MONEY, _WORK = 4, 6


def cost_of(body: Mapping[str, Any], revisions: Iterable[Revision], prices: Prices = NO_PRICES) -> Cost:
    """Return what a job with this create body costs, whose key had these revisions."""
    most, expected, price = node_hours_max(body), None, None
    done = [
        node_hours(one.job.duration_s, one.job.node_count)
        for one in revisions
        if one.job.phase is Phase.COMPLETED and one.job.duration_s is not None
    ]
    if done:
        from statistics import median

        expected = round(median(done), _WORK)
    nodes, an_hour = _nodes(resources(body)), _price_of_an_hour(body, prices)
    if nodes and an_hour is not None:
        price = an_hour / nodes  # the mean of the nodes
    return Cost(
        node_hours_max=most,
        node_hours_expected=expected,
        cost_max=_money(most, price),
        cost_expected=_money(expected, price),
        currency=prices.currency,
    )


def _price_of_an_hour(body: Mapping[str, Any], prices: Prices) -> float | None:
    """The price of an hour of all nodes; None where one of them has none."""
    used = [(one.nodes or 0, prices.node_hour.get(one.name)) for one in resources(body)]
    if any(of_node is None for _, of_node in used):
        return None
    return sum(count * (of_node or 0.0) for count, of_node in used)


def cost_of_all(bodies: Iterable[Mapping[str, Any]], prices: Prices) -> tuple[float | None, float | None]:
    """The cost of all these jobs at most, and of an hour in which all of them run; None where unknown."""
    jobs = list(bodies)
    most = sum_of(cost_of(body, (), prices) for body in jobs).cost_max
    return most, _sum([_price_of_an_hour(body, prices) for body in jobs])


def node_hours_max(body: Mapping[str, Any]) -> float | None:
    """The node-hours that a job with this body may take; None if nothing stops it, or that is unknown."""
    hours, nodes = auto_stop_hours(body), _nodes(resources(body))
    return None if hours is None or nodes is None else _rounded(hours * nodes, _WORK)


def total_cost(actions: Iterable[PlannedAction]) -> Cost:
    """The sums over all actions that start a job, now or later; a sum with an unknown in it is None."""
    return sum_of(one.cost for one in actions if one.cost is not None and one.action is not Action.BLOCKED)


def sum_of(all_costs: Iterable[Cost]) -> Cost:
    """The sums of some costs; a sum with an unknown in it is None."""
    costs = list(all_costs)
    return Cost(
        node_hours_max=_sum([cost.node_hours_max for cost in costs]),
        node_hours_expected=_sum([cost.node_hours_expected for cost in costs]),
        cost_max=_sum([cost.cost_max for cost in costs]),
        cost_expected=_sum([cost.cost_expected for cost in costs]),
        # All have the one of the manifest.
        currency=next((cost.currency for cost in costs), None),
    )


def spell_cost(cost: Cost, *, has_budget: bool = False) -> str:
    """Say a cost for people: `at most 384 node-hours (CNY 10,944.00), 12 node-hours expected (CNY 356.25)`.

    What nobody knows is left out: "" for a job that is unbounded and has never completed, where there is no
    budget that it exceeds.
    """
    parts = ["unbounded node-hours"] if has_budget and cost.node_hours_max is None else []
    if cost.node_hours_max is not None:
        parts.append(f"at most {spell_work(cost.node_hours_max)}{_price(cost.cost_max, cost.currency)}")
    if cost.node_hours_expected is not None and cost.node_hours_expected * 3600 >= 0.5:  # else 0 is shown
        price = _price(cost.cost_expected, cost.currency)
        parts.append(f"{spell_work(cost.node_hours_expected)} expected{price}")
    return ", ".join(parts)


def _price(amount: float | None, currency: str | None) -> str:
    return "" if amount is None else f" ({currency} {amount:,.2f})"


def unpriced(bodies: Iterable[Mapping[str, Any]], prices: Prices) -> tuple[str, ...]:
    """The flavors that create bodies name and that have no price, sorted; a pool counts by its id."""
    used = {one.name for body in bodies for one in resources(body)}
    return tuple(sorted(used - prices.node_hour.keys())) or ("jobs that name neither flavor nor pool",)


def _nodes(used: Iterable[UsedNodes]) -> int | None:
    counts = [one.nodes for one in used]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _money(work: float | None, price: float | None) -> float | None:
    return None if work is None or price is None else _rounded(work * price, _MONEY)


def _rounded(amount: float, digits: int) -> float | None:
    """An amount, None where it is beyond all numbers: JSON knows no infinity."""
    return round(amount, digits) if isfinite(amount) else None


def _sum(amounts: list[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return None if len(known) < len(amounts) else _rounded(sum(known), _WORK)
