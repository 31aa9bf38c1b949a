"""Many stacks: one command done for each of them on an Executor, of threads here or of a dask cluster there.

Whatever happens to a stack is its result, and hides no other. Requests, tasks and results are plain data, for
they may travel to a worker of a cluster (`fleet_cluster`); no credentials are in them, and nothing of the
environment: a worker takes credentials, and the variables that manifests read, from its own.

Source: docs/fleets.md.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from reconciler import reconcile
from reconciler.connection import RecordOptions, connect, open_recording, records_url
from reconciler.core.record import REMIND_S, Scope
from reconciler.decide import exit_code
from reconciler.decide.drift_check import DriftId
from reconciler.decide.fleet import DriftToShow, StackMessage, StackResult
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Allowances
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError
from reconciler.manifest import LoadedStack, load_files
from reconciler.manifest.files import FileTree, StackFiles, files_digest, find_stack
from reconciler.manifest.variables import read_value_files
from reconciler.modelarts.clock import RateLimiter, SystemClock
from reconciler.modelarts.connect import PROCESS_LIMITER
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Runtime, identity_of
from reconciler.render import FORMATS, Content, render
from reconciler.render.json import dump, redacted
from reconciler.render.style import Style, View
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import printable, visible
from reconciler.validation import validate_stack
from reconciler.version import __version__

#: The commands that a fleet has.
COMMANDS = ("validate", "plan", "drift")
#: So many stacks are checked at once in a process: more would wait for the interpreter, not for the service.
AT_ONCE = 4
#: Seconds between two looks at which workers there are.
LOOK_EVERY_S = 1.0

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
        """The files that give values to variables."""
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


BATCH, RESULTS = TypeAdapter(FleetBatch), TypeAdapter(list[StackResult])


def as_plain(value: Any) -> Any:
    """An option as JSON can hold it.

    Raises:
        TypeError: it cannot.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): as_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"an option of type {type(value).__name__} cannot be sent")


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────


def run_batches(
    executor: Executor,
    batches: Iterable[FleetBatch],
    call: Callable[[FleetBatch], Future[Any]],
    read: Callable[[Future[Any], FleetBatch], list[StackResult] | None],
    take: TakeResult,
    slots: Callable[[], int],
) -> None:
    """Do all batches on an executor; `take` gets each result as it comes, in the thread that calls this.

    `call` submits a batch, `read` returns its results; None: it is to be done again, one stack at a time.
    Batches are in flight at the same time as long as their shares are at most the whole: however many `slots`
    there are by now, they never send more requests together than one process. An interrupt cancels what has
    not begun.
    """
    waiting, in_flight = deque(batches), dict[Future[Any], FleetBatch]()
    try:
        while waiting or in_flight:
            share = 1 / max(1, min(slots(), len(waiting) + len(in_flight)))
            while waiting and sum(one.share for one in in_flight.values()) + share < 1 + 1e-9:
                batch = replace(waiting.popleft(), share=share)
                in_flight[call(batch)] = batch
            done, _ = wait(in_flight, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
            for future in done:
                batch = in_flight.pop(future)
                results = read(future, batch)
                if results is None:
                    waiting.extendleft(replace(batch, tasks=(task,)) for task in reversed(batch.tasks))
                for result in results or ():
                    take(result)
    except BaseException:
        for future in in_flight:
            future.cancel()
        executor.shutdown(wait=False)
        raise


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
        batches = [FleetBatch(request, (task,)) for task in tasks]
        pool = ThreadPoolExecutor(max(1, min(at_once, len(tasks))), "stack")
        try:
            run_batches(
                pool,
                batches,
                lambda batch: pool.submit(self.check, request, batch.tasks[0]),
                lambda future, _: [future.result()],
                take,
                lambda: at_once,
            )
        except BaseException:
            if self.stop is not None:
                self.stop.set()
            raise
        pool.shutdown()


def version() -> str:
    """The version of reconciler that is installed here, for whoever asks a worker."""
    return __version__


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
        results = [StackResult(one.root, one.name, ExitCode.FAILED, errors=(problem,)) for one in batch.tasks]
    return RESULTS.dump_json(results).decode()


def limiter_of(share: float, now_s: float) -> RateLimiter:
    """A limiter, from now on, for a share of the rate that one process may use.

    It begins without a burst, so that one batch after the other is no faster than one that lasts.
    """
    limiter = RateLimiter(PROCESS_LIMITER.per_second * share, burst=0)
    limiter.reserve(now_s)
    return limiter


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
        """Add values that must not be seen from now on."""
        values = tuple(secrets)
        super().learn(values)
        self._elsewhere(values)


class _StackCheck:
    """A command for one stack: the same as for that stack alone, as a value."""

    def __init__(self, runner: StackRunner, request: FleetRequest, task: StackTask) -> None:
        self._request, self._task, self._options = request, task, request.options
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
            on_request=self._say_request,
            stop=runner.stop,
            command=request.command,
            limiter=runner.limiter,
        )

    def run(self) -> StackResult:
        """Do it; what goes wrong is the result."""
        commands = {"validate": self._validate, "plan": self._plan, "drift": self._drift}
        try:
            if self._task.to_show is not None:
                return self._mark_shown(self._task.to_show)
            return commands[self._request.command]()
        except ReconcilerError as error:
            return self._failed(ExitCode(error.exit_code), *error.diagnostics)
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
        is_quiet = plan.complete and not (plan.to_execute or plan.in_the_way or plan.refusals)
        return self._found(
            Content.PLAN,
            plan,
            exit_code.of_plan(plan, detailed=bool(options.get("detailed_exitcode"))),
            target=plan.target.name,
            summary={action.value: number for action, number in plan.summary.items()},
            last_line=plan.last_line,
            has_changes=not is_quiet,
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
        code, comparison, to_show = exit_code.of_drift(report), report.comparison, None
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
        """Whether the manifest is valid, and what policies say; an invalid one has no document.

        Raises:
            ManifestInvalid: it is not valid.
        """
        target = self._options.get("target")
        found = validate_stack(self._files(), target=target, **self._values())
        self._warn(found.skipped)
        report, loaded = found.report, found.loaded
        if not report.valid or loaded is None:
            raise ManifestInvalid(*found.problems)
        self._known(loaded)
        self._warn(found.problems)
        scopes = []
        for name, declared in loaded.targets.items():
            if target in (None, name):
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

    def _mark_shown(self, shown: DriftToShow) -> StackResult:
        """Record that the report of the fleet has shown the drift of a check."""
        loaded = load_files(self._files(), target=self._options.get("target"), offline=True, **self._values())
        self._redact.learn(loaded.secrets)
        _, target = loaded.target(self._options.get("target"))
        records = self._records()
        url = records_url(target, records.url, loaded.records_url, self._runtime)
        recording = open_recording(url, loaded.root, self._runtime, records)
        try:
            recording.mark_reported(shown.scope, shown.drift, shown.at_s)
        finally:
            recording.close()
        return self._result(ExitCode.DONE, stack=self._task.name)

    @contextmanager
    def _connected(self, *, offline: bool) -> Iterator[reconcile.Context]:
        """Load the stack and connect to its target; keys that it does not have are no wrong use."""
        options = self._options
        name = options.get("target")
        loaded = self._known(load_files(self._files(), target=name, offline=offline, **self._values()))
        with connect(loaded, name, self._runtime, self._records(), offline=offline) as context:
            yield context._replace(
                only=tuple(options.get("only") or ()),
                parallelism=options.get("parallelism") or context.parallelism,
                unmatched=self._unmatched.update,
            )

    def _files(self) -> StackFiles:
        """The files of the stack, which must be those that were found where the command was started.

        Raises:
            OtherFiles: they are not.
        """
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
        given = [name for name, _ in self._options.get("variables") or ()]
        given += [name for document in read_value_files(var_files) for name in document.tree]
        return replace(files, known_variables=frozenset(given))

    def _values(self) -> dict[str, Any]:
        """What gives values to variables, and who learns the secret ones."""
        return {
            "variables": dict(self._options.get("variables") or ()),
            "var_files": tuple(self._request.var_files),
            "environ": self._runtime.environ,
            "learn": self._redact.learn,
        }

    def _known(self, loaded: LoadedStack) -> LoadedStack:
        """Let the redactor know the secrets of the stack; its warnings are messages."""
        self._redact.learn(loaded.secrets)
        self._undeclared = frozenset(loaded.undeclared)
        self._warn(loaded.warnings)
        return loaded

    def _records(self) -> RecordOptions:
        options = self._options
        url = options.get("records") or self._runtime.environ.get("RECONCILER_RECORDS") or None
        return RecordOptions(url, without_records=bool(options.get("without_records")))

    def _say(self, text: str, level: int) -> None:
        if self._request.verbosity >= level:
            self._messages.append(StackMessage(self._redact(text), level))

    def _say_request(self, method: str, path: str, status: int | None, seconds: float) -> None:
        answer = "no answer" if status is None else str(status)
        self._say(f"{method} {printable(path)}: {answer}, {seconds * 1000:.0f} ms", 2)

    def _warn(self, problems: Iterable[Diagnostic]) -> None:
        found = without_secrets(tuple(problems), self._redact)
        self._messages += [StackMessage(diagnostic=one) for one in found]

    def _found(self, content: Content, value: Any, code: ExitCode, **fields: Any) -> StackResult:
        """The result of a command, with what it prints in each format that is asked for."""
        request = self._request
        parts = {}
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
        return self._result(
            code, stack=value.stack, parts=parts, unmatched=frozenset(self._unmatched), **fields
        )

    def _failed(self, code: ExitCode, *problems: Diagnostic, traceback: str = "") -> StackResult:
        errors = without_secrets(problems, self._redact) or (Diagnostic("failed"),)
        return self._result(code, stack=self._task.name, errors=errors, traceback=traceback)

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
