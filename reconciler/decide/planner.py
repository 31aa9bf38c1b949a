"""From a stack and what was observed to the plan: every key decided, guarded, sorted and counted.

Source: docs/concepts/decisions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import chain

from reconciler.core.lifecycle import Lifecycle, spell_relative
from reconciler.core.mutable import unreported_paths
from reconciler.core.ownership import Ownership
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import RecordedRevision, RevisionId
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import PlanWarning, TargetIdentity, fold_similar_warnings, timestamp
from reconciler.decide.actions import PROTECTED, KeyDecision, before_of
from reconciler.decide.cost import cost_of
from reconciler.decide.guards import (
    REFUSES_THE_PLAN,
    CatalogCheck,
    ProposedPlan,
    apply_max_parallel,
    block,
    blocks_of,
    diagnostic,
    first_apply_warning,
    guard,
    sums_of,
)
from reconciler.decide.key_state import (
    KeyState,
    PlanContext,
    Snapshot,
    keys_in_view,
    keys_owned_in_view,
    keys_with_upstream,
    state_of,
)
from reconciler.decide.plan import EVERY_GUARD, Action, Before, Plan, PlannedAction, Reason
from reconciler.decide.renames import FinishedElsewhere, SweepEntries, rename_hints
from reconciler.decide.rules import assumes_absence, decide, details_needed_of, made_from_older, spell_reruns
from reconciler.text import format_count

# --- what a key needs


def is_settled(action: PlannedAction | None) -> bool | None:
    """Whether a needed key is settled, by its own action: kept, and its newest revision Completed.

    None means not yet, e.g. because it is deferred to run again. An absent key has no action, and is never
    settled. An update of a completed job starts nothing, so the key counts as kept.
    """
    if action is None:
        return False
    phase = parse_phase(action.phase_before)
    # Until its marker is restored, a job may have another declaration.
    is_kept = action.traits.keeps_the_job and action.reason is not Reason.MARKER_RESTORED
    return phase is Phase.COMPLETED if is_kept and phase is not None and phase.is_terminal else None


def runs_again(action: PlannedAction | None) -> bool:
    """Whether a needed key is about to complete again: its job is running, or one will be started.

    Keys that are unknown, or blocked until a person acts, are not.
    """
    if action is None or action.action is Action.UNKNOWN:
        return False
    if action.traits.starts_a_job or action.action is Action.DEFER:
        return True
    phase = parse_phase(action.before.phase) if action.before else None
    return phase is not None and phase.is_live


def hold_back_for_needs(
    action: PlannedAction, desired: DesiredJob, action_by_key: Mapping[str, PlannedAction | None]
) -> PlannedAction:
    """Return the action, deferred or blocked if a needed key is not settled.

    Only actions that start a job are held back, replaces as a whole: a running or finished job is left alone
    even if its upstream ran again.
    """
    if not desired.needs or not action.traits.starts_a_job:
        return action
    settled = {key: is_settled(action_by_key.get(key)) for key in desired.needs}
    failed = [key for key, verdict in settled.items() if verdict is False]
    waiting = [key for key, verdict in settled.items() if verdict is None]
    if failed:
        phases = {key: upstream.phase_before for key in failed if (upstream := action_by_key.get(key))}
        causes = ", ".join(
            f"{key}, which ended as {phases[key]}" if phases.get(key) else f"{key}, which is absent"
            for key in failed
        )
        return action.hold_back(Action.BLOCKED, Reason.NEEDS_FAILED, f"needs {causes}; blocks")
    if not waiting:
        return action
    reruns = [key for key in waiting if runs_again(action_by_key.get(key))]
    kind, waits_for = (Action.DEFER, Reason.NEEDS_PENDING), tuple(waiting)
    if action.reason is Reason.UPSTREAM_NEWER and reruns:
        return action.without_effect(*kind, spell_reruns(reruns), waits_for=waits_for)
    return action.hold_back(*kind, f"waiting for {', '.join(waiting)}, then", waits_for=waits_for)


# --- all keys together


def _states(stack: Stack, snapshot: Snapshot, at_s: float = 0.0) -> Iterator[KeyState]:
    context = PlanContext(stack.name, at_s=at_s)
    for key in keys_with_upstream(stack, snapshot.ownership):
        yield state_of(key, stack.find(key), snapshot, context)


def details_needed(stack: Stack, snapshot: Snapshot, *, for_plan: bool = True) -> tuple[str, ...]:
    """Return the ids of the jobs whose details the decisions need, sorted by key.

    A drift report needs them only to tell whether an edit is ignored.
    """
    states = _states(stack, snapshot)
    compared = (one for one in states if for_plan or (one.declared and one.desired.lifecycle.ignore_changes))
    return tuple(chain.from_iterable(map(details_needed_of, compared)))


def needs_history(
    stack: Stack,
    snapshot: Snapshot,
    recorded: Mapping[RevisionId, RecordedRevision] | None,
    service_s: float = 0.0,
) -> bool:
    """Whether the history could change a decision. If not, an unchanged plan need not read it.

    `service_s` is the time by the service's clock; `recorded` are the recorded revisions, None if unknown.
    """
    if recorded is None:
        return True
    newest_recorded: dict[str, int] = {}
    for key, number in recorded:
        newest_recorded[key] = max(number, newest_recorded.get(key, 0))
    entries = stack.whole or stack.jobs
    for state in _states(stack, snapshot, service_s + snapshot.skew_s):
        if not _is_as_declared(state, newest_recorded.get(state.key, 0)):
            return True
        # The history knows better than the name whether an active job was a member of a sweep.
        is_active = state.entry is None and any(one.job.is_active for one in state.view.owned)
        if is_active and any(one.sweep or state.key.startswith(f"{name}-") for name, one in entries.items()):
            return True
    return False


def _is_as_declared(state: KeyState, newest_recorded: int) -> bool:
    """Whether a key is certainly as declared, without the history. Absent keys are."""
    desired, latest, view = state.declared, state.latest, state.view
    if desired is None:
        return True
    if latest is None or view.conflicting_jobs or not state.has_declared_digest:
        return False
    if desired.schedule is not None and state.counts_from_s is not None:
        # The history may know of a later start.
        since_s = max(view.last_start_s or 0.0, state.counts_from_s)
        if desired.schedule.due(since_s, state.service_s) is not None:
            return False
    if latest is not view.owned[-1] or newest_recorded > latest.number:
        return False
    if latest.job.phase is Phase.COMPLETED:
        return True
    # Unreported fields are compared with the recorded ones.
    is_reported = not unreported_paths(desired.body or {}, latest.job)
    return is_reported and latest.job.is_live


def needs_whole_list(
    stack: Stack, snapshot: Snapshot, context: PlanContext, *, requested: Collection[str] = ()
) -> bool:
    """Whether a decision depends on a job being absent, so that filtered searches are not enough.

    This is checked before deciding: a partial observation that would start a job requires a full scan,
    however large the workspace (docs/concepts/crash-safety.md, "Reading"). `requested` are the jobs whose
    details were requested; if others are needed, any job may be started.
    """
    if context.destroys:
        return False
    if any(job_id not in requested for job_id in details_needed(stack, snapshot)):
        return True
    return not all(decided.is_proven for decided in decisions_of(stack, snapshot, context).values())


def decisions_of(stack: Stack, snapshot: Snapshot, context: PlanContext) -> dict[str, KeyDecision]:
    """Decide each key after those that it needs, and hold back what needs a key that is not settled.

    Only then is it checked whether absence was proved, since what is held back starts nothing.
    """
    decisions: dict[str, KeyDecision] = {}
    finished, entries = FinishedElsewhere(stack, snapshot), SweepEntries(stack)
    keys = keys_with_upstream(stack, snapshot.ownership)
    upstream = {key: job.needs if (job := stack.find(key)) and not job.is_absent else () for key in keys}
    for key in TopologicalSorter(upstream).static_order():
        desired = stack.find(key)
        needed = {other: decisions[other] for other in upstream.get(key, ()) if other in decisions}
        state = KeyState(
            snapshot.view(key, desired),
            desired,
            snapshot,
            context,
            entries.former_entry(key, snapshot.memory.sweeps),
            tuple(one.state for one in needed.values()),
            tuple(other for other, one in needed.items() if runs_again(one.own)),
        )
        decisions[key] = _decide_key(state, {other: one.own for other, one in needed.items()}, finished)
    return decisions


def upstream_reruns(stack: Stack, snapshot: Snapshot, context: PlanContext) -> dict[str, str]:
    """Return the keys that are about to run again because of a needed key, with the reason for people."""
    if all(job.lifecycle.on_upstream == "keep" for job in stack.jobs.values()):
        return {}
    decisions = decisions_of(stack, snapshot, context)
    return {key: why for key, decision in decisions.items() if (why := decision.upstream_rerun)}


def _decide_key(
    state: KeyState, needed: Mapping[str, PlannedAction | None], finished: FinishedElsewhere
) -> KeyDecision:
    desired = state.declared
    actions, warnings, rule = decide(state)
    if desired is None or not actions:
        return KeyDecision(state, None, actions, warnings, rule)
    chosen, *more = actions
    chosen, schedule = finished.with_finished_work(chosen, desired), desired.schedule
    if schedule is not None and (time_s := schedule.next_after(state.service_s)) is not None:
        relative = spell_relative(time_s, state.at_s, schedule.timezone)
        next_run = {"next_run_at": timestamp(time_s), "timezone": schedule.timezone, "next_run": relative}
        chosen = chosen.model_copy(update=next_run)
    own = hold_back_for_needs(chosen, desired, needed)
    protected = [action for action in more if action.reason in (Reason.PROTECTED, Reason.PROTECTION_RELEASED)]
    # A create beside a protected job, which runs on; a replace does not add a job.
    if own.action is Action.CREATE and protected:
        names = ", ".join(action.before.name for action in protected if action.before)
        why = f"{names} is active, and {PROTECTED}"
        own = own.without_effect(Action.BLOCKED, Reason.PROTECTED, why, follows=None)
    if state.has_revision and own.traits.keeps_the_job and (newer := state.newer_upstream):
        last, job = max(newer, key=lambda completion: completion.at_s), state.revision.job
        why = f"{last.key} completed r{last.number} at {timestamp(last.at_s)}, after {job.name} was created"
        fix = "`lifecycle.on_upstream: rerun` runs it again, and so does an edit of `lifecycle.rerun`"
        if desired.lifecycle.on_upstream == "rerun":
            fix = "it runs again once it has ended (on_upstream: rerun)"
        warnings = [*warnings, PlanWarning(what=made_from_older(newer), why=why, fix=fix, key=state.key)]
    if not assumes_absence(own, state) or state.ownership.proves_absence:
        return KeyDecision(state, own, more, warnings, rule, chosen)
    why = "not everything could be read, so it is unknown whether a newer job of this key exists"
    unknown = own.without_effect(Action.UNKNOWN, Reason.UNREADABLE, why, changes=(), follows=None)
    return KeyDecision(state, unknown, [], warnings, rule, chosen, is_proven=False)


def propose_plan(
    stack: Stack, snapshot: Snapshot, context: PlanContext, target: TargetIdentity
) -> ProposedPlan:
    decisions = decisions_of(stack, snapshot, context)
    decided = []
    for key in keys_in_view(stack, snapshot.ownership):
        state = decisions[key].state
        for action in decisions[key].actions:
            is_deferred = action.action is Action.DEFER and action.reason is not Reason.SUPERSEDED
            if state.entry and state.entry.body is not None and (action.traits.starts_a_job or is_deferred):
                cost = cost_of(state.entry.body, state.view.ever_owned, stack.prices)
                action = action.model_copy(update={"cost": cost})
            decided.append(action)
    decided.sort(key=lambda one: (one.key, shown.revision if (shown := one.before or one.after) else 0))
    verdicts = None
    if stack.policies:
        from reconciler.decide.policies import judge_plan

        verdicts = judge_plan(stack, target, decided, context.evaluate)
    actions = block(decided, blocks_of(verdicts.denied if verdicts else ()), stack)
    return ProposedPlan(stack, snapshot, context, target, decisions, decided, actions, verdicts)


def history_of(stack: Stack, snapshot: Snapshot) -> tuple[tuple[str, Before], ...]:
    """Return the jobs in view that have ended or are ending, and are not the latest of a declared key."""
    jobs = []
    for key in keys_owned_in_view(stack, snapshot.ownership):
        state = state_of(key, stack.find(key), snapshot, PlanContext(stack.name))
        latest = state.latest if state.declared else None
        ended = (r for r in state.view.owned if r is not latest and r not in state.live)
        jobs += [(key, before) for r in ended if r.job.phase and (before := before_of(r))]
    return tuple(jobs)


def make_plan(stack: Stack, snapshot: Snapshot, context: PlanContext, target: TargetIdentity) -> Plan:
    """Decide every key. Equal inputs give equal plans, byte for byte."""
    return guarded_plan(propose_plan(stack, snapshot, context, target))


def _deferred_reruns(proposed: ProposedPlan, actions: Sequence[PlannedAction]) -> Iterator[PlanWarning]:
    """Warn of requested reruns that are deferred: later plans do not know of the request."""
    for action in actions:
        chosen = proposed.decisions[action.key].chosen
        if action.action is Action.DEFER and chosen and chosen.reason is Reason.RERUN_REQUESTED:
            fix = "`apply --wait completed` starts it in its time; another apply needs `--rerun` again"
            yield PlanWarning(what="rerun deferred", why=action.detail, fix=fix, key=action.key)


def guarded_plan(proposed: ProposedPlan, checked: CatalogCheck | None = None) -> Plan:
    """Make the plan: block what pre-flight found, then apply the guards."""
    stack, snapshot, context = proposed.stack, proposed.snapshot, proposed.context
    denied, warned = (proposed.verdicts.denied, proposed.verdicts.warnings) if proposed.verdicts else ((), ())
    blocks = blocks_of(checked.found if checked else ())
    proposed = proposed._replace(actions=block(proposed.actions, blocks, stack))
    actions, found = guard(proposed)
    actions = apply_max_parallel(proposed, actions)
    in_view = keys_in_view(stack, snapshot.ownership)
    return Plan(
        **context.head(proposed.target),
        complete=snapshot.ownership.is_complete and all(one.action is not Action.UNKNOWN for one in actions),
        denied=denied,
        preflight=checked.found if checked else None,
        declared=tuple(stack.whole or stack.jobs),
        has_budget=(stack.limits.node_hours, stack.limits.cost) != (None, None),
        warnings=fold_similar_warnings(
            (
                *snapshot_warnings(stack, snapshot),
                *first_apply_warning(proposed),
                *rename_hints(stack, snapshot),
                *_deferred_reruns(proposed, actions),
                *warned,
                *chain.from_iterable(proposed.decisions[key].warnings for key in in_view),
                *(checked.warnings if checked else ()),
            )
        ),
        **sums_of(actions, [diagnostic(name, found[name]) for name in found if name in REFUSES_THE_PLAN]),
    )


def make_destroy_plan(stack: Stack, snapshot: Snapshot, context: PlanContext, target: TargetIdentity) -> Plan:
    """Terminate what the stack owns in view, as if every key said `state: absent`."""
    keys, absent = {*keys_owned_in_view(stack, snapshot.ownership)}, {}
    if snapshot.ownership.problem is not None:
        keys |= stack.jobs.keys()  # each may own a job, so it is unknown
    for key in sorted(keys):
        declared = stack.jobs.get(key)
        # Protection holds, and is not released by `protect: false`.
        is_protected = declared is not None and declared.lifecycle.protect is True
        absent[key] = DesiredJob(
            key=key,
            body=None,
            digest="",
            lifecycle=Lifecycle(protect=True if is_protected else None),
            is_absent=True,
            formerly=declared.formerly if declared else (),
            location=declared.location if declared else None,
        )
    emptied = replace(stack, jobs=absent, whole=absent, is_partial=True, policies=())
    context = context._replace(destroys=True, allowances=EVERY_GUARD)
    plan = make_plan(emptied, snapshot, context, target)
    return plan.model_copy(update={"declared": tuple(stack.whole or stack.jobs)})


def snapshot_warnings(stack: Stack, snapshot: Snapshot) -> tuple[PlanWarning, ...]:
    """Warn of keys out of view, and of what could not be read and belongs to no key of the plan."""
    ownership, memory = snapshot.ownership, snapshot.memory
    warnings = []
    if stack.is_partial:
        in_view = chain(stack.jobs, *(job.formerly for job in stack.jobs.values()))
        left_alone = len(set(ownership.owned_keys).difference(in_view))
        counted = [] if stack.chosen is None else [(stack.left_out, "declared but not in view")]
        counted += [(left_alone, "owned but not in view; left alone")] if left_alone else []
        keys = ((format_count(n, "key"), "is" if n == 1 else "are", state) for n, state in counted)
        if why := "; ".join(map(" ".join, keys)):
            warnings.append(PlanWarning(what="partial view", why=why))
    warnings += unread(ownership)
    if memory.problem is not None:
        why = f"{memory.problem}; everything that depends on it is unknown"
        warnings.append(PlanWarning(what="the history could not be read", why=why, fix=memory.fix))
    return tuple(warnings)


def unread(ownership: Ownership) -> list[PlanWarning]:
    """Warn of what could not be read and belongs to no key of the plan."""
    warnings = [PlanWarning(what="a job could not be read", why=lost.why) for lost in ownership.unattributed]
    if ownership.problem is not None:
        warnings.insert(0, PlanWarning(what="the list could not be read", why=ownership.problem))
    return warnings
