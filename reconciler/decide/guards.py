"""What a plan may not do unless somebody allows it: docs/semantics.md, "Guards".

`empty`, `found-nothing` and `terminations` make all of a plan doubtful, and refuse it. Every other guard
blocks the keys that it is about, and the rest of the plan goes on. Each is a function of the plan's facts to
what it found, which names what `--allow` takes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.blocking import Block, block
from reconciler.decide.cost import total_cost, unpriced
from reconciler.decide.plan import (
    NO_ALLOWANCES,
    Action,
    Allowances,
    Cost,
    Guard,
    Plan,
    PlannedAction,
    Reason,
    few,
    lost_sum,
)
from reconciler.decide.reruns import ways_to_keep_work
from reconciler.decide.said_in_words import is_said_in_words
from reconciler.decide.sweep_members import SweepEntries
from reconciler.errors import Diagnostic

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

    @property
    def rerunning(self) -> list[PlannedAction]:
        """The actions that would run finished work again."""
        return [action for action in self.starting if action.rerun_of is not None]

    def unsaid(self, actions: Sequence[PlannedAction]) -> list[PlannedAction]:
        """Those of some actions for which the manifest does not ask in words.

        Of a member that its sweep no longer produces, the entry of the sweep is what says so.
        """
        sweeps, recorded = SweepEntries(self.stack), self.memory.sweeps
        entries = (self.stack.find(one.key) or sweeps.former_entry(one.key, recorded) for one in actions)
        return [one for one, entry in zip(actions, entries, strict=True) if not is_said_in_words(one, entry)]


class GuardFinding(NamedTuple):
    """What a guard says against a plan, and the actions because of which it does.

    The diagnostic has figures, which may grow with time; `limit` says for the detail of each of the actions
    which limit they are beyond together, and `way_out` what lets them pass.
    """

    diagnostic: Diagnostic
    because_of: Sequence[PlannedAction]
    limit: str = ""
    way_out: str = ""


class GuardedPlan(NamedTuple):
    """The actions after all guards, what each guard found, and which findings refuse the whole plan."""

    actions: list[PlannedAction]
    found: Mapping[Guard, GuardFinding]

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """Why the plan as a whole must not be applied; none if it may be."""
        return tuple(one.diagnostic for guard, one in self.found.items() if guard in REFUSES_THE_PLAN)


_Verdict = GuardFinding | None
_Judge = Callable[[Proposal, Allowances], _Verdict]


def guard(proposal: Proposal, allowances: Allowances = NO_ALLOWANCES) -> GuardedPlan:
    """Ask all guards in their order; what one blocks, the next does not count."""
    found: dict[Guard, GuardFinding] = {}
    for name, judge in _JUDGES.items():
        finding = None if allowances.permits(name) else judge(proposal, allowances)
        if finding is None:
            continue
        found[name] = finding
        if name not in REFUSES_THE_PLAN:
            actions = block(proposal.actions, _blocks(name, finding), proposal.stack)
            proposal = replace(proposal, actions=actions)
    return GuardedPlan([*proposal.actions], found)


def _blocks(name: Guard, finding: GuardFinding) -> dict[str, list[Block]]:
    detail = f"guard {name.value}: {finding.limit}; {finding.way_out}"
    found = [Block(Reason.GUARD, name.value, detail)]
    return {action.key: found for action in finding.because_of if action.traits.is_executed}


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
    fix = f"if this is intended, {_pass(Guard.EMPTY)}"
    return GuardFinding(Diagnostic("the manifest declares no job", why, fix), proposal.ending)


def _found_nothing(proposal: Proposal, _: Allowances) -> _Verdict:
    """The wrong account, project or workspace looks like a stack of which nothing is left.

    Where all had ended when it was seen last, the service has only aged the records out.
    """
    active = proposal.memory.seen_active
    if not (proposal.owns_nothing and proposal.starting and active):
        return None
    why = (
        f"stack {proposal.stack.name} has no job here, although {few(active, _MOST_NAMES)} "
        f"{'was' if len(active) == 1 else 'were'} active on this target when last seen, "
        f"and {len(proposal.starting)} would be created"
    )
    fix = f"check the target, account and workspace; if they are correct, {_pass(Guard.FOUND_NOTHING)}"
    return GuardFinding(Diagnostic("nothing of the stack was found", why, fix), proposal.starting)


def _too_many_terminations(proposal: Proposal, _: Allowances) -> _Verdict:
    limits, stack = proposal.stack.limits, proposal.stack
    ending = proposal.unsaid(proposal.ending)
    if not _is_much(len(ending), proposal.active_jobs, limits.terminations, limits.terminations_percent):
        return None
    why = (
        f"{len(ending)} of the {proposal.active_jobs} active jobs of stack {stack.name} would be terminated; "
        f"the limits are {limits.terminations} jobs and {limits.terminations_percent:g} %"
    )
    return GuardFinding(Diagnostic("too many terminations", why, _read_again(Guard.TERMINATIONS)), ending)


def _too_much_lost_work(proposal: Proposal, allowances: Allowances) -> _Verdict:
    limit = proposal.stack.limits.lost_node_hours
    unasked = [
        action
        for action in proposal.unsaid(proposal.ending)
        if not allowances.permits_key(Guard.LOST_WORK, action.key)
    ]
    lost = lost_sum(unasked)
    if lost <= limit:
        return None
    most = max(unasked, key=lambda action: action.lost_node_hours).key
    why = (
        f"{lost:.1f} node-hours of running work would be discarded, most of them of {most}; the "
        f"limit is {limit:g}"
    )
    fix = f"review the plan, then {_pass_key(Guard.LOST_WORK)}"
    return GuardFinding(
        Diagnostic("too much work would be lost", why, fix),
        unasked,
        f"more than {limit:g} node-hours of work would be discarded in all",
        _pass_key(Guard.LOST_WORK),
    )


def _too_many_reruns(proposal: Proposal, allowances: Allowances) -> _Verdict:
    limits, stack = proposal.stack.limits, proposal.stack
    again = [
        action
        for action in proposal.unsaid(proposal.rerunning)
        if not allowances.permits_key(Guard.RERUNS, action.key)
    ]
    keys = len(stack.declared_keys)
    if not _is_much(len(again), keys, limits.reruns, limits.reruns_percent):
        return None
    limit = f"the limits are {limits.reruns} keys and {limits.reruns_percent:g} %"
    why = (
        f"{len(again)} of the {len(proposal.starting)} jobs to start run finished work again, of {keys} keys "
        f"of stack {stack.name}; {limit}"
    )
    keeping = "".join(f"{way}, or " for way in ways_to_keep_work(again))
    fix = f"{keeping}review the plan, then {_pass_key(Guard.RERUNS)}"
    return GuardFinding(
        Diagnostic("too much finished work would run again", why, fix),
        again,
        f"{len(again)} of {keys} keys would run finished work again; {limit}",
        keeping + _pass_key(Guard.RERUNS),
    )


def _over_budget(proposal: Proposal, _: Allowances) -> _Verdict:
    """What is started, now or once it is not deferred any more, may take or cost more than the limits.

    What waits for a blocked key starts in no wait of this apply, so it is not counted.
    """
    limits = proposal.stack.limits
    held = _blocked_or_behind(proposal.actions)
    starting = [one for one in proposal.actions if one.cost and one.key not in held]
    if not starting or (limits.node_hours is None and limits.cost is None):
        return None
    total = total_cost(starting)
    found = _too_much_work(starting, total, limits.node_hours)
    if found is None and limits.cost is not None:
        found = _too_expensive(proposal, starting, total, limits.cost)
    if found is None:
        return None
    return GuardFinding(Diagnostic("over budget", found.why, found.fix), starting, found.limit, found.way_out)


def _blocked_or_behind(actions: Sequence[PlannedAction]) -> set[str]:
    """The keys that are blocked, and those that wait for one of them, directly or not."""
    held = {action.key for action in actions if action.action is Action.BLOCKED}
    waiting = [action for action in actions if action.action is Action.DEFER]
    while more := {one.key for one in waiting if held.intersection(one.waits_for)} - held:
        held |= more
    return held


class _OverBudget(NamedTuple):
    """Why what is started is over budget, with figures and, for details, without; and what lets it pass."""

    why: str
    fix: str
    limit: str
    way_out: str


def _too_much_work(starting: Sequence[PlannedAction], total: Cost, limit: float | None) -> _OverBudget | None:
    if total.node_hours_max is None:
        unbounded = [a.key for a in starting if a.cost is not None and a.cost.node_hours_max is None]
        why = f"{few(unbounded, _MOST_NAMES)} may run without end, which exceeds every limit"
        fix = f"set spec.auto_stop, or {_pass(Guard.BUDGET)}"
        return _OverBudget(why, fix, why, fix)
    if limit is None or total.node_hours_max <= limit:
        return None
    why = f"up to {total.node_hours_max:,.1f} node-hours would be started; the limit is {limit:,g}"
    said = f"more than {limit:,g} node-hours would be started in all"
    return _OverBudget(why, _read_again(Guard.BUDGET), said, _pass(Guard.BUDGET))


def _too_expensive(
    proposal: Proposal, starting: Sequence[PlannedAction], total: Cost, limit: float
) -> _OverBudget | None:
    if total.cost_max is None:
        stack = proposal.stack
        entries = (stack.find(action.key) for action in starting)
        flavors = unpriced((one.body for one in entries if one and one.body), stack.prices)
        why = f"what it costs is unknown: no price for {few(flavors, _MOST_NAMES)}"
        fix = f"add it to prices.node_hour, or {_pass(Guard.BUDGET)}"
        return _OverBudget(why, fix, why, fix)
    if total.cost_max <= limit:
        return None
    why = f"up to {total.currency} {total.cost_max:,.2f} would be spent; the limit is {limit:,g}"
    said = f"more than {total.currency} {limit:,g} would be spent in all"
    return _OverBudget(why, _read_again(Guard.BUDGET), said, _pass(Guard.BUDGET))


def _is_much(count: int, whole: int, limit: int, percent: float) -> bool:
    """Whether a count reaches both limits: a number, and a share of the whole in percent."""
    return count >= limit and count * 100 >= percent * whole


def _pass(guard: Guard) -> str:
    return f"add --allow {guard.value}"


def _pass_key(guard: Guard) -> str:
    return f"{_pass(guard)}, or --allow {guard.value}=KEY for one key"


def _read_again(guard: Guard) -> str:
    return f"review the plan, then {_pass(guard)}"


#: What makes all of a plan doubtful, and not only some of its keys.
REFUSES_THE_PLAN = frozenset({Guard.EMPTY, Guard.FOUND_NOTHING, Guard.TERMINATIONS})
#: In the order in which they are asked.
_JUDGES: Mapping[Guard, _Judge] = MappingProxyType(
    {
        Guard.LOST_WORK: _too_much_lost_work,
        Guard.RERUNS: _too_many_reruns,
        Guard.BUDGET: _over_budget,
        Guard.EMPTY: _empty,
        Guard.FOUND_NOTHING: _found_nothing,
        Guard.TERMINATIONS: _too_many_terminations,
    }
)


def limited(plan: Plan, max_actions: int | None) -> Plan:
    """The plan, refused if it has more actions than `max_actions`."""
    count = len(plan.to_execute)
    if max_actions is None or count <= max_actions:
        return plan
    why = f"the plan has {count} actions; --max-actions allows {max_actions}"
    fix = "read the plan with `reconciler plan`, then run `reconciler apply` yourself or raise --max-actions"
    refusal = Diagnostic("too many actions", why, fix)
    return plan.model_copy(update={"refusals": (*plan.refusals, refusal), "applyable": False})
