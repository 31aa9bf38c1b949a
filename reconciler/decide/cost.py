"""What a plan costs, and which finished work it would run again.

At most is what `auto_stop` allows; without it the job is unbounded. Expected is the median of the key's
completed revisions. Source: docs/semantics.md, "Costs" and "Guards".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from math import isfinite
from statistics import median
from typing import Any

from reconciler.core.body_summary import UsedNodes, auto_stop_hours, resources
from reconciler.core.digest import ALGORITHMS, digest_of, is_known
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.record import FinishedWork
from reconciler.core.stack import NO_PRICES, DesiredJob, Prices, Stack
from reconciler.core.values import node_hours
from reconciler.decide.actions import rename_command
from reconciler.decide.key_state import Snapshot
from reconciler.decide.plan import Action, Cost, PlannedAction, Reason, spell_work

#: Amounts are rounded to a hundredth of a cent, work to a few node-seconds.
_MONEY, _WORK = 4, 6


def cost_of(body: Mapping[str, Any], revisions: Iterable[Revision], prices: Prices = NO_PRICES) -> Cost:
    """Return what a job with this create body costs, whose key had these revisions."""
    used = resources(body)
    most = node_hours_max(body)
    expected = _expected_node_hours(revisions)
    price = _price_of_node_hour(used, prices)
    return Cost(
        node_hours_max=most,
        node_hours_expected=expected,
        cost_max=_money(most, price),
        cost_expected=_money(expected, price),
        currency=prices.currency,
    )


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


def spell_cost(cost: Cost) -> str:
    """Say a cost for people: `at most 384.0 node-hours (CNY 10,944.00), 12.5 expected (CNY 356.25)`."""
    text = "unbounded node-hours"
    if cost.node_hours_max is not None:
        text = f"at most {spell_work(cost.node_hours_max)}{_price(cost.cost_max, cost.currency)}"
    if cost.node_hours_expected is not None:
        price = _price(cost.cost_expected, cost.currency)
        text += f", {spell_work(cost.node_hours_expected)} expected{price}"
    return text


def _price(amount: float | None, currency: str | None) -> str:
    return "" if amount is None else f" ({currency} {amount:,.2f})"


def unpriced(bodies: Iterable[Mapping[str, Any]], prices: Prices) -> tuple[str, ...]:
    """The flavors that create bodies name and that have no price, sorted; a pool counts by its id."""
    used = {one.name for body in bodies for one in resources(body)}
    return tuple(sorted(used - prices.node_hour.keys())) or ("jobs that name neither flavor nor pool",)


def _expected_node_hours(revisions: Iterable[Revision]) -> float | None:
    done = [
        node_hours(one.job.duration_s, one.job.node_count)
        for one in revisions
        if one.job.phase is Phase.COMPLETED and one.job.duration_s is not None
    ]
    return round(median(done), _WORK) if done else None


def _price_of_node_hour(used: Iterable[UsedNodes], prices: Prices) -> float | None:
    """The mean price of an hour of one of the nodes; None if one of them has none."""
    used = list(used)
    nodes = _nodes(used)
    prices_of_nodes = [((one.nodes or 0), prices.node_hour.get(one.name)) for one in used]
    if not nodes or any(price is None for _, price in prices_of_nodes):
        return None
    return sum(count * (price or 0.0) for count, price in prices_of_nodes) / nodes


def _nodes(used: Iterable[UsedNodes]) -> int | None:
    """How many nodes there are together; None if one of the numbers is none."""
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


# --- finished work that a new key would run again


class FinishedElsewhere:
    """What keys completed that are not declared any more, of this stack and of others on its target."""

    def __init__(self, stack: Stack, snapshot: Snapshot) -> None:
        self._stack, self._snapshot = stack, snapshot

    def marked(self, action: PlannedAction, desired: DesiredJob) -> PlannedAction:
        """The action; a create of a new key says whose finished work it runs again, if it does."""
        if action.action is not Action.CREATE or action.reason is not Reason.NOT_FOUND:
            return action
        found = self._find(desired)
        if found is None:
            return action
        return action.model_copy(
            update={"rerun_of": found.number, "rerun_of_key": found.key, "rerun_of_stack": found.stack}
        )

    def _find(self, desired: DesiredJob) -> FinishedWork | None:
        digests = [*digests_of_form(desired.digest)]
        for letter in sorted({digest[:1] for digest in self._own} - {desired.digest[:1]}):
            digests.append(digest_of(desired.covered_by(letter), letter))
        for known in (self._own, self._snapshot.memory.finished):
            if found := next((known[digest] for digest in digests if digest in known), None):
                return found
        return None

    @cached_property
    def _own(self) -> Mapping[str, FinishedWork]:
        """What keys of this stack completed, by digest; of several the newest of the first key."""
        completed = sorted(self._completed(), key=lambda one: (one[1].key, -one[1].number), reverse=True)
        return {digest: work for digest, work in completed if is_known(digest)}

    def _completed(self) -> Iterator[tuple[str, FinishedWork]]:
        ownership, memory = self._snapshot.ownership, self._snapshot.memory
        declared = self._stack.declared_keys | self._stack.former_keys
        for key in sorted({*ownership.owned_keys, *memory.by_key} - declared):
            owned = ownership.view(key).owned
            for revision in owned:
                if revision.job.phase is Phase.COMPLETED:
                    yield revision.marker.digest, FinishedWork(key, revision.number)
            # Of a job that is there, the service knows better than the record how it stands.
            seen = {revision.job.id for revision in owned}
            for past in ownership.remembered(memory, (key,)):
                is_completed = past.phase is Phase.COMPLETED and past.released_at_s is None
                if is_completed and past.job not in seen:
                    yield past.digest, FinishedWork(key, past.number)


def ways_to_keep_work(again: Collection[PlannedAction]) -> Iterator[str]:
    """What keeps the finished work of keys that were renamed, or moved here from other stacks."""
    if any(action.rerun_of_key is not None and action.rerun_of_stack is None for action in again):
        yield "name the old key under `formerly` of the new one"
    for stack in sorted({action.rerun_of_stack for action in again if action.rerun_of_stack is not None}):
        yield f"take the jobs of stack {stack} over ({rename_command(stack)})"


def digests_of_form(digest: str) -> frozenset[str]:
    """The digests that a job of the same form has, whichever version computed them."""
    return frozenset(letter + digest[1:] for letter in ALGORITHMS)


def digests_to_start(stack: Stack, snapshot: Snapshot) -> frozenset[str]:
    """The digests of the declared jobs of which nothing is owned or on record: they are about to be new."""
    new = (
        job
        for key, job in stack.jobs.items()
        if not (job.is_absent or snapshot.view(key, job).owned or snapshot.view(key, job).remembered)
    )
    return frozenset(digest for job in new for digest in digests_of_form(job.digest))
