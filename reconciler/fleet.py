"""Fleets: one command for many stacks, on threads of this process or on the workers of a dask cluster.

A failure is the result of its stack and hides no other. Requests, tasks and results are plain data, sent to a
cluster as JSON. They hold no secrets, since the scheduler keeps them in memory: workers take credentials and
variables from their own environment.

Results are parsed as untrusted data: anybody who can reach the scheduler can run code on its workers.
Therefore no pickle from a worker may run code here.

Source: docs/operations/fleets.md.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.connection import RecordOptions, connect, open_records_of
from reconciler.core.addresses import passwords_in
from reconciler.core.past import RunKind
from reconciler.core.record import REMIND_S, Scope
from reconciler.decide.fleet import StackResult
from reconciler.decide.guards import blockers
from reconciler.decide.history import make_timeline
from reconciler.decide.outcome import ApplyEvent, EventType, Goal, Result, Status, exit_code_of
from reconciler.decide.plan import ACTIONS, Action, Allowances, Plan
from reconciler.errors import (
    LOCK_LOST,
    Diagnostic,
    ExitCode,
    Interrupted,
    ManifestInvalid,
    PackageMissing,
    ReconcilerError,
    ServiceError,
    WrongUsage,
)
from reconciler.extras import require
from reconciler.manifest import LoadedStack, load
from reconciler.manifest.files import FileTree, StackFiles, files_digest, find_stack
from reconciler.manifest.variables import declared_sensitive, read_value_files
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Runtime, identity_of
from reconciler.plan_file import StalePlan
from reconciler.reconcile import notify_apply
from reconciler.records.recording import digest_of
from reconciler.render import FORMATS, PLAIN, Content, Style, View, render_part
from reconciler.render.json import dump, redacted
from reconciler.render.reports import drift_last_line, result_last_line
from reconciler.render.timeline import render_lanes
from reconciler.rollout import Rollout
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import printable, visible
from reconciler.validation import validate_stack
from reconciler.version import __version__

#: The commands with `--fleet`.
COMMANDS = ("validate", "plan", "apply", "drift", "status", "history")
#: Stacks checked concurrently by one process. More would compete for the interpreter.
AT_ONCE = 4
#: Interval, in seconds, at which a stop request and a loss of all workers are noticed.
_LOOK_EVERY_S = 0.5
#: Seconds for the scheduler to answer, and for a worker to appear.
CONNECT_S, NO_WORKERS_S = 10.0, 60.0

TakeResult = Callable[[StackResult], None]
Learn = Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A command and the options that all stacks share.

    `options` are those of the command line, by parameter name; `formats` are the formats of the report.
    `directory` is the current directory relative to its repository. `run` identifies an apply, so that
    workers can be told to stop it.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    formats: tuple[str, ...] = ()
    colour: bool = False
    width: int | None = None
    verbosity: int = 0
    directory: str = ""
    run: str = ""
    version: str = __version__

    @property
    def var_files(self) -> list[Path]:
        return [Path(path) for path in self.options.get("var_files") or ()]


@dataclass(frozen=True, slots=True)
class StackTask:
    """One stack: its absolute directory, and `root`, its name in the report.

    `prefix` makes file names in messages relative to where the command was started. `digest` is that of the
    files, or "" if the worker shares the file system. `approved` identifies the plan that the user approved;
    without it the stack is only planned.
    """

    directory: str
    root: str
    prefix: str
    name: str | None = None
    digest: str = ""
    approved: str = ""


SENT, RESULT = TypeAdapter(tuple[FleetRequest, StackTask]), TypeAdapter(StackResult)


def check_here(
    request: FleetRequest,
    tasks: Sequence[StackTask],
    take: TakeResult,
    add_secrets: Learn,
    stop: threading.Event,
) -> None:
    """Run the command for each stack on threads; `take` receives the results, `add_secrets` the secrets.

    An interrupt ends it immediately; `stop` ends it in order.
    """
    # Waiting for jobs takes no CPU time, so every stack gets its thread.
    at_once = max(AT_ONCE, len(tasks)) if request.options.get("goal") else AT_ONCE
    pool = ThreadPoolExecutor(at_once, "stack")
    try:
        checks = [StackCheck(request, task, os.environ, stop, add_secrets) for task in tasks]
        for checked in as_completed([pool.submit(check.run) for check in checks]):
            take(checked.result())
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


# ── one stack ────────────────────────────────────────────────────────────────────────────────────────


class ClusterUnusable(ReconcilerError):
    """The scheduler is unreachable or has no workers, or a worker sees other files."""

    exit_code = ExitCode.UNKNOWN


class _KnownSecrets(Redactor):
    """The secrets of one stack, which are also passed on to the redactor of the process."""

    def __init__(self, elsewhere: Learn, secrets: Iterable[str]) -> None:
        self._elsewhere = elsewhere
        super().__init__(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        values = tuple(secrets)
        super().add_secrets(values)
        self._elsewhere(values)


class StackCheck:
    """Runs the command for one stack, as on the command line, and returns its result as a value.

    Errors are part of the result; only interrupts are raised.
    """

    def __init__(
        self,
        request: FleetRequest,
        task: StackTask,
        environ: Mapping[str, str],
        stop: threading.Event,
        add_secrets: Learn = lambda _: None,
    ) -> None:
        self._request, self._task, self._stop = request, task, stop
        self._options = options = request.options
        self._target: str | None = options.get("target")
        self._redact = _KnownSecrets(add_secrets, known_secrets(environ))
        self._messages: list[tuple[int, str]] = []
        self._problems: list[Diagnostic] = []
        self._unmatched: set[str] = set()
        self._undeclared: frozenset[str] | None = None
        self._scopes: tuple[Scope, ...] = ()
        self._allowed = Allowances.of(options.get("allow") or (), force=bool(options.get("force")))
        self._runtime = Runtime(
            environ=environ,
            clock=SystemClock(self._stop),
            redactor=self._redact,
            warn=lambda text: self._say(f"warning: {printable(text)}", 0),
            log_debug=lambda text: self._say(printable(text), 1),
            on_request=lambda method, path, status, seconds: self._say(
                f"{method} {printable(path)}: {status or 'no answer'}, {seconds * 1000:.0f} ms", 2
            ),
            stop=self._stop,
            command=request.command,
        )
        #: Arguments of the loader.
        self._values: dict[str, Any] = {
            "variables": dict(options.get("variables") or ()),
            "var_files": request.var_files,
            "environ": environ,
            "add_secrets": self._redact.add_secrets,
        }
        records = options.get("records") or environ.get("RECONCILER_RECORDS") or None
        self._records = RecordOptions.of(options, records)

    def run(self) -> StackResult:
        self._started_s = time.monotonic()
        check: Callable[[], StackResult] = getattr(self, f"_{self._request.command}")
        try:
            return check()
        except ReconcilerError as error:
            code = ExitCode.INTERRUPTED if self._stop.is_set() else error.exit_code
            return self._failed(code, *error.diagnostics)
        except OSError as error:
            what = error.strerror or type(error).__name__
            return self._failed(ExitCode.FAILED, Diagnostic(what, path=str(error.filename or "")))
        except Exception as error:
            problem = Diagnostic("internal error", f"{type(error).__name__}: {error}")
            return self._failed(ExitCode.INTERNAL_ERROR, problem, traceback=self._trace(error))

    def _plan(self) -> StackResult:
        with self._connected(offline=False) as context:
            plan = self._plan_of(context)
        return self._planned(plan, plan.exit_code(detailed=bool(self._options.get("detailed_exitcode"))))

    def _plan_of(self, context: reconcile.Context) -> Plan:
        with_preflight = not self._options.get("no_preflight")
        return reconcile.plan(context, self._allowed, with_preflight=with_preflight)

    def _planned(self, plan: Plan, code: ExitCode, **fields: Any) -> StackResult:
        self._warn(blockers(plan, is_text_shown="text" in self._request.formats))
        summary = {action.value: number for action, number in plan.summary.items()}
        has_changes = bool(plan.to_execute or plan.needing_attention or plan.refusals) or not plan.complete
        is_listed = any(one.action is not Action.KEEP or one.ended_badly for one in plan.actions)
        fields["has_notes"] = bool(
            is_listed or plan.history or plan.warnings or self._options.get("show_keep")
        )
        return self._rendered(Content.PLAN, plan, code, summary, plan.last_line, has_changes, **fields)

    def _apply(self) -> StackResult:
        """Plan while holding the lock, and apply if the plan is approved or there is nothing to do."""
        options, goal = self._options, self._options.get("goal")
        if self._stop.is_set():
            raise Interrupted("the apply of this stack was not started")
        with ExitStack() as cleanup:
            context = cleanup.enter_context(self._connected(offline=False)).to_apply()
            # Once the lock is lost, the journal refuses further calls.
            lock = context.recording.lock(context.scope, lambda: self._say(f"error: {LOCK_LOST}", 0))
            cleanup.callback(lock.release)
            lock.take_in_time(self._stop.is_set)
            plan = self._plan_of(context)
            approved, shown = _approval_digest(plan), self._task.approved
            if shown and shown != approved:
                if unread := next((one for one in plan.actions if one.action is Action.UNKNOWN), None):
                    raise ServiceError(f"cannot verify the plan: {unread.detail}")
                why = "the manifest or the service has changed since the plan was shown"
                raise StalePlan(Diagnostic("stale plan", why, "run it again, and read the new plan"))
            if not shown and (plan.applyable or (goal and not plan.refusals)):
                document = _apply_document(plan, Result(), [])
                return self._planned(
                    plan, plan.exit_code(detailed=False), document=document, approved=approved
                )
            events: list[ApplyEvent] = []
            stream = EventStream(context.target.clock, events.append)
            stream.begin(plan)
            how = options.get("timeout_s", 600.0), self._allowed, goal and Goal(goal)
            result = Rollout(context, RunKind.APPLY, stream, self._stop, *how, lock=lock).run(plan)
            stream.complete(result, plan.refusals[0].what if plan.refusals else None)
            code = exit_code_of(plan, result, ExitCode.INTERRUPTED if self._stop.is_set() else None)
            fields: dict[str, Any] = {
                "document": _apply_document(plan, result, events),
                "notifications_failed": notify_apply(context, plan, result),
                "traceback": "".join(map(self._trace, result.faults[:1])),
            }
            at_s = context.target.clock.now()
        if not shown:
            return self._planned(plan, code, **fields)
        last_line, has_changes = result_last_line(result), result.count(Status.DONE) > 0
        view = View(plan=plan, at_s=at_s)
        return self._rendered(
            Content.RESULT, result, code, result.summary, last_line, has_changes, view=view, **fields
        )

    def _trace(self, error: BaseException) -> str:
        return visible(self._redact("".join(traceback.format_exception(error))))

    def _drift(self) -> StackResult:
        since_last = bool(self._options.get("since_last"))
        remind_s = self._options.get("remind_s", REMIND_S)
        with self._connected(offline=True) as context:
            report = reconcile.drift(context, since_last=since_last, remind_s=remind_s)
            failed = reconcile.notify_drift(context, report)
        summary = {name.value: number for name, number in report.summary.items()}
        summary["pending"] = len(report.pending)
        code, last_line = report.exit_code, drift_last_line(report)
        fields: Any = {"notifications_failed": failed, "has_notes": bool(report.warnings)}
        return self._rendered(Content.DRIFT, report, code, summary, last_line, report.is_due, **fields)

    def _status(self) -> StackResult:
        with self._connected(offline=True) as context:
            report = reconcile.status(context)
        summary = {"jobs": len(report.jobs), "without_a_job": report.without_a_job, "unknown": report.unknown}
        return self._rendered(
            Content.STATUS, report, report.exit_code, summary, report.last_line, bool(report.jobs)
        )

    def _history(self) -> StackResult:
        """The history of the stack or of one key, which only some of the stacks may have."""
        options = self._options
        key: str | None = options.get("key")
        loaded = self._loaded(offline=True)
        with open_records_of(loaded, self._target, self._records.url, self._runtime) as place:
            self._scopes = (place.scope,)
            try:
                report = place.history(key, options.get("limit"))
            except WrongUsage:
                assert key is not None
                self._unmatched.add(key)
                report = place.history(None, 1).limited_to(0)._replace(key=key)
        page = {"html": render_lanes(make_timeline(report), self._redact)} if options.get("html") else {}
        report = report.limited_to(options.get("shown") or 1)
        summary = {"runs": len(report.runs), "revisions": len(report.revisions)}
        last_line = ", ".join(f"{number} {name}" for name, number in summary.items())
        result = self._rendered(
            Content.HISTORY, report, ExitCode.DONE, summary, last_line, any(summary.values())
        )
        return replace(result, parts={**result.parts, **page})

    def _validate(self) -> StackResult:
        """Validate the manifest and evaluate its policies. An invalid manifest has no document."""
        found = validate_stack(self._files(), target=self._target, **self._values)
        self._warn(found.skipped)
        report, loaded = found.report, found.loaded
        if not report.valid or loaded is None:
            raise ManifestInvalid(*found.problems)
        self._registered(loaded)
        self._warn(found.problems)
        for name, declared in loaded.targets.items():
            if self._target in (None, name):
                with suppress(ManifestInvalid):
                    identity = identity_of(name, declared, self._runtime.environ)
                    self._scopes += () if identity is None else (Scope.of(loaded.stack.name, identity),)
        summary, is_denied = {"jobs": report.jobs, "denied": len(report.denied)}, bool(report.denied)
        return self._rendered(
            Content.VALIDATION, report, found.exit_code, summary, report.last_line, is_denied
        )

    @contextmanager
    def _connected(self, *, offline: bool) -> Iterator[reconcile.Context]:
        """Load the stack and connect to its target. Keys that it lacks are collected, not refused."""
        loaded = self._loaded(offline=offline)
        with connect(loaded, self._target, self._runtime, self._records, offline=offline) as context:
            self._scopes = (context.scope,)
            yield context._replace(
                only=tuple(self._options.get("only") or ()),
                rerun=tuple(self._options.get("rerun") or ()),
                parallelism=self._options.get("parallelism") or context.parallelism,
                unmatched=self._unmatched.update,
            )

    def _loaded(self, *, offline: bool) -> LoadedStack:
        return self._registered(load(self._files(), target=self._target, offline=offline, **self._values))

    def _files(self) -> StackFiles:
        """Find the files of the stack and compare them with those where the command was started."""
        task, var_files = self._task, self._request.var_files
        directory = Path(task.directory)
        if task.digest and files_digest(directory, var_files) != task.digest:
            why = f"the manifest files in {task.directory} differ from those where the command was started"
            fix = "make the same files visible to all workers, under the same path"
            raise ClusterUnusable(Diagnostic("the worker sees different files", why, fix))
        files = find_stack([directory], var_files, FileTree(directory, task.prefix))
        # A variable that only other stacks declare is no error.
        given = [name for document in read_value_files(var_files) for name in document.tree]
        return files._replace(known_variables=frozenset([*self._values["variables"], *given]))

    def _registered(self, loaded: LoadedStack) -> LoadedStack:
        self._redact.add_secrets(loaded.secrets)
        self._undeclared = frozenset(loaded.undeclared)
        self._warn(loaded.warnings)
        return loaded

    def _say(self, text: str, level: int) -> None:
        if self._request.verbosity >= level:
            self._messages.append((level, self._redact(text)))

    def _warn(self, problems: Iterable[Diagnostic]) -> None:
        if not self._task.approved:  # otherwise they were shown with the plan
            self._problems += without_secrets(tuple(problems), self._redact)

    def _rendered(
        self,
        content: Content,
        value: Any,
        code: ExitCode,
        summary: Mapping[str, int],
        last_line: str,
        has_changes: bool,
        *,
        view: View | None = None,
        document: Any = None,
        **fields: Any,
    ) -> StackResult:
        """Return the result of a command, rendered in each requested format."""
        request, view, parts = self._request, view or View(), {}
        for name in request.formats:
            if name == "json":
                parts[name] = dump(redacted(document or value.document(), self._redact)) + "\n"
                continue
            view = view._replace(
                style=Style(request.colour, request.width) if name == "text" else PLAIN,
                show_keep=bool(self._options.get("show_keep")),
                redact=self._redact,
                verbose=request.verbosity > 0,
                directory=request.directory,
            )
            text = render_part(content, value, name, view)
            parts[name] = text if FORMATS[name].redacts else self._redact(text)
        about = view.plan or value
        return self._result(
            code,
            stack=about.stack,
            target=getattr(about.target, "name", about.target) or "",
            summary=summary,
            last_line=last_line,
            has_changes=has_changes,
            parts=parts,
            unmatched=frozenset(self._unmatched),
            **fields,
        )

    def _failed(self, code: int, *problems: Diagnostic, traceback: str = "") -> StackResult:
        errors = without_secrets(problems, self._redact) or (Diagnostic("failed"),)
        return self._result(ExitCode(code), stack=self._task.name, errors=errors, traceback=traceback)

    def _result(self, code: ExitCode, **fields: Any) -> StackResult:
        return StackResult(
            root=self._task.root,
            exit_code=code,
            messages=tuple(self._messages),
            problems=tuple(self._problems),
            scopes=self._scopes,
            undeclared=self._undeclared,
            ended_at_s=time.time(),
            duration_s=time.monotonic() - self._started_s,
            **fields,
        )


def _apply_document(plan: Plan, result: Result, events: Iterable[ApplyEvent]) -> dict[str, Any]:
    """The document of one stack in that of `apply --fleet`."""
    shown = [event.document() for event in events if event.type is not EventType.ACTION_PROGRESS]
    return {"plan": plan.document(), "events": shown, "summary": result.summary}


def _approval_digest(plan: Plan) -> str:
    """Return a digest of what would be executed. Kept keys and the phases of jobs may change meanwhile."""
    fields = ("key", "action", "after", "changes")
    actions = [action for action in plan.document()["actions"] if ACTIONS[action["action"]].is_executed]
    jobs = [action["before"] and action["before"]["id"] for action in actions]
    return digest_of([plan.manifest_digest, jobs, [[action[name] for name in fields] for action in actions]])


# ── on a cluster: requests, and the worker's side ────────────────────────────────────────────────────


def check_sendable(request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackTask]:
    """Check that no password and no value of a sensitive variable is sent.

    Returns the stacks whose files cannot be read, so that their variables are unknown.

    Raises:
        WrongUsage: --records holds a password, or a stack declares a variable as sensitive that --var gives.
    """
    if any(passwords_in(request.options.get("records") or "")):
        why = "a password is never sent to a scheduler"
        fix = "set RECONCILER_RECORDS in the environment of the workers"
        raise WrongUsage(Diagnostic("--records with a password and --scheduler", why, fix))
    given = {name for name, _ in request.options.get("variables") or ()}
    unclear = []
    for task in tasks if given else ():
        documents = None
        with suppress(ReconcilerError):
            documents = find_stack([Path(task.directory)], request.var_files).documents
        if documents is None or any(document.is_broken for document in documents):
            unclear.append(task)
        elif secret := sorted(given & {one for one, _ in declared_sensitive(documents)}):
            why = f"{task.root} declares {secret[0]} as sensitive, and its value is never sent to a scheduler"
            fix = f"declare `env` for {secret[0]}, and set that variable in the environment of the workers"
            raise WrongUsage(Diagnostic("--var of a sensitive variable with --scheduler", why, fix))
    return unclear


#: The stop requests of this worker, by run.
_stops: dict[str, threading.Event] = defaultdict(threading.Event)


def stop_run(run: str) -> None:
    """Stop an apply on this worker: finish calls in flight, and start no more."""
    _stops[run].set()


def check_sent(text: str) -> str:
    """Run the command for one stack on a worker. Request and result are JSON."""
    request, task = SENT.validate_json(text)
    if request.version == __version__:
        stop = _stops[request.run] if request.run else threading.Event()
        result = StackCheck(request, task, os.environ, stop).run()
    else:
        why = f"it has {__version__}, but the command was started with {request.version}"
        fix = "install the same version on all workers"
        problem = Diagnostic("a worker has a different version", why, fix)
        result = StackResult(task.root, task.name, ExitCode.FAILED, errors=(problem,))
    return RESULT.dump_json(result).decode()


# ── on a cluster: results ────────────────────────────────────────────────────────────────────────────

_ADDRESS = r"(tcp|tls)://([^/\s:]+(:[^/\s:]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}"
#: The globals that a pickle may name. dask's error messages use this one, and it runs no code.
_HARMLESS = frozenset({("builtins", "bytes")})
_connections: set[object] = set()


def _unavailable(why: str, fix: str = "run it again") -> ClusterUnusable:
    return ClusterUnusable(Diagnostic("the scheduler is unavailable", why, fix))


@contextmanager
def no_unpickling() -> Iterator[None]:
    """Refuse pickles that name a class or function, whichever library loads them."""
    _refuse_pickles()
    connection = object()
    _connections.add(connection)
    try:
        yield
    finally:
        _connections.remove(connection)


@cache  # an audit hook cannot be removed
def _refuse_pickles() -> None:
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and _connections and arguments not in _HARMLESS:
            # dask treats a TypeError as an unreadable pickle.
            raise TypeError(f"a pickle of {'.'.join(map(str, arguments))} is not read")

    sys.addaudithook(audit)


def result_from(task: StackTask, read: Callable[[], Any]) -> StackResult:
    """Parse the JSON that a worker returned for a stack. What cannot be parsed is an error of that stack."""
    try:
        result = RESULT.validate_json(read())
        if result.root == task.root:
            return result
        problem = Diagnostic("invalid response from a worker", "it is for another stack")
    except ValidationError as error:
        problem = Diagnostic("invalid response from a worker", printable(error.errors()[0]["msg"]))
    except BaseException:  # its type is unknown, because its pickle is refused
        why = "it could not run the check, or workers were lost repeatedly during the check"
        fix = f"check the logs of the workers; on all of them: pip install reconciler=={__version__}"
        problem = Diagnostic("the worker failed", why, fix)
    return StackResult(task.root, task.name, ExitCode.UNKNOWN, errors=(problem,))


def check_on_cluster(
    address: str, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult, stop: threading.Event
) -> None:
    """Run the command for each stack on a cluster; `take` receives the results.

    An interrupt cancels the rest; `stop` is passed on to the workers, which end in order.

    Raises:
        WrongUsage: the address is invalid, or the extra `fleet` is not installed.
        ClusterUnusable: the scheduler cannot be reached, or has no workers.
    """
    if not re.fullmatch(_ADDRESS, address):
        why = f'"{address}" is not tcp://HOST:PORT'
        raise WrongUsage(Diagnostic("invalid scheduler", why, "use the address printed by `dask scheduler`"))
    try:
        require("distributed")
    except PackageMissing as missing:
        raise WrongUsage(*missing.diagnostics) from None
    import distributed

    # dask installs a handler that writes to stderr.
    logger = logging.getLogger("distributed")
    logger.handlers.clear()
    logger.propagate = True

    def there(function: str, text: str) -> Any:  # sent by value, so the scheduler needs no reconciler
        from reconciler import fleet

        return getattr(fleet, function)(text)

    lost = _unavailable(f"the connection to {address} was lost")

    def submit(task: StackTask) -> Future[StackResult]:
        checked = Future[StackResult]()

        def end(answer: Any) -> None:
            if answer.cancelled():
                checked.set_exception(lost)
            else:
                checked.set_result(result_from(task, answer.result))

        task = replace(task, digest=files_digest(Path(task.directory), request.var_files))
        text = SENT.dump_json((request, task)).decode()
        client.submit(there, "check_sent", text, pure=False).add_done_callback(end)
        return checked

    with no_unpickling():
        try:
            client: Any = distributed.Client(  # type: ignore[no-untyped-call]
                address,
                timeout=CONNECT_S,
                set_as_default=False,
                name="reconciler",
                deserializers=["msgpack", "error"],
            )
        except (OSError, ValueError) as error:
            fix = "start it with `dask scheduler`, or correct the address"
            raise _unavailable(f"{address}: {_reason(error)}", fix) from None
        try:
            waiting, is_told, asked_s = {submit(task) for task in tasks}, False, time.monotonic()
            while waiting:
                done, waiting = wait(waiting, _LOOK_EVERY_S, FIRST_COMPLETED)
                for checked in done:
                    take(checked.result())
                if stop.is_set() and not is_told:
                    is_told = True
                    client.run(there, "stop_run", request.run)
                if waiting and time.monotonic() - asked_s > NO_WORKERS_S:
                    asked_s = time.monotonic()
                    try:
                        workers = client.nthreads()
                    except (OSError, ValueError, RuntimeError):
                        raise lost from None
                    if not workers:
                        fix = f"start some: dask worker {address}"
                        raise _unavailable(f"{address} has no workers", fix)
        finally:
            with suppress(Exception):
                client.close(timeout=2)


def _reason(error: BaseException) -> str:
    """The first line of an error's root cause."""
    while error.__cause__ is not None and str(error.__cause__):
        error = error.__cause__
    return (str(error) or type(error).__name__).splitlines()[0]
