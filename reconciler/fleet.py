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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from reconciler import reconcile
from reconciler.connection import RecordOptions, connect
from reconciler.core.addresses import passwords_in
from reconciler.core.record import REMIND_S, Scope
from reconciler.decide.fleet import StackMessage, StackResult
from reconciler.decide.guards import blockers
from reconciler.decide.plan import Allowances
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, WrongUsage
from reconciler.manifest import LoadedStack, load
from reconciler.manifest.files import FileTree, StackFiles, files_digest, find_stack
from reconciler.manifest.variables import declared_sensitive, read_value_files
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Runtime, identity_of
from reconciler.render import FORMATS, Content, Style, View, render, render_part
from reconciler.render.json import dump, redacted
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import printable, visible
from reconciler.validation import validate_stack
from reconciler.version import __version__

#: The commands that a fleet has.
COMMANDS = ("validate", "plan", "drift")
#: So many stacks are checked at once in a process: more would wait for the interpreter, not for the service.
AT_ONCE = 4
#: Seconds for the scheduler to answer, and for a worker to come.
CONNECT_S, NO_WORKERS_S = 10.0, 60.0

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
    `digest` is that of its files, "" if they are known to be the same.
    """

    directory: str
    root: str
    prefix: str
    name: str | None = None
    digest: str = ""


SENT, RESULT = TypeAdapter(tuple[FleetRequest, StackTask]), TypeAdapter(StackResult)


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


def check_here(
    request: FleetRequest,
    tasks: Sequence[StackTask],
    take: TakeResult,
    environ: Mapping[str, str],
    learn: Learn = lambda _: None,
) -> None:
    """Check the stacks on threads; `take` gets each result as it comes, `learn` each secret.

    An interrupt ends it at once: what waits is told to end.
    """
    stop = threading.Event()
    pool = ThreadPoolExecutor(AT_ONCE, "stack")
    try:
        _take_all({pool.submit(check_stack, request, task, environ, stop, learn) for task in tasks}, take)
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _take_all(
    waiting: set[Future[StackResult]], take: TakeResult, look: Callable[[], object] = lambda: None
) -> None:
    """Take each result as it comes; `look` now and then while none does."""
    while waiting:
        done, waiting = wait(waiting, NO_WORKERS_S, FIRST_COMPLETED)
        for checked in done:
            take(checked.result())
        if not done:
            look()


# ── one stack ────────────────────────────────────────────────────────────────────────────────────────


def check_stack(
    request: FleetRequest,
    task: StackTask,
    environ: Mapping[str, str],
    stop: threading.Event | None = None,
    learn: Learn = lambda _: None,
) -> StackResult:
    """Do the command for one stack. What goes wrong is part of the result; only interrupts are raised."""
    return _StackCheck(request, task, environ, stop, learn).run()


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

    def __init__(
        self,
        request: FleetRequest,
        task: StackTask,
        environ: Mapping[str, str],
        stop: threading.Event | None,
        learn: Learn,
    ) -> None:
        self._request, self._task, self._options = request, task, request.options
        self._target: str | None = self._options.get("target")
        self._redact = _KnownSecrets(learn, known_secrets(environ))
        self._messages: list[StackMessage] = []
        self._unmatched: set[str] = set()
        self._undeclared: frozenset[str] | None = None
        self._started_s = time.monotonic()
        self._runtime = Runtime(
            environ=environ,
            clock=SystemClock(stop),
            redactor=self._redact,
            warn=lambda text: self._say(f"warning: {printable(text)}", 0),
            tell=lambda text: self._say(printable(text), 1),
            on_request=lambda method, path, status, seconds: self._say(
                f"{method} {printable(path)}: {status or 'no answer'}, {seconds * 1000:.0f} ms", 2
            ),
            stop=stop,
            command=request.command,
        )
        #: What gives values to variables, and who learns the secret ones.
        self._values: dict[str, Any] = {
            "variables": dict(self._options.get("variables") or ()),
            "var_files": tuple(request.var_files),
            "environ": environ,
            "learn": self._redact.learn,
        }
        records = self._options.get("records") or environ.get("RECONCILER_RECORDS") or None
        self._records = RecordOptions(records, without_records=bool(self._options.get("without_records")))

    def run(self) -> StackResult:
        commands = {"validate": self._validate, "plan": self._plan, "drift": self._drift}
        try:
            return commands[self._request.command]()
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
            plan = reconcile.plan(context, allowed, with_preflight=not options.get("no_preflight"))
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
        since_last = bool(self._options.get("since_last"))
        remind_s = self._options.get("remind_s", REMIND_S)
        with self._connected(offline=True) as context:
            report = reconcile.drift(context, since_last=since_last, remind_s=remind_s)
            failed = reconcile.notify_drift(context, report).failed
        summary = {name.value: number for name, number in report.summary.items()}
        return self._found(
            Content.DRIFT,
            report,
            report.exit_code,
            target=report.target.name,
            summary={**summary, "pending": len(report.pending)},
            last_line=render(Content.DRIFT, report, "text", View()).splitlines()[-1],
            has_changes=(report.is_due if since_last else bool(report.drift)) or not report.complete,
            scopes=(context.scope,),
            notifications_failed=failed,
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
            text = render_part(content, value, name, view)
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


def check_sent(text: str) -> str:
    """Check a stack on a worker; what was sent and the result are JSON."""
    request, task = SENT.validate_json(text)
    if request.version == __version__:
        result = check_stack(request, task, os.environ)
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


class ClusterUnavailable(ReconcilerError):
    """The scheduler cannot be reached, or has no workers."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, why: str, fix: str = "run it again") -> None:
        super().__init__(Diagnostic("the scheduler is unavailable", why, fix))


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
    address: str, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult
) -> None:
    """Check the stacks on a cluster; `take` gets each result as it comes. An interrupt cancels the rest.

    Raises:
        WrongUsage: the address is invalid, or the extra `fleet` is not installed.
        ClusterUnavailable: the scheduler cannot be reached, or has no workers.
    """
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

    def check(text: str) -> str:  # it travels by value: who passes it on needs nothing of ours
        from reconciler.fleet import check_sent

        return check_sent(text)

    def submit(task: StackTask) -> Future[StackResult]:
        checked = Future[StackResult]()

        def end(answer: Any) -> None:
            if answer.cancelled():
                checked.set_exception(ClusterUnavailable(f"the connection to {address} was lost"))
            else:
                checked.set_result(result_from(task, answer.result))

        text = SENT.dump_json((request, task)).decode()
        client.submit(check, text, pure=False).add_done_callback(end)
        return checked

    def look() -> None:
        try:
            workers = client.nthreads()
        except (OSError, ValueError, RuntimeError):
            raise ClusterUnavailable(f"the connection to {address} was lost") from None
        if not workers:
            raise ClusterUnavailable(f"{address} has no workers", f"start some: dask worker {address}")

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
            raise ClusterUnavailable(f"{address}: {_reason(error)}", fix) from None
        try:
            _take_all({submit(task) for task in tasks}, take, look)
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
