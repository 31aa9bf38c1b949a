"""What a plan may not do unless somebody allows it: docs/semantics.md, "Guards".

Each guard is a function of the plan's facts to a refusal, which names what `--allow` takes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reconciler.core.declared.stack import OnChange, Prices, Stack
from reconciler.core.diagnostic import Diagnostic
from reconciler.core.planning.allowance import NO_ALLOWANCES, Allowances, Guard
from reconciler.core.planning.cost import total_cost, unpriced
from reconciler.core.planning.groups import few
from reconciler.core.planning.plan import Action, Cost, PlannedAction, PlanWarning, Reason, lost_sum
from reconciler.core.record import NO_HISTORY, HistorySnapshot

#: So many names stand in a message.
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the guards judge: the actions of a stack, and what of it was found on the target.

    `active_jobs` counts the whole stack, also where the plan is a partial view of it. `owns_nothing`
    says that no job of the stack was found on the target at all.
    """

    stack: Stack
    actions: Sequence[PlannedAction]
    active_jobs: int = 0
    owns_nothing: bool = False
    memory: HistorySnapshot = NO_HISTORY

    @property
    def starting(self) -> int:
        """How many jobs would be started."""
        return sum(action.traits.starts_a_job for action in self.actions)


def refusals(proposal: Proposal, allowances: Allowances = NO_ALLOWANCES) -> tuple[Diagnostic, ...]:
    """Return the reasons for which the plan must not be applied; none if it may be."""
    found = []
    for guard, judge in _JUDGES.items():
        refusal = None if allowances.permits(guard) else judge(proposal, allowances)
        if refusal is not None:
            found.append(refusal)
    return tuple(found)


def warnings(proposal: Proposal) -> tuple[PlanWarning, ...]:
    """Say what is most often right, and may be a mistake: the first apply to a second target."""
    memory = proposal.memory
    if not (proposal.owns_nothing and proposal.starting and memory.elsewhere) or memory.knows_stack:
        return ()
    known = "; ".join(memory.elsewhere)
    why = f"stack {proposal.stack.name} has no job on this target; the history knows it on {known}"
    return (PlanWarning(what="first apply to this target", why=why),)


def _empty(proposal: Proposal, _: Allowances) -> Diagnostic | None:
    stack = proposal.stack
    if stack.declared_keys or stack.jobs or stack.whole:
        return None
    return Diagnostic(
        what="the manifest declares no job",
        why=f"every job of stack {stack.name} would be terminated; an empty manifest is usually a mistake",
        fix=f"if this is intended, {_pass(Guard.EMPTY)} (or --allow-empty)",
    )


def _found_nothing(proposal: Proposal, _: Allowances) -> Diagnostic | None:
    """The wrong account, project or workspace looks like a stack of which nothing is left."""
    if not (proposal.owns_nothing and proposal.starting and proposal.memory.knows_stack):
        return None
    why = (
        f"stack {proposal.stack.name} has no job here, although the history knows it on this target, "
        f"and {proposal.starting} would be created"
    )
    fix = f"check the target, account and workspace; if they are correct, {_pass(Guard.FOUND_NOTHING)}"
    return Diagnostic("nothing of the stack was found", why, fix)


def _too_many_terminations(proposal: Proposal, _: Allowances) -> Diagnostic | None:
    limits, stack = proposal.stack.limits, proposal.stack
    stopping = sum(action.traits.stops_a_job for action in proposal.actions)
    if not _is_much(stopping, proposal.active_jobs, limits.terminations, limits.terminations_percent):
        return None
    why = (
        f"{stopping} of the {proposal.active_jobs} active jobs of stack {stack.name} would be terminated; "
        f"the limits are {limits.terminations} jobs and {limits.terminations_percent:g} %"
    )
    return Diagnostic("too many terminations", why, _read_again(Guard.TERMINATIONS))


def _too_much_lost_work(proposal: Proposal, allowances: Allowances) -> Diagnostic | None:
    stack, limit = proposal.stack, proposal.stack.limits.lost_node_hours
    unasked = [
        action
        for action in proposal.actions
        if action.lost_node_hours
        and not _is_asked_for(action, stack)
        and not allowances.permits_loss(action.key)
    ]
    lost = lost_sum(unasked)
    if lost <= limit:
        return None
    most = max(unasked, key=lambda action: action.lost_node_hours).key
    why = (
        f"{lost:.1f} node-hours of running work would be discarded, most of them of {most}; the "
        f"limit is {limit:g}"
    )
    fix = f"{_read_again(Guard.LOST_WORK)}, or --allow {Guard.LOST_WORK.value}=KEY for one key"
    return Diagnostic("too much work would be lost", why, fix)


def _is_asked_for(action: PlannedAction, stack: Stack) -> bool:
    """Whether the manifest says in so many words that the job ends: `on_change: replace`, `state: absent`."""
    if action.action is Action.REPLACE:
        entry = stack.find(action.key)
        return entry is not None and entry.lifecycle.on_change is OnChange.REPLACE
    return action.reason is Reason.STATE_ABSENT


def _too_many_reruns(proposal: Proposal, _: Allowances) -> Diagnostic | None:
    limits, stack = proposal.stack.limits, proposal.stack
    again = sum(action.rerun_of is not None for action in proposal.actions)
    keys = len(stack.declared_keys)
    if not _is_much(again, keys, limits.reruns, limits.reruns_percent):
        return None
    why = (
        f"{again} of the {proposal.starting} jobs to start run finished work again, of {keys} keys of stack "
        f"{stack.name}; the limits are {limits.reruns} keys and {limits.reruns_percent:g} %"
    )
    return Diagnostic("too much finished work would run again", why, _read_again(Guard.RERUNS))


def _over_budget(proposal: Proposal, _: Allowances) -> Diagnostic | None:
    """What is started may take more than `limits.node_hours`, or cost more than `limits.cost`."""
    limits = proposal.stack.limits
    starting = [action for action in proposal.actions if action.cost is not None]
    if not starting or (limits.node_hours is None and limits.cost is None):
        return None
    total = total_cost(starting)
    words = _too_much_work(starting, total, limits.node_hours)
    if words is None and limits.cost is not None:
        words = _too_expensive(starting, total, limits.cost, proposal.stack.prices)
    return None if words is None else Diagnostic("over budget", *words)


def _too_much_work(
    starting: Sequence[PlannedAction], total: Cost, limit: float | None
) -> tuple[str, str] | None:
    if total.node_hours_max is None:
        unbounded = [a.key for a in starting if a.cost is not None and a.cost.node_hours_max is None]
        why = f"{few(unbounded, _MOST_NAMES)} may run without end, which exceeds every limit"
        return why, f"set spec.auto_stop, or {_pass(Guard.BUDGET)}"
    if limit is None or total.node_hours_max <= limit:
        return None
    why = f"up to {total.node_hours_max:,.1f} node-hours would be started; the limit is {limit:,g}"
    return why, _read_again(Guard.BUDGET)


def _too_expensive(
    starting: Sequence[PlannedAction], total: Cost, limit: float, prices: Prices
) -> tuple[str, str] | None:
    if total.cost_max is None:
        why = f"what it costs is unknown: no price for {few(unpriced(starting, prices), _MOST_NAMES)}"
        return why, f"add it to prices.node_hour, or {_pass(Guard.BUDGET)}"
    if total.cost_max <= limit:
        return None
    why = f"up to {total.currency} {total.cost_max:,.2f} would be spent; the limit is {limit:,g}"
    return why, _read_again(Guard.BUDGET)


def _is_much(count: int, whole: int, limit: int, percent: float) -> bool:
    """Whether a count reaches both limits: a number, and a share of the whole in percent."""
    return count >= limit and count * 100 >= percent * whole


def _pass(guard: Guard) -> str:
    return f"add --allow {guard.value}"


def _read_again(guard: Guard) -> str:
    return f"review the plan, then {_pass(guard)}"


_JUDGES: Mapping[Guard, Callable[[Proposal, Allowances], Diagnostic | None]] = MappingProxyType(
    {
        Guard.EMPTY: _empty,
        Guard.FOUND_NOTHING: _found_nothing,
        Guard.TERMINATIONS: _too_many_terminations,
        Guard.LOST_WORK: _too_much_lost_work,
        Guard.RERUNS: _too_many_reruns,
        Guard.BUDGET: _over_budget,
    }
)
