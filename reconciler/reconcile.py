"""The reconcile loop, read aloud: load → observe → plan → guard → apply.

It is level-based: it looks at what is, never at what it remembers doing. After a crash the remedy is
to run it again. Deciding is `core`'s, doing is `apply`'s; here they are put together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from reconciler.backends.target import Connected
from reconciler.core.declared.selection import TakeUnmatched, check_keys, is_glob, narrow
from reconciler.core.declared.stack import Stack
from reconciler.core.diagnostic import Diagnostic
from reconciler.core.observed.job import Observation, ObservedJob
from reconciler.core.observed.ownership import sort_by_key
from reconciler.core.outcome import Result
from reconciler.core.planning.action_builder import PlanContext
from reconciler.core.planning.allowance import NO_ALLOWANCES, Allowances
from reconciler.core.planning.plan import Plan, PlannedAction
from reconciler.core.planning.planner import (
    Snapshot,
    details_needed,
    make_destroy_plan,
    make_plan,
    needs_whole_list,
    rests_on_memory,
)
from reconciler.core.ports import Backend, Journal, NotFound, ServiceError, Unauthorized
from reconciler.core.record import (
    NO_HISTORY,
    REMIND_S,
    HistorySnapshot,
    RecordedRevision,
    RecordsUnavailable,
    RevisionId,
    Scope,
    is_recorded,
)
from reconciler.core.saved_plan.preconditions import StalePlan, failed_preconditions
from reconciler.core.text.count import format_count
from reconciler.manifests import LoadedStack
from reconciler.recording import Recording
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.apply.catalog_reader import CatalogReader
    from reconciler.apply.executor import EventStream
    from reconciler.core.drift.report import DriftReport
    from reconciler.core.planning.reports.explanation import Explanation
    from reconciler.core.planning.reports.status import StatusReport
    from reconciler.core.preflight import CatalogAnswers


class Context(NamedTuple):
    """One stack on one target.

    `only` narrows the view, see `core.declared.selection`; `tell` takes what `-v` shows. `recording` are its
    records, if it has any; what is seen is written down there. `is_applied` says that what is planned is
    to be carried out, which a history that cannot be read forbids; `catalog` then keeps what pre-flight was
    answered for the checks before each replace. `unmatched` takes the keys of `only`, and the allowed ones,
    that the stack does not have, where it is one of several; elsewhere they are wrong use.
    """

    loaded: LoadedStack
    target: Connected
    only: tuple[str, ...] = ()
    parallelism: int = 8
    tell: Callable[[str], None] = lambda _: None
    recording: Recording | None = None
    is_applied: bool = False
    catalog: CatalogReader | None = None
    unmatched: TakeUnmatched | None = None

    def to_apply(self) -> Context:
        """The same for one apply: what the catalog answers is asked once for all of it."""
        return self._replace(is_applied=True, catalog=self.new_catalog_reader())

    def new_catalog_reader(self) -> CatalogReader:
        """A reader of the target's catalog that knows nothing yet."""
        from reconciler.apply.catalog_reader import CatalogReader  # an unchanged plan needs none of it

        return CatalogReader(lambda: self.target.catalog)

    @property
    def scope(self) -> Scope:
        """What the lock and the records are about."""
        return Scope.of(self.loaded.stack.name, self.target.identity)

    def plan_context(self, allowances: Allowances = NO_ALLOWANCES) -> PlanContext:
        """What is the same for every key, as of now."""
        return PlanContext(
            stack=self.loaded.stack.name,
            workspace_id=self.target.identity.workspace_id,
            cloud=self.target.cloud,
            at_s=self.target.clock.now(),
            limits=self.loaded.stack.limits,
            allowances=allowances,
        )


class CheckOptions(NamedTuple):
    """What counts in a drift check.

    With `since_last` only what is new or has changed since the last check that could compare, or has lasted
    for longer than `remind_s` since it was reported last. `is_always_reported` says that everything is told
    to somebody whatever the exit code is, so that it is not told again as something that nobody was told.
    `is_notified` says that somebody tells of it later, notifications or the report of a fleet: what was told
    is written down when it has been.
    """

    since_last: bool = False
    remind_s: float = REMIND_S
    is_always_reported: bool = False
    is_notified: bool = False


EVERY_DRIFT = CheckOptions()


def plan(context: Context, allowances: Allowances = NO_ALLOWANCES, *, with_preflight: bool = False) -> Plan:
    """Observe, and decide what apply would do. Nothing is changed.

    The catalog is asked about what is about to be carried out, and `with_preflight` about any plan.
    """
    made, _ = plan_with_snapshot(context, allowances)
    return preflight(context, made, is_wanted=with_preflight)


def preflight(context: Context, plan: Plan, *, is_wanted: bool = False) -> Plan:
    """Ask the target's catalog what it would refuse of a plan: any finding refuses the plan.

    It is asked before an apply that creates something, and where `is_wanted`. Then replaces are held
    against it as well, and so is a target that takes more than its catalog lists; what the target has no
    way to say is a warning. Apply leaves replaces to the checks right before each.

    Raises:
        Interrupted: the program is to stop.
    """
    from reconciler.core import preflight as core  # an unchanged plan needs none of it

    if plan.preflight or not (is_wanted or (context.is_applied and core.is_needed(plan))):
        return plan
    checked = core.checked_actions(plan.actions, with_replaces=is_wanted)
    deferred = core.deferred_actions(plan.actions, context.loaded.stack) if is_wanted else []
    answers = _catalog_answers(context, [*checked, *deferred], with_offers=is_wanted)
    target = plan.target.name
    warnings = [
        *core.unchecked_warnings(one for one in answers.unchecked if is_wanted or not one.is_lacking),
        *core.deferred_warnings(core.find_in_bodies(deferred, answers, target)),
    ]
    return core.with_findings(plan, core.find(plan.actions, checked, answers, target), warnings)


def _catalog_answers(
    context: Context, checked: Sequence[PlannedAction], *, with_offers: bool
) -> CatalogAnswers:
    """Ask what has to be known of some jobs; `with_offers` also a target that takes what it does not list."""
    from reconciler.apply.catalog_reader import answers_to
    from reconciler.core.preflight import questions_about

    questions = questions_about(checked, with_offers=with_offers or context.target.checks_offers)
    return answers_to(context.catalog or context.new_catalog_reader(), questions)


def plan_with_snapshot(context: Context, allowances: Allowances = NO_ALLOWANCES) -> tuple[Plan, Snapshot]:
    """The same, with what the plan rests on."""
    plan_context = context.plan_context(allowances)
    stack, snapshot = observe(context, plan_context, with_details=True)
    check_keys(allowances.lost_work_keys, stack, snapshot.ownership.owned_keys, context.unmatched)
    made = make_plan(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )
    return made, snapshot


def destroy_plan(context: Context) -> Plan:
    """Observe, and decide what destroy would terminate."""
    plan_context = replace(context.plan_context(), destroys=True)
    stack, snapshot = observe(context, plan_context)
    return make_destroy_plan(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )


def drift(context: Context, options: CheckOptions = EVERY_DRIFT) -> DriftReport:
    """Observe, and say what changed behind the manifest's back. The check is recorded."""
    from reconciler.checks.drift import compared, last_check
    from reconciler.core.drift.report import make_drift_report  # a plan needs none of it

    plan_context, last = context.plan_context(), last_check(context)
    stack, snapshot = observe(context, plan_context)
    report = make_drift_report(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )
    return compared(report, last, context, options, plan_context.at_s)


def why(context: Context, key: str) -> Explanation:
    """Observe, and say which rule decides about one key, on which values. Nothing is changed.

    Where its job is about to be started, or waits for another key, the catalog is asked as well.

    Raises:
        WrongUsage: the key is neither declared nor owned.
    """
    from reconciler.checks.drift import seen_since
    from reconciler.core import preflight  # a plan needs none of it
    from reconciler.core.planning.reports.explanation import explain  # a plan needs none of it

    plan_context = context.plan_context()
    stack, snapshot = observe(context, plan_context, with_details=True, with_drift=True)
    check_keys({key}, stack, snapshot.ownership.owned_keys)
    made = make_plan(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )
    explanation = explain(key, stack, snapshot, plan_context, made)
    drift = seen_since(explanation.drift, context.recording, context.scope)
    explanation = explanation.model_copy(update={"drift": drift})
    checked = [
        *preflight.checked_actions(made.actions, with_replaces=True),
        *preflight.deferred_actions(made.actions, stack),
    ]
    own = [action for action in checked if action.key == key]
    if not own:
        return explanation
    answers = _catalog_answers(context, own, with_offers=True)
    found = preflight.find(made.actions, own, answers, made.target.name)
    warnings = (*explanation.warnings, *preflight.unchecked_warnings(answers.unchecked))
    return explanation.model_copy(
        update={"preflight": tuple(one for one in found if one.key == key), "warnings": warnings}
    )


def status(context: Context) -> StatusReport:
    """Observe, and say where each key in view stands, and what it waits for. Nothing is changed."""
    from reconciler.core.planning.reports.status import make_status  # a plan needs none of it

    made, snapshot = plan_with_snapshot(context)
    stack = narrow(context.loaded.stack, context.only, snapshot.ownership.owned_keys)
    changes = context.recording.last_changes(context.scope) if context.recording else {}
    return make_status(stack, snapshot, made, context.plan_context(), changes)


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
    from reconciler.apply.create_checks import CreateChecks  # a plan needs none of it
    from reconciler.apply.executor import Execution, ExecutionOptions
    from reconciler.records.null import NoJournal

    recording = context.recording
    execution = Execution(
        context.target.backend,
        context.target.clock,
        cloud=context.target.cloud,
        stream=stream,
        stop=stop,
        journal=journal or NoJournal(),
        options=ExecutionOptions(
            context.parallelism,
            timeout_s,
            CreateChecks(
                (context.catalog or context.new_catalog_reader()) if context.target.checks_offers else None,
                recording.warn if recording else context.tell,
            ),
        ),
    )
    return execution.run(plan)


def check_target(context: Context, plan: Plan) -> None:
    """A saved plan is for one target: endpoint host, project and workspace, whatever its name.

    Raises:
        StalePlan: this is another one.
    """
    there, here = Scope.of(plan.stack, plan.target), context.scope
    if there != here:
        why = f"it was created for {there.place}; this is {here.place}"
        raise StalePlan(Diagnostic("stale plan", why, "create a new plan"))


def check_preconditions(context: Context, plan: Plan) -> None:
    """Compare the preconditions of a saved plan's actions with what is there now, one by one.

    Raises:
        StalePlan: something moved that changes an action.
        ServiceError: the workspace could not be read.
    """
    starts_jobs = any(action.traits.starts_a_job for action in plan.actions)
    stack = context.loaded.stack
    seen = context.target.backend.observe(stack.declared_keys, lambda _: starts_jobs)
    if seen.problem is not None:
        raise ServiceError(f"cannot verify the plan: {seen.problem}")
    ownership = sort_by_key(seen, stack.name, stack.declared_keys)
    snapshot = Snapshot(ownership, memory=_History(context).memory)
    if moved := failed_preconditions(plan, snapshot, context.target.clock.now()):
        fix = "nothing was changed; create a new plan"
        raise StalePlan(*(Diagnostic("stale plan", said, fix) for said in moved))


def observe(
    context: Context, plan_context: PlanContext, *, with_details: bool = False, with_drift: bool = False
) -> tuple[Stack, Snapshot]:
    """Look at the workspace; for a plan, also at the details of the jobs whose declaration changed.

    A report on drift needs no details, and one `with_drift` beside a plan needs what both do.

    Returns the stack as it is in view, and what was seen. What cannot be read is unknown, and said in
    the plan. What was seen of owned revisions is recorded.

    Raises:
        Unauthorized: the target does not let us read at all.
        WrongUsage: `only` names a key that is neither declared nor owned.
    """
    whole = context.loaded.stack
    reports_drift = with_drift or not with_details
    reader = _SnapshotReader(context, plan_context, with_details=with_details, reports_drift=reports_drift)
    reader.open_history()
    seen = context.target.backend.observe(reader.names, reader.needs_whole_list)
    context.tell(f"read {len(seen.jobs)} jobs: {seen.strategy}, {format_count(seen.requests, 'request')}")
    snapshot = reader.snapshot(seen)
    reader.record(snapshot)
    return narrow(whole, context.only, snapshot.ownership.owned_keys, context.unmatched), snapshot


def survey(context: Context) -> tuple[Observation, Snapshot]:
    """Look at the whole workspace, whatever that costs, and at all that the history knows of the stack.

    Raises:
        Unauthorized: the target does not let us read at all.
        RecordsUnavailable: the history cannot be read, and what is planned is about to be carried out.
    """
    reader = _SnapshotReader(context, context.plan_context(), with_details=False, reports_drift=True)
    reader.open_history()
    seen = context.target.backend.observe(reader.names, lambda _: True)
    context.tell(f"read {len(seen.jobs)} jobs: {seen.strategy}, {format_count(seen.requests, 'request')}")
    snapshot = reader.snapshot(seen)
    reader.record(snapshot)
    return seen, snapshot


class _SnapshotReader:
    """Turns observations into what a plan rests on: sorted by key, with history and details as needed."""

    def __init__(
        self, context: Context, plan_context: PlanContext, *, with_details: bool, reports_drift: bool
    ) -> None:
        self._context, self._stack = context, context.loaded.stack
        self._plan_context, self._with_details = plan_context, with_details
        self._reports_drift = reports_drift
        self._history = _History(context)
        self._asked: set[str] = set()
        self._details: dict[str, ObservedJob] = {}
        self._gone: frozenset[str] = frozenset()

    def open_history(self) -> None:
        """Settle what counts as recorded, before the service is read."""
        self._history.open()

    @property
    def names(self) -> frozenset[str]:
        """The keys whose jobs are looked for, active or not."""
        return self._stack.declared_keys | frozenset(self._stack.jobs) | self._stack.former_keys

    def needs_whole_list(self, partial: Observation) -> bool:
        """Whether a decision rests on something not being there, so that searches are not enough."""
        snapshot = self.snapshot(partial)
        stack, unmatched = self._in_view(snapshot)
        # A key that is not declared may own jobs that no search was made for.
        if not all(map(is_glob, unmatched)):
            return True
        if needs_whole_list(stack, snapshot, self._plan_context, asked=self._asked):
            return True
        if not self._reports_drift or self._plan_context.destroys:
            return False
        from reconciler.core.drift.report import needs_whole_list as report_needs_whole_list

        return report_needs_whole_list(stack, snapshot, self._plan_context)

    def snapshot(self, observation: Observation) -> Snapshot:
        """What was observed, and what the decisions about it rest on besides."""
        snapshot = Snapshot(sort_by_key(observation, self._stack.name, self.names), self._details, self._gone)
        # A report on drift needs what was last applied, whatever is declared now.
        at_s = self._plan_context.at_s
        if self._reports_drift or rests_on_memory(self._stack, snapshot, self._history.recorded, at_s):
            snapshot = snapshot._replace(memory=self._history.memory)
        if not self._with_details:
            return snapshot
        # A job that is gone by now makes way for an older revision, whose details may be needed then.
        while wanted := [job_id for job_id in self._needed(snapshot) if job_id not in self._asked]:
            self._asked.update(wanted)
            details, gone = _read(self._context.target.backend, wanted, self._context.parallelism)
            self._details |= details
            self._gone |= gone
            snapshot = snapshot._replace(details=self._details, gone=self._gone)
        return snapshot

    def _needed(self, snapshot: Snapshot) -> tuple[str, ...]:
        return details_needed(self._in_view(snapshot)[0], snapshot)

    def _in_view(self, snapshot: Snapshot) -> tuple[Stack, list[str]]:
        """The stack in view as far as it is known by now, and what of `only` matches nothing."""
        unmatched: list[str] = []
        owned = snapshot.ownership.owned_keys
        return narrow(self._stack, self._context.only, owned, unmatched.extend), unmatched

    def record(self, snapshot: Snapshot) -> None:
        """Write down how the owned revisions were seen, if the store does not have it yet."""
        seen = [revision for view in snapshot.ownership.views.values() for revision in view.owned]
        recording = self._context.recording
        if recording and not is_recorded(seen, self._history.recorded):
            recording.remember(self._context.scope, seen, self._plan_context.at_s)


class _History:
    """What the history store knew before the service was read, and only as much as something may rest on.

    What somebody creates and records while we read would look as if the service had forgotten it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def open(self) -> None:
        """Ask for what is recorded; later additions are not counted.

        Raises:
            RecordsUnavailable: it cannot be read, and what is planned is about to be carried out.
        """
        if self.recorded is None or self._context.is_applied:
            _ = self.memory

    @cached_property
    def recorded(self) -> Mapping[RevisionId, RecordedRevision] | None:
        """What it has of each revision; None if that takes as long as asking for all."""
        recording = self._context.recording
        return recording.recorded_revisions(self._context.scope) if recording else {}

    @cached_property
    def memory(self) -> HistorySnapshot:
        """All that it knows.

        Raises:
            RecordsUnavailable: it cannot be read, and what is planned is about to be carried out.
        """
        recording = self._context.recording
        if recording is None:
            return NO_HISTORY
        memory = recording.memory(self._context.scope)
        if memory.problem is not None and self._context.is_applied:
            raise RecordsUnavailable(
                Diagnostic(
                    "the history could not be read",
                    f"{memory.problem}; finished work might run again",
                    f"{memory.fix or 'repair the record store'}; or work without it: --without-records",
                )
            )
        return memory if self.recorded is None else memory.limited_to(self.recorded)


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
        except ServiceError:
            pass  # stays unread, so its key is unknown
        return None

    with ThreadPoolExecutor(max_workers=max(1, min(parallelism, len(job_ids)))) as pool:
        found = list(pool.map(read, job_ids))
    return {job.id: job for job in found if job is not None}, frozenset(gone)
