"""Many stacks: one command done for each of them, on threads here or on the workers of a dask cluster.

Whatever happens to a stack is its result, and hides no other. Requests, tasks and results are plain data that
travels to a cluster as JSON. None of it is a secret or part of the environment, for what is sent stands in
the memory of the scheduler: a worker takes credentials, and the variables of manifests, from its own.

What comes back is read as data. Whoever can connect to a scheduler of dask can run code on its workers; so
nothing of what they send is believed to be more than text, and no pickle can run code here.

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

#: The commands that a fleet has.
COMMANDS = ("validate", "plan", "apply", "drift", "status", "history")
#: So many stacks are checked at once in a process: more would wait for the interpreter, not for the service.
AT_ONCE = 4
#: How often one looks whether the cluster is to stop, or has no workers, in seconds.
_LOOK_EVERY_S = 0.5
#: Seconds for the scheduler to answer, and for a worker to come.
CONNECT_S, NO_WORKERS_S = 10.0, 60.0

TakeResult = Callable[[StackResult], None]
Learn = Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A command, and its options as they are the same for every stack.

    `options` are those of the command line by the names of their parameters; `formats` those of the report.
    `directory` is where in its repository the current directory is. An apply has the name of its `run`, by
    which workers are told to stop.
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
    """One stack: its directory, absolute, and what the report calls it.

    Names of its files in messages begin with `prefix`: they are relative to where the command was started.
    `digest` is that of its files, "" if they are known to be the same. `approved` names what was shown to
    somebody who said that it is to be applied; until then it is only planned.
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
    learn: Learn,
    stop: threading.Event | None = None,
) -> None:
    """Check the stacks on threads; `take` gets each result as it comes, `learn` each secret.

    An interrupt ends it at once: what waits is told to end. Where `stop` tells it, all end in order.
    """
    stop = stop or threading.Event()
    # Who waits for jobs keeps nobody else from the interpreter.
    at_once = max(AT_ONCE, len(tasks)) if request.options.get("goal") else AT_ONCE
    pool = ThreadPoolExecutor(at_once, "stack")
    try:
        checks = [StackCheck(request, task, os.environ, stop, learn) for task in tasks]
        for checked in as_completed([pool.submit(check.run) for check in checks]):
            take(checked.result())
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


# ── one stack ────────────────────────────────────────────────────────────────────────────────────────


class ClusterUnusable(ReconcilerError):
    """A scheduler cannot be reached or has no workers, or a worker does not see the files that are here."""

    exit_code = ExitCode.UNKNOWN


class _KnownSecrets(Redactor):
    """The secrets of one stack; what else this process prints must not hold them either."""

    def __init__(self, elsewhere: Learn, secrets: Iterable[str]) -> None:
        self._elsewhere = elsewhere
        super().__init__(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        values = tuple(secrets)
        super().learn(values)
        self._elsewhere(values)


class StackCheck:
    """A command for one stack: the same as for that stack alone, as a value.

    What goes wrong is part of the result; only interrupts are raised.
    """

    def __init__(
        self,
        request: FleetRequest,
        task: StackTask,
        environ: Mapping[str, str],
        stop: threading.Event | None = None,
        learn: Learn = lambda _: None,
    ) -> None:
        self._request, self._task, self._stop = request, task, stop or threading.Event()
        self._options = options = request.options
        self._target: str | None = options.get("target")
        self._redact = _KnownSecrets(learn, known_secrets(environ))
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
            tell=lambda text: self._say(printable(text), 1),
            on_request=lambda method, path, status, seconds: self._say(
                f"{method} {printable(path)}: {status or 'no answer'}, {seconds * 1000:.0f} ms", 2
            ),
            stop=self._stop,
            command=request.command,
        )
        #: What gives values to variables, and who learns the secret ones.
        self._values: dict[str, Any] = {
            "variables": dict(options.get("variables") or ()),
            "var_files": request.var_files,
            "environ": environ,
            "learn": self._redact.learn,
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
        has_changes = bool(plan.to_execute or plan.in_the_way or plan.refusals) or not plan.complete
        return self._found(Content.PLAN, plan, code, summary, plan.last_line, has_changes, **fields)

    def _apply(self) -> StackResult:
        """Plan, under the lock; and carry it out where somebody approved it, or nothing is to be done."""
        options, goal = self._options, self._options.get("goal")
        if self._stop.is_set():
            raise Interrupted("the apply of this stack was not started")
        with ExitStack() as cleanup:
            context = cleanup.enter_context(self._connected(offline=False)).to_apply()
            # Without it the journal lets no call be made any more.
            lost = "error: the lock was lost: its lease expired, or it was broken; no new actions start"
            lock = context.recording.lock(context.scope, lambda: self._say(lost, 0))
            cleanup.callback(lock.release)
            lock.take_in_time(self._stop.is_set)
            plan = self._plan_of(context)
            approved, shown = _name_of_actions(plan), self._task.approved
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
        said, is_done = result_last_line(result), result.count(Status.DONE) > 0
        view = View(plan=plan, at_s=at_s)
        return self._found(Content.RESULT, result, code, result.summary, said, is_done, view=view, **fields)

    def _trace(self, error: BaseException) -> str:
        return visible(self._redact("".join(traceback.format_exception(error))))

    def _drift(self) -> StackResult:
        since_last = bool(self._options.get("since_last"))
        remind_s = self._options.get("remind_s", REMIND_S)
        with self._connected(offline=True) as context:
            report = reconcile.drift(context, since_last=since_last, remind_s=remind_s)
            failed = reconcile.notify_drift(context, report).failed
        summary = {name.value: number for name, number in report.summary.items()}
        summary["pending"] = len(report.pending)
        code, said = report.exit_code, drift_last_line(report)
        return self._found(
            Content.DRIFT, report, code, summary, said, report.is_due, notifications_failed=failed
        )

    def _status(self) -> StackResult:
        with self._connected(offline=True) as context:
            report = reconcile.status(context)
        summary = {"jobs": len(report.jobs), "without_a_job": report.without_a_job, "unknown": report.unknown}
        return self._found(
            Content.STATUS, report, report.exit_code, summary, report.last_line, bool(report.jobs)
        )

    def _history(self) -> StackResult:
        """What is recorded of the stack, or of one key, which another stack may have."""
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
        said = ", ".join(f"{number} {name}" for name, number in summary.items())
        found = self._found(Content.HISTORY, report, ExitCode.DONE, summary, said, any(summary.values()))
        return replace(found, parts={**found.parts, **page})

    def _validate(self) -> StackResult:
        """Whether the manifest is valid, and what policies say; an invalid one has no document."""
        found = validate_stack(self._files(), target=self._target, **self._values)
        self._warn(found.skipped)
        report, loaded = found.report, found.loaded
        if not report.valid or loaded is None:
            raise ManifestInvalid(*found.problems)
        self._known(loaded)
        self._warn(found.problems)
        for name, declared in loaded.targets.items():
            if self._target in (None, name):
                with suppress(ManifestInvalid):
                    identity = identity_of(name, declared, self._runtime.environ)
                    self._scopes += () if identity is None else (Scope.of(loaded.stack.name, identity),)
        summary, is_denied = {"jobs": report.jobs, "denied": len(report.denied)}, bool(report.denied)
        return self._found(Content.VALIDATION, report, found.exit_code, summary, report.last_line, is_denied)

    @contextmanager
    def _connected(self, *, offline: bool) -> Iterator[reconcile.Context]:
        """Load the stack and connect to its target; keys that it does not have are no wrong use."""
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
        return self._known(load(self._files(), target=self._target, offline=offline, **self._values))

    def _files(self) -> StackFiles:
        """The files of the stack, which must be those that were found where the command was started."""
        task, var_files = self._task, self._request.var_files
        directory = Path(task.directory)
        if task.digest and files_digest(directory, var_files) != task.digest:
            why = f"the manifest files in {task.directory} are not those where the command was started"
            fix = "let all workers see the same files, under the same path"
            raise ClusterUnusable(Diagnostic("the worker sees other files", why, fix))
        files = find_stack([directory], var_files, FileTree(directory, task.prefix))
        # Each stack takes the variables that it declares.
        given = [name for document in read_value_files(var_files) for name in document.tree]
        return files._replace(known_variables=frozenset([*self._values["variables"], *given]))

    def _known(self, loaded: LoadedStack) -> LoadedStack:
        self._redact.learn(loaded.secrets)
        self._undeclared = frozenset(loaded.undeclared)
        self._warn(loaded.warnings)
        return loaded

    def _say(self, text: str, level: int) -> None:
        if self._request.verbosity >= level:
            self._messages.append((level, self._redact(text)))

    def _warn(self, problems: Iterable[Diagnostic]) -> None:
        if not self._task.approved:  # else it was said with the plan
            self._problems += without_secrets(tuple(problems), self._redact)

    def _found(
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
        """The result of a command, with what it prints in each format that is asked for."""
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
    """What an apply of one stack says in the document of all."""
    told = [one.document() for one in events if one.type is not EventType.ACTION_PROGRESS]
    return {"plan": plan.document(), "events": told, "summary": result.summary}


def _name_of_actions(plan: Plan) -> str:
    """Name what would be carried out; where a job is on its way, and what is kept, may change meanwhile."""
    names = ("key", "action", "after", "changes")
    done = [one for one in plan.document()["actions"] if ACTIONS[one["action"]].is_executed]
    jobs = [one["before"] and one["before"]["id"] for one in done]
    return digest_of([plan.manifest_digest, jobs, [[one[name] for name in names] for one in done]])


# ── on a cluster: what is sent, and what a worker does with it ───────────────────────────────────────


def check_sendable(request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackTask]:
    """Check that no password and no value of a sensitive variable is sent; return whom nobody can judge.

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


#: Whether each apply that a worker has heard of is to stop.
_stops: dict[str, threading.Event] = defaultdict(threading.Event)


def stop_run(run: str) -> None:
    """Let what this worker does for an apply end in order, and what it has not begun not begin."""
    _stops[run].set()


def check_sent(text: str) -> str:
    """Check a stack on a worker; what was sent and the result are JSON."""
    request, task = SENT.validate_json(text)
    if request.version == __version__:
        stop = _stops[request.run] if request.run else None
        result = StackCheck(request, task, os.environ, stop).run()
    else:
        why = f"it has {__version__}, and the command was started with {request.version}"
        problem = Diagnostic("another version on a worker", why, "install the same version on all workers")
        result = StackResult(task.root, task.name, ExitCode.FAILED, errors=(problem,))
    return RESULT.dump_json(result).decode()


# ── on a cluster: what comes back ────────────────────────────────────────────────────────────────────

_ADDRESS = r"(tcp|tls)://([^/\s:]+(:[^/\s:]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}"
#: Of these a pickle may name: dask has it for each text of an error, and it runs nothing.
_HARMLESS = frozenset({("builtins", "bytes")})
_connections: set[object] = set()


def _unavailable(why: str, fix: str = "run it again") -> ClusterUnusable:
    return ClusterUnusable(Diagnostic("the scheduler is unavailable", why, fix))


@contextmanager
def no_unpickling() -> Iterator[None]:
    """Meanwhile no pickle may name a class or a function, whichever library reads it."""
    _refuse_pickles()
    connection = object()
    _connections.add(connection)
    try:
        yield
    finally:
        _connections.remove(connection)


@cache  # nothing can take an audit hook out again
def _refuse_pickles() -> None:
    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and _connections and arguments not in _HARMLESS:
            # A TypeError, which dask takes for a pickle that it cannot read.
            raise TypeError(f"a pickle of {'.'.join(map(str, arguments))} is not read")

    sys.addaudithook(hear)


def result_from(task: StackTask, read: Callable[[], Any]) -> StackResult:
    """The result of a stack from the JSON that a worker sent, or an error of that stack."""
    try:
        result = RESULT.validate_json(read())
        if result.root == task.root:
            return result
        problem = Diagnostic("the worker's answer cannot be read", "it is about another stack")
    except ValidationError as error:
        problem = Diagnostic("the worker's answer cannot be read", printable(error.errors()[0]["msg"]))
    except BaseException:  # of any kind: it comes as a pickle that is not read
        why = "it could not run the check, or workers were lost again and again while they checked it"
        fix = f"read the logs of the workers; on all of them: pip install reconciler=={__version__}"
        problem = Diagnostic("the worker failed", why, fix)
    return StackResult(task.root, task.name, ExitCode.UNKNOWN, errors=(problem,))


def check_on_cluster(
    address: str,
    request: FleetRequest,
    tasks: Sequence[StackTask],
    take: TakeResult,
    stop: threading.Event | None = None,
) -> None:
    """Check the stacks on a cluster; `take` gets each result as it comes. An interrupt cancels the rest.

    Where `stop` tells it, the workers are told, and all end in order.

    Raises:
        WrongUsage: the address is invalid, or the extra `fleet` is not installed.
        ClusterUnusable: the scheduler cannot be reached, or has no workers.
    """
    if not re.fullmatch(_ADDRESS, address):
        why = f'"{address}" is not tcp://HOST:PORT'
        raise WrongUsage(Diagnostic("invalid scheduler", why, "use the address that `dask scheduler` prints"))
    try:
        require("distributed")
    except PackageMissing as missing:
        raise WrongUsage(*missing.diagnostics) from None
    import distributed

    # What dask logs goes where the log of any library goes, and not to stderr by itself.
    logger = logging.getLogger("distributed")
    logger.handlers.clear()
    logger.propagate = True

    def there(function: str, text: str) -> Any:  # it travels by value: who passes it on needs nothing
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

        # The digest of the files, which the worker compares with what it sees.
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
                if stop is not None and stop.is_set() and not is_told:
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
    """The first line of what an error comes from."""
    while error.__cause__ is not None and str(error.__cause__):
        error = error.__cause__
    return (str(error) or type(error).__name__).splitlines()[0]
