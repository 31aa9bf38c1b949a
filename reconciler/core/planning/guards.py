"""What a plan may not do unless somebody allows it: docs/semantics.md, "Guards".

Each guard is a function of the plan's facts to a refusal, which names what `--allow` takes for it, and to the
actions that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from reconciler.core.declared.lifecycle import OnChange
from reconciler.core.declared.stack import Prices, Stack
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
    def starting(self) -> list[PlannedAction]:
        """The actions that would start a job."""
        return [action for action in self.actions if action.traits.starts_a_job]

    @property
    def ending(self) -> list[PlannedAction]:
        """The actions that would end a job."""
        return [action for action in self.actions if action.traits.stops_a_job]


class GuardRefusal(NamedTuple):
    """What a guard says against a plan, and the actions because of which it does."""

    refusal: Diagnostic
    because_of: Sequence[PlannedAction]


_Verdict = GuardRefusal | None


def refusals(proposal: Proposal, allowances: Allowances = NO_ALLOWANCES) -> tuple[Diagnostic, ...]:
    """Return the reasons for which the plan must not be applied; none if it may be."""
    return tuple(one.refusal for _, one in refusals_by_guard(proposal, allowances))


def refusals_by_guard(
    proposal: Proposal, allowances: Allowances = NO_ALLOWANCES
) -> Iterator[tuple[Guard, GuardRefusal]]:
    """The same with the guard and the actions that each is about."""
    for guard, judge in _JUDGES.items():
        refused = None if allowances.permits(guard) else judge(proposal, allowances)
        if refused is not None:
            yield guard, refused


def warnings(proposal: Proposal) -> tuple[PlanWarning, ...]:
    """Say what is most often right, and may be a mistake: the first apply to a second target."""
    memory = proposal.memory
    if not (proposal.owns_nothing and proposal.starting and memory.elsewhere) or memory.knows_stack:
        return ()
    known = "; ".join(memory.elsewhere)
    why = f"stack {proposal.stack.name} has no job on this target; the history knows it on {known}"
    return (PlanWarning(what="first apply to this target", why=why),)


def _empty(proposal: Proposal, _: Allowances) -> _Verdict:
    stack = proposal.stack
    if stack.declared_keys or stack.jobs or stack.whole:
        return None
    why = f"every job of stack {stack.name} would be terminated; an empty manifest is usually a mistake"
    fix = f"if this is intended, {_pass(Guard.EMPTY)} (or --allow-empty)"
    return GuardRefusal(Diagnostic("the manifest declares no job", why, fix), proposal.ending)


def _found_nothing(proposal: Proposal, _: Allowances) -> _Verdict:
    """The wrong account, project or workspace looks like a stack of which nothing is left."""
    if not (proposal.owns_nothing and proposal.starting and proposal.memory.knows_stack):
        return None
    why = (
        f"stack {proposal.stack.name} has no job here, although the history knows it on this target, "
        f"and {len(proposal.starting)} would be created"
    )
    fix = f"check the target, account and workspace; if they are correct, {_pass(Guard.FOUND_NOTHING)}"
    return GuardRefusal(Diagnostic("nothing of the stack was found", why, fix), proposal.starting)


def _too_many_terminations(proposal: Proposal, _: Allowances) -> _Verdict:
    limits, stack = proposal.stack.limits, proposal.stack
    stopping = len(proposal.ending)
    if not _is_much(stopping, proposal.active_jobs, limits.terminations, limits.terminations_percent):
        return None
    why = (
        f"{stopping} of the {proposal.active_jobs} active jobs of stack {stack.name} would be terminated; "
        f"the limits are {limits.terminations} jobs and {limits.terminations_percent:g} %"
    )
    return GuardRefusal(
        Diagnostic("too many terminations", why, _read_again(Guard.TERMINATIONS)), proposal.ending
    )


def _too_much_lost_work(proposal: Proposal, allowances: Allowances) -> _Verdict:
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
    return GuardRefusal(Diagnostic("too much work would be lost", why, fix), unasked)


def _is_asked_for(action: PlannedAction, stack: Stack) -> bool:
    """Whether the manifest says in so many words that the job ends: `on_change: replace`, `state: absent`."""
    if action.action is Action.REPLACE:
        entry = stack.find(action.key)
        # What a schedule replaces for being there, and not for an edit, `on_change` says nothing of.
        was_edited = (
            action.before is None or action.after is None or action.before.digest != action.after.digest
        )
        return was_edited and entry is not None and entry.lifecycle.on_change is OnChange.REPLACE
    return action.reason is Reason.STATE_ABSENT


def _too_many_reruns(proposal: Proposal, _: Allowances) -> _Verdict:
    limits, stack = proposal.stack.limits, proposal.stack
    again = [action for action in proposal.actions if action.rerun_of is not None]
    keys = len(stack.declared_keys)
    if not _is_much(len(again), keys, limits.reruns, limits.reruns_percent):
        return None
    why = (
        f"{len(again)} of the {len(proposal.starting)} jobs to start run finished work again, of {keys} keys "
        f"of stack {stack.name}; the limits are {limits.reruns} keys and {limits.reruns_percent:g} %"
    )
    refusal = Diagnostic("too much finished work would run again", why, _read_again(Guard.RERUNS))
    return GuardRefusal(refusal, again)


def _over_budget(proposal: Proposal, _: Allowances) -> _Verdict:
    """What is started may take more than `limits.node_hours`, or cost more than `limits.cost`."""
    limits = proposal.stack.limits
    starting = [action for action in proposal.actions if action.cost is not None]
    if not starting or (limits.node_hours is None and limits.cost is None):
        return None
    total = total_cost(starting)
    words = _too_much_work(starting, total, limits.node_hours)
    if words is None and limits.cost is not None:
        words = _too_expensive(starting, total, limits.cost, proposal.stack.prices)
    return None if words is None else GuardRefusal(Diagnostic("over budget", *words), starting)


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


_JUDGES: Mapping[Guard, Callable[[Proposal, Allowances], _Verdict]] = MappingProxyType(
    {
        Guard.EMPTY: _empty,
        Guard.FOUND_NOTHING: _found_nothing,
        Guard.TERMINATIONS: _too_many_terminations,
        Guard.LOST_WORK: _too_much_lost_work,
        Guard.RERUNS: _too_many_reruns,
        Guard.BUDGET: _over_budget,
    }
)
