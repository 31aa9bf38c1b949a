"""Reports about keys: their status (`status`), and why they get their actions (`why`).

Nothing is decided here. What crosses the process boundary is a frozen model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from reconciler.core.body import placed, summarize
from reconciler.core.canonical import value_at
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.past import Call, PastChange
from reconciler.core.phase import Phase
from reconciler.core.policy_expression import fields_in
from reconciler.core.stack import DesiredJob, Effect
from reconciler.core.values import Frozen, Head, PlanWarning, Source, timestamp, timestamp_or_none
from reconciler.decide.actions import KeyDecision
from reconciler.decide.guards import ProposedPlan, diagnostic, guard
from reconciler.decide.key_state import KeyState, keys_in_view, keys_owned_in_view, state_of
from reconciler.decide.plan import BLOCKERS, Action, Guard, Plan, PlannedAction, Reason, without_unset
from reconciler.decide.planner import snapshot_warnings
from reconciler.decide.policies import judge_plan, planned
from reconciler.decide.renames import SweepEntries
from reconciler.decide.rules import DO_NOT_WAIT, KEEP_IT, LET_IT_GO_ON, RULES, WHERE_EDITS_WAIT
from reconciler.errors import ExitCode
from reconciler.text import few

# --- status


class WaitKind(StrEnum):
    """The kind of thing that a job waits for."""

    NEEDS = "needs"
    RETRY = "retry"
    SCHEDULE = "schedule"
    TERMINATION = "termination"
    QUEUE = "queue"
    SUCCESSOR = "successor"
    APPLY = "apply"
    BLOCKED = "blocked"
    CONFLICT = "conflict"


_DEFERRED = {
    Reason.NEEDS_PENDING: WaitKind.NEEDS,
    Reason.WAITS_FOR_TURN: WaitKind.NEEDS,
    Reason.RETRY_LATER: WaitKind.RETRY,
    Reason.SUPERSEDED: WaitKind.SUCCESSOR,
}
_ATTENTION = {Action.BLOCKED: WaitKind.BLOCKED, Action.CONFLICT: WaitKind.CONFLICT}
_QUEUES = {Phase.PENDING: "its turn in the queue", Phase.CREATING: "the service to create it"}


class Waiting(Frozen):
    """What a job waits for: needed `keys`, an `action` to be applied, or a time."""

    kind: WaitKind
    detail: str
    keys: tuple[str, ...] = ()
    action: Action | None = None
    due_at: str | None = None


class LastChange(Frozen):
    """The last event: an action of ours if it is recorded, else what the service reports."""

    at: str
    what: str
    who: str | None = None


class JobStatus(Frozen):
    """One revision of a key; for a key without a job the job's fields are null.

    Revisions other than the `newest` are superseded; one that has `aged_out` is known from the history only.
    `problem` says why the status is unknown. Times are RFC 3339 in UTC, but `next_run` is for people.
    """

    key: str
    declared: bool
    newest: bool
    revision: int | None = None
    name: str | None = None
    job: str | None = None
    phase: str | None = None
    secondary_phase: str | None = None
    aged_out: bool = False
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    queued_s: float | None = None
    ran_s: float | None = None
    nodes: int | None = None
    flavor: str | None = None
    waits_for: Waiting | None = None
    next_run_at: str | None = None
    next_run: str | None = None
    last_change: LastChange | None = None
    problem: str | None = None

    @property
    def phase_text(self) -> str:
        """The phase for people; "" without a job."""
        if self.phase is None:
            return "unknown" if self.problem is not None else ""
        secondary = f" ({self.secondary_phase})" if self.secondary_phase else ""
        return self.phase + secondary + (", aged out" if self.aged_out else "")

    @property
    def wait_text(self) -> str:
        """What it waits for, for people, or why that is unknown."""
        waiting = self.waits_for
        if self.problem is not None:
            summary = self.problem
        elif waiting is None:
            summary = "" if self.newest else "nothing (superseded)"
        elif waiting.kind is WaitKind.NEEDS and waiting.keys:
            summary = few(waiting.keys)
        elif waiting.kind is WaitKind.APPLY and waiting.action is not None:
            summary = f"apply, to {waiting.action.value} it"
        else:
            summary = waiting.detail
        if self.next_run is not None and (waiting is None or waiting.kind is not WaitKind.SCHEDULE):
            summary = f"{summary}; next: {self.next_run}".removeprefix("; ")
        return summary

    @property
    def is_stuck(self) -> bool:
        """Whether it needs attention: it is unknown, blocked or in conflict."""
        return self.problem is not None or (
            self.waits_for is not None and self.waits_for.kind in _ATTENTION.values()
        )


class StatusReport(Head):
    """The jobs of a stack on a target at one moment."""

    complete: bool
    summary: dict[str, int]
    jobs: tuple[JobStatus, ...]
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def without_a_job(self) -> int:
        return sum(one.phase is None and one.problem is None for one in self.jobs)

    @property
    def unknown(self) -> int:
        return sum(one.problem is not None for one in self.jobs)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.DONE if self.complete else ExitCode.UNKNOWN

    @property
    def last_line(self) -> str:
        """The counts of jobs by phase, and of keys without a job."""
        counts = {**self.summary, "without a job": self.without_a_job, "unknown": self.unknown}
        counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"Status as of {self.created_at}: {counted or 'no jobs'}."


def make_status(proposed: ProposedPlan, plan: Plan, changes: Mapping[str, PastChange]) -> StatusReport:
    """Report the status of each key in view, from what was observed and from the plan made of it.

    `changes` are the last recorded changes of each key. Undeclared keys are included if they own an active
    job, are in the plan or were requested by name.
    """
    stack = proposed.stack
    actions: dict[str, list[PlannedAction]] = {}
    for action in plan.actions:
        actions.setdefault(action.key, []).append(action)
    jobs: list[JobStatus] = []
    for key in sorted({*stack.jobs, *keys_owned_in_view(stack, proposed.snapshot.ownership)}):
        state = _decision_on(key, proposed).state
        former_keys = state.entry.formerly if state.entry else ()
        recorded = [changes[name] for name in (key, *former_keys) if name in changes]
        change = max(recorded, key=lambda one: one.at_s, default=None)
        jobs += _rows(state, actions.get(key, []), change, is_requested=key in (stack.chosen or ()))
    summary = Counter(one.phase for one in jobs if one.phase is not None)
    return StatusReport(
        **proposed.context.head(proposed.target),
        complete=plan.complete,
        summary=dict(sorted(summary.items())),
        jobs=tuple(jobs),
        warnings=plan.warnings,
    )


def _decision_on(key: str, proposed: ProposedPlan) -> KeyDecision:
    """Return the decision on a key; for one out of view only its state."""
    stack, snapshot = proposed.stack, proposed.snapshot
    if key in keys_in_view(stack, snapshot.ownership):
        return proposed.decisions[key]
    former_entry = SweepEntries(stack).former_entry(key, snapshot.memory.sweeps)
    state = state_of(key, stack.find(key), snapshot, proposed.context)
    return KeyDecision(replace(state, former_entry=former_entry))


def _rows(
    state: KeyState, actions: Sequence[PlannedAction], change: PastChange | None, *, is_requested: bool
) -> Iterator[JobStatus]:
    """Yield the latest revision, then every other active one; nothing for a key that is over."""
    latest = state.latest
    active = [r for r in state.view.owned if r.job.is_active]
    if not (state.declared or is_requested or active or actions or state.view.unreadable):
        return
    on_job = {action.before.id: action for action in reversed(actions) if action.before}
    # The key's own action: the start of its next revision, or the action on its latest one. Failing that, one
    # that blocks the key, on whichever revision.
    starting = (a for a in actions if a.before is None)
    stuck = (a for a in actions if a.traits.needs_attention or a.action is Action.UNKNOWN)
    action = next(starting, None) or (on_job.get(latest.job.id) if latest else None) or next(stuck, None)
    # A job that was not read may exist: it has aged out only if it was found missing.
    is_unread = latest is not None and latest.is_aged_out and _is_unknown(action)
    yield _row(state, action, None if is_unread else latest, change, is_newest=True)
    for revision in sorted(active, key=lambda r: r.number, reverse=True):
        if revision is not latest:
            yield _row(state, on_job.get(revision.job.id), revision, change, is_newest=False)


def _row(
    state: KeyState,
    action: PlannedAction | None,
    revision: Revision | None,
    change: PastChange | None,
    *,
    is_newest: bool,
) -> JobStatus:
    declared, job, more = state.declared, revision.job if revision else None, dict[str, Any]()
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
            "queued_s": round(job.queued_s(state.at_s), 3),
            "ran_s": round(job.ran_s(state.at_s), 3),
        }
    return JobStatus(
        key=state.key,
        declared=declared is not None,
        newest=is_newest,
        nodes=nodes if job is None else job.node_count,
        flavor=flavor,
        waits_for=None if _is_unknown(action) else _waits_for(action, job),
        next_run_at=action.next_run_at if action else None,
        next_run=(action.next_run or None) if action else None,
        last_change=_last_change(change, job),
        problem=action.detail if action and _is_unknown(action) else None,
        **more,
    )


def _last_change(change: PastChange | None, job: ObservedJob | None) -> LastChange | None:
    """Return the latest of the recorded change, the job's creation, and its end.

    A recorded call on the job is a better source for its creation or termination than the service.
    """
    events = list[LastChange]()
    if change is not None and (job is None or change.job == job.id):
        events.append(LastChange(at=timestamp(change.at_s), what=change.action, who=change.who or None))
    if job is not None and job.created_at_s is not None and not events:
        events.append(LastChange(at=timestamp(job.created_at_s), what="created"))
    if job is not None and job.phase is not None and job.phase.is_terminal:
        was_ended = change is not None and change.job == job.id and change.call == Call.TERMINATE
        if (ended_at_s := job.ended_at_s()) is not None and not was_ended:
            events.append(LastChange(at=timestamp(ended_at_s), what=job.phase_text))
    return max(events, key=lambda one: one.at, default=None)


def _is_unknown(action: PlannedAction | None) -> bool:
    return action is not None and action.action is Action.UNKNOWN


def _waits_for(action: PlannedAction | None, job: ObservedJob | None) -> Waiting | None:
    """Return what the plan says that this job, or the next one of the key, waits for; None for nothing."""
    phase = job.phase if job else None
    if action is not None and action.action in _ATTENTION:
        return Waiting(kind=_ATTENTION[action.action], detail=action.detail)
    if action is not None and action.action is Action.DEFER:
        kind, due_at = _DEFERRED[action.reason], timestamp_or_none(action.due_s)
        return Waiting(kind=kind, detail=action.detail, keys=action.waits_for, due_at=due_at)
    if phase is Phase.TERMINATING:
        return Waiting(kind=WaitKind.TERMINATION, detail="its termination")
    is_applied = action is not None and action.traits.is_executed
    if phase in _QUEUES and (action is None or not is_applied or action.action is Action.UPDATE):
        return Waiting(kind=WaitKind.QUEUE, detail=_QUEUES[phase])
    if action is not None and is_applied:
        return Waiting(kind=WaitKind.APPLY, detail=action.detail, action=action.action)
    # An ended job waits for the next time of its schedule.
    if action is None or not action.next_run or phase is None or not phase.is_terminal:
        return None
    next_run, due_at = action.next_run, action.next_run_at
    return Waiting(kind=WaitKind.SCHEDULE, detail=f"next: {next_run}", due_at=due_at)


def _resources(body: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return the nodes and flavors of a create body or response; None if unknown."""
    resources = [resource for _, resource in placed(body, "spec.resource", "task_resource") if resource]
    if not resources:
        return None, None
    counts = [resource.get("node_count") for resource in resources]
    flavors = dict.fromkeys(str(r["flavor_id"]) for r in resources if r.get("flavor_id"))
    nodes = sum(count if isinstance(count, int) else 1 for count in counts)
    return nodes, " + ".join(flavors) or None


# --- policies and guards that object to the actions of one key


class PolicyVerdict(Frozen):
    """A policy that denies one of the key's actions, or warns of it."""

    policy: str
    effect: Effect
    message: str = ""
    problem: str | None = None
    expression: str = ""
    values: dict[str, Any]
    source: Source | None = None


class GuardVerdict(Frozen):
    """A guard that blocks the key, or refuses the plan, partly because of the key's action."""

    guard: Guard
    what: str
    why: str
    fix: str | None = None


def _policy_verdicts(proposed: ProposedPlan, actions: Iterable[PlannedAction]) -> Iterator[PolicyVerdict]:
    """Yield the verdicts of policies on some actions, denials first, with the values that they used."""
    stack, target = proposed.stack, proposed.target
    policies = {policy.name: policy for policy in stack.policies}
    shared = {"stack": stack.name, "target": target.model_dump(mode="json")}
    for action in actions:
        subject = planned(action, stack.find(action.key))
        if subject is None:
            continue
        verdicts = judge_plan(stack, target, [action], proposed.context.evaluate)
        values = {"job": subject.job, "action": subject.action, **shared}
        problems = {one.policy: one.problem for one in verdicts.denied}
        for name in (*problems, *(one.policy for one in verdicts.warned)):
            policy = policies[name]
            yield PolicyVerdict(
                policy=name,
                effect=Effect.DENY if name in problems else Effect.WARN,
                message=policy.message,
                problem=problems.get(name),
                expression=policy.expression,
                values={path: value_at(values, path.split(".")) for path in fields_in(policy.expression)},
                source=Source.of(policy.location),
            )


# --- explanations (`why`)


class RuleCheck(Frozen):
    """A rule that was tried, in order."""

    name: str
    when: str
    applies: bool


class DeclaredValues(Frozen):
    """What the manifest declares for the key."""

    source: Source | None = None
    digest: str = ""
    starts: str = ""
    is_absent: bool = False
    needs: tuple[str, ...] = ()
    formerly: tuple[str, ...] = ()
    lifecycle: dict[str, Any]


class ObservedRevision(Frozen):
    """A revision of the key, as reported by the service, or recorded if it has aged out."""

    id: str
    name: str
    revision: int
    phase: str
    digest: str
    as_declared: bool | None = None
    created_at: str | None = None
    ran_s: float | None = None
    nodes: int = 1
    stopped: bool = False
    protected: bool = False
    aged_out: bool = False


class Explanation(Head):
    """Why one key gets its action."""

    key: str
    actions: tuple[PlannedAction, ...]
    rules: tuple[RuleCheck, ...]
    chosen: Action | None = None
    policies: tuple[PolicyVerdict, ...] = ()
    guards: tuple[GuardVerdict, ...] = ()
    declared: DeclaredValues | None = None
    observed: tuple[ObservedRevision, ...] = ()
    otherwise: tuple[str, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the explanation as plain JSON data, without secrets."""
        document = super().document()
        return {**document, "actions": [*map(without_unset, document["actions"])]}

    @property
    def is_known(self) -> bool:
        return not any(action.action is Action.UNKNOWN for action in self.actions)


def why_document(key: str, explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Return explanations as plain JSON data; those of a sweep's members as a list."""
    documents = [explanation.document() for explanation in explanations]
    if [explanation.key for explanation in explanations] == [key]:
        return documents[0]
    return {**{name: documents[0][name] for name in Head.model_fields}, "explanations": documents}


def explain(key: str, proposed: ProposedPlan, plan: Plan) -> Explanation:
    """Explain the decision on one key of a stack.

    `plan` is the whole proposed plan after the guards.
    """
    stack, snapshot = proposed.stack, proposed.snapshot
    decision = _decision_on(key, proposed)
    desired = decision.state.entry
    own = [action for action in proposed.decided if action.key == key]
    # In the order of the decision.
    jobs = [action.before for action in decision.actions]
    of_key = [action for action in plan.actions if action.key == key]
    actions = tuple(sorted(of_key, key=lambda action: jobs.index(action.before)))
    rules = list[RuleCheck]()
    for rule in RULES if decision.rule else ():
        rules.append(RuleCheck(name=rule.name, when=rule.when, applies=rule.name == decision.rule))
        if rules[-1].applies:
            break
    guards = []
    for name, finding in guard(proposed)[1].items():
        if any(action.key == key for action in finding.actions):
            problem = diagnostic(name, finding)
            guards.append(GuardVerdict(guard=name, what=problem.what, why=problem.why, fix=problem.fix))
    # The action that the rule chose, if it was changed later.
    chosen = decision.chosen.action if decision.chosen and actions else None
    return Explanation(
        **proposed.context.head(proposed.target),
        key=key,
        actions=actions,
        policies=tuple(_policy_verdicts(proposed, own)),
        guards=tuple(guards),
        rules=tuple(rules),
        chosen=chosen if actions and actions[0].action is not chosen else None,
        declared=_declared(desired) if desired else None,
        observed=tuple(_observed(decision.state, is_known=not any(map(_is_unknown, actions)))),
        otherwise=tuple(_otherwise(actions, decision)),
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


def _observed(state: KeyState, *, is_known: bool) -> Iterator[ObservedRevision]:
    desired = state.entry
    for revision in reversed(state.view.ever_owned):
        if revision.is_aged_out and not is_known:
            continue  # its job may still exist
        job, marker = revision.job, revision.marker
        yield ObservedRevision(
            id=job.id,
            name=job.name,
            revision=revision.number,
            phase=job.phase_text,
            digest=marker.digest,
            as_declared=desired.is_declared_by(marker.digest) if desired and desired.digest else None,
            created_at=timestamp_or_none(job.created_at_s),
            ran_s=round(job.ran_s(state.at_s), 3) if job.is_active else job.duration_s,
            nodes=job.node_count,
            stopped=marker.stopped,
            protected=marker.protected,
            aged_out=revision.is_aged_out,
        )


def _otherwise(actions: Sequence[PlannedAction], decision: KeyDecision) -> Iterator[str]:
    """Yield what would change the decision: first about what blocks it, then about the rule."""
    rule = next((one for one in RULES if one.name == decision.rule), None)
    held_back = BLOCKERS | {Reason.WAITS_FOR_TURN}
    reasons: Iterable[Reason] = dict.fromkeys(
        action.reason for action in (*(a for a in actions if a.reason in held_back), *decision.actions)
    )
    guards = " --allow ".join(dict.fromkeys(name for one in actions for name in one.blocked_by))
    ends_a_job = any(one.traits.starts_a_job and one.traits.stops_a_job for one in decision.actions)
    desired = decision.state.entry
    if decision.state.has_revision and decision.state.ignored:
        yield "remove the path from `lifecycle.ignore_changes`, and its edit counts"
    for text in (text for reason in reasons for text in (rule.hints_for(reason) if rule else ())):
        if text == LET_IT_GO_ON and not ends_a_job:
            continue
        if text == DO_NOT_WAIT and decision.upstream_rerun:
            text = KEEP_IT
        if desired is not None and desired.edits_wait:
            text = WHERE_EDITS_WAIT.get(text, text)
        yield text.replace("KEY", decision.state.key).replace("GUARD", guards)
