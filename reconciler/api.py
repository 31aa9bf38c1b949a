"""The Python API: load a stack, connect to a target, plan, apply, check for drift.

For notebooks, Airflow tasks and other programs. The command line uses the same functions, with the same lock,
journal, history, guards and redaction. Progress is reported by the logger `reconciler` and by `on_event`;
nothing is printed and no signal handler is installed. There is no global state, so sessions in different
threads are independent.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date, datetime
from functools import cached_property, partial
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from reconciler import reconcile
from reconciler.adoption import adopt_plan, export_jobs, release_plan
from reconciler.apply.executor import EventStream
from reconciler.apply.waiter import JobWatch, watch_all
from reconciler.connection import RecordedStack, RecordOptions, connect
from reconciler.core.masking import DeclaredSecrets
from reconciler.core.observed import ObservedJob, SearchFilter, Unreadable, last_lines
from reconciler.core.past import PastRevision, PastRun, RunKind
from reconciler.core.phase import Operation, phase_named
from reconciler.core.record import REMIND_S
from reconciler.core.values import PlanWarning, TargetIdentity
from reconciler.decide.drift_check import Drift, IgnoredDrift, Pending
from reconciler.decide.outcome import (
    WAIT_CODES,
    ApplyEvent,
    EventType,
    Goal,
    Outcome,
    Status,
    Waited,
    WaitEnd,
    exit_code_of,
)
from reconciler.decide.outcome import Result as CoreResult
from reconciler.decide.plan import NO_ALLOWANCES, Action, Allowances, PlannedAction
from reconciler.decide.plan import Plan as CorePlan
from reconciler.decide.reports import Explanation as CoreExplanation
from reconciler.decide.reports import JobStatus, why_document
from reconciler.errors import (
    Diagnostic,
    ExitCode,
    ManifestInvalid,
    ReconcilerError,
    Refused,
    ServiceError,
    UnreadableAnswer,
    WrongUsage,
)
from reconciler.manifest import load as load_manifest
from reconciler.manifest.export import head_of_export
from reconciler.manifest.files import StackFiles, find_stack, stack_of
from reconciler.manifest.saved_secrets import SecretSources
from reconciler.modelarts import clock
from reconciler.modelarts import jobs as service
from reconciler.modelarts.observe import find_invalid_value
from reconciler.modelarts.operations import Event, JobList, Metric, ReportedJob
from reconciler.modelarts.target import Connected, Runtime
from reconciler.plan_file import (
    ReadPlan,
    check_preconditions,
    check_target,
    digest_of_document,
    document_to_save,
    read_plan,
    write_plan,
)
from reconciler.reconcile import Context
from reconciler.render import FORMATS, Content, View, formats_of, render, render_part
from reconciler.render.commands import render_why
from reconciler.render.json import redacted
from reconciler.rollout import Rollout
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import visible

_log = logging.getLogger("reconciler")
# Without a handler, logging would print warnings to stderr.
_log.addHandler(logging.NullHandler())

#: What `wait` waits for after the plan has been applied.
WaitGoal = Literal["running", "completed"]
AnyPath = str | os.PathLike[str]
EventListener = Callable[["ApplyEvent"], object]


def load(
    *paths: AnyPath,
    variables: Mapping[str, object] | None = None,
    var_files: AnyPath | Sequence[AnyPath] = (),
    environ: Mapping[str, str] | None = None,
) -> Stack:
    """Load the stack at the paths, as on the command line; default: the current directory.

    `variables` are the values of `--var`, `var_files` the files of `--var-file`, and `environ` is the
    environment for `${env.X}` and `env: X` (default: os.environ). If only values of sensitive variables are
    missing, the stack can be destroyed and checked for drift; planning it raises `ManifestInvalid`.

    Raises:
        ManifestInvalid: with every problem of every file as `diagnostics`.
        WrongUsage: a path does not exist, or there are several stacks to choose from.
    """
    if "" in paths:  # pathlib takes it for the current directory
        raise WrongUsage(Diagnostic("no such path", "the path is empty"))
    given, values = [*map(Path, paths)] or [Path()], _as_texts(variables)
    files = [*map(Path, [var_files] if isinstance(var_files, str | os.PathLike) else var_files)]
    seen = os.environ if environ is None else environ
    return Stack(find_stack(given, files), values, seen, files)


class Stack:
    """The jobs that a stack declares, from `load` or `from_dict`."""

    def __init__(
        self,
        files: StackFiles,
        variables: Mapping[str, str],
        environ: Mapping[str, str],
        var_files: Sequence[Path] = (),
        target: str | None = None,
    ) -> None:
        self._variables, self._var_files = variables, var_files
        self._redactor = Redactor()
        # Loads the same files for another target, even if they have changed on disk.
        self._on = partial(Stack, files, variables, environ, var_files)
        values: Any = {"variables": variables, "var_files": var_files, "environ": environ}
        read = partial(load_manifest, files, **values, add_secrets=self._redactor.add_secrets, target=target)
        self._missing: tuple[Diagnostic, ...] = ()
        try:
            self._loaded = read(offline=False)
        except ManifestInvalid as invalid:
            self._missing = invalid.diagnostics
            try:
                self._loaded = read(offline=True)
            except ManifestInvalid:
                raise invalid from None
        self._redactor.add_secrets(self._loaded.secrets)

    @classmethod
    def from_dict(
        cls,
        mapping: Mapping[str, Any],
        root: AnyPath = ".",
        *,
        variables: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Stack:
        """Load a manifest from data, in the form of a file. `.reconciler/` is in the directory `root`.

        Raises:
            ManifestInvalid: with every problem as `diagnostics`.
            WrongUsage: there is no such directory.
        """
        values, seen = _as_texts(variables), os.environ if environ is None else environ
        return cls(stack_of(mapping, Path(root)), values, seen)

    def __repr__(self) -> str:
        return f"Stack({self.name!r}, {len(self.keys)} jobs)"

    @property
    def name(self) -> str:
        """The name of the stack."""
        return self._loaded.stack.name

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared keys in view, sorted, without those with `state: absent`."""
        jobs = self._loaded.stack.jobs
        return tuple(sorted(key for key, job in jobs.items() if not job.is_absent))

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings about the manifest."""
        return without_secrets(self._loaded.warnings, self._redactor)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets, sorted."""
        return tuple(sorted(self._loaded.targets))

    def connect(
        self,
        target: str | None = None,
        records: str | None = None,
        environ: Mapping[str, str] | None = None,
        parallelism: int = 8,
        *,
        without_records: bool = False,
    ) -> Session:
        """Connect to a target; default: the manifest's. Use the session as a context manager, or close it.

        `records` is the URL of the record store, if it is not the manifest's; `environ` has the
        credentials (default: os.environ); `parallelism` is the maximum number of concurrent calls.
        `without_records` works without lock, journal and history if the store is unavailable.

        Raises:
            WrongUsage: there is no such target, or `records` is no URL of a store.
            ManifestInvalid: the target or its record store is not complete, or the manifest is invalid on it.
            ServiceError: no credentials were found, for example.
        """
        environ = os.environ if environ is None else environ
        stack = self if target in (None, self._loaded.target_name) else self._on(target)
        redactor, stop = stack._redactor, threading.Event()

        def log_request(method: str, path: str, status: int | None, seconds: float) -> None:
            answer = "no answer" if status is None else status
            _log.debug("%s %s: %s, %.0f ms", method, redactor(path), answer, seconds * 1000)

        runtime = Runtime(
            environ=environ,
            clock=clock.SystemClock(stop),
            redactor=redactor,
            warn=lambda text: _log.warning("%s", redactor(text)),
            log_debug=lambda text: _log.debug("%s", redactor(text)),
            on_request=log_request,
            stop=stop,
            command="python",
        )
        url = records or environ.get("RECONCILER_RECORDS") or None
        options = RecordOptions(url, without_records=without_records)
        if parallelism < 1:
            raise _invalid("parallelism", f"must be at least 1, got {parallelism}")
        return Session(stack, target, runtime, options, parallelism)


class Session:
    """A stack connected to a target, from `Stack.connect`. Use it in one thread at a time."""

    def __init__(
        self, stack: Stack, target: str | None, runtime: Runtime, records: RecordOptions, parallelism: int
    ) -> None:
        self.stack = stack
        self._runtime, self._records = runtime, records
        self._cleanup = ExitStack()
        context = self._cleanup.enter_context(
            connect(stack._loaded, target, runtime, records, offline=bool(stack._missing))
        )
        self._connected: Context | None = context._replace(parallelism=parallelism)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the record store. Idempotent."""
        self._connected = None
        self._cleanup.close()

    @property
    def _context(self) -> Context:
        if self._connected is None:
            raise WrongUsage(Diagnostic("the session is closed", "", "connect again: stack.connect()"))
        return self._connected

    @property
    def target(self) -> TargetIdentity:
        """The target of the session."""
        return self._context.target.identity

    @cached_property
    def jobs(self) -> JobClient:
        """The jobs of the target's workspace, regardless of owner."""
        return JobClient(self)

    def plan(
        self,
        only: str | Sequence[str] = (),
        rerun: str | Sequence[str] = (),
        allow: str | Sequence[str] = (),
        force: bool = False,
        preflight: bool = True,
    ) -> Plan:
        """Read the service and return what `apply` would do, without changing anything.

        `only` limits the view to some keys, `rerun` names keys to run again without an edit, `allow` names
        guards to override, and `force` overrides all of them. If jobs would start, the target's catalog is
        checked too, unless `preflight` is false; `apply` checks it in any case.

        Raises:
            ManifestInvalid: a sensitive variable has no value.
            WrongUsage: `only`, `rerun` or `allow` names what does not exist, or `rerun` an active job.
            ServiceError: the workspace could not be read.
        """
        self._check_values()
        context = self._context._replace(only=_names(only), rerun=_names(rerun))
        try:
            allowances = Allowances.of(_names(allow), force=force)
        except ValueError as error:
            raise WrongUsage(Diagnostic("unknown guard", str(error))) from None
        core = reconcile.plan(context, allowances, with_preflight=preflight)
        runtime = self._runtime
        given: Any = {"records": self._records.url, "environ": runtime.environ, "redact": runtime.redactor}
        to_save = partial(document_to_save, core, context, allowances, **given)
        return Plan(core, _PlanInputs(context, allowances, to_save), runtime.redactor)

    def _check_values(self) -> None:
        if self.stack._missing:
            raise ManifestInvalid(*self.stack._missing)

    def apply(
        self,
        plan: Plan | None = None,
        wait: WaitGoal | None = None,
        timeout_s: float = 600,
        on_event: EventListener | None = None,
    ) -> Result:
        """Apply a plan under the lock, and return the result. Calling this is the confirmation.

        Without a plan, one is made under the lock; a given one is applied as it is, or not at all. `wait`
        continues until every job is running or completed, and starts retries and deferred jobs, each for
        at most `timeout_s` seconds. `on_event` is called with each line of `apply --json`. On Ctrl-C, calls
        in flight finish and are recorded, then KeyboardInterrupt is raised.

        Raises:
            Refused: a guard refuses the whole plan; nothing was done. For blocked keys see `Result.ok`.
            WrongUsage: the plan is for another stack, or the session is closed.
            StalePlan: something changed since, or the plan is for another target; nothing was done.
            LockHeld, RecordsUnavailable: the lock is held, or its store cannot be used.
            ServiceError: the workspace could not be read.
        """
        if wait not in (None, Goal.RUNNING, Goal.COMPLETED):
            raise _invalid("wait", f'"{wait}" is not one of running, completed')
        how = RunKind.APPLY, timeout_s, on_event, None if wait is None else Goal(wait)
        if plan is None:
            self._check_values()
            context = self._context.to_apply()
            return self._run(context, partial(reconcile.plan, context), *how)
        core, made, allowances = plan._core, plan._made, NO_ALLOWANCES
        if core.stack != self.stack.name:
            why = f"the plan is for stack {core.stack}, but the session is for {self.stack.name}"
            raise WrongUsage(Diagnostic("plan of another stack", why, f"connect stack {core.stack}"))
        if isinstance(made, ReadPlan):
            stack, runtime = self.stack, self._runtime
            places = (stack._variables, stack._var_files, runtime.environ)
            values = SecretSources(*places, runtime.redactor.add_secrets)
            core = made.resolve(values)
            context = self._context._replace(loaded=made.as_loaded(), only=made.options.only)
        else:
            of, allowances = made.context, made.allowances
            context = self._context._replace(loaded=of.loaded, only=of.only, rerun=of.rerun)
        context = context.to_apply()
        check_target(context, core)

        def check() -> CorePlan:
            check_preconditions(context, core)
            return reconcile.preflight(context, core)

        return self._run(context, check, *how, allowances)

    def destroy(
        self, only: str | Sequence[str] = (), timeout_s: float = 600, on_event: EventListener | None = None
    ) -> Result:
        """Terminate the jobs that the stack owns, except protected ones. Calling this is the confirmation.

        Raises:
            LockHeld, RecordsUnavailable, ServiceError: as for `apply`.
            WrongUsage: `only` names a key that is neither declared nor owned.
        """
        context = self._context._replace(only=_names(only), is_applied=True)
        make = partial(reconcile.destroy_plan, context)
        return self._run(context, make, RunKind.DESTROY, timeout_s, on_event)

    def drift(self, *, since_last: bool = False, remind_s: float = REMIND_S) -> DriftReport:
        """Return what changed on the service since the last apply. The check is recorded.

        With `since_last` the exit code counts only drift that is new or has changed since the last check that
        could compare, or has lasted longer than `remind_s` seconds since its last report.

        Raises:
            ServiceError: the workspace could not be read.
        """
        report = reconcile.drift(self._context, since_last=since_last, remind_s=remind_s)
        reconcile.notify_drift(self._context, report)
        return DriftReport(report, self._runtime.redactor)

    def status(self, only: str | Sequence[str] = ()) -> StatusReport:
        """Return the state of each key, and what it is waiting for.

        Raises:
            WrongUsage: `only` names a key that is neither declared nor owned.
            ServiceError: the workspace could not be read.
        """
        context = self._context._replace(only=_names(only))
        return StatusReport(reconcile.status(context), self._runtime.redactor)

    def why(self, key: str) -> Explanation:
        """Return the rule that decides about a key, or about each member of a sweep, and its values.

        Raises:
            WrongUsage: the key is neither declared nor owned.
            ServiceError: the workspace could not be read.
        """
        return Explanation(key, reconcile.why(self._context, key), self._runtime.redactor)

    def history(self, key: str | None = None, limit: int | None = None) -> HistoryReport:
        """Return the recorded runs and revisions of the stack or of one key, newest first.

        `limit` is the maximum number of each.

        Raises:
            WrongUsage: the key is not declared, and nothing is recorded of it.
            RecordsUnavailable: the record store cannot be read.
        """
        context = self._context
        place = RecordedStack(context.loaded, self.target, context.recording, self._runtime.clock)
        return HistoryReport(place.history(key, limit), self._runtime.redactor)

    def adopt(
        self,
        key: str,
        job_id: str,
        accept: bool = False,
        *,
        timeout_s: float = 600,
        on_event: EventListener | None = None,
    ) -> Result:
        """Make an unmanaged job the next revision of a key; nothing restarts. Calling is the confirmation.

        `job_id` is an id, or a name that only one job has. A job that differs from its declaration is in
        conflict, see `Result.ok`, unless `accept` takes it as it is.

        Raises:
            ManifestInvalid: a sensitive variable has no value.
            WrongUsage: the key is not declared, or several jobs have the name.
            NotFound: there is no such job.
            LockHeld, RecordsUnavailable, ServiceError: as for `apply`.
        """
        self._check_values()
        context = self._context.to_apply()
        make = partial(adopt_plan, context, key, job_id, takes_as_is=accept)
        return self._run(context, lambda: make()[0], RunKind.ADOPT, timeout_s, on_event)

    def release(self, key: str, *, timeout_s: float = 600, on_event: EventListener | None = None) -> Result:
        """Take the marker off every revision of a key. Running jobs continue, unmanaged.

        Calling this is the confirmation.

        Raises:
            WrongUsage: the key is neither declared nor owned.
            LockHeld, RecordsUnavailable, ServiceError: as for `apply`.
        """
        context = self._context.to_apply()
        return self._run(context, partial(release_plan, context, key), RunKind.RELEASE, timeout_s, on_event)

    def export(self, ids: str | Sequence[str]) -> ExportedManifest:
        """Return a manifest of existing jobs, by id, name or key, owned by a stack or not.

        Raises:
            NotFound: there is no such job.
            ServiceError: the workspace could not be read.
        """
        context, redactor = self._context, self._runtime.redactor
        found = [self.jobs._find(one) for one in _names(ids)]
        stack, problems, notes = export_jobs(context.loaded, context.target, found, redactor)
        text = stack.text(head_of_export(stack.target_name))
        exported = ExportedManifest(visible(redactor(text)))
        exported.warnings = without_secrets((*problems, *notes), redactor)
        exported._document = redacted(stack.mapping(), redactor)
        return exported

    def _run(
        self,
        context: Context,
        make_plan: Callable[[], CorePlan],
        kind: RunKind,
        timeout_s: float,
        on_event: EventListener | None,
        goal: Goal | None = None,
        allowances: Allowances = NO_ALLOWANCES,
    ) -> Result:
        """Make or check a plan under the lock, and carry it out."""
        stop, redact, limit_s = self._runtime.stop, self._runtime.redactor, float(timeout_s)
        assert stop is not None
        is_lost = threading.Event()

        def lose_lock() -> None:
            is_lost.set()
            stop.set()

        def emit(event: ApplyEvent) -> None:
            event = without_secrets(event, redact)
            level = logging.ERROR if event.type is EventType.ACTION_FAILED else logging.INFO
            what = (event.type.value, event.key, event.action, event.message or event.detail)
            _log.log(level, "%s", " ".join(str(word) for word in what if word))
            if on_event is not None:
                try:
                    on_event(event)
                except Exception:  # a faulty listener must not stop the apply
                    _log.exception("on_event failed")

        stream, result = EventStream(context.target.clock, emit), None
        future: Future[CoreResult] | None = None
        try:
            with context.recording.lock(context.scope, lose_lock) as lock:
                core = make_plan()
                stream.begin(core)
                rollout = Rollout(context, kind, stream, stop, limit_s, allowances, goal, lock=lock)
                try:
                    # On a thread, so that calls in flight finish after Ctrl-C.
                    with ThreadPoolExecutor(1, thread_name_prefix="reconciler") as pool:
                        future = pool.submit(rollout.run, core)
                        try:
                            result = future.result()
                        except KeyboardInterrupt:
                            stop.set()
                            raise
                finally:
                    stream.complete(result)
        finally:
            if future is None or future.done():  # else a second Ctrl-C left it behind
                stop.clear()
        code = exit_code_of(core, result, ExitCode.LOCKED if is_lost.is_set() else None)
        if kind is RunKind.APPLY:
            reconcile.notify_apply(context, core, result)
        if core.refusals:
            refused = Refused(*core.refusals)
            refused.exit_code = code
            raise refused
        return Result(result, core, code, redact)


#: A time: a datetime, a text such as 2026-11-21T08:00:00Z, or a span such as "2d", for so long ago.
Time = datetime | str


class WaitFailed(ReconcilerError):
    """The job ended badly (exit code 10), or the wait timed out (9). `job` is its last state."""

    def __init__(self, job: ReportedJob, exit_code: ExitCode, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic)
        self.job, self.exit_code = job, exit_code


class JobClient:
    """The service's calls on single jobs; `job` is an id, a name, or a key of the stack.

    A key means its newest revision and takes precedence over a name. Sensitive values of the manifest and
    the tokens of a job's endpoints are redacted.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._redactor = session, session._runtime.redactor
        hide = DeclaredSecrets.of(session._context.loaded.stack).hide
        self._hide = partial(hide, add_secrets=self._redactor.add_secrets)

    @property
    def _context(self) -> Context:
        return self._session._context

    @property
    def _target(self) -> Connected:
        return self._context.target

    def list(
        self,
        *,
        sort_by: str = "create_time",
        order: Literal["asc", "desc"] = "desc",
        limit: int | None = None,
        name: str | None = None,
        phase: str | Sequence[str] = (),
        kind: str | Sequence[str] = (),
        user: str | Sequence[str] = (),
        algorithm_name: str | None = None,
        created_after: Time | None = None,
        created_before: Time | None = None,
        filters: Sequence[SearchFilter] = (),
        tags: Sequence[Mapping[str, Any]] = (),
        host_ips: str | Sequence[str] = (),
        train_type: Literal["job", "ftjob"] | None = None,
        unified: bool = False,
        group_by: str | None = None,
    ) -> JobList:
        """Return the matching jobs of any owner, newest first, with the filters of `jobs list`.

        Several values of one filter are alternatives. `filters` are the service's own, mappings of `key`,
        `operator` and `value`; `tags` are mappings of `key` and `values`. Entries that cannot be read are in
        `unreadable`.

        Raises:
            WrongUsage: the service does not support a filter.
            NotSupported: this kind of target cannot search.
            ServiceError: the list could not be read.
        """
        if limit is not None and limit < 0:
            raise _invalid("limit", f"must not be negative, got {limit}")
        try:
            phases = [phase_named(one).value for one in _names(phase)]
            after, before = (
                None if one is None else service.Moment.parse(one) for one in (created_after, created_before)
            )
        except ValueError as error:
            raise _invalid("filter", str(error)) from None
        wanted = service.JobFilters(
            name=name,
            phases=phases,
            kinds=_names(kind),
            users=_names(user),
            algorithm_name=algorithm_name,
            after=after,
            before=before,
            filters=filters,
            tags=tags,
            host_ips=_names(host_ips),
            train_type=train_type,
            unified=unified,
            group_by=group_by,
        )
        now_s = self._target.clock.now()
        listing = service.search_jobs(
            self._target.search, wanted, now_s, sort_by=sort_by, order=order, limit=limit
        )
        if isinstance(listing.problem, ServiceError):
            raise listing.problem
        if listing.problem:
            raise UnreadableAnswer(listing.problem)
        jobs, unreadable = [], [*listing.unreadable]
        for job in listing.jobs[:limit]:
            if invalid := find_invalid_value(dict(job.body)):
                unreadable.append(Unreadable(f"it contains {invalid}", job.name, job.id))
            else:
                jobs.append(self._shown(job))
        found = JobList(jobs)
        found.unreadable = tuple(unreadable)
        return found

    def get(self, job: str) -> ReportedJob:
        """Return all that the service reports of a job.

        Raises:
            NotFound: there is no such job.
            WrongUsage: there are several of that name.
        """
        return self._shown(self._details(job))

    def logs(
        self, job: str, follow: bool = False, *, task: str | None = None, lines: int | None = None
    ) -> str | Iterator[str]:
        """Return the end of a task's log, 5 MB at most, or "" while there is none; default: the first task.

        `lines` limits it to the last ones. With `follow`, return an iterator over lines until the job ends.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        where = (self._target, found, task or service.first_task(found), self._redactor)

        def cut(text: str) -> str:
            return text if lines is None else last_lines(text, lines)

        if not follow:
            return cut(service.read_log(*where).text or "")
        texts = (part.text for part in service.follow_log(*where) if part.text is not None)
        return (
            line for number, text in enumerate(texts) for line in (text if number else cut(text)).splitlines()
        )

    def events(self, job: str, *, limit: int = 500) -> tuple[Event, ...]:
        """Return the events of a job, oldest first.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        events = service.read_events(self._target.logs, found.id, limit)
        return tuple(
            Event.model_validate(redacted(event.model_dump(exclude_unset=True), self._redactor))
            for event in events
        )

    def metrics(self, job: str, *, task: str | None = None) -> tuple[Metric, ...]:
        """Return the utilization of a task's node in percent, one value per minute.

        Raises:
            NotFound: there is no such job.
        """
        found = self._find(job)
        return self._target.logs.metrics(found.id, task or service.first_task(found)) or ()

    def terminate(self, job: str, *, force: bool = False) -> ReportedJob:
        """Terminate a job, and return it. For its stack, it was terminated outside.

        Raises:
            Refused: it is protected, has ended, or a stack owns it and `force` is not given.
            NotFound: there is no such job.
        """
        found = self._details(job)
        service.check_allowed([found], Operation.TERMINATE, force=force)
        note = partial(self._context.recording.note_termination, self._context.scope)
        service.terminate(self._target, found, note)
        return self._shown(self._target.backend.details(found.id))

    def wait(
        self,
        job: str,
        until: Literal["running", "completed", "ended"] = "completed",
        timeout_s: float | None = None,
    ) -> ReportedJob:
        """Wait until a job is running, completed, or ended, and return it. No `timeout_s` means no limit.

        Raises:
            WaitFailed: it ended badly, its record is gone, or the time is up.
            NotFound: there is no such job.
        """
        try:
            goal = Goal(until)
        except ValueError:
            raise _invalid("goal", f'"{until}" is not one of {", ".join(Goal)}') from None
        found = self._details(job)
        watch = JobWatch(self._target.backend, found, goal, lambda *_: None)
        [end] = watch_all([watch], self._target.clock, timeout_s)
        shown = self._shown(watch.job)
        if end is WaitEnd.REACHED:
            return shown
        why = {
            WaitEnd.ENDED_BADLY: "it ended badly",
            WaitEnd.TIMED_OUT: "timed out",
            WaitEnd.GONE: "its record no longer exists",
        }[end]
        why = f"{watch.job.name} is {watch.job.phase_text}: {why}"
        raise WaitFailed(shown, WAIT_CODES[end], Diagnostic("the wait failed", why))

    def _details(self, job: str) -> ObservedJob:
        return self._target.backend.details(self._find(job).id)

    def _find(self, job: str) -> ObservedJob:
        found = service.find_job(self._context.loaded.stack, self._target, job)
        self._hide(found)  # a log, for example, may hold what the job was given
        return found

    def _shown(self, job: ObservedJob) -> ReportedJob:
        return ReportedJob.model_validate(redacted(self._hide(job), self._redactor))


class _PlanInputs(NamedTuple):
    context: Context
    allowances: Allowances
    to_save: Callable[[Path | None], dict[str, Any]]


def load_plan(path: AnyPath) -> Plan:
    """Load a plan saved by `plan --out` or `Plan.save`; `session.apply` checks that it is not stale.

    Secrets are looked up at apply: in the environment of the session, in the variables of its stack, and
    where they came from.

    Raises:
        WrongUsage: there is no such file.
        ManifestInvalid: the file is not a plan, or is damaged.
        StalePlan: another version of the program made it.
    """

    def warn(warning: Diagnostic) -> None:
        _log.warning("%s: %s", warning.what, warning.why)

    read = read_plan(Path(path), warn, strict=True)
    return Plan(read.plan, read, Redactor())


class _Shown:
    """A redacted view of a value of the core."""

    _content: ClassVar[Content]

    def __init__(self, core: Any, redactor: Redactor) -> None:
        self._core, self._redactor = core, redactor
        for name in type(self).__annotations__.keys() - {"_core"}:
            setattr(self, name, without_secrets(getattr(core, name), redactor))

    def __repr__(self) -> str:
        name, last_line = type(self).__name__, str(self).splitlines()[-1]
        return f"<{name}: {last_line.removeprefix(f'{name}: ')}>"

    def __str__(self) -> str:
        return self.render("text").removesuffix("\n")

    def _repr_html_(self) -> str | None:
        """The table of the HTML format, for notebooks. None if there is none."""
        if "html" not in formats_of(self._content):
            return None
        return render_part(self._content, self._core, "html", self._view)

    @property
    def _view(self) -> View:
        return View(redact=self._redactor)

    @property
    def summary(self) -> dict[str, int]:
        """The count of each kind."""
        return {str(kind): count for kind, count in self._core.summary.items()}

    def render(self, format: str = "text") -> str:  # noqa: A002 - the word of the command line
        """Return the text in one of the formats of `--output`.

        Raises:
            WrongUsage: there is no such format.
        """
        if format not in (known := formats_of(self._content)):
            raise WrongUsage(Diagnostic("unknown format", f'"{format}" is not one of {", ".join(known)}'))
        text = render(self._content, self._core, format, self._view)
        return text if FORMATS[format].redacts else self._redactor(text)


class _Report(_Shown):
    """A view that a command also prints as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `--json`, without secrets."""
        document: dict[str, Any] = redacted(self._core.document(), self._redactor)
        return document


class Plan(_Report):
    """What `apply` would do. `print` shows the text of the command line, without colours.

    From `Session.plan`, or `load_plan`.
    """

    _content = Content.PLAN
    _core: CorePlan
    #: One per key or revision, sorted: each has `key`, `action`, `reason`, `detail`, and more.
    actions: tuple[PlannedAction, ...]
    #: Whether at least one action would be executed, and no guard refuses the whole plan.
    applyable: bool
    #: Whether everything could be read.
    complete: bool
    #: Why guards refuse the whole plan; what they block is an action `blocked`.
    refusals: tuple[Diagnostic, ...]
    #: Warnings for people.
    warnings: tuple[PlanWarning, ...]

    def __init__(self, core: CorePlan, made: _PlanInputs | ReadPlan, redactor: Redactor) -> None:
        super().__init__(core, redactor)
        self._made = made
        self._digest: str | None = None

    @property
    def has_changes(self) -> bool:
        """Whether there is something to create, update, replace or terminate."""
        return bool(self._core.to_execute)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `reconciler plan --detailed-exitcode`."""
        return self._core.exit_code(detailed=True)

    @property
    def digest(self) -> str:
        """The digest of the plan, `sha256:…`, as in its file.

        A file has paths relative to itself; for an unsaved plan, the file is taken to be in the stack's root.

        Raises:
            Refused: it cannot be saved, see `save`.
        """
        if self._digest is None:
            self._digest = digest_of_document(self._to_save(None))
        return self._digest

    def save(self, path: AnyPath) -> None:
        """Write the plan to a file that only its owner may read, as `plan --out` does; see `load_plan`.

        Raises:
            Refused: a body has a secret that cannot be found again without the manifest.
            WrongUsage: the path is a directory or a device.
            ReconcilerError: the file cannot be written.
        """
        file = Path(path)
        document = self._to_save(file)
        try:
            write_plan(document, file)
        except OSError as error:
            why = f"{file}: {error.strerror}"
            raise ReconcilerError(Diagnostic("cannot write the plan file", why)) from error
        self._digest = digest_of_document(document)

    def _to_save(self, file: Path | None) -> dict[str, Any]:
        made = self._made
        if not isinstance(made, ReadPlan):
            return made.to_save(file)
        # Its paths are relative to where it was read.
        if file is not None and file.resolve().parent != made.file.resolve().parent:
            why, fix = f"its paths are relative to {made.file}", "copy it to the same directory"
            raise WrongUsage(Diagnostic("cannot save the plan in another directory", why, fix))
        return made.document

    @property
    def _view(self) -> View:
        digest = self.digest if isinstance(self._made, ReadPlan) else self._digest or ""
        return View(redact=self._redactor, digest=digest)


class Result(_Shown):
    """The result of an apply: the outcome of each action."""

    _content = Content.RESULT
    #: The outcome of each action: `key`, `action`, `status`, `detail`, `job`, and the error if any.
    outcomes: tuple[Outcome, ...]
    #: The keys that were waited for, and how that ended.
    waits: tuple[Waited, ...]

    def __init__(self, core: CoreResult, plan: CorePlan, code: ExitCode, redactor: Redactor) -> None:
        super().__init__(core, redactor)
        self._plan = plan
        #: That of `reconciler apply`.
        self.exit_code = code

    @property
    def _view(self) -> View:
        return View(redact=self._redactor, plan=self._plan)

    @property
    def ok(self) -> bool:
        """Whether every action was done, and every job that was waited for reached its goal."""
        return self.exit_code == ExitCode.DONE

    def raise_for_failures(self) -> None:
        """Raise an error unless `ok`.

        Raises:
            Refused: a key was blocked or in conflict; everything else was done.
            ApplyFailed: something failed, or a job that was waited for ended badly.
        """
        if self.exit_code is ExitCode.REFUSED:
            raise Refused(*self._failures())
        if not self.ok:
            raise ApplyFailed(self)

    def _failures(self) -> Iterator[Diagnostic]:
        if self.exit_code is ExitCode.LOCKED:
            yield Diagnostic("the lock was lost", "its lease expired, or it was broken")
        for fault in self._core.faults:
            yield Diagnostic("internal error", self._redactor(f"{type(fault).__name__}: {fault}"))
        for outcome in self._core.outcomes:
            action = outcome.action
            if outcome.status is not Status.DONE and action.action not in (Action.KEEP, Action.DEFER):
                why = f"{action.action.value} {action.key}: {outcome.message or outcome.detail}"
                yield Diagnostic(outcome.status.value.replace("_", " "), self._redactor(why))
        for waited in self._core.waits:
            if waited.end is not WaitEnd.REACHED:
                why = f"{waited.key}: {waited.describe(0.0)}"
                yield Diagnostic(waited.end.value.replace("_", " "), self._redactor(why))


class ApplyFailed(ReconcilerError):
    """Some actions were not done, see `result`. `exit_code` is that of the command line."""

    def __init__(self, result: Result) -> None:
        super().__init__(*result._failures())
        self.result, self.exit_code = result, result.exit_code


class DriftReport(_Report):
    """What changed on the service since the last apply. `print` shows the text of the command line."""

    _content = Content.DRIFT
    #: Each with `key`, `class_`, `job`, `detail`, `since`, `node_hours` and `fix`.
    drift: tuple[Drift, ...]
    #: Drift that is known: a rule of the manifest ignores it.
    ignored: tuple[IgnoredDrift, ...]
    #: With `since_last`: drift that the last check did not find.
    new: tuple[Drift, ...]
    #: With `since_last`: drift that now concerns another job or other fields.
    changed: tuple[Drift, ...]
    #: With `since_last`: drift that has ended.
    gone: tuple[Drift, ...]
    #: Changes of the manifest that are not applied yet. They are not drift.
    pending: tuple[Pending, ...]

    @property
    def has_drift(self) -> bool:
        """Whether anything has drifted."""
        return bool(self._core.has_drifted)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `reconciler drift`; 8 if too little could be read to judge."""
        return ExitCode(self._core.exit_code)


class StatusReport(_Report):
    """The state of the jobs of a stack. `print` shows the text of the command line."""

    _content = Content.STATUS
    #: Each with `key`, `revision`, `phase`, `waits_for`, `last_change`, and more.
    jobs: tuple[JobStatus, ...]
    #: Whether everything could be read.
    complete: bool
    #: Warnings for people.
    warnings: tuple[PlanWarning, ...]
    #: That of `reconciler status`.
    exit_code: ExitCode


class HistoryReport(_Report):
    """The recorded runs and revisions of a stack, newest first; `print` shows them as text."""

    _content = Content.HISTORY
    #: Applies, drift checks and others, each with `kind`, `at_s`, `word`, `actions`, and more.
    runs: Sequence[PastRun]
    #: Each with `key`, `number`, `job`, `phase`, `duration_s`, and more.
    revisions: Sequence[PastRevision]

    def __repr__(self) -> str:
        return f"<HistoryReport: {len(self.runs)} runs, {len(self.revisions)} revisions>"


class Explanation:
    """Why a key, or each member of a sweep, gets its action. `print` shows the text of the command line."""

    def __init__(self, key: str, core: Sequence[CoreExplanation], redactor: Redactor) -> None:
        self._core, self._redactor = core, redactor
        #: What was asked about, and what is done about it, as in a plan.
        self.key, self.actions = key, without_secrets(tuple(a for one in core for a in one.actions), redactor)
        #: One per key: `key`, `rules`, `declared`, `observed`, `otherwise`, and more.
        self.members = without_secrets(tuple(core), redactor)

    def __repr__(self) -> str:
        words = dict.fromkeys(f"{one.action.value} ({one.reason.value})" for one in self.actions)
        return f"<Explanation of {self.key}: {', '.join(words) or 'nothing to do'}>"

    def __str__(self) -> str:
        return self._redactor(render_why(self._core)).removesuffix("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `why --json`, without secrets."""
        document: dict[str, Any] = redacted(why_document(self.key, self._core), self._redactor)
        return document


class ExportedManifest(str):
    """The text of a manifest that declares existing jobs; `Stack.from_dict` takes its `to_dict()`.

    `warnings` say what could not be read or declared, and what is there otherwise than on the service.
    """

    warnings: tuple[Diagnostic, ...]
    _document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as data, without secrets."""
        return self._document


# --- arguments


def _invalid(what: str, why: str) -> WrongUsage:
    return WrongUsage(Diagnostic(f"invalid {what}", why))


def _as_texts(variables: Mapping[str, object] | None) -> dict[str, str]:
    """Convert values of variables to the texts that `--var` takes.

    Raises:
        WrongUsage: a value is of a type that has none.
    """

    def as_text(name: str, value: Any) -> str:
        if isinstance(value, str):
            return str.__str__(value)  # the value of an enum member
        try:
            if isinstance(value, bool | list | tuple | dict):
                # JSON escapes an emoji in two halves, which YAML does not know.
                text = json.dumps(value, ensure_ascii=False).replace("\x7f", r"\x7f")
                return text.encode("ascii", "backslashreplace").decode()
            return str(value if isinstance(value, Number | date) else Path(value))
        except (TypeError, ValueError):
            raise _invalid(f'value of variable "{name}"', f"type {type(value).__name__}") from None

    return {name: as_text(name, value) for name, value in (variables or {}).items()}


def _names(values: str | Iterable[str]) -> tuple[str, ...]:
    """Accept one name or several."""
    return (values,) if isinstance(values, str) else tuple(values)
