"""What an action costs: the node-hours of the job that it starts, at most and expected, and their price.

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
from reconciler.core.stack import Prices
from reconciler.core.values import node_hours
from reconciler.decide.plan import Action, Cost, PlannedAction, spell_work

#: Decimal places of amounts of money, and of node-hours.
_MONEY, _WORK = 4, 6


def cost_of(body: Mapping[str, Any], revisions: Iterable[Revision], prices: Prices) -> Cost:
    """Return the cost of a job with this create body, for a key with these revisions."""
    most, expected, price = node_hours_max(body), None, None
    done = [
        node_hours(one.job.duration_s, one.job.node_count)
        for one in revisions
        if one.job.phase is Phase.COMPLETED and one.job.duration_s is not None
    ]
    if done:
        from statistics import median

        expected = round(median(done), _WORK)
    nodes, hourly = _nodes(resources(body)), _hourly_price(body, prices)
    if nodes and hourly is not None:
        price = hourly / nodes  # the mean over all nodes
    return Cost(
        node_hours_max=most,
        node_hours_expected=expected,
        cost_max=_money(most, price),
        cost_expected=_money(expected, price),
        currency=prices.currency,
    )


def _hourly_price(body: Mapping[str, Any], prices: Prices) -> float | None:
    """Return the price per hour of all nodes; None if one of them has no price."""
    used = [(one.nodes or 0, prices.node_hour.get(one.name)) for one in resources(body)]
    if any(price is None for _, price in used):
        return None
    return sum(count * (price or 0.0) for count, price in used)


def cost_of_all(bodies: Iterable[Mapping[str, Any]], prices: Prices) -> tuple[float | None, float | None]:
    """Return the total cost of these jobs at most, and their price per hour; None if unknown."""
    jobs = list(bodies)
    most = sum_of(cost_of(body, (), prices) for body in jobs).cost_max
    return most, _sum([_hourly_price(body, prices) for body in jobs])


def node_hours_max(body: Mapping[str, Any]) -> float | None:
    """Return the most node-hours that a job may use; None if unbounded or unknown."""
    hours, nodes = auto_stop_hours(body), _nodes(resources(body))
    return None if hours is None or nodes is None else _rounded(hours * nodes, _WORK)


def total_cost(actions: Iterable[PlannedAction]) -> Cost:
    """Sum the costs of all actions that start a job, now or later; see `sum_of`."""
    return sum_of(one.cost for one in actions if one.cost is not None and one.action is not Action.BLOCKED)


def sum_of(all_costs: Iterable[Cost]) -> Cost:
    """Sum costs; a sum with an unknown in it is None."""
    costs = list(all_costs)
    return Cost(
        node_hours_max=_sum([cost.node_hours_max for cost in costs]),
        node_hours_expected=_sum([cost.node_hours_expected for cost in costs]),
        cost_max=_sum([cost.cost_max for cost in costs]),
        cost_expected=_sum([cost.cost_expected for cost in costs]),
        # All have the currency of the manifest.
        currency=next((cost.currency for cost in costs), None),
    )


def spell_cost(cost: Cost, *, has_budget: bool = False) -> str:
    """Format a cost: `at most 384 node-hours (CNY 10,944.00), 12 node-hours expected (CNY 356.25)`.

    Unknown parts are left out; "" for an unbounded job that has never completed, unless a budget makes that
    matter.
    """
    parts = ["unbounded node-hours"] if has_budget and cost.node_hours_max is None else []
    if cost.node_hours_max is not None:
        parts.append(f"at most {spell_work(cost.node_hours_max)}{_price(cost.cost_max, cost.currency)}")
    expected = cost.node_hours_expected or 0.0
    if expected * 3600 >= 0.5:  # else it would be shown as 0
        parts.append(f"{spell_work(expected)} expected{_price(cost.cost_expected, cost.currency)}")
    return ", ".join(parts)


def _price(amount: float | None, currency: str | None) -> str:
    return "" if amount is None else f" ({currency} {amount:,.2f})"


def unpriced(bodies: Iterable[Mapping[str, Any]], prices: Prices) -> tuple[str, ...]:
    """Return the flavors, or ids of pools, in create bodies that have no price, sorted."""
    used = {one.name for body in bodies for one in resources(body)}
    return tuple(sorted(used - prices.node_hour.keys())) or ("jobs that name neither flavor nor pool",)


def _nodes(used: Iterable[UsedNodes]) -> int | None:
    counts = [one.nodes for one in used]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _money(work: float | None, price: float | None) -> float | None:
    return None if work is None or price is None else _rounded(work * price, _MONEY)


def _rounded(amount: float, digits: int) -> float | None:
    """Round an amount; None if it is infinite, because JSON has no infinity."""
    return round(amount, digits) if isfinite(amount) else None


def _sum(amounts: list[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return None if len(known) < len(amounts) else _rounded(sum(known), _WORK)
