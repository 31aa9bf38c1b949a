"""The reconcile loop, read aloud: load → observe → plan → guard → apply.

It is level-based: it looks at what is, never at what it remembers doing. After a crash the remedy is
to run it again. Deciding is `core`'s, doing is `apply`'s; here they are put together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

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
)
from reconciler.core.ports import Backend, NotFound, ServiceFailure, Unauthorized
from reconciler.core.selection import narrow
from reconciler.core.stack import Stack
from reconciler.manifests import LoadedStack
from reconciler.targets import Connected
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.apply.executor import EventStream


class Context(NamedTuple):
    """One stack on one target.

    `only` narrows the view, see `core.selection`; `tell` takes what `-v` shows.
    """

    loaded: LoadedStack
    target: Connected
    only: tuple[str, ...] = ()
    parallelism: int = 8
    tell: Callable[[str], None] = lambda _: None

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
    stack, look = observe(context, with_details=True)
    return make_plan(
        stack,
        look,
        context.situation(force=options.force),
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
        options=options,
    )


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
    return make_drift_report(
        stack,
        look,
        context.situation(),
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )


def apply(
    context: Context, plan: Plan, stream: EventStream, stop: threading.Event, *, timeout_s: float
) -> Result:
    """Carry a plan out."""
    from reconciler.apply.executor import execute  # a plan needs none of it

    return execute(
        plan,
        context.target.backend,
        context.target.clock,
        cloud=context.target.cloud,
        stream=stream,
        stop=stop,
        parallelism=context.parallelism,
        timeout_s=timeout_s,
    )


def observe(context: Context, *, with_details: bool = False) -> tuple[Stack, Look]:
    """Look at the workspace; for a plan, also at the details of the jobs whose declaration changed.

    Returns the stack as it is in view, and what was seen. What cannot be read is unknown, and said in
    the plan.

    Raises:
        Unauthorized: the target does not let us read at all.
        WrongUsage: `only` names a key that is neither declared nor owned.
    """
    backend, whole = context.target.backend, context.loaded.stack
    declared = whole.declared_keys | frozenset(whole.jobs)
    situation = context.situation()

    def needs_absence(partial: Observation) -> bool:
        return rests_on_absence(whole, Look(sort_by_key(partial, whole.name, declared), {}), situation)

    seen = backend.observe(declared, needs_absence)
    context.tell(f"read {len(seen.jobs)} jobs by {seen.strategy} in {seen.requests} requests")
    ownership = sort_by_key(seen, whole.name, declared)
    stack = narrow(whole, context.only, ownership.owned_keys)
    look = Look(ownership, {})
    if not with_details:
        return stack, look
    asked: set[str] = set()
    # A job that is gone by now makes way for an older revision, whose details may be needed then.
    while wanted := [job_id for job_id in details_needed(stack, look) if job_id not in asked]:
        asked.update(wanted)
        details, gone = _read(backend, wanted, context.parallelism)
        look = look._replace(details={**look.details, **details}, gone=look.gone | gone)
    return stack, look


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
