"""The reconcile loop, read aloud: load → observe → plan → guard → apply.

It is level-based: it looks at what is, never at what it remembers doing. After a crash the remedy is
to run it again. Deciding is `core`'s, doing is `apply`'s; here they are put together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.diagnostic import Diagnostic
from reconciler.core.draft import Situation
from reconciler.core.drift import DriftReport, make_drift_report
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.outcome import Result
from reconciler.core.ownership import sort_by_key
from reconciler.core.plan import Plan
from reconciler.core.planner import (
    NO_OPTIONS,
    Look,
    Options,
    details_needed,
    make_destroy_plan,
    make_plan,
    rests_on_absence,
    rests_on_memory,
)
from reconciler.core.ports import Backend, Journal, NotFound, ServiceFailure, Unauthorized
from reconciler.core.record import NO_MEMORY, Ended, Memory, RunKind, Scope
from reconciler.core.saved import StalePlan, movements
from reconciler.core.selection import narrow
from reconciler.core.stack import Stack
from reconciler.manifests import LoadedStack
from reconciler.recording import Recording
from reconciler.targets import Connected
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.apply.executor import EventStream


class Context(NamedTuple):
    """One stack on one target.

    `only` narrows the view, see `core.selection`; `tell` takes what `-v` shows. `recording` are its
    records, if it has any; `remembers` says to write down there what is seen.
    """

    loaded: LoadedStack
    target: Connected
    only: tuple[str, ...] = ()
    parallelism: int = 8
    tell: Callable[[str], None] = lambda _: None
    recording: Recording | None = None
    remembers: bool = False

    @property
    def scope(self) -> Scope:
        """What the lock and the records are about."""
        return Scope.of(self.loaded.stack.name, self.target.identity)

    def situation(self, *, force: bool = False) -> Situation:
        """What is the same for every key, as of now."""
        return Situation(
            stack=self.loaded.stack.name,
            workspace_id=self.target.identity.workspace_id,
            cloud=self.target.cloud,
            at_s=self.target.clock.now(),
            limits=self.loaded.stack.limits,
            force=force,
        )


def plan(context: Context, options: Options = NO_OPTIONS) -> Plan:
    """Observe, and decide what apply would do. Nothing is changed."""
    made, _ = plan_with_look(context, options)
    return made


def plan_with_look(context: Context, options: Options = NO_OPTIONS) -> tuple[Plan, Look]:
    """The same, with what the plan rests on."""
    stack, look = observe(context, with_details=True)
    made = make_plan(
        stack,
        look,
        context.situation(force=options.force),
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
        options=options,
    )
    return made, look


def destroy_plan(context: Context) -> Plan:
    """Observe, and decide what destroy would terminate."""
    stack, look = observe(context)
    return make_destroy_plan(
        stack,
        look,
        context.situation(),
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )


def drift(context: Context) -> DriftReport:
    """Observe, and say what changed behind the manifest's back."""
    stack, look = observe(context)
    report = make_drift_report(
        stack,
        look,
        context.situation(),
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )
    if context.remembers and context.recording:
        counts = {name.value: count for name, count in report.summary.items() if count}
        ended = Ended(context.recording.clock.now(), report.word, {**counts, "pending": len(report.pending)})
        context.recording.note(context.scope, RunKind.DRIFT, ended, report.manifest_digest)
    return report


def apply(
    context: Context,
    plan: Plan,
    stream: EventStream,
    stop: threading.Event,
    *,
    timeout_s: float,
    journal: Journal | None = None,
) -> Result:
    """Carry a plan out, each call between two lines of the journal, if there is one."""
    from reconciler.apply.executor import Execution  # a plan needs none of it
    from reconciler.records.none import NoJournal

    execution = Execution(
        context.target.backend,
        context.target.clock,
        cloud=context.target.cloud,
        stream=stream,
        stop=stop,
        journal=journal or NoJournal(),
        parallelism=context.parallelism,
        timeout_s=timeout_s,
    )
    return execution.run(plan)


def see_that_target_is_the_same(context: Context, plan: Plan) -> None:
    """A saved plan is for one target: endpoint host, project and workspace, whatever its name.

    Raises:
        StalePlan: this is another one.
    """
    there, here = Scope.of(plan.stack, plan.target), context.scope
    if there != here:
        why = f"it was made for {there.place}; this is {here.place}"
        raise StalePlan(Diagnostic("stale plan", why, "make a new plan"))


def see_that_nothing_moved(context: Context, plan: Plan) -> None:
    """Compare the preconditions of a saved plan's actions with what is there now, one by one.

    Raises:
        StalePlan: something moved that changes an action.
        ServiceFailure: the workspace could not be read.
    """
    starts_jobs = any(action.traits.starts_a_job for action in plan.actions)
    stack = context.loaded.stack
    seen = context.target.backend.observe(stack.declared_keys, lambda _: starts_jobs)
    if seen.problem is not None:
        raise ServiceFailure(f"{seen.problem}: nobody knows whether the plan still holds")
    ownership = sort_by_key(seen, stack.name, stack.declared_keys)
    look = _Memories(context).add(Look(ownership))
    if moved := movements(plan, look):
        fix = "nothing was changed; make a new plan"
        raise StalePlan(*(Diagnostic("stale plan", said, fix) for said in moved))


def observe(context: Context, *, with_details: bool = False) -> tuple[Stack, Look]:
    """Look at the workspace; for a plan, also at the details of the jobs whose declaration changed.

    Returns the stack as it is in view, and what was seen. What cannot be read is unknown, and said in
    the plan.

    Raises:
        Unauthorized: the target does not let us read at all.
        WrongUsage: `only` names a key that is neither declared nor owned.
    """
    backend, whole = context.target.backend, context.loaded.stack
    declared = whole.declared_keys | frozenset(whole.jobs) | whole.former_keys
    situation, memories = context.situation(), _Memories(context)

    def look_at(observation: Observation) -> Look:
        look = Look(sort_by_key(observation, whole.name, declared))
        # A report on drift needs what was last applied, whatever is declared now.
        return memories.add(look) if not with_details or rests_on_memory(whole, look) else look

    def needs_absence(partial: Observation) -> bool:
        return rests_on_absence(whole, look_at(partial), situation)

    seen = backend.observe(declared, needs_absence)
    context.tell(f"read {len(seen.jobs)} jobs by {seen.strategy} in {seen.requests} requests")
    look = look_at(seen)
    if context.remembers and context.recording:
        owned = (revision for view in look.ownership.views.values() for revision in view.owned)
        context.recording.remember(context.scope, owned, situation.at_s)
    stack = narrow(whole, context.only, look.ownership.owned_keys)
    if not with_details:
        return stack, look
    asked: set[str] = set()
    # A job that is gone by now makes way for an older revision, whose details may be needed then.
    while wanted := [job_id for job_id in details_needed(stack, look) if job_id not in asked]:
        asked.update(wanted)
        details, gone = _read(backend, wanted, context.parallelism)
        look = look._replace(details={**look.details, **details}, gone=look.gone | gone)
    return stack, look


class _Memories:
    """What the history store knows, asked once, and only if something may rest on it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._memory: Memory | None = None

    def add(self, look: Look) -> Look:
        """The same look, with it."""
        recording = self._context.recording
        if self._memory is None:
            self._memory = recording.memory(self._context.scope) if recording else NO_MEMORY
        return look._replace(memory=self._memory)


def _read(
    backend: Backend, job_ids: list[str], parallelism: int
) -> tuple[dict[str, ObservedJob], frozenset[str]]:
    """Read details: what was read by id, and the ids that the service does not know any more."""
    gone = set()

    def read(job_id: str) -> ObservedJob | None:
        try:
            return backend.details(job_id)
        except NotFound:
            gone.add(job_id)
        except Unauthorized:
            raise
        except ServiceFailure:
            pass  # stays unread, so its key is unknown
        return None

    with ThreadPoolExecutor(max_workers=max(1, min(parallelism, len(job_ids)))) as pool:
        found = list(pool.map(read, job_ids))
    return {job.id: job for job in found if job is not None}, frozenset(gone)
