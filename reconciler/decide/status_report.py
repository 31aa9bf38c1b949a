"""The jobs of a stack now: where each key stands, and what it waits for.

`StatusReport` crosses the process boundary (`status --json`), so it is a frozen model with a schema.
Nothing is decided here: what a key waits for is what the plan of the same moment says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import Field

from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.record import Call, PastChange
from reconciler.core.stack import Stack
from reconciler.core.values import Frozen, Head, PlanWarning, timestamp
from reconciler.decide.key_state import KeyState, PlanContext, Snapshot, keys_owned_in_view, state_of
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.secrets import show


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

    def document(self) -> dict[str, Any]:
        """The report as plain JSON data. No secret is in it."""
        document: dict[str, Any] = show(self.model_dump(mode="json"))
        return document

    @property
    def without_a_job(self) -> int:
        """How many keys have no job."""
        return sum(one.phase is None and one.problem is None for one in self.jobs)

    @property
    def unknown(self) -> int:
        """How many keys could not be judged."""
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
        reconciler_version=plan.reconciler_version,
        created_at=plan.created_at,
        stack=plan.stack,
        target=plan.target,
        manifest_digest=plan.manifest_digest,
        complete=plan.complete,
        summary=dict(sorted(summary.items())),
        jobs=tuple(jobs),
        warnings=plan.warnings,
    )


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
        action = self._own_action(latest)
        # What was not read may be there: only a look that found it missing says that it has aged out.
        if latest is None or (latest.is_aged_out and _is_unknown(action)):
            yield self._row(action, None, self._recorded(None), is_newest=True)
        else:
            yield self._revision(latest, action, is_newest=True)
        others = (revision for revision in active if revision is not latest)
        for revision in sorted(others, key=lambda r: r.number, reverse=True):
            yield self._revision(revision, self._action_on(revision), is_newest=False)

    def _action_on(self, revision: Revision) -> PlannedAction | None:
        return next((a for a in self.actions if a.before and a.before.id == revision.job.id), None)

    def _own_action(self, latest: Revision | None) -> PlannedAction | None:
        """The action about the key itself: that on its newest revision, or the start of its next one."""
        starting = (a for a in self.actions if a.before is None)
        # What stands in the way may be told of another revision; it stands in the way of the key.
        stuck = (a for a in self.actions if a.traits.stands_in_the_way or a.action is Action.UNKNOWN)
        on_latest = self._action_on(latest) if latest else None
        return next(starting, None) or on_latest or next(stuck, None)

    def _revision(self, revision: Revision, action: PlannedAction | None, *, is_newest: bool) -> JobStatus:
        job, change = revision.job, self._last_change(revision.job)
        more = {"revision": revision.number, "aged_out": revision.is_aged_out, **self._of_job(job)}
        return self._row(action, job, change, is_newest=is_newest, **more)

    def _of_job(self, job: ObservedJob) -> dict[str, Any]:
        at_s = self.state.at_s
        has_ended = job.phase is not None and job.phase.is_terminal
        secondary = job.secondary_phase
        return {
            "name": job.name,
            "job": job.id,
            "phase": job.phase_text,
            "secondary_phase": secondary if secondary and secondary != job.phase_text else None,
            "created_at": _maybe(job.created_at_s),
            "started_at": _maybe(job.started_at_s),
            "ended_at": _maybe(job.ended_at_s()) if has_ended else None,
            "queued_s": round(job.queued_s(at_s), 3),
            "ran_s": round(job.ran_s(at_s), 3),
        }

    def _row(
        self,
        action: PlannedAction | None,
        seen: ObservedJob | None,
        change: LastChange | None,
        *,
        is_newest: bool,
        **more: Any,
    ) -> JobStatus:
        declared = self.state.declared
        body = seen.body if seen is not None and seen.body else (declared and declared.body) or {}
        nodes, flavor = _resources(body)
        return JobStatus(
            key=self.state.key,
            declared=declared is not None,
            newest=is_newest,
            nodes=nodes if seen is None else seen.node_count,
            flavor=flavor,
            waits_for=None if _is_unknown(action) else _waits_for(action, seen),
            next_run_at=action.next_run_at if action else None,
            next_run=(action.next_run or None) if action else None,
            last_change=change,
            problem=action.detail if action and _is_unknown(action) else None,
            **more,
        )

    # --- what happened last

    def _last_change(self, job: ObservedJob) -> LastChange | None:
        """The latest of: what the history tells of the key, the job's creation, and its end.

        A recorded call on this very job tells of its creation, or termination, better than the service.
        """
        recorded = self._recorded(job)
        found = [] if recorded is None else [recorded]
        if job.created_at_s is not None and recorded is None:
            found.append(LastChange(at=timestamp(job.created_at_s), what="created"))
        ended_at_s = job.ended_at_s()
        was_ended = recorded is not None and self.change is not None and self.change.call == Call.TERMINATE
        if job.phase is not None and job.phase.is_terminal and ended_at_s is not None and not was_ended:
            found.append(LastChange(at=timestamp(ended_at_s), what=job.phase_text))
        return max(found, key=lambda change: change.at, default=None)

    def _recorded(self, job: ObservedJob | None) -> LastChange | None:
        change = self.change
        if change is None or (job is not None and change.job != job.id):
            return None
        return LastChange(at=timestamp(change.at_s), what=change.action, who=change.who or None)


def _is_unknown(action: PlannedAction | None) -> bool:
    return action is not None and action.action is Action.UNKNOWN


def _waits_for(action: PlannedAction | None, job: ObservedJob | None) -> Waiting | None:
    """What the plan says that this job, or the key's next one, waits for; None if for nothing."""
    if action is not None and (held := _held_by(action)):
        return held
    phase = job.phase if job else None
    if phase is Phase.TERMINATING:
        return Waiting(kind=WaitKind.TERMINATION, detail="its termination")
    to_apply = None
    if action is not None and action.traits.is_executed:
        to_apply = Waiting(kind=WaitKind.APPLY, detail=action.detail, action=action.action)
    is_only_updated = to_apply is None or to_apply.action is Action.UPDATE
    if phase in _QUEUES and is_only_updated:
        return Waiting(kind=WaitKind.QUEUE, detail=_QUEUES[phase])
    return to_apply or _next_time(action, phase)


def _next_time(action: PlannedAction | None, phase: Phase | None) -> Waiting | None:
    """The next time of its schedule, which a job that has ended waits for."""
    if action is None or not action.next_run or phase is None or not phase.is_terminal:
        return None
    return Waiting(kind=WaitKind.SCHEDULE, detail=f"next: {action.next_run}", due_at=action.next_run_at)


def _held_by(action: PlannedAction) -> Waiting | None:
    """What stands in the way of an action, or lets it wait."""
    if action.action in _IN_THE_WAY:
        return Waiting(kind=_IN_THE_WAY[action.action], detail=action.detail)
    if action.action is not Action.DEFER:
        return None
    kind = _DEFERRED.get(action.reason, WaitKind.OTHER)
    return Waiting(kind=kind, detail=action.detail, keys=action.waits_for, due_at=_maybe(action.due_s))


def _resources(body: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Nodes and flavors of a create body or of an answer; None where nothing is said."""
    found = [resource for resource in _resource_parts(body) if isinstance(resource, Mapping)]
    if not found:
        return None, None
    counts = [resource.get("node_count") for resource in found]
    nodes = sum(count if isinstance(count, int) else 1 for count in counts)
    flavors = dict.fromkeys(str(r["flavor_id"]) for r in found if r.get("flavor_id"))
    return nodes, " + ".join(flavors) or None


def _resource_parts(body: Mapping[str, Any]) -> Iterable[Any]:
    spec, tasks = body.get("spec"), body.get("tasks")
    if isinstance(spec, Mapping) and spec.get("resource"):
        return [spec["resource"]]
    return (
        [t.get("task_resource") for t in tasks if isinstance(t, Mapping)] if isinstance(tasks, list) else []
    )


def _maybe(at_s: float | None) -> str | None:
    return None if at_s is None else timestamp(at_s)
