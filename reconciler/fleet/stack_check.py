"""One stack of a fleet: the command is done for it, and whatever happens is its result."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.decide.fleet import DriftToShow, StackMessage, StackResult
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError
from reconciler.fleet.commands import COMMANDS, Finding, StackInputs, mark_shown
from reconciler.fleet.request import FleetRequest, StackTask
from reconciler.manifest.files import FileTree, find_stack
from reconciler.manifest.stack_roots import files_digest
from reconciler.manifest.variables import read_value_files
from reconciler.modelarts.clock import RateLimiter, SystemClock
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Runtime
from reconciler.render import FORMATS
from reconciler.render.json import dump
from reconciler.render.style import Style, View
from reconciler.secrets import Redactor, without_secrets
from reconciler.text import printable, visible

Learn = Callable[[Iterable[str]], None]


class OtherFiles(ReconcilerError):
    """A worker does not see the files of a stack as they are where the command was started."""

    exit_code = ExitCode.UNKNOWN


@dataclass(frozen=True)
class StackRunner:
    """Checks stacks in this process: with its environment, and one limit of the rate of requests.

    `learn` is told each secret, too, for what else this process says; `stop` ends what waits.
    """

    environ: Mapping[str, str] = field(repr=False)
    stop: threading.Event | None = None
    limiter: RateLimiter | None = None
    learn: Learn = lambda _: None

    def check(self, request: FleetRequest, task: StackTask) -> StackResult:
        """Do the command for one stack. What goes wrong is part of the result; only interrupts are raised."""
        return _StackCheck(self, request, task).run()

    def mark_shown(self, request: FleetRequest, task: StackTask, shown: DriftToShow) -> StackResult:
        """Write down that the report of the fleet has shown the drift of one stack; says what went wrong."""
        return _StackCheck(self, request, task).mark_shown(shown)


class _KnownSecrets(Redactor):
    """The secrets of one stack; whoever else has to know them is told."""

    def __init__(self, elsewhere: Learn, secrets: Iterable[str]) -> None:
        self._elsewhere = elsewhere
        super().__init__(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add values that must not be seen from now on."""
        values = tuple(secrets)
        super().learn(values)
        self._elsewhere(values)


class _StackCheck:
    def __init__(self, runner: StackRunner, request: FleetRequest, task: StackTask) -> None:
        self._runner, self._request, self._task = runner, request, task
        self._redact = _KnownSecrets(runner.learn, known_secrets(runner.environ))
        self._messages: list[StackMessage] = []
        self._unmatched: set[str] = set()
        self._undeclared: set[str] = set()
        self._is_loaded = False
        self._started_s = time.monotonic()

    def run(self) -> StackResult:
        return self._guarded(lambda: self._result(COMMANDS[self._request.command](self._inputs())))

    def mark_shown(self, shown: DriftToShow) -> StackResult:
        def mark() -> StackResult:
            mark_shown(replace(self._inputs(), warn=lambda _: None), shown)
            return self._made(ExitCode.DONE, stack=self._task.name)

        return self._guarded(mark)

    def _guarded(self, run: Callable[[], StackResult]) -> StackResult:
        try:
            return run()
        except ReconcilerError as error:
            return self._failed(ExitCode(error.exit_code), *error.diagnostics)
        except OSError as error:
            what = error.strerror or type(error).__name__
            return self._failed(ExitCode.FAILED, Diagnostic(what, path=str(error.filename or "")))
        except Exception as error:
            report = visible(self._redact("".join(traceback.format_exception(error))))
            problem = Diagnostic("internal error", f"{type(error).__name__}: {error}")
            return self._failed(ExitCode.INTERNAL_ERROR, problem, traceback=report)

    def _inputs(self) -> StackInputs:
        request, task = self._request, self._task
        values = [Path(path) for path in request.options.get("var_files") or ()]
        directory = Path(task.directory)
        _check_files(task, values)
        files = find_stack([directory], values, FileTree(directory, task.prefix))
        return StackInputs(
            replace(files, known_variables=_names_given(request, values)),
            {**request.options, "var_files": values},
            self._runtime(),
            self._warn,
            self._note_unmatched,
            self._note_undeclared,
        )

    def _runtime(self) -> Runtime:
        runner = self._runner
        return Runtime(
            environ=runner.environ,
            clock=SystemClock(runner.stop),
            redactor=self._redact,
            warn=lambda text: self._say(f"warning: {printable(text)}", 0),
            tell=lambda text: self._say(printable(text), 1),
            on_request=self._say_request,
            stop=runner.stop,
            command=self._request.command,
            limiter=runner.limiter,
        )

    def _say(self, text: str, level: int) -> None:
        if self._request.verbosity >= level:
            self._messages.append(StackMessage(self._redact(text), level))

    def _say_request(self, method: str, path: str, status: int | None, seconds: float) -> None:
        answer = "no answer" if status is None else str(status)
        self._say(f"{method} {printable(path)}: {answer}, {seconds * 1000:.0f} ms", 2)

    def _warn(self, problems: Iterable[Diagnostic]) -> None:
        self._messages += [
            StackMessage(diagnostic=one) for one in without_secrets(tuple(problems), self._redact)
        ]

    def _note_unmatched(self, names: Iterable[str]) -> None:
        self._unmatched.update(names)

    def _note_undeclared(self, names: Iterable[str]) -> None:
        self._is_loaded = True
        self._undeclared.update(names)

    def _result(self, found: Finding) -> StackResult:
        self._warn(found.problems)
        return self._made(
            found.exit_code,
            stack=found.stack,
            target=found.target,
            summary=found.summary,
            last_line=found.last_line,
            has_changes=found.has_changes,
            parts={name: self._part(found, name) for name in self._request.formats},
            scopes=found.scopes,
            unmatched=frozenset(self._unmatched),
            notifications_failed=found.notifications_failed,
            to_show=found.to_show,
        )

    def _failed(self, code: ExitCode, *problems: Diagnostic, traceback: str = "") -> StackResult:
        errors = without_secrets(problems, self._redact) or (Diagnostic("failed"),)
        return self._made(code, stack=self._task.name, errors=errors, traceback=traceback)

    def _made(self, code: ExitCode, **fields: Any) -> StackResult:
        return StackResult(
            root=self._task.root,
            exit_code=code,
            messages=tuple(self._messages),
            undeclared=frozenset(self._undeclared) if self._is_loaded else None,
            ended_at_s=time.time(),
            duration_s=time.monotonic() - self._started_s,
            **fields,
        )

    def _part(self, found: Finding, format_: str) -> str:
        if format_ == "json":
            return dump(found.document) + "\n"
        request = self._request
        view = View(
            style=Style(request.colour and format_ == "text"),
            show_keep=bool(request.options.get("show_keep")),
            redact=self._redact,
            verbose=request.verbosity > 0,
            directory=request.directory,
        )
        text = found.render(format_, view)
        return text if FORMATS[format_].redacts else self._redact(text)


def _check_files(task: StackTask, values: list[Path]) -> None:
    """See that the files of a stack are those that were found where the command was started.

    Raises:
        OtherFiles: they are not.
    """
    if not task.digest:
        return
    fix = "let all workers see the same files, under the same path"
    if not Path(task.directory).is_dir():
        raise OtherFiles(
            Diagnostic("the worker does not see the stack", f"{task.directory} does not exist there", fix)
        )
    if files_digest(Path(task.directory), values) != task.digest:
        why = f"the manifest files in {task.directory} differ from those where the command was started"
        raise OtherFiles(Diagnostic("the worker sees other files", why, fix))


def _names_given(request: FleetRequest, values: list[Path]) -> frozenset[str]:
    """The variables that are given a value: each stack takes those that it declares."""
    files = read_value_files(values)
    given = (name for name, _ in request.options.get("variables") or ())
    return frozenset((*given, *(name for document in files for name in document.tree)))
