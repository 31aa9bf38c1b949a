"""Many stacks: one command done for each of them, on threads here or on the workers of a dask cluster.

Whatever happens to a stack is its result, and hides no other. Requests, tasks and results are plain data that
travels to a cluster as JSON. None of it is a secret or part of the environment, for what is sent stands in
the memory of the scheduler: a worker takes credentials, and the variables of manifests, from its own.

What comes back is read as data. Whoever can connect to a scheduler of dask can run code on its workers; so
nothing of what they send is believed to be more than text, and no pickle can run code here.

Source: docs/fleets.md.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from reconciler import reconcile
from reconciler.connection import RecordOptions, connect, open_recording, records_url
from reconciler.core.addresses import passwords_in
from reconciler.core.record import REMIND_S, Scope
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow, StackMessage, StackResult
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Allowances
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, WrongUsage
from reconciler.manifest import LoadedStack, load
from reconciler.manifest.files import FileTree, StackFiles, files_digest, find_stack
from reconciler.manifest.variables import declared_sensitive, read_value_files
from reconciler.modelarts.clock import RateLimiter, SystemClock
from reconciler.modelarts.connect import PROCESS_LIMITER
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Runtime, identity_of
from reconciler.render import FORMATS, Content, Style, View, render
from reconciler.render.json import dump, redacted
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import printable, visible
from reconciler.validation import validate_stack
from reconciler.version import __version__

#: The commands that a fleet has.
COMMANDS = ("validate", "plan", "drift")
#: So many stacks are checked at once in a process: more would wait for the interpreter, not for the service.
AT_ONCE = 4
#: Seconds between two looks at the workers, for the scheduler to answer, for a first worker, for a record.
LOOK_EVERY_S, CONNECT_S, NO_WORKERS_S, MARK_S = 1.0, 10.0, 60.0, 60.0

TakeResult = Callable[[StackResult], None]
Learn = Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A command, and its options as they are the same for every stack.

    `options` are those of the command line by the names of their parameters, as JSON can hold them; `formats`
    those of the report. `directory` is where in its repository the current directory is.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    formats: tuple[str, ...] = ()
    colour: bool = False
    verbosity: int = 0
    directory: str = ""
    version: str = __version__

    @property
    def var_files(self) -> list[Path]:
        return [Path(path) for path in self.options.get("var_files") or ()]


@dataclass(frozen=True, slots=True)
class StackTask:
    """One stack: its directory, absolute, and what the report calls it.

    Names of its files in messages begin with `prefix`: they are relative to where the command was started.
    `digest` is that of its files, "" if they are known to be the same. With `to_show` the task is to record
    that the report has shown this drift.
    """

    directory: str
    root: str
    prefix: str
    name: str | None = None
    digest: str = ""
    to_show: DriftToShow | None = None


@dataclass(frozen=True, slots=True)
class FleetBatch:
    """Stacks that one worker checks, so many `at_once`; `share` is its part of the rate of requests."""

    request: FleetRequest
    tasks: tuple[StackTask, ...]
    share: float = 1.0
    at_once: int = 1

    def failed(self, code: ExitCode, problem: Diagnostic) -> list[StackResult]:
        return [StackResult(task.root, task.name, code, errors=(problem,)) for task in self.tasks]


BATCH, RESULTS = TypeAdapter(FleetBatch), TypeAdapter(list[StackResult])


def as_plain(value: Any) -> Any:
    """An option as JSON can hold it; a `TypeError` where it cannot."""
    match value:
        case Path():
            return str(value)
        case Mapping():
            return {str(name): as_plain(member) for name, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_plain(item) for item in value]
        case None | str() | int() | float():
            return value
    raise TypeError(f"an option of type {type(value).__name__} cannot be sent")


@dataclass(frozen=True)
class StackRunner:
    """Does a command for stacks in this process: with its environment, and one limit of the rate of requests.

    `learn` gets each secret, for what else this process prints; `stop` ends what waits.
    """

    environ: Mapping[str, str] = field(repr=False)
    stop: threading.Event | None = None
    limiter: RateLimiter | None = None
    learn: Learn = lambda _: None

    def check(self, request: FleetRequest, task: StackTask) -> StackResult:
        """Do the command for one stack. What goes wrong is part of the result; only interrupts are raised."""
        return _StackCheck(self, request, task).run()

    def check_all(
        self, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult, at_once: int = AT_ONCE
    ) -> None:
        """Do it for all, on threads. An interrupt ends it at once: what waits is told to end."""
        pool = ThreadPoolExecutor(max(1, min(at_once, len(tasks))), "stack")
        try:
            for checked in as_completed([pool.submit(self.check, request, task) for task in tasks]):
                take(checked.result())
        except BaseException:
            if self.stop is not None:
                self.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


# ── one stack ────────────────────────────────────────────────────────────────────────────────────────


class OtherFiles(ReconcilerError):
    """A worker does not see the files of a stack as they are where the command was started."""

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


class _StackCheck:
    """A command for one stack: the same as for that stack alone, as a value."""

    def __init__(self, runner: StackRunner, request: FleetRequest, task: StackTask) -> None:
        self._request, self._task, self._options = request, task, request.options
        self._target: str | None = self._options.get("target")
        self._redact = _KnownSecrets(runner.learn, known_secrets(runner.environ))
        self._messages: list[StackMessage] = []
        self._unmatched: set[str] = set()
        self._undeclared: frozenset[str] | None = None
        self._started_s = time.monotonic()
        self._runtime = Runtime(
            environ=runner.environ,
            clock=SystemClock(runner.stop),
            redactor=self._redact,
            warn=lambda text: self._say(f"warning: {printable(text)}", 0),
            tell=lambda text: self._say(printable(text), 1),
            on_request=lambda method, path, status, seconds: self._say(
                f"{method} {printable(path)}: {status or 'no answer'}, {seconds * 1000:.0f} ms", 2
            ),
            stop=runner.stop,
            command=request.command,
            limiter=runner.limiter,
        )
        #: What gives values to variables, and who learns the secret ones.
        self._values: dict[str, Any] = {
            "variables": dict(self._options.get("variables") or ()),
            "var_files": tuple(request.var_files),
            "environ": runner.environ,
            "learn": self._redact.learn,
        }
        records = self._options.get("records") or runner.environ.get("RECONCILER_RECORDS") or None
        self._records = RecordOptions(records, without_records=bool(self._options.get("without_records")))

    def run(self) -> StackResult:
        commands = {"validate": self._validate, "plan": self._plan, "drift": self._drift}
        try:
            return self._mark_shown() if self._task.to_show else commands[self._request.command]()
        except ReconcilerError as error:
            return self._failed(error.exit_code, *error.diagnostics)
        except OSError as error:
            what = error.strerror or type(error).__name__
            return self._failed(ExitCode.FAILED, Diagnostic(what, path=str(error.filename or "")))
        except Exception as error:
            report = visible(self._redact("".join(traceback.format_exception(error))))
            problem = Diagnostic("internal error", f"{type(error).__name__}: {error}")
            return self._failed(ExitCode.INTERNAL_ERROR, problem, traceback=report)

    def _plan(self) -> StackResult:
        options = self._options
        allowed = Allowances.of(options.get("allow") or (), force=bool(options.get("force")))
        with self._connected(offline=False) as context:
            plan = reconcile.plan(context, allowed, with_preflight=bool(options.get("preflight")))
        self._warn(blockers(plan))
        return self._found(
            Content.PLAN,
            plan,
            plan.exit_code(detailed=bool(options.get("detailed_exitcode"))),
            target=plan.target.name,
            summary={action.value: number for action, number in plan.summary.items()},
            last_line=plan.last_line,
            has_changes=bool(plan.to_execute or plan.in_the_way or plan.refusals) or not plan.complete,
            scopes=(context.scope,),
        )

    def _drift(self) -> StackResult:
        """The check is recorded; its drift counts as reported when the report of the fleet has shown it."""
        since_last = bool(self._options.get("since_last"))
        remind_s = self._options.get("remind_s", REMIND_S)
        with self._connected(offline=True) as context:
            report = reconcile.drift(context, reconcile.CheckOptions(since_last, remind_s, True))
            # What no notification tells counts as reported when the report of the fleet was shown.
            failed = reconcile.notify_drift(context, report).failed if context.loaded.notifies else 0
        code, comparison, to_show = report.exit_code, report.comparison, None
        if comparison is not None and code is ExitCode.CHANGES and not context.loaded.notifies:
            drift = tuple(map(DriftId.of, comparison.visible))
            to_show = DriftToShow(context.scope, drift, comparison.at_s)
        summary = {name.value: number for name, number in report.summary.items()}
        return self._found(
            Content.DRIFT,
            report,
            code,
            target=report.target.name,
            summary={**summary, "pending": len(report.pending)},
            last_line=render(Content.DRIFT, report, "text", View()).splitlines()[-1],
            has_changes=(report.is_due if since_last else bool(report.drift)) or not report.complete,
            scopes=(context.scope,),
            notifications_failed=failed,
            to_show=to_show,
        )

    def _validate(self) -> StackResult:
        """Whether the manifest is valid, and what policies say; an invalid one has no document."""
        found = validate_stack(self._files(), target=self._target, **self._values)
        self._warn(found.skipped)
        report, loaded = found.report, found.loaded
        if not report.valid or loaded is None:
            raise ManifestInvalid(*found.problems)
        self._known(loaded)
        self._warn(found.problems)
        scopes = []
        for name, declared in loaded.targets.items():
            if self._target in (None, name):
                with suppress(ManifestInvalid):
                    identity = identity_of(name, declared, self._runtime.environ)
                    scopes += [] if identity is None else [Scope.of(loaded.stack.name, identity)]
        return self._found(
            Content.VALIDATION,
            report,
            found.exit_code,
            target=report.target or "",
            summary={"jobs": report.jobs, "denied": len(report.denied)},
            last_line=report.last_line,
            has_changes=bool(report.denied),
            scopes=tuple(scopes),
        )

    def _mark_shown(self) -> StackResult:
        shown = self._task.to_show
        assert shown is not None
        loaded = load(self._files(), target=self._target, offline=True, **self._values)
        self._redact.learn(loaded.secrets)
        url = records_url(
            loaded.target(self._target)[1], self._records.url, loaded.records_url, self._runtime
        )
        with closing(open_recording(url, loaded.root, self._runtime, self._records)) as recording:
            recording.mark_reported(shown.scope, shown.drift, shown.at_s)
        return self._result(ExitCode.DONE, stack=self._task.name)

    @contextmanager
    def _connected(self, *, offline: bool) -> Iterator[reconcile.Context]:
        """Load the stack and connect to its target; keys that it does not have are no wrong use."""
        name = self._target
        loaded = self._known(load(self._files(), target=name, offline=offline, **self._values))
        with connect(loaded, name, self._runtime, self._records, offline=offline) as context:
            yield context._replace(
                only=tuple(self._options.get("only") or ()),
                parallelism=self._options.get("parallelism") or context.parallelism,
                unmatched=self._unmatched.update,
            )

    def _files(self) -> StackFiles:
        """The files of the stack, which must be those that were found where the command was started."""
        task, var_files = self._task, self._request.var_files
        directory = Path(task.directory)
        fix = "let all workers see the same files, under the same path"
        if task.digest and not directory.is_dir():
            why = f"{task.directory} does not exist there"
            raise OtherFiles(Diagnostic("the worker does not see the stack", why, fix))
        if task.digest and files_digest(directory, var_files) != task.digest:
            why = f"the manifest files in {task.directory} differ from those where the command was started"
            raise OtherFiles(Diagnostic("the worker sees other files", why, fix))
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
            self._messages.append(StackMessage(self._redact(text), level))

    def _warn(self, problems: Iterable[Diagnostic]) -> None:
        found = without_secrets(tuple(problems), self._redact)
        self._messages += [StackMessage(diagnostic=one) for one in found]

    def _found(self, content: Content, value: Any, code: ExitCode, **fields: Any) -> StackResult:
        """The result of a command, with what it prints in each format that is asked for."""
        request, parts = self._request, {}
        for name in request.formats:
            if name == "json":
                parts[name] = dump(redacted(value.document(), self._redact)) + "\n"
                continue
            view = View(
                style=Style(request.colour and name == "text"),
                show_keep=bool(self._options.get("show_keep")),
                redact=self._redact,
                verbose=request.verbosity > 0,
                directory=request.directory,
            )
            text = render(content, value, name, view)
            parts[name] = text if FORMATS[name].redacts else self._redact(text)
        unmatched = frozenset(self._unmatched)
        return self._result(code, stack=value.stack, parts=parts, unmatched=unmatched, **fields)

    def _failed(self, code: int, *problems: Diagnostic, traceback: str = "") -> StackResult:
        errors = without_secrets(problems, self._redact) or (Diagnostic("failed"),)
        return self._result(ExitCode(code), stack=self._task.name, errors=errors, traceback=traceback)

    def _result(self, code: ExitCode, **fields: Any) -> StackResult:
        return StackResult(
            root=self._task.root,
            exit_code=code,
            messages=tuple(self._messages),
            undeclared=self._undeclared,
            ended_at_s=time.time(),
            duration_s=time.monotonic() - self._started_s,
            **fields,
        )


# ── on a cluster: what is sent, and what a worker does with it ───────────────────────────────────────


def sent(request: FleetRequest, *, is_records_from_environment: bool) -> FleetRequest:
    """The request as it is sent; the address of the record store is left out if the environment gave it.

    Raises:
        WrongUsage: the address on the command line holds a password.
    """
    url = request.options.get("records")
    if url and is_records_from_environment:
        return replace(request, options={**request.options, "records": None})
    if url and any(passwords_in(url)):
        why = "a password is never sent to a scheduler"
        fix = "set RECONCILER_RECORDS in the environment of the workers"
        raise WrongUsage(Diagnostic("--records with a password and --scheduler", why, fix))
    return request


def with_digest(task: StackTask, request: FleetRequest) -> StackTask:
    """The task with the digest of the stack's files, which a worker compares with what it sees."""
    return replace(task, digest=files_digest(Path(task.directory), request.var_files))


def check_variables(request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackTask]:
    """Check that no value of a sensitive variable is sent; return the stacks that cannot be judged.

    Raises:
        WrongUsage: a stack declares a variable as sensitive that --var gives.
    """
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


def check_batch(text: str) -> str:
    """Do a `FleetBatch` on a worker; it and the results are JSON."""
    batch = BATCH.validate_json(text)
    results: list[StackResult] = []
    if batch.request.version == __version__:
        runner = StackRunner(os.environ, limiter=limiter_of(batch.share, time.time()))
        runner.check_all(batch.request, batch.tasks, results.append, batch.at_once)
    else:  # a worker that came after the others were asked
        why = f"it has {__version__}, and the command was started with {batch.request.version}"
        problem = Diagnostic("another version on a worker", why, "install the same version on all workers")
        results = batch.failed(ExitCode.FAILED, problem)
    return RESULTS.dump_json(results).decode()


def limiter_of(share: float, now_s: float) -> RateLimiter:
    """A limiter, from now on, for a share of the rate that one process may use.

    It begins without a burst, so that one batch after the other is no faster than one that lasts.
    """
    limiter = RateLimiter(PROCESS_LIMITER.per_second * share, burst=0)
    limiter.reserve(now_s)
    return limiter


# ── on a cluster: what comes back ────────────────────────────────────────────────────────────────────

#: distributed has no types.
Client = Any
_ADDRESS = r"(tcp|tls)://([^/\s:]+(:[^/\s:]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}"
_INSTALL = f"on all workers: pip install reconciler=={__version__}"
#: Of these a pickle may name: dask has it for each text of an error, and it runs nothing.
_HARMLESS = frozenset({("builtins", "bytes")})
_connections: set[object] = set()


class ClusterUnavailable(ReconcilerError):
    """The scheduler cannot be reached, or has no workers."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, why: str, fix: str = "run it again") -> None:
        super().__init__(Diagnostic("the scheduler is unavailable", why, fix))


class WorkerFailed(Exception):
    """A call failed on a worker: the name of the exception, the module that it lacks or "", and why.

    Where the name is "" it answered what it was not asked for.
    """

    def __str__(self) -> str:
        kind, _, why = self.args
        return f"{kind}: {why}" if kind else str(why)


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


def _remote() -> Callable[..., Any]:
    """A function that travels by value, so that who passes it on needs nothing of ours.

    It answers as `_answer` reads it: an exception would come back as a pickle.
    """

    def call(module: str, name: str, *arguments: Any) -> list[str]:
        from importlib import import_module

        try:
            found = getattr(import_module(module), name)
            return ["", found(*arguments) if arguments else found]
        except Exception as error:
            return [type(error).__name__, str(getattr(error, "name", None) or ""), str(error)]

    return call


def _answer(found: object) -> str:
    """What a call of `_remote` returned, or `WorkerFailed`."""
    match found:
        case ("", str(text)):
            return text
        case (str(kind), str(module), str(why)):
            raise WorkerFailed(kind or "Exception", module, why)
    raise WorkerFailed("", "", "it is no text")


def results_from(text: object, roots: Sequence[str]) -> list[StackResult]:
    """Read results from JSON: one for each of the stacks that were asked for, and none for others.

    Raises:
        WorkerFailed: they are something else.
    """
    if not isinstance(text, str):
        raise WorkerFailed("", "", "it is no text")
    try:
        results = RESULTS.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise WorkerFailed("", "", f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if sorted(result.root for result in results) != sorted(roots):
        raise WorkerFailed("", "", "it is about other stacks")
    return results


# ── on a cluster: the calls ──────────────────────────────────────────────────────────────────────────


def check_on_cluster(
    address: str, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult
) -> None:
    """Check the stacks on a cluster; `take` gets each result as it comes. An interrupt cancels the rest.

    Raises:
        WrongUsage: the address is invalid, or the extra `fleet` is not installed.
        ClusterUnavailable: the scheduler cannot be reached, or has no workers.
        ReconcilerError: a worker has another version.
    """
    with _connected(address) as client:
        found = client.run(_remote(), "reconciler.version", "__version__", on_error="return")
        # What raises here is the connection of a worker that was lost meanwhile.
        versions = {name: _version(one) for name, one in found.items() if not isinstance(one, Exception)}
        if wrong := [name for name in sorted(versions) if versions[name] != __version__]:
            whys = [f"{name} has {printable(versions[name])}, and this is {__version__}" for name in wrong]
            raise ReconcilerError(*(Diagnostic("another version on a worker", why, _INSTALL) for why in whys))
        workers = _Workers(client, address)
        size = max(1, min(AT_ONCE, len(tasks) // (2 * workers.slots())))
        groups = (tuple(tasks[at : at + size]) for at in range(0, len(tasks), size))
        waiting, in_flight = deque(FleetBatch(request, group) for group in groups), workers.in_flight
        try:
            while waiting or in_flight:
                # So many batches are in flight that their shares are at most the whole: however many slots
                # there are by now, together they never send more requests than one process.
                share = 1 / max(1, min(workers.slots(), len(waiting) + len(in_flight)))
                while waiting and sum(one.share for one, _ in in_flight.values()) + share < 1 + 1e-9:
                    workers.submit(replace(waiting.popleft(), share=share))
                for ended in wait(in_flight, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED).done:
                    batch, answer = in_flight.pop(ended)
                    results = workers.results(answer, batch)
                    if results is None:
                        waiting.extendleft(replace(batch, tasks=(task,)) for task in reversed(batch.tasks))
                    for result in results or ():
                        take(result)
        except BaseException:
            with suppress(Exception):
                client.cancel([answer for _, answer in in_flight.values()], force=True)
            raise


def mark_on_cluster(address: str, request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackResult]:
    """Record on the cluster what drift was shown; returns the result of each stack.

    Raises:
        ClusterUnavailable: the scheduler cannot be reached, or did not answer.
    """
    text = BATCH.dump_json(FleetBatch(request, tuple(tasks))).decode()
    with _connected(address) as client:
        future = client.submit(_remote(), __name__, "check_batch", text, pure=False)
        try:
            return results_from(_answer(future.result(timeout=MARK_S)), [task.root for task in tasks])
        # What it failed of on a worker is an exception of any kind, since it is not read.
        except (Exception, CancelledError) as error:
            raise ClusterUnavailable(f"{address}: {_reason(error)}") from None


class _Workers:
    """The workers of a cluster, as they come and go.

    `Client.get_executor()` would read results by itself, and hang where one cannot be read: here a future
    results in dask's own, once that has ended.
    """

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._address = client, address
        self.in_flight: dict[Future[Any], tuple[FleetBatch, Any]] = {}
        self._call = _remote()
        self._found: Mapping[str, int] = {}
        self._looked_at_s, self._seen_at_s = float("-inf"), time.monotonic()

    def slots(self) -> int:
        """How many batches they can do at once; looks at them now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            try:
                self._found = self._client.nthreads()
            except (OSError, ValueError, RuntimeError) as error:
                why = f"the connection to {self._address} was lost: {_reason(error)}"
                raise ClusterUnavailable(why) from None
            if self._found:
                self._seen_at_s = now_s
            elif now_s - self._seen_at_s > NO_WORKERS_S:
                fix = f"start some: dask worker {self._address}"
                raise ClusterUnavailable(f"{self._address} has no workers", fix)
        return max(1, sum(self._found.values()))

    def submit(self, batch: FleetBatch) -> None:
        at_once = max(1, AT_ONCE * len(self._found) // self.slots())
        text = BATCH.dump_json(replace(batch, at_once=at_once)).decode()
        answer = self._client.submit(self._call, __name__, "check_batch", text, pure=False)
        ended = Future[Any]()
        self.in_flight[ended] = batch, answer
        answer.add_done_callback(ended.set_result)

    def results(self, answer: Any, batch: FleetBatch) -> list[StackResult] | None:
        """The results of a batch, or why there are none, for each of its stacks.

        None where workers were lost with several stacks: one of them may be why, and each by itself does no
        harm to the others, so they are done again one at a time.
        """
        if answer.cancelled():
            raise ClusterUnavailable(f"the connection to {self._address} was lost")
        error = answer.exception()
        if error is not None and _is_lost(error) and len(batch.tasks) > 1:
            return None
        try:
            if error is not None:
                raise error
            return results_from(_answer(answer.result()), [task.root for task in batch.tasks])
        except Exception as failure:
            return batch.failed(ExitCode.UNKNOWN, _problem_of(failure))
        finally:
            answer.release()


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    if not re.fullmatch(_ADDRESS, address):
        why = f'"{address}" is not tcp://HOST:PORT'
        raise WrongUsage(Diagnostic("invalid scheduler", why, "use the address that `dask scheduler` prints"))
    try:
        import distributed
    except ImportError:
        why, fix = "--scheduler needs the package distributed", "pip install 'reconciler[fleet]'"
        raise WrongUsage(Diagnostic("the extra fleet is not installed", why, fix)) from None
    # What dask logs goes where the log of any library goes, and not to stderr by itself.
    logger = logging.getLogger("distributed")
    logger.handlers.clear()
    logger.propagate = True
    with no_unpickling():
        try:
            client: Client = distributed.Client(  # type: ignore[no-untyped-call]
                address,
                timeout=CONNECT_S,
                set_as_default=False,
                name="reconciler",
                deserializers=["msgpack", "error"],
            )
        except (OSError, ValueError) as error:
            fix = "start it with `dask scheduler`, or correct the address"
            raise ClusterUnavailable(f"{address}: {_reason(error)}", fix) from None
        try:
            yield client
        finally:
            with suppress(Exception):
                client.close(timeout=2)


def _reason(error: BaseException) -> str:
    """The first line of an error, or of what caused it, if that has one."""
    words, one = type(error).__name__, error
    while one is not None:
        words = str(one) or words
        one = one.__cause__  # type: ignore[assignment]
    return words.splitlines()[0]


def _version(found: object) -> str:
    try:
        return _answer(found)
    except WorkerFailed as failed:
        kind, module, why = failed.args
        if not kind:
            return f"an answer that cannot be read ({why})"
        return "none" if module == "reconciler" else "none that knows --fleet"


def _is_lost(error: BaseException) -> bool:
    """Whether dask gave up because workers were lost: its KilledWorker, which comes as an unread pickle."""
    return bool(error.args) and isinstance(error.args[0], bytes) and b"KilledWorker" in error.args[0]


def _problem_of(error: BaseException) -> Diagnostic:
    if _is_lost(error):
        why = "workers were lost again and again while they checked it"
        return Diagnostic("workers were lost", why, "check the memory of the workers, and their logs")
    if not isinstance(error, WorkerFailed):
        return Diagnostic("the worker failed", "it could not run the check", "read the logs of the workers")
    kind, module, why = error.args
    if not kind:
        return Diagnostic("the worker's answer cannot be read", printable(why))
    if kind == "ModuleNotFoundError" and module.startswith("reconciler"):
        return Diagnostic("the worker has no reconciler", "it cannot import reconciler", _INSTALL)
    return Diagnostic("the worker failed", printable(f"{kind}: {why.splitlines()[0] if why else kind}"))
