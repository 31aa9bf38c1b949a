"""The reconcile loop: load → observe → plan → guard → apply.

It is level-based: it looks at what is, never at what it remembers doing. After a crash the remedy is to run
it again. `decide` makes the decisions, `apply` executes them; this module connects the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.code import CODE, digits, place_of
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import Revision, is_recorded, sort_by_key
from reconciler.core.phase import Phase
from reconciler.core.record import (
    REMIND_S,
    HistorySnapshot,
    RecordedRevision,
    RecordsUnavailable,
    RevisionId,
    Scope,
)
from reconciler.core.stack import (
    DesiredJob,
    Stack,
    TakeUnmatched,
    check_keys,
    is_glob,
    keys_of,
    matching_keys,
    narrow,
)
from reconciler.decide import planner
from reconciler.decide.guards import CatalogCheck, ProposedPlan
from reconciler.decide.key_state import PlanContext, Snapshot, current_revision
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Plan, PlannedAction, name_files
from reconciler.decide.planner import guarded_plan, make_destroy_plan, propose_plan
from reconciler.decide.renames import digests_to_start
from reconciler.errors import Diagnostic, ServiceError, Unauthorized, WrongUsage
from reconciler.text import format_count
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.apply.catalog import CatalogReader
    from reconciler.apply.executor import EventStream
    from reconciler.code_changes import CodeComparison
    from reconciler.code_store import CodeStore, Uploads
    from reconciler.core.policy_expression import Answer, Question
    from reconciler.core.ports import Backend, UploadListener
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.outcome import Journal, Result
    from reconciler.decide.reports import Explanation, StatusReport
    from reconciler.manifest import LoadedStack
    from reconciler.modelarts.target import Connected
    from reconciler.records.recording import Recording


class Context(NamedTuple):
    """One stack on one target.

    `only` narrows the view, see `core.stack`; `rerun` are the keys to run again; `log_debug` takes messages
    of `-v`. Observations are recorded in `recording`. If `is_applied`, the plan is about to be executed,
    which requires a readable history; `catalog` then keeps the answers of pre-flight for the checks before
    each replace. `unmatched` takes keys of `only` and of allowances that the stack lacks, if it is one of
    several; otherwise these are wrong usage. Once `stop` is set, policies are not waited for. `uploading` is
    entered while code is uploaded. If `with_history`, a plan lists ended jobs of the stack, too.
    """

    loaded: LoadedStack
    target: Connected
    recording: Recording
    only: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    parallelism: int = 8
    log_debug: Callable[[str], None] = lambda _: None
    is_applied: bool = False
    catalog: CatalogReader | None = None
    unmatched: TakeUnmatched | None = None
    stop: threading.Event | None = None
    uploading: UploadListener | None = None
    with_history: bool = False

    def to_apply(self) -> Context:
        """Return the context for an apply, which reads the catalog only once."""
        return self._replace(is_applied=True, catalog=self.catalog_reader)

    @property
    def catalog_reader(self) -> CatalogReader:
        from reconciler.apply.catalog import CatalogReader  # not needed by an unchanged plan

        return self.catalog or CatalogReader(lambda: self.target.catalog)

    @property
    def scope(self) -> Scope:
        return Scope.of(self.loaded.stack.name, self.target.identity)

    @property
    def rerun_keys(self) -> frozenset[str]:
        """The declared keys selected by `rerun`."""
        stack = self.loaded.stack
        return frozenset().union(*(matching_keys(stack, word, stack.jobs) for word in self.rerun))

    def plan_context(self, allowances: Allowances = NO_ALLOWANCES) -> PlanContext:
        return PlanContext(
            stack=self.loaded.stack.name,
            workspace_id=self.target.identity.workspace_id,
            cloud=self.target.cloud,
            at_s=self.target.clock.now(),
            limits=self.loaded.stack.limits,
            allowances=allowances,
            rerun=self.rerun_keys,
            evaluate=partial(_evaluate, stop=self.stop),
            manifest_digest=self.loaded.manifest_digest,
            version=__version__,
        )


def _evaluate(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]], stop: threading.Event | None
) -> list[list[Answer]]:
    from reconciler.expressions.evaluator import evaluate  # needed only for policies

    return evaluate(questions, values, stop=stop)


# --- observation: jobs, their details, and the history of the stack


def observe(context: Context, plan_context: PlanContext) -> tuple[Stack, Snapshot]:
    """Observe the workspace, with details only if edits may be ignored; for plans see `propose`.

    Returns the stack as it is in view, and the snapshot. What cannot be read is unknown, and reported as
    such. The owned revisions are recorded as seen.

    Raises:
        Unauthorized: the target denies reading.
        WrongUsage: `only` names a key that is neither declared nor owned.
    """
    reader = _SnapshotReader(context, plan_context, with_details=False)
    _, snapshot = reader.read(reader.needs_whole_list)
    owned = snapshot.ownership.owned_keys
    return narrow(context.loaded.stack, context.only, owned, context.unmatched), snapshot


def survey(context: Context) -> tuple[Observation, Snapshot]:
    """Observe the whole workspace, at any cost, with the whole history of the stack.

    Raises:
        Unauthorized: the target denies reading.
        RecordsUnavailable: the history cannot be read, and the plan is about to be executed.
    """
    reader = _SnapshotReader(context, context.plan_context(), with_details=False)
    return reader.read(lambda _: True)


def read_details(
    backend: Backend, job_ids: Sequence[str], parallelism: int = 8
) -> dict[str, ObservedJob | ServiceError]:
    """Return the details of each job, or why they could not be read.

    Raises:
        Unauthorized: the target denies reading.
    """

    def read(job_id: str) -> ObservedJob | ServiceError:
        try:
            return backend.details(job_id)
        except Unauthorized:
            raise
        except ServiceError as failure:
            return failure

    with ThreadPoolExecutor(max(1, min(parallelism, len(job_ids)))) as pool:
        return dict(zip(job_ids, pool.map(read, job_ids), strict=True))


class _SnapshotReader:
    """Turns observations into snapshots: sorted by key, with history and details as needed."""

    def __init__(self, context: Context, plan_context: PlanContext, *, with_details: bool) -> None:
        self._context, self._plan_context = context, plan_context
        self._stack, self._backend = context.loaded.stack, context.target.backend
        self._with_details = with_details
        # The keys to search for, active or not.
        self._names = self._stack.declared_keys | frozenset(self._stack.jobs) | self._stack.former_keys
        self._details: dict[str, ObservedJob] = {}
        self._unread: dict[str, ServiceError] = {}
        self._codes = {job.code.digest for job in self._stack.jobs.values() if job.code}
        self._places: set[tuple[str, str, str]] = set()

    def read(self, needs_whole_list: Callable[[Observation], bool]) -> tuple[Observation, Snapshot]:
        """Read the service, and record the owned revisions as seen."""
        # Before the jobs: one created and recorded meanwhile would seem to have aged out.
        if self._recorded is None or self._context.is_applied:
            _ = self._memory
        seen = self._backend.observe(self._names, needs_whole_list)
        requests = format_count(seen.requests, "request")
        self._context.log_debug(f"read {len(seen.jobs)} jobs: {seen.strategy}, {requests}")
        snapshot = self._snapshot(seen)
        # A new job may be finished work of another stack, renamed.
        digests = digests_to_start(self._in_view(snapshot)[0], snapshot) if self._with_details else None
        if digests and (memory := snapshot.memory).problem is None:
            try:
                finished = self._context.recording.finished(self._context.scope, digests)
                memory = replace(memory, finished=finished)
            except RecordsUnavailable as error:
                memory = HistorySnapshot(problem=str(error), fix=error.diagnostics[0].fix)
            snapshot = snapshot._replace(memory=_require_readable(self._context, memory))
        owned = [revision for view in snapshot.ownership.views.values() for revision in view.owned]
        if self._context.is_applied:
            owned += self._begun_schedules(snapshot)
        if not is_recorded(owned, self._recorded):
            self._context.recording.remember(self._context.scope, owned, self._plan_context.at_s)
        return seen, snapshot

    def needs_whole_list(self, partial: Observation) -> bool:
        """Whether a decision depends on something being absent, so that searches are not enough."""
        if self._context.with_history:
            return True
        snapshot = self._snapshot(partial)
        stack, unmatched = self._in_view(snapshot)
        # An undeclared key may own jobs that no search covered.
        if not all(map(is_glob, unmatched)):
            return True
        if planner.needs_whole_list(
            stack, snapshot, self._plan_context, requested={*self._details, *self._unread}
        ):
            return True
        if self._with_details or self._plan_context.destroys:
            return False
        from reconciler.decide import drift

        return drift.needs_whole_list(stack, snapshot, self._plan_context)

    def _snapshot(self, observation: Observation) -> Snapshot:
        ownership = sort_by_key(observation, self._stack.name, self._names)
        snapshot = Snapshot(ownership, self._details, self._unread, skew_s=self._skew_s)
        # A drift report always needs the history, for what was last applied.
        if self._with_details and not planner.needs_history(
            self._stack, snapshot, self._recorded, self._plan_context.at_s - self._skew_s
        ):
            return snapshot  # as declared, so details are not needed either
        snapshot = snapshot._replace(memory=self._memory)
        # If a job turns out to be gone, the details of an older revision may be needed.
        while needed := [
            job_id
            for job_id in planner.details_needed(
                self._in_view(snapshot)[0], snapshot, for_plan=self._with_details
            )
            if job_id not in self._details and job_id not in self._unread
        ]:
            read = read_details(self._backend, needed, self._context.parallelism)
            self._details |= {job_id: job for job_id, job in read.items() if isinstance(job, ObservedJob)}
            self._unread |= {job_id: job for job_id, job in read.items() if isinstance(job, ServiceError)}
            self._read_codes()
            snapshot = snapshot._replace(details=self._details, unread=self._unread, codes=self._codes)
        return snapshot

    def _read_codes(self) -> None:
        """Ask the code store for the full digests of the jobs' code; paths have only a part."""
        known = {digits(digest) for digest in self._codes}
        places = {place for job in self._details.values() if (place := place_of(job.body))}
        missing = sorted(place for place in places - self._places if place[2] not in known)
        self._places |= places
        if not missing:
            return
        # If the store cannot be read, the decision uses what is known, and the plan warns.
        for address in {address for address, *_ in missing}:
            with suppress(ServiceError):
                store = open_code_store(self._context, address)
                self._codes |= store.digests([place[1:] for place in missing if place[0] == address])

    def _begun_schedules(self, snapshot: Snapshot) -> Iterator[Revision]:
        """Yield aged-out latest revisions whose schedule was edited, and counts from now on.

        For other jobs the marker has this.
        """
        service_s = self._plan_context.at_s - self._skew_s
        for key, desired in self._in_view(snapshot)[0].jobs.items():
            view = snapshot.view(key, desired)
            latest = current_revision(view, desired)
            past = view.past_of(latest.job.id) if latest and latest.is_aged_out else None
            if desired.is_absent or latest is None or past is None:
                continue
            mark = desired.renewed_schedule_mark(past.schedule, service_s)
            if mark != past.schedule:
                job = replace(latest.job, phase_text=past.phase_text or latest.job.phase_text)
                yield latest._replace(job=job, marker=latest.marker._replace(schedule=mark))

    @cached_property
    def _recorded(self) -> Mapping[RevisionId, RecordedRevision] | None:
        """The recorded revisions; None if reading them costs as much as the whole history."""
        return self._context.recording.recorded_revisions(self._context.scope)

    @cached_property
    def _memory(self) -> HistorySnapshot:
        return memory_of(self._context, self._recorded)

    @cached_property
    def _skew_s(self) -> float:
        """How far our clock is ahead, by the service's first response: all decisions use one time."""
        return getattr(self._backend, "skew_s", None) or 0.0

    def _in_view(self, snapshot: Snapshot) -> tuple[Stack, list[str]]:
        """Return the stack in view as far as known, and the parts of `only` that match nothing."""
        unmatched: list[str] = []
        owned = snapshot.ownership.owned_keys
        return narrow(self._stack, self._context.only, owned, unmatched.extend), unmatched


def memory_of(
    context: Context, recorded: Mapping[RevisionId, RecordedRevision] | None = None
) -> HistorySnapshot:
    """Return the history of the stack, or its part about revisions that were `recorded` before.

    Raises:
        RecordsUnavailable: it cannot be read, and the plan is about to be executed.
    """
    memory = _require_readable(context, context.recording.memory(context.scope))
    return memory if recorded is None else memory.limited_to(recorded)


def _require_readable(context: Context, memory: HistorySnapshot) -> HistorySnapshot:
    if memory.problem is None or not context.is_applied:
        return memory
    why = f"{memory.problem}; finished work might run again"
    fix = f"{memory.fix or 'repair the record store'}; or work without it: --without-records"
    raise RecordsUnavailable(Diagnostic("the history could not be read", why, fix))


# --- plan


def plan(context: Context, allowances: Allowances = NO_ALLOWANCES, *, with_preflight: bool = True) -> Plan:
    """Observe, and decide what apply would do. Nothing is changed.

    With `with_preflight` the catalog is asked about the jobs that would be started.
    """
    proposed = propose(context, allowances)
    _check_rerun(context, proposed.stack, proposed.snapshot)
    checked = _check_catalog(context, proposed.actions) if with_preflight else None
    plan = describe_code(context, guarded_plan(proposed, checked))
    if context.with_history:
        plan = plan.model_copy(update={"history": planner.history_of(proposed.stack, proposed.snapshot)})
    return plan


def propose(context: Context, allowances: Allowances = NO_ALLOWANCES) -> ProposedPlan:
    """Observe, with details of edited jobs, decide every key, and evaluate the policies.

    Raises:
        Unauthorized, WrongUsage: as `observe`.
    """
    plan_context = context.plan_context(allowances)
    reader = _SnapshotReader(context, plan_context, with_details=True)
    _, snapshot = reader.read(reader.needs_whole_list)
    owned = snapshot.ownership.owned_keys
    stack = narrow(context.loaded.stack, context.only, owned, context.unmatched)
    check_keys(allowances.named_keys, stack, owned, context.unmatched)
    return propose_plan(stack, snapshot, plan_context, context.target.identity)


def _check_rerun(context: Context, stack: Stack, snapshot: Snapshot) -> None:
    """Check the keys of `--rerun`.

    Raises:
        WrongUsage: one is not declared in view, is absent, or is active.
    """
    in_view = context.loaded.stack.jobs.keys()
    keys_of(context.loaded.stack, context.rerun, in_view, context.unmatched, declared_only=True)
    problems = []
    for key in context.rerun:
        desired = stack.jobs.get(key)
        latest = current_revision(snapshot.view(key, desired), desired) if desired else None
        if matching_keys(context.loaded.stack, key, in_view).isdisjoint(stack.jobs) and not context.unmatched:
            why = f'--rerun names "{key}", but --only leaves it out'
            problems.append(Diagnostic("nothing to run again", why, "add it to --only"))
        elif desired is not None and desired.is_absent:
            why = f"{key} has `state: absent`, so --rerun {key} starts nothing"
            problems.append(Diagnostic("nothing to run again", why, "remove `state: absent`"))
        elif latest is not None and latest.job.is_active:
            why = f"{latest.job.name} is {latest.job.phase_text}; --rerun {key} starts only what has ended"
            fix = "wait until it has ended, or edit `lifecycle.rerun`, which replaces it"
            problems.append(Diagnostic("the job is active", why, fix))
    if problems:
        raise WrongUsage(*problems)


def preflight(context: Context, plan: Plan) -> Plan:
    """Ask the target's catalog, before an apply, what it would refuse of a plan, and block those keys.

    Raises:
        Interrupted: the program is about to stop.
    """
    from reconciler.decide.preflight import with_check  # not needed by an unchanged plan

    checked = _check_catalog(context, plan.actions)
    return plan if checked is None else with_check(plan, checked, context.loaded.stack)


def _check_catalog(context: Context, actions: Sequence[PlannedAction]) -> CatalogCheck | None:
    """Ask the target's catalog what it would refuse of the actions; None if none starts a job.

    Of a target that accepts more than its catalog lists only the quota is checked.
    """
    if not any(action.traits.starts_a_job for action in actions):
        return None
    from reconciler.apply.catalog import answers_about
    from reconciler.decide import preflight as core  # not needed by an unchanged plan

    starting = core.jobs_to_start(actions)
    answers = answers_about(context.catalog_reader, starting, with_offers=context.target.checks_offers)
    offers = answers.offers._replace(runs_images=context.target.runs_images)
    findings = core.find(starting, answers._replace(offers=offers), context.target.identity.name)
    return CatalogCheck(findings, tuple(core.unchecked_warnings(answers.unchecked)))


def destroy_plan(context: Context) -> Plan:
    plan_context = context.plan_context()._replace(destroys=True)
    stack, snapshot = observe(context, plan_context)
    return make_destroy_plan(stack, snapshot, plan_context, context.target.identity)


# --- drift


def drift(context: Context, *, since_last: bool = False, remind_s: float = REMIND_S) -> DriftReport:
    """Observe, and report what changed behind the manifest's back, and since the last check of the scope.

    With `since_last` only drift counts that is new or changed since the last check that could compare, or
    that was last reported more than `remind_s` ago. The check is recorded; what was reported is recorded
    later, see `notify_drift`.
    """
    from reconciler.decide.drift import make_drift_report, with_comparison  # not needed by plan
    from reconciler.decide.drift_check import compare
    from reconciler.decide.outcome import RunEnd

    plan_context, recording = context.plan_context(), context.recording
    plan_context = plan_context._replace(changed_files=_changed_files(context))
    # Before the service: drift found and recorded by others meanwhile would seem to be gone.
    last = recording.last_check(context.scope)
    stack, snapshot = observe(context, plan_context)
    owned = (revision for view in snapshot.ownership.views.values() for revision in view.owned)
    if snapshot.memory.problem is None and any(one.job.phase is Phase.TERMINATED for one in owned):
        snapshot = snapshot._replace(changes=recording.last_changes(context.scope))
    report = make_drift_report(stack, snapshot, plan_context, context.target.identity)
    destinations = context.loaded.destinations()
    comparison = compare(
        last,
        (*report.drift, *report.ignored),
        report.is_conclusive,
        at_s=plan_context.at_s,
        redact=recording.redact,
        remind_s=remind_s,
        notified={name for one in destinations for name in one.on},
    )
    report = with_comparison(report, comparison, since_last=since_last)
    if last.problem is not None:
        recording.warn(f"{last.problem}; this check is not recorded")
    else:
        check = comparison.record(compared=report.compared > 0)
        ended = RunEnd(recording.clock.now(), report.word, report.counts)
        recording.record_check(context.scope, ended, report.manifest_digest, check)
    return report


def notify_drift(context: Context, report: DriftReport) -> int:
    """Send what is due of a drift report, and record what was reported, by this or by the exit code.

    If one URL fails, the others are not sent the same drift again. Returns the number of messages that could
    not be sent.
    """
    from reconciler.notify import notify_drift  # not needed by plan

    recording, comparison = context.recording, report.comparison
    assert comparison is not None
    notified = notify_drift(report, context.loaded.destinations(), recording.redact, recording.warn)
    if comparison.problem is None:
        recording.mark_reported(context.scope, notified.reported, comparison.at_s, notified.delivered)
    return notified.failed


def why(context: Context, key: str) -> tuple[Explanation, ...]:
    """Observe, and explain which rule decides about a key, on which values. Nothing is changed.

    An entry with a matrix gets an explanation for each of its members.

    Raises:
        WrongUsage: the key is neither declared nor owned.
    """
    from reconciler.decide.reports import explain  # not needed by plan

    proposed = propose(context)
    stack, owned = proposed.stack, proposed.snapshot.ownership.owned_keys
    check_keys({key}, stack, owned)
    plan = guarded_plan(proposed, _check_catalog(context, proposed.actions))
    keys = stack.named_by(key, {*stack.whole, *stack.jobs, *owned}) or (key,)
    plan = describe_code(context, plan, keys)
    return tuple(explain(member, proposed, plan) for member in keys)


def status(context: Context) -> StatusReport:
    """Observe, and report the status of each key in view, and what it waits for. Nothing is changed."""
    from reconciler.decide.reports import make_status  # not needed by plan

    proposed = propose(context)
    return make_status(proposed, guarded_plan(proposed), context.recording.last_changes(context.scope))


def apply(
    context: Context,
    plan: Plan,
    stream: EventStream,
    stop: threading.Event,
    *,
    timeout_s: float,
    journal: Journal | None = None,
) -> Result:
    """Execute a plan, with a journal entry before and after each call if there is a journal."""
    from reconciler.apply.catalog import CreateChecks  # not needed by plan
    from reconciler.apply.executor import Execution
    from reconciler.apply.journaled import Terms
    from reconciler.decide.outcome import Journal

    checks = None
    if context.target.checks_offers:
        checks = CreateChecks(context.catalog_reader, context.recording.warn)
    target, journal = context.target, journal or Journal()
    terms = Terms(target.backend, target.clock, target.cloud, stop, journal, timeout_s, checks)
    if any(action.code is not None for action in plan.actions):
        terms = terms._replace(prepare=_upload_code(context, plan, stop))
    return Execution(terms, stream, context.parallelism).run(plan)


def open_code_store(
    context: Context, address: str, stop: threading.Event | None = None, *, is_written: bool = False
) -> CodeStore:
    """Open a code store on the target. Nothing is sent yet, and a store that is only read is not created.

    Raises:
        ManifestInvalid: the target names a URL that must not be used, or does not determine one.
        NotSupported: the target has no code stores.
        PackageMissing: the extra `code` is not installed.
        StoreFailed: the directory of a target on this machine cannot be used.
    """
    from reconciler.extras import require  # few stacks declare code

    require("obstore")
    from reconciler.code_store import CodeStore, StoreFailed

    target = context.target
    if target.objects is None:
        raise target.not_supported("store the code of jobs")
    try:
        objects = target.objects(address, is_written)
    except OSError as error:
        fix = "make its directory writable"
        raise StoreFailed(f"cannot open {address}: {error}", fix=fix) from None
    return CodeStore(address, objects, stop=stop, redact=context.recording.redact, sleep=target.clock.sleep)


def _upload_code(
    context: Context, plan: Plan, stop: threading.Event
) -> Callable[[PlannedAction, Callable[[], object]], object]:
    """Return a function that uploads the code of an action's job, unless it is already there.

    Raises:
        ManifestInvalid: as `open_code_store`.
    """
    uploads: dict[str, Uploads | ServiceError] = {}
    for address in {action.code.store for action in plan.actions if action.code is not None}:
        try:
            store = open_code_store(context, address, stop, is_written=True)
            from reconciler.code_store import Uploads

            uploads[address] = Uploads(store, context.loaded.stack.name, context.uploading)
        except ServiceError as problem:
            uploads[address] = problem

    def upload(action: PlannedAction, pause: Callable[[], object]) -> None:
        if action.code is None:
            return
        uploader = uploads[action.code.store]
        if isinstance(uploader, ServiceError):
            raise uploader
        uploader.ensure(action.code.code, context.loaded.root / action.code.source, pause)

    return upload


def describe_code(context: Context, plan: Plan, keys: Collection[str] | None = None) -> Plan:
    """Add to each job, or to those of some keys, what changed in its code and what apply would upload."""
    if not any(
        action.code or any(change.path == CODE for change in action.changes) for action in plan.actions
    ):
        return plan
    from reconciler.code_changes import with_code

    loaded, installs = context.loaded, context.target.installs_requirements
    return with_code(plan, loaded.stack, loaded.root, _comparison(context), keys, installs=installs)


def _changed_files(context: Context) -> Callable[[DesiredJob, str | None], str]:
    """Return a function that names the files changed in a job's code since a digest."""
    comparison = cache(lambda: _comparison(context))

    def changed_files(job: DesiredJob, before: str | None) -> str:
        assert job.code is not None
        return name_files(comparison().changes(job.code, job.code_store, before or "") or ())

    return changed_files


def _comparison(context: Context) -> CodeComparison:
    from reconciler.code_changes import CodeComparison  # few stacks declare code

    stack, recorded = context.loaded.stack.name, context.recording.code
    return CodeComparison(stack, context.loaded.root, recorded, partial(open_code_store, context))


def notify_apply(context: Context, plan: Plan, result: Result) -> int:
    """Notify of a failed apply if the manifest says so; return how many notifications failed."""
    recording = context.recording
    if not context.loaded.notifies:
        return 0
    from reconciler.notify import notify_apply  # not needed by plan

    destinations = context.loaded.destinations()
    return notify_apply(
        result.outcomes, plan.stack, plan.target.name, destinations, recording.redact, recording.warn
    )
