"""Guards: what a plan may not do unless it is allowed. Source: docs/concepts/guards.md.

`empty`, `found-nothing` and `terminations` make the whole plan doubtful, and refuse it. Every other guard
blocks the keys concerned; the rest of the plan goes on. A guard is a function of the proposed plan; its name
is what `--allow` takes. Policies and pre-flight block keys in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.lifecycle import Lifecycle
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import SHOWN_WITH_ACTIONS, Denial, PlanWarning, TargetIdentity, node_hours
from reconciler.decide.actions import KeyDecision
from reconciler.decide.cost import spell_cost, sum_of, total_cost, unpriced
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.decide.plan import (
    BY_KEY,
    Action,
    Guard,
    Plan,
    PlannedAction,
    PreflightFinding,
    Reason,
    count,
    lost_sum,
    spell_work,
)
from reconciler.decide.renames import SweepEntries, ways_to_keep_work
from reconciler.errors import FOLD_FROM, Diagnostic, Location
from reconciler.text import few, format_count

if TYPE_CHECKING:
    from reconciler.decide.policies import Verdicts

# --- explicit requests


def is_requested(action: PlannedAction, desired: DesiredJob | None) -> bool:
    """Whether the manifest or `--rerun` explicitly requests what the action ends or runs again."""
    reason, lifecycle = action.reason, desired.lifecycle if desired else Lifecycle()
    replaces = lifecycle.on_change == "replace"
    overlaps = lifecycle.overlap == "replace" and desired is not None and desired.schedule is not None
    is_edited = reason is Reason.IMMUTABLE_CHANGED
    # The old job that an interrupted replace left beside the new one.
    is_leftover = reason is Reason.SUPERSEDED and lifecycle.replace_order == "create_first"
    was_declared = bool(desired and action.before and desired.is_declared_by(action.before.digest))
    # If the previous `rerun` is not on record and nothing else differs, `rerun` was edited.
    reruns = any(change.path == "lifecycle.rerun" for change in action.changes)
    reruns = reruns or (lifecycle.rerun is not None and not action.changes)
    return (
        reason in (Reason.STATE_ABSENT, Reason.UPSTREAM_NEWER, Reason.RERUN_REQUESTED)
        or (action.scheduled_for is not None and (action.action is Action.CREATE or overlaps))
        # Removing a member is an edit of its sweep.
        or (
            replaces and (is_edited or reason is Reason.NOT_IN_MANIFEST or (is_leftover and not was_declared))
        )
        or (overlaps and is_leftover)
        or (is_edited and reruns)
    )


# --- blocking keys


#: Why a key is blocked: the reason, the name of the guard, policy or finding, and the detail for people.
Block = tuple[Reason, str, str]


class CatalogCheck(NamedTuple):
    """The findings and warnings of pre-flight."""

    found: tuple[PreflightFinding, ...]
    warnings: tuple[PlanWarning, ...] = ()


def blocks_of(objections: Iterable[Denial | PreflightFinding]) -> dict[str, list[Block]]:
    """Return the blocks of each key that a policy denies, or that has findings of pre-flight."""
    blocks = defaultdict[str, list[Block]](list)
    for one in objections:
        if isinstance(one, Denial):
            why = f": {one.explanation}" if one.message or one.problem else ""
            blocks[one.key].append((Reason.DENIED, one.policy, f"denied by {one.policy}{why}"))
        else:
            fix = f"; {one.fix}" if one.fix else ""
            blocks[one.key].append((Reason.PREFLIGHT, one.reason.value, f"pre-flight: {one.detail}{fix}"))
    return blocks


def block(
    actions: Sequence[PlannedAction], blocks: Mapping[str, Sequence[Block]], stack: Stack
) -> Sequence[PlannedAction]:
    """Return the actions with these keys blocked, and what needs one of them deferred."""
    if not blocks:
        return actions
    blocked = []
    for action in actions:
        if action.key in blocks and action.traits.is_executed:
            reasons, names, details = zip(*blocks[action.key], strict=True)
            action = action.block(reasons[0], tuple(dict.fromkeys(names)), "; ".join(details))
        desired = stack.find(action.key) if action.traits.starts_a_job else None
        if needed := tuple(key for key in (desired.needs if desired else ()) if key in blocks):
            why = f"waiting for {', '.join(needed)}, which is blocked; then"
            action = action.hold_back(Action.DEFER, Reason.NEEDS_PENDING, why, waits_for=needed, follows=None)
        blocked.append(action)
    return blocked


def sums_of(actions: Sequence[PlannedAction], refusals: Sequence[Diagnostic]) -> dict[str, Any]:
    """Return the fields of `Plan` that sum its actions up, and whether it may be applied."""
    return {
        "actions": tuple(actions),
        "summary": count(actions),
        "lost_node_hours": lost_sum(actions),
        "cost": total_cost(actions),
        "refusals": tuple(refusals),
        "applyable": any(action.traits.is_executed for action in actions) and not refusals,
    }


# --- the guards


#: Maximum number of keys in a message.
_MOST_NAMES = 5
#: What to do before a guard is overridden.
REVIEW = "review the plan, then "


class ProposedPlan(NamedTuple):
    """A plan before the guards: every key is decided, and blocked if a policy or pre-flight objects.

    `decided` are the actions before any block; `decisions` include keys out of view that others need.
    """

    stack: Stack
    snapshot: Snapshot
    context: PlanContext
    target: TargetIdentity
    decisions: Mapping[str, KeyDecision]
    decided: Sequence[PlannedAction]
    actions: Sequence[PlannedAction]
    verdicts: Verdicts | None

    @property
    def owns_nothing(self) -> bool:
        """Whether no job of the stack was found on the target."""
        return self.snapshot.ownership.problem is None and not self.snapshot.ownership.owned_keys

    @property
    def starting(self) -> list[PlannedAction]:
        return [action for action in self.actions if action.traits.starts_a_job]

    @property
    def ending(self) -> list[PlannedAction]:
        return [action for action in self.actions if action.traits.stops_a_job]

    def unrequested(
        self, actions: Sequence[PlannedAction], guard: Guard | None = None
    ) -> list[PlannedAction]:
        """Return the actions that neither the manifest nor `--allow GUARD=KEY` explicitly requests.

        For a member that its sweep no longer produces, the entry of the sweep counts.
        """
        allowances, found = self.context.allowances, []
        for action in actions:
            entry = self.stack.find(action.key) or self.decisions[action.key].state.former_entry
            is_allowed = guard and allowances.permits(guard, action.key, entry.sweep if entry else None)
            if not (is_allowed or is_requested(action, entry)):
                found.append(action)
        return found


class GuardFinding(NamedTuple):
    """A guard's objection, and the actions that it is about.

    `why` has figures, which may grow with time; `limit` has none, and goes into the details of the actions.
    `before` is what to do before the guard is overridden, or instead.
    """

    why: str
    actions: Sequence[PlannedAction]
    limit: str = ""
    before: str = REVIEW


class GuardTraits(NamedTuple):
    """The title of a guard's objection, how it judges, and whether it refuses the whole plan."""

    title: str
    judge: Callable[[ProposedPlan], GuardFinding | None]
    refuses_the_plan: bool = False


def diagnostic(guard: Guard, finding: GuardFinding) -> Diagnostic:
    return Diagnostic(GUARDS[guard].title, finding.why, way_out(guard, finding.before))


def way_out(guard: Guard, before: str) -> str:
    """Say how to override a guard, after doing what `before` says."""
    one_key = f", or --allow {guard.value}=KEY for one key" if guard in BY_KEY else ""
    return f"{before}add --allow {guard.value}{one_key}"


def guard(proposed: ProposedPlan) -> tuple[Sequence[PlannedAction], dict[Guard, GuardFinding]]:
    """Apply all guards in order; a guard does not count what an earlier one blocks.

    Returns the actions, some of them blocked, and each guard's finding.
    """
    findings: dict[Guard, GuardFinding] = {}
    for name, traits in GUARDS.items():
        finding = None if proposed.context.allowances.permits(name) else traits.judge(proposed)
        if finding is None:
            continue
        findings[name] = finding
        if not traits.refuses_the_plan:
            # No hint to review the plan: the detail is part of it.
            fix = way_out(name, finding.before.removesuffix(REVIEW))
            blocks = [(Reason.GUARD, name.value, f"guard {name.value}: {finding.limit}; {fix}")]
            keys = {action.key: blocks for action in finding.actions if action.traits.is_executed}
            proposed = proposed._replace(actions=block(proposed.actions, keys, proposed.stack))
    return proposed.actions, findings


def apply_max_parallel(proposed: ProposedPlan, actions: Sequence[PlannedAction]) -> Sequence[PlannedAction]:
    """Defer the creates that exceed the `max_parallel` of their sweep, in the order of the matrix.

    Members that are, or may be, active take a slot, former ones too, and so does what this plan ends; a
    replacement takes the slot of the job that it replaces.
    """
    stack, snapshot = proposed.stack, proposed.snapshot
    jobs, sweeps, held = stack.whole or stack.jobs, SweepEntries(stack), dict[str, PlannedAction]()
    limits = {job.sweep: job.max_parallel for job in jobs.values() if job.sweep and job.max_parallel}
    if not limits:
        return actions
    creating = {action.key: action for action in actions if action.action is Action.CREATE}
    busy: dict[str, list[str]] = {entry: [] for entry in limits}
    for key in sorted({*jobs, *snapshot.ownership.concerned_keys} - stack.former_keys):
        desired = stack.find(key)
        member = desired or sweeps.former_entry(key, snapshot.memory.sweeps)
        if member and member.sweep in busy and snapshot.view(key, desired).may_be_active:
            busy[member.sweep].append(key)
    for entry, limit in limits.items():
        active = busy[entry]
        members = (member.key for member in sweeps.members[entry])
        waiting = [key for key in members if key in creating and key not in active]
        cause, ahead = f"waits for its turn (max_parallel: {limit}), then", tuple([*active, *waiting][:limit])
        for slot, key in enumerate(waiting, len(active)):
            action = creating[key]
            if slot < limit:
                held[key] = action.model_copy(update={"max_parallel": limit, "beside": tuple(active)})
                continue
            more = {"waits_for": ahead, "cost": action.cost}
            held[key] = action.hold_back(Action.DEFER, Reason.WAITS_FOR_TURN, cause, **more)
    return [held.get(action.key, action) if action.action is Action.CREATE else action for action in actions]


def first_apply_warning(proposed: ProposedPlan) -> Iterator[PlanWarning]:
    """Warn of the first apply to another target: usually right, but possibly a mistake."""
    memory, name = proposed.snapshot.memory, proposed.stack.name
    if proposed.owns_nothing and proposed.starting and memory.elsewhere and not memory.knows_stack:
        elsewhere = "; ".join(memory.elsewhere)
        why = f"stack {name} has no job on this target; according to the history it has jobs on {elsewhere}"
        yield PlanWarning(what="first apply to this target", why=why)


def _empty(proposed: ProposedPlan) -> GuardFinding | None:
    stack = proposed.stack
    if stack.declared_keys or stack.jobs or stack.whole:
        return None
    why = f"every job of stack {stack.name} would be terminated; an empty manifest is usually a mistake"
    return GuardFinding(why, proposed.ending, before="if this is intended, ")


def _found_nothing(proposed: ProposedPlan) -> GuardFinding | None:
    """Object if every job seems gone: the account, project or workspace may be wrong.

    If all jobs had ended when last seen, the service has merely aged their records out.
    """
    past, starting = proposed.snapshot.memory.revisions, proposed.starting
    active = sorted({one.key for one in past if one.released_at_s is None and not one.has_ended})
    if not (proposed.owns_nothing and starting and active):
        return None
    why = (
        f"stack {proposed.stack.name} has no job here, although {few(active, _MOST_NAMES)} "
        f"{'was' if len(active) == 1 else 'were'} active on this target when last seen, "
        f"and {len(starting)} would be created"
    )
    before = "check the target, account and workspace; if they are correct, "
    return GuardFinding(why, starting, before=before)


def _too_many_terminations(proposed: ProposedPlan) -> GuardFinding | None:
    limits, stack = proposed.stack.limits, proposed.stack
    ending, active = proposed.unrequested(proposed.ending), proposed.snapshot.ownership.active_jobs
    if not _is_much(len(ending), active, limits.terminations, limits.terminations_percent):
        return None
    why = (
        f"{len(ending)} of the {active} active jobs of stack {stack.name} would be terminated; "
        f"the limits are {limits.terminations} jobs and {limits.terminations_percent:g} %"
    )
    return GuardFinding(why, ending)


def _too_much_lost_work(proposed: ProposedPlan) -> GuardFinding | None:
    limit = proposed.stack.limits.lost_node_hours
    ending = proposed.unrequested(proposed.ending, Guard.LOST_WORK)
    lost = lost_sum(ending)
    if lost <= limit:
        return None
    most = max(ending, key=lambda action: action.lost_node_hours).key
    why = (
        f"{lost:.1f} node-hours of running work would be discarded, most of them of {most}; the "
        f"limit is {limit:g}"
    )
    return GuardFinding(why, ending, f"more than {limit:g} node-hours of work would be discarded in all")


def _too_many_reruns(proposed: ProposedPlan) -> GuardFinding | None:
    limits, stack, starting = proposed.stack.limits, proposed.stack, proposed.starting
    reruns = proposed.unrequested([one for one in starting if one.rerun_of is not None], Guard.RERUNS)
    keys = len(stack.declared_keys)
    if not _is_much(len(reruns), keys, limits.reruns, limits.reruns_percent):
        return None
    limit = f"the limits are {limits.reruns} keys and {limits.reruns_percent:g} %"
    why = (
        f"{len(reruns)} of the {len(starting)} jobs to start run finished work again, of {keys} keys "
        f"of stack {stack.name}; {limit}"
    )
    summary = f"{len(reruns)} of {keys} keys would run finished work again; {limit}"
    return GuardFinding(why, reruns, summary, ways_to_keep_work(reruns) + REVIEW)


def _over_budget(proposed: ProposedPlan) -> GuardFinding | None:
    """Object if what is started, now or after a wait, may exceed the limits of work or cost."""
    stack, limits = proposed.stack, proposed.stack.limits
    if limits.node_hours is None and limits.cost is None:
        return None
    # What waits for a blocked key, directly or not, is not started by this apply.
    held = {one.key for one in proposed.actions if one.action is Action.BLOCKED}
    waiting = [one for one in proposed.actions if one.action is Action.DEFER]
    while more := {one.key for one in waiting if held.intersection(one.waits_for)} - held:
        held |= more
    starting = [one for one in proposed.actions if one.cost and one.key not in held]
    if not starting:
        return None
    total = total_cost(starting)
    work, money = total.node_hours_max, total.cost_max
    if work is None:
        unbounded = [one.key for one in starting if one.cost and one.cost.node_hours_max is None]
        why = f"{few(unbounded, _MOST_NAMES)} may run indefinitely, which exceeds every limit"
        return GuardFinding(why, starting, why, "set spec.auto_stop, or ")
    if limits.node_hours is not None and work > limits.node_hours:
        why = f"up to {work:,.1f} node-hours would be started; the limit is {limits.node_hours:,g}"
        summary = f"more than {limits.node_hours:,g} node-hours would be started in all"
        return GuardFinding(why, starting, summary)
    if limits.cost is not None and money is None:
        entries = (stack.find(action.key) for action in starting)
        flavors = unpriced((one.body for one in entries if one and one.body), stack.prices)
        why = f"the cost is unknown: no price for {few(flavors, _MOST_NAMES)}"
        return GuardFinding(why, starting, why, "add it to prices.node_hour, or ")
    if limits.cost is not None and money is not None and money > limits.cost:
        why = f"up to {total.currency} {money:,.2f} would be spent; the limit is {limits.cost:,g}"
        summary = f"more than {total.currency} {limits.cost:,g} would be spent in all"
        return GuardFinding(why, starting, summary)
    return None


def _is_much(count: int, whole: int, limit: int, percent: float) -> bool:
    """Whether a count reaches both the limit and the percentage of the whole."""
    return count >= limit and count * 100 >= percent * whole


#: In order of evaluation.
GUARDS: Mapping[Guard, GuardTraits] = {
    Guard.LOST_WORK: GuardTraits("too much work would be lost", _too_much_lost_work),
    Guard.RERUNS: GuardTraits("too much finished work would run again", _too_many_reruns),
    Guard.BUDGET: GuardTraits("over budget", _over_budget),
    Guard.EMPTY: GuardTraits("the manifest declares no job", _empty, refuses_the_plan=True),
    Guard.FOUND_NOTHING: GuardTraits("nothing of the stack was found", _found_nothing, refuses_the_plan=True),
    Guard.TERMINATIONS: GuardTraits("too many terminations", _too_many_terminations, refuses_the_plan=True),
}
REFUSES_THE_PLAN = frozenset(guard for guard, traits in GUARDS.items() if traits.refuses_the_plan)


def limit_actions(plan: Plan, max_actions: int | None) -> Plan:
    """Refuse the plan if it has more than `max_actions` actions."""
    count = len(plan.to_execute)
    if max_actions is None or count <= max_actions:
        return plan
    why = f"the plan has {format_count(count, 'action')}; --max-actions allows {max_actions}"
    fix = "read the plan with `reconciler plan`, then run `reconciler apply` yourself or raise --max-actions"
    refusal = Diagnostic("too many actions", why, fix)
    return plan.model_copy(update={"refusals": (*plan.refusals, refusal), "applyable": False})


# --- why a plan is refused


#: Maximum number of keys in a message about a finding.
_MOST_FINDINGS = 20


def blockers(plan: Plan, *, is_text_shown: bool = False) -> tuple[Diagnostic, ...]:
    """Return why the plan is refused and why keys are blocked.

    If the text of the plan is shown, it explains blocks by policies and pre-flight; then only their places
    are given.
    """
    shown = [*plan.refusals]
    if plan.denied:
        from reconciler.decide.policies import refusals_of

        shown += refusals_of(plan.denied)
    shown += (one._replace(fix=None) if is_text_shown else one for one in _findings(plan.preflight or ()))
    if is_text_shown:
        shown = [one._replace(why="") if one.what in SHOWN_WITH_ACTIONS else one for one in shown]
    by_guard: dict[Guard, list[PlannedAction]] = {}
    for action in plan.blocked:
        if action.reason is Reason.GUARD:
            by_guard.setdefault(Guard(action.blocked_by[0]), []).append(action)
    for guard, actions in by_guard.items():
        # Computed from the blocked actions, so that a saved plan says the same.
        figures = "they would run finished work again"
        if guard is Guard.LOST_WORK:
            work = sum(node_hours(action.elapsed, action.nodes) for action in actions)
            figures = f"{spell_work(work)} of running work would be discarded"
        elif guard is Guard.BUDGET:
            counted = (one for one in plan.actions if one in actions or one.action is Action.DEFER)
            figures = spell_cost(sum_of(one.cost for one in counted if one.cost), has_budget=True)
            figures += " would be started"
        keys = few(list(dict.fromkeys(action.key for action in actions)), _MOST_NAMES)
        fix = way_out(guard, ways_to_keep_work(actions) + REVIEW)
        shown.append(Diagnostic(GUARDS[guard].title, f"blocks {keys}: {figures}", fix))
    return tuple(shown)


def _findings(findings: Iterable[PreflightFinding]) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each finding, with equal ones of many jobs folded into one."""
    groups: dict[Hashable, list[PreflightFinding]] = {}
    for finding in findings:
        groups.setdefault(finding.model_copy(update={"key": "", "source": None}), []).append(finding)
    for equal in groups.values():
        for group in [equal] if len(equal) >= FOLD_FROM else [[finding] for finding in equal]:
            first, place = group[0], group[0].source
            location = None if place is None else Location(place.file, place.line, place.column)
            keys = few([finding.key for finding in group], _MOST_FINDINGS)
            path = ".".join(filter(None, ("jobs", first.key, first.path))) if len(group) == 1 else ""
            yield Diagnostic(first.reason.words, f"{keys}: {first.detail}", first.fix, location, path)
