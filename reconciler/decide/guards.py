"""What a plan may not do unless somebody allows it: docs/semantics.md, "Guards".

`empty`, `found-nothing` and `terminations` make all of a plan doubtful, and refuse it. Every other guard
blocks the keys that it is about, and the rest of the plan goes on. Each is a function of the plan's facts to
what it found, which names what `--allow` takes for it. Policies and pre-flight block keys in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.core.lifecycle import OnChange, ReplaceOrder
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.schedule import Overlap
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import PlanWarning, node_hours
from reconciler.decide.cost import spell_cost, sum_of, total_cost, unpriced, ways_to_keep_work
from reconciler.decide.plan import (
    FOLDED_FROM,
    NO_ALLOWANCES,
    Action,
    Allowances,
    Cost,
    Denial,
    Guard,
    Plan,
    PlannedAction,
    PreflightFinding,
    Reason,
    count,
    few,
    lost_sum,
    spell_work,
)
from reconciler.decide.policies import refusals_of as denials
from reconciler.decide.renames import SweepEntries
from reconciler.errors import Diagnostic, Location

# --- what the manifest says in words


#: The path of a change of `lifecycle.rerun`.
_RERUN = "lifecycle.rerun"


def _on_change_replace(action: PlannedAction, desired: DesiredJob | None) -> bool:
    if desired is None or desired.lifecycle.on_change is not OnChange.REPLACE:
        return False
    # A member that its entry no longer produces is an edit of the entry.
    is_edited = action.reason in (Reason.IMMUTABLE_CHANGED, Reason.NOT_IN_MANIFEST)
    return is_edited or (_is_rest_of_replace(action, desired) and not _has_declared_digest(action, desired))


def _overlap_replace(action: PlannedAction, desired: DesiredJob | None) -> bool:
    if desired is None or desired.schedule is None or desired.lifecycle.overlap is not Overlap.REPLACE:
        return False
    is_due = action.action is Action.REPLACE and action.scheduled_for is not None
    return is_due or _is_rest_of_replace(action, desired)


def _is_rest_of_replace(action: PlannedAction, desired: DesiredJob) -> bool:
    """Whether it ends the job that an interrupted replace has left beside the one that it created first."""
    return action.reason is Reason.SUPERSEDED and desired.lifecycle.replace_order is ReplaceOrder.CREATE_FIRST


def _has_declared_digest(action: PlannedAction, desired: DesiredJob) -> bool:
    return action.before is not None and desired.is_declared_by(action.before.digest)


def _state_absent(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.reason is Reason.STATE_ABSENT


def _schedule(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.action is Action.CREATE and action.scheduled_for is not None


def _on_upstream_rerun(action: PlannedAction, _: DesiredJob | None) -> bool:
    return action.reason is Reason.UPSTREAM_NEWER


def _rerun_edited(action: PlannedAction, desired: DesiredJob | None) -> bool:
    """The earlier text may be on no record; where nothing else differs, it was this one that was edited."""
    if action.reason is not Reason.IMMUTABLE_CHANGED:
        return False
    has_rerun = desired is not None and desired.lifecycle.rerun is not None
    return any(change.path == _RERUN for change in action.changes) or (has_rerun and not action.changes)


#: What the manifest says, and whether an action follows from it.
WORDS: Mapping[str, Callable[[PlannedAction, DesiredJob | None], bool]] = MappingProxyType(
    {
        "on_change: replace": _on_change_replace,
        "overlap: replace": _overlap_replace,
        "state: absent": _state_absent,
        "schedule": _schedule,
        "on_upstream: rerun": _on_upstream_rerun,
        "rerun": _rerun_edited,
    }
)


def is_said_in_words(action: PlannedAction, desired: DesiredJob | None) -> bool:
    """Whether the manifest asks in words for what an action ends or runs again; `desired` is the entry."""
    return any(asks(action, desired) for asks in WORDS.values())


# --- blocking keys


class Block(NamedTuple):
    """What blocks a key: its reason, the name of the guard, policy or finding, and why, for people."""

    reason: Reason
    by: str
    detail: str


class CatalogCheck(NamedTuple):
    """What pre-flight found of a plan, and what it warns of."""

    found: tuple[PreflightFinding, ...]
    warnings: tuple[PlanWarning, ...] = ()


def blocks_of_denials(denied: Iterable[Denial]) -> dict[str, list[Block]]:
    """What blocks each key that a policy denies."""
    blocks: dict[str, list[Block]] = {}
    for one in denied:
        detail = f"denied by {one.policy}" + (f": {one.explanation}" if one.message or one.problem else "")
        blocks.setdefault(one.key, []).append(Block(Reason.DENIED, one.policy, detail))
    return blocks


def blocks_of_findings(found: Iterable[PreflightFinding]) -> dict[str, list[Block]]:
    """What blocks each key of which pre-flight found something."""
    blocks: dict[str, list[Block]] = {}
    for one in found:
        way_out = f"; {one.fix}" if one.fix else ""
        detail = f"pre-flight: {one.detail}{way_out}"
        blocks.setdefault(one.key, []).append(Block(Reason.PREFLIGHT, one.reason.value, detail))
    return blocks


def block(
    actions: Iterable[PlannedAction], blocks: Mapping[str, Sequence[Block]], stack: Stack
) -> list[PlannedAction]:
    """Return the actions with these keys blocked, whole, and what needs one of them deferred."""
    if not blocks:
        return [*actions]
    return [_held(_blocked(action, blocks.get(action.key, ())), blocks, stack) for action in actions]


def sums_of(actions: Sequence[PlannedAction], refusals: Sequence[Diagnostic]) -> dict[str, Any]:
    """What a plan says of its actions together, and whether it may be applied: fields of `Plan`."""
    return {
        "actions": tuple(actions),
        "summary": count(actions),
        "lost_node_hours": lost_sum(actions),
        "cost": total_cost(actions),
        "refusals": tuple(refusals),
        "applyable": any(action.traits.is_executed for action in actions) and not refusals,
    }


def _blocked(action: PlannedAction, blocks: Sequence[Block]) -> PlannedAction:
    if not blocks or not action.traits.is_executed:
        return action
    names = tuple(dict.fromkeys(one.by for one in blocks))
    return action.block(blocks[0].reason, names, "; ".join(one.detail for one in blocks))


def _held(action: PlannedAction, blocks: Mapping[str, Sequence[Block]], stack: Stack) -> PlannedAction:
    """The action; a create or replace that needs a blocked key waits for it."""
    desired = stack.find(action.key)
    needed = [key for key in desired.needs if key in blocks] if desired else []
    if not needed or not action.traits.starts_a_job:
        return action
    said = f"waiting for {', '.join(needed)}, which is blocked; then"
    held = action.instead(Action.DEFER, Reason.NEEDS_PENDING, said)
    return held.model_copy(update={"waits_for": tuple(needed), "follows": None})


# --- the guards


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


# --- why a plan is refused


#: So many keys stand in a message; the plan names all of them.
_MOST_KEYS, _MOST_FINDINGS = 5, 20
#: What a guard that blocks keys is called, as a title.
_TITLES: Mapping[str, str] = MappingProxyType(
    {
        Guard.LOST_WORK.value: "too much work would be lost",
        Guard.RERUNS.value: "too much finished work would run again",
        Guard.BUDGET.value: "over budget",
    }
)


def blockers(plan: Plan) -> tuple[Diagnostic, ...]:
    """Why a plan is refused, and why keys of it are blocked; nothing where all of it may be done."""
    by_guard: dict[str, list[PlannedAction]] = {}
    for action in plan.blocked:
        if action.reason is Reason.GUARD:
            by_guard.setdefault(action.blocked_by[0], []).append(action)
    guards = (_of_guard(name, actions) for name, actions in by_guard.items())
    return (*plan.refusals, *denials(plan.denied), *_findings(plan.preflight or ()), *guards)


def _findings(found: Iterable[PreflightFinding]) -> tuple[Diagnostic, ...]:
    """Why keys are blocked: each finding at its place; the same of many jobs once."""
    groups: dict[Hashable, list[PreflightFinding]] = {}
    for one in found:
        groups.setdefault(one.model_copy(update={"key": "", "source": None}), []).append(one)
    told = [
        group
        for alike in groups.values()
        for group in ([alike] if len(alike) >= FOLDED_FROM else [[one] for one in alike])
    ]
    return tuple(map(_finding, told))


def _finding(alike: Sequence[PreflightFinding]) -> Diagnostic:
    first = alike[0]
    place = first.source
    location = None if place is None else Location(place.file, place.line, place.column)
    keys = few([one.key for one in alike], _MOST_FINDINGS)
    path = ".".join(filter(None, ("jobs", first.key, first.path))) if len(alike) == 1 else ""
    return Diagnostic(first.reason.words, f"{keys}: {first.detail}", first.fix, location, path)


def _of_guard(name: str, actions: Sequence[PlannedAction]) -> Diagnostic:
    keys = list(dict.fromkeys(action.key for action in actions))
    keeping = "".join(f"{way}, or " for way in ways_to_keep_work(actions))
    fix = f"{keeping}review the plan, then add --allow {name}"
    if name != Guard.BUDGET.value:
        fix += f", or --allow {name}=KEY for one key"
    return Diagnostic(_TITLES[name], f"blocks {few(keys, _MOST_KEYS)}: {_figures(name, actions)}", fix)


def _figures(name: str, actions: Sequence[PlannedAction]) -> str:
    if name == Guard.LOST_WORK.value:
        work = sum(node_hours(action.elapsed, action.nodes) for action in actions)
        return f"{spell_work(work)} of running work would be discarded"
    if name == Guard.BUDGET.value:
        return f"{spell_cost(sum_of(one.cost for one in actions if one.cost))} would be started"
    return "they would run finished work again"
