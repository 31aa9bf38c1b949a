"""Reports about keys: where each stands (`status`), and why it gets its action (`why`).

Nothing is decided here. What crosses the process boundary is a frozen model with a schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from reconciler.core.body import summarize
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.policy_expression import fields_in
from reconciler.core.record import Call, PastChange
from reconciler.core.stack import DesiredJob, Effect, Stack
from reconciler.core.values import (
    Frozen,
    Head,
    PlanWarning,
    Source,
    TargetIdentity,
    timestamp,
    timestamp_or_none,
)
from reconciler.decide.actions import KeyDecision
from reconciler.decide.cost import spell_cost
from reconciler.decide.drift import check_key
from reconciler.decide.drift_check import Drift, Pending
from reconciler.decide.guards import ProposedPlan, diagnostic, guard
from reconciler.decide.key_state import (
    KeyState,
    PlanContext,
    Snapshot,
    keys_in_view,
    keys_owned_in_view,
    state_of,
)
from reconciler.decide.plan import (
    BLOCKERS,
    Action,
    Guard,
    Plan,
    PlannedAction,
    PreflightFinding,
    Reason,
    spell_work,
    spoken,
)
from reconciler.decide.planner import snapshot_warnings
from reconciler.decide.policies import judge_plan, planned
from reconciler.decide.renames import SweepEntries
from reconciler.decide.rules import DO_NOT_WAIT, KEEP_IT, LET_IT_GO_ON, RULES, WHERE_EDITS_WAIT

if TYPE_CHECKING:
    from reconciler.core.ports import EvaluateExpressions


# --- the jobs of a stack now


class WaitKind(StrEnum):
    """What sort of thing a job waits for."""

    NEEDS = "needs"
    RETRY = "retry"
    SCHEDULE = "schedule"
    TERMINATION = "termination"
    QUEUE = "queue"
    SUCCESSOR = "successor"
    APPLY = "apply"
    BLOCKED = "blocked"
    CONFLICT = "conflict"
    OTHER = "other"


_DEFERRED = {
    Reason.NEEDS_PENDING: WaitKind.NEEDS,
    Reason.RETRY_LATER: WaitKind.RETRY,
    Reason.SUPERSEDED: WaitKind.SUCCESSOR,
}
_IN_THE_WAY = {Action.BLOCKED: WaitKind.BLOCKED, Action.CONFLICT: WaitKind.CONFLICT}
_QUEUES = {Phase.PENDING: "its turn in the queue", Phase.CREATING: "the service to create it"}


class Waiting(Frozen):
    """What a job waits for."""

    kind: WaitKind = Field(
        description="needs (other keys), retry (its time), schedule (its next time), termination, queue, "
        "successor (the newer revision to run), apply (to be run), blocked, conflict or other."
    )
    detail: str = Field(description="For people.")
    keys: tuple[str, ...] = Field((), description="For needs: the keys that are not settled.")
    action: Action | None = Field(None, description="For apply: what it would do.")
    due_at: str | None = Field(None, description="For retry and schedule: when it is due, RFC 3339 in UTC.")


class LastChange(Frozen):
    """What happened last: an action of ours if the history tells, else what the service tells."""

    at: str = Field(description="RFC 3339, UTC.")
    what: str = Field(description="The action that was executed; or created, or the phase it ended in.")
    who: str | None = Field(None, description="Who ran it; null if no history is available.")


class JobStatus(Frozen):
    """One revision of a key; of a key without a job all that is of a job is null."""

    key: str = Field(description="Name of the job in the manifest.")
    declared: bool = Field(description="Whether the manifest declares the key.")
    newest: bool = Field(description="Whether this revision stands for the key; others are superseded.")
    revision: int | None = Field(None, description="1 is the first.")
    name: str | None = Field(None, description="Name of the job on the service.")
    job: str | None = Field(None, description="Id of the job.")
    phase: str | None = Field(None, description="Phase, as the service reports it.")
    secondary_phase: str | None = Field(
        None, description="Secondary phase, as the service reports it; not stable."
    )
    aged_out: bool = Field(False, description="Whether only the history still knows the job.")
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    started_at: str | None = Field(None, description="RFC 3339, UTC.")
    ended_at: str | None = Field(None, description="RFC 3339, UTC; null while the job is active.")
    queued_s: float | None = Field(None, description="Seconds it has been queued so far.")
    ran_s: float | None = Field(None, description="Seconds it has run so far.")
    nodes: int | None = Field(None, description="Number of nodes it has, or is declared to have.")
    flavor: str | None = Field(None, description="Flavor of the nodes; several with + between them.")
    waits_for: Waiting | None = Field(None, description="null: nothing.")
    next_run_at: str | None = Field(None, description="Next time of the key's schedule; RFC 3339, UTC.")
    next_run: str | None = Field(None, description="The same for people, in the schedule's time zone.")
    last_change: LastChange | None = Field(None, description="null: nothing has happened yet.")
    problem: str | None = Field(
        None, description="Why the status of the key is unknown; null if it is known."
    )


class StatusReport(Head):
    """The jobs of a stack on a target, as of one moment."""

    complete: bool = Field(description="False when something could not be read.")
    summary: dict[str, int] = Field(description="Number of these jobs in each phase.")
    jobs: tuple[JobStatus, ...] = Field(description="Sorted by key; the newest revision of a key first.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    @property
    def without_a_job(self) -> int:
        return sum(one.phase is None and one.problem is None for one in self.jobs)

    @property
    def unknown(self) -> int:
        return sum(one.problem is not None for one in self.jobs)


def make_status(
    stack: Stack, snapshot: Snapshot, plan: Plan, context: PlanContext, changes: Mapping[str, PastChange]
) -> StatusReport:
    """Put together what was seen and what the plan of that moment says, for each key in view.

    `changes` are the last changes of each key, as far as the history knows. Beside every key that is
    declared there are undeclared ones that own an active job, and those that were asked for by name.
    """
    actions: dict[str, list[PlannedAction]] = {}
    for action in plan.actions:
        actions.setdefault(action.key, []).append(action)
    jobs: list[JobStatus] = []
    for key in sorted({*stack.jobs, *keys_owned_in_view(stack, snapshot.ownership)}):
        desired = stack.jobs.get(key)
        former = desired.formerly if desired else ()
        found = [changes[name] for name in (key, *former) if name in changes]
        change = max(found, key=lambda one: one.at_s, default=None)
        rows = _Key(state_of(key, desired, snapshot, context), actions.get(key, []), change)
        jobs += rows.of_key(is_asked_for=key in (stack.chosen or ()))
    summary = Counter(one.phase for one in jobs if one.phase is not None)
    return StatusReport(
        **_head_of(plan),
        complete=plan.complete,
        summary=dict(sorted(summary.items())),
        jobs=tuple(jobs),
        warnings=plan.warnings,
    )


def _head_of(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Head.model_fields}


class _Key(NamedTuple):
    """What is known of one key."""

    state: KeyState
    actions: list[PlannedAction]
    change: PastChange | None

    def of_key(self, *, is_asked_for: bool) -> Iterator[JobStatus]:
        """The newest revision first, then every other active one; nothing of a key that is over."""
        view, latest = self.state.view, self.state.latest
        active = [r for r in view.owned if r.job.is_active]
        if not (self.state.declared or is_asked_for or active or view.unreadable):
            return
        # The action about the key itself: the start of its next revision, or that on its newest one. What
        # stands in the way may be told of another revision; it stands in the way of the key.
        starting = (a for a in self.actions if a.before is None)
        stuck = (a for a in self.actions if a.traits.stands_in_the_way or a.action is Action.UNKNOWN)
        action = next(starting, None) or (self._action_on(latest) if latest else None) or next(stuck, None)
        # What was not read may be there: only a look that found it missing says that it has aged out.
        is_unread = latest is not None and latest.is_aged_out and _is_unknown(action)
        yield self._row(action, None if is_unread else latest, is_newest=True)
        for revision in sorted(active, key=lambda r: r.number, reverse=True):
            if revision is not latest:
                yield self._row(self._action_on(revision), revision, is_newest=False)

    def _action_on(self, revision: Revision) -> PlannedAction | None:
        return next((a for a in self.actions if a.before and a.before.id == revision.job.id), None)

    def _row(self, action: PlannedAction | None, revision: Revision | None, *, is_newest: bool) -> JobStatus:
        declared, at_s = self.state.declared, self.state.at_s
        job, more = revision.job if revision else None, dict[str, Any]()
        nodes, flavor = _resources((job and job.body) or (declared and declared.body) or {})
        if revision is not None and job is not None:
            has_ended = job.phase is not None and job.phase.is_terminal
            secondary = job.secondary_phase
            more = {
                "revision": revision.number,
                "aged_out": revision.is_aged_out,
                "name": job.name,
                "job": job.id,
                "phase": job.phase_text,
                "secondary_phase": secondary if secondary and secondary != job.phase_text else None,
                "created_at": timestamp_or_none(job.created_at_s),
                "started_at": timestamp_or_none(job.started_at_s),
                "ended_at": timestamp_or_none(job.ended_at_s()) if has_ended else None,
                "queued_s": round(job.queued_s(at_s), 3),
                "ran_s": round(job.ran_s(at_s), 3),
            }
        return JobStatus(
            key=self.state.key,
            declared=declared is not None,
            newest=is_newest,
            nodes=nodes if job is None else job.node_count,
            flavor=flavor,
            waits_for=None if _is_unknown(action) else _waits_for(action, job),
            next_run_at=action.next_run_at if action else None,
            next_run=(action.next_run or None) if action else None,
            last_change=self._last_change(job),
            problem=action.detail if action and _is_unknown(action) else None,
            **more,
        )

    def _last_change(self, job: ObservedJob | None) -> LastChange | None:
        """The latest of: what the history tells of the key, the job's creation, and its end.

        A recorded call on this very job tells of its creation, or termination, better than the service.
        """
        change, found = self.change, list[LastChange]()
        if change is not None and (job is None or change.job == job.id):
            found.append(LastChange(at=timestamp(change.at_s), what=change.action, who=change.who or None))
        if job is None:
            return found[0] if found else None
        if job.created_at_s is not None and not found:
            found.append(LastChange(at=timestamp(job.created_at_s), what="created"))
        ended_at_s = job.ended_at_s()
        was_ended = change is not None and change.job == job.id and change.call == Call.TERMINATE
        if job.phase is not None and job.phase.is_terminal and ended_at_s is not None and not was_ended:
            found.append(LastChange(at=timestamp(ended_at_s), what=job.phase_text))
        return max(found, key=lambda change: change.at, default=None)


def _is_unknown(action: PlannedAction | None) -> bool:
    return action is not None and action.action is Action.UNKNOWN


def _waits_for(action: PlannedAction | None, job: ObservedJob | None) -> Waiting | None:
    """What the plan says that this job, or the key's next one, waits for; None if for nothing."""
    phase = job.phase if job else None
    if action is not None and action.action in _IN_THE_WAY:
        return Waiting(kind=_IN_THE_WAY[action.action], detail=action.detail)
    if action is not None and action.action is Action.DEFER:
        kind, due_at = _DEFERRED.get(action.reason, WaitKind.OTHER), timestamp_or_none(action.due_s)
        return Waiting(kind=kind, detail=action.detail, keys=action.waits_for, due_at=due_at)
    if phase is Phase.TERMINATING:
        return Waiting(kind=WaitKind.TERMINATION, detail="its termination")
    is_applied = action is not None and action.traits.is_executed
    if phase in _QUEUES and (action is None or not is_applied or action.action is Action.UPDATE):
        return Waiting(kind=WaitKind.QUEUE, detail=_QUEUES[phase])
    if action is not None and is_applied:
        return Waiting(kind=WaitKind.APPLY, detail=action.detail, action=action.action)
    # The next time of its schedule, which a job that has ended waits for.
    if action is None or not action.next_run or phase is None or not phase.is_terminal:
        return None
    next_run, due_at = action.next_run, action.next_run_at
    return Waiting(kind=WaitKind.SCHEDULE, detail=f"next: {next_run}", due_at=due_at)


def _resources(body: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Nodes and flavors of a create body or of an answer; None where nothing is said."""
    spec, tasks = body.get("spec"), body.get("tasks")
    parts: list[Any] = []
    if isinstance(spec, Mapping) and spec.get("resource"):
        parts = [spec["resource"]]
    elif isinstance(tasks, list):
        parts = [task.get("task_resource") for task in tasks if isinstance(task, Mapping)]
    found = [resource for resource in parts if isinstance(resource, Mapping)]
    if not found:
        return None, None
    counts = [resource.get("node_count") for resource in found]
    nodes = sum(count if isinstance(count, int) else 1 for count in counts)
    flavors = dict.fromkeys(str(r["flavor_id"]) for r in found if r.get("flavor_id"))
    return nodes, " + ".join(flavors) or None


# --- what stands against the actions of one key: policies, and guards that block it or refuse the plan


class PolicyVerdict(Frozen):
    """A policy that denies one of the key's actions, or warns of it."""

    policy: str = Field(description="Name of the policy.")
    effect: Effect = Field(description="Whether it denies the action or warns of it.")
    message: str = Field("", description="Message of the policy.")
    problem: str | None = Field(
        None, description="Why the expression could not be evaluated; null: it is true."
    )
    expression: str = Field("", description="The expression.")
    values: dict[str, Any] = Field(
        default_factory=dict, description="The fields that it names, with the values they have here."
    )
    source: Source | None = Field(None, description="Location of the expression in the manifest.")


class GuardVerdict(Frozen):
    """A guard that blocks the key, or refuses the plan, because of the key's action among others."""

    guard: Guard = Field(description="Name of the guard, as `--allow` takes it.")
    what: str = Field(description="What the guard refuses.")
    why: str = Field(description="The values of the whole plan, and the limit.")
    share: str = Field(description="What the key adds to it.")
    fix: str | None = Field(None, description="How to let the plan pass.")


def policy_verdicts(
    stack: Stack,
    target: TargetIdentity,
    actions: Iterable[PlannedAction],
    evaluate: EvaluateExpressions | None = None,
) -> Iterator[PolicyVerdict]:
    """What the policies of a stack say of some actions, those that deny first, with the values they saw."""
    policies = {policy.name: policy for policy in stack.policies}
    around = {"stack": stack.name, "target": target.model_dump(mode="json")}
    for action in actions:
        subject = planned(action, stack.find(action.key))
        if subject is None:
            continue
        verdicts = judge_plan(stack, target, [action], evaluate)
        seen = {"job": subject.job, "action": subject.action, **around}

        def value_of(path: str, seen: Any = seen) -> Any:
            for name in path.split("."):
                seen = seen.get(name) if isinstance(seen, Mapping) else None
            return seen

        problems = {one.policy: one.problem for one in verdicts.denied}
        for name in (*problems, *(one.policy for one in verdicts.warned)):
            policy = policies[name]
            yield PolicyVerdict(
                policy=name,
                effect=Effect.DENY if name in problems else Effect.WARN,
                message=policy.message,
                problem=problems.get(name),
                expression=policy.expression,
                values={path: value_of(path) for path in fields_in(policy.expression)},
                source=Source.of(policy.location),
            )


def guard_verdicts(key: str, proposed: ProposedPlan) -> Iterator[GuardVerdict]:
    """The guards that block a key, or refuse the plan because of one of its actions, among others."""
    for name, found in guard(proposed)[1].items():
        own = [action for action in found.because_of if action.key == key]
        if own:
            said = diagnostic(name, found)
            share = "; ".join(_SHARES[name](action) for action in own)
            yield GuardVerdict(guard=name, what=said.what, why=said.why, share=share, fix=said.fix)


#: What an action adds to what a guard refuses.
_SHARES: Mapping[Guard, Callable[[PlannedAction], str]] = {
    Guard.EMPTY: lambda action: f"ends {action.before.name}" if action.before else "ends a job",
    Guard.FOUND_NOTHING: lambda action: f"starts {action.after.name}" if action.after else "starts a job",
    Guard.TERMINATIONS: lambda action: f"ends {action.before.name}" if action.before else "ends a job",
    Guard.LOST_WORK: lambda action: f"discards {spell_work(action.lost_node_hours)} of work",
    Guard.RERUNS: lambda action: f"runs the work of {action.finished_work} again",
    Guard.BUDGET: lambda action: spell_cost(action.cost) if action.cost else "",
}


# --- why a key gets its action


class RuleCheck(Frozen):
    """A rule that was asked, in the order of the decision."""

    name: str = Field(description="Name of the rule.")
    when: str = Field(description="When it applies.")
    applies: bool = Field(description="Whether it applied: the last one did, and decided.")


class DeclaredValues(Frozen):
    """What the manifest declares for the key."""

    source: Source | None = Field(None, description="Location of the key in the manifest.")
    digest: str = Field("", description="Digest of the declaration.")
    starts: str = Field("", description="What a job of it takes and runs.")
    is_absent: bool = Field(False, description="Whether it says state: absent.")
    needs: tuple[str, ...] = Field((), description="Keys that have to be settled first.")
    formerly: tuple[str, ...] = Field((), description="Former keys.")
    lifecycle: dict[str, Any] = Field(
        default_factory=dict, description="Lifecycle options that are not the default."
    )


class ObservedRevision(Frozen):
    """A revision of the key, as the service reported it, or the history where the service forgot it."""

    id: str
    name: str
    revision: int
    phase: str
    digest: str
    as_declared: bool | None = Field(
        None, description="Whether it was made of what is declared now; null: nothing is declared."
    )
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    ran_s: float | None = Field(None, description="Seconds that it has run.")
    nodes: int = Field(1, description="Nodes that it runs on.")
    stopped: bool = Field(False, description="Whether we terminated it.")
    protected: bool = Field(False, description="Whether its marker protects it.")
    aged_out: bool = Field(False, description="Whether the service has deleted its record.")


class Explanation(Head):
    """Why one key gets its action."""

    key: str = Field(description="Name of the job in the manifest.")
    actions: tuple[PlannedAction, ...] = Field(description="What is to be done, the key's own action first.")
    rules: tuple[RuleCheck, ...] = Field(description="The rules that were asked, in order; the last decided.")
    chosen: Action | None = Field(
        None,
        description="Action that the rule chose, where `needs`, a gap in what was read, or what blocks the "
        "key changed it.",
    )
    policies: tuple[PolicyVerdict, ...] = Field(
        (), description="Policies that deny its actions, or warn of them."
    )
    guards: tuple[GuardVerdict, ...] = Field(
        (), description="Guards that block it, or refuse the plan because of it."
    )
    preflight: tuple[PreflightFinding, ...] | None = Field(
        None, description="What the target would refuse of its job; null: it is about to start none."
    )
    declared: DeclaredValues | None = Field(None, description="What is declared; null: nothing is.")
    observed: tuple[ObservedRevision, ...] = Field((), description="The key's revisions, the newest first.")
    drift: tuple[Drift, ...] = Field((), description="What changed behind the manifest's back.")
    pending: tuple[Pending, ...] = Field((), description="What is yet to be applied.")
    otherwise: tuple[str, ...] = Field((), description="What would make it another action.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    def document(self) -> dict[str, Any]:
        """The explanation as plain JSON data. No secret is in it."""
        document = super().document()
        return {**document, "actions": [*map(spoken, document["actions"])]}

    @property
    def is_known(self) -> bool:
        return not any(action.action is Action.UNKNOWN for action in self.actions)


def explain(key: str, proposed: ProposedPlan, plan: Plan) -> Explanation:
    """Ask the rules about one key of a stack, and say what they were asked about.

    `plan` is what is proposed for the whole stack after pre-flight and the guards.
    """
    stack, snapshot, context = proposed.stack, proposed.snapshot, proposed.context
    if key in keys_in_view(stack, snapshot.ownership):
        decision = proposed.decisions[key]
    else:  # nothing is done about it, whatever the rules would say
        entry = SweepEntries(stack).former_entry(key, snapshot.memory.sweeps)
        state = state_of(key, stack.find(key), snapshot, context)
        decision = KeyDecision(replace(state, former_entry=entry))
    desired = decision.state.entry
    findings = check_key(decision.state, decision.upstream_rerun)
    own = [action for action in proposed.decided if action.key == key]
    # In the order in which they were decided.
    jobs = [action.before for action in decision.actions]
    of_key = [action for action in plan.actions if action.key == key]
    actions = tuple(sorted(of_key, key=lambda action: jobs.index(action.before)))
    found = None if plan.preflight is None else tuple(one for one in plan.preflight if one.key == key)
    rules = list[RuleCheck]()
    for rule in RULES if decision.rule else ():
        rules.append(RuleCheck(name=rule.name, when=rule.when, applies=rule.name == decision.rule))
        if rules[-1].applies:
            break
    # What the rule chose for the key, where its action became another one.
    chosen = decision.chosen.action if decision.chosen and actions else None
    return Explanation(
        **_head_of(plan),
        key=key,
        actions=actions,
        policies=tuple(policy_verdicts(stack, plan.target, own, context.evaluate)),
        guards=tuple(guard_verdicts(key, proposed.without(plan.preflight or ()))),
        preflight=found,
        rules=tuple(rules),
        chosen=chosen if actions and actions[0].action is not chosen else None,
        declared=_declared(desired) if desired else None,
        observed=tuple(_observed(decision.state)),
        drift=findings.drift,
        pending=() if findings.pending is None else (findings.pending,),
        otherwise=tuple(_otherwise(actions, decision)),
        # Those that are about the key, or about all keys.
        warnings=tuple(
            one for one in (*snapshot_warnings(stack, snapshot), *decision.warnings) if one.key in (None, key)
        ),
    )


def _declared(desired: DesiredJob) -> DeclaredValues:
    given = desired.lifecycle.model_dump(mode="json", exclude_defaults=True)
    return DeclaredValues(
        source=Source.of(desired.location),
        digest=desired.digest,
        starts=summarize(desired.body) if desired.body else "",
        is_absent=desired.is_absent,
        needs=desired.needs,
        formerly=desired.formerly,
        lifecycle={name: value for name, value in given.items() if name in Lifecycle.model_fields},
    )


def _observed(state: KeyState) -> Iterator[ObservedRevision]:
    desired = state.entry
    for one in reversed(state.view.ever_owned):
        job, marker = one.job, one.marker
        yield ObservedRevision(
            id=job.id,
            name=job.name,
            revision=one.number,
            phase=job.phase_text,
            digest=marker.digest,
            as_declared=desired.is_declared_by(marker.digest) if desired and desired.digest else None,
            created_at=timestamp_or_none(job.created_at_s),
            ran_s=round(job.ran_s(state.at_s), 3) if job.is_active else job.duration_s,
            nodes=job.node_count,
            stopped=marker.stopped,
            protected=marker.protected,
            aged_out=one.is_aged_out,
        )


def _otherwise(actions: Sequence[PlannedAction], decision: KeyDecision) -> Iterator[str]:
    """What would make it otherwise: first what blocks it, then what the rules rest on."""
    rule = next((one for one in RULES if one.name == decision.rule), None)
    reasons: Iterable[Reason] = dict.fromkeys(
        action.reason for action in (*(a for a in actions if a.reason in BLOCKERS), *decision.actions)
    )
    guards = " --allow ".join(dict.fromkeys(name for one in actions for name in one.blocked_by))
    ends_a_job = any(one.traits.starts_a_job and one.traits.stops_a_job for one in decision.actions)
    desired = decision.state.entry
    for text in (text for reason in reasons for text in (rule.hints_for(reason) if rule else ())):
        if text == LET_IT_GO_ON and not ends_a_job:
            continue
        if text == DO_NOT_WAIT and decision.upstream_rerun:
            text = KEEP_IT
        if desired is not None and desired.edits_wait:
            text = WHERE_EDITS_WAIT.get(text, text)
        yield text.replace("KEY", decision.state.key).replace("GUARD", guards)
