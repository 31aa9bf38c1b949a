"""Maps exceptions and signals to exit codes and messages."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from reconciler.cli.console import console
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError
from reconciler.files import write_file
from reconciler.text import printable, printable_lines
from reconciler.version import __version__

_CODES = {"SIGHUP": ExitCode.HUNG_UP, "SIGINT": ExitCode.INTERRUPTED, "SIGTERM": ExitCode.TERMINATED}
#: The exit codes of the signals that end a run in order. Not every platform has all of them.
SIGNALS = {getattr(signal, name): code for name, code in _CODES.items() if hasattr(signal, name)}


class Stopped(SystemExit):
    """A signal was received. Libraries that call us back let SystemExit through, like KeyboardInterrupt."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def number_of_signal(error: BaseException | None) -> int | None:
    """Return the signal that caused an exception. Python wraps the original one in some places."""
    while error is not None:
        if isinstance(error, Stopped):
            return error.number
        if isinstance(error, KeyboardInterrupt):
            return signal.SIGINT
        error = error.__cause__ or error.__context__
    return None


def of_exception(error: BaseException) -> ExitCode:
    """Show the error that ended a run, without a traceback, and return its exit code."""
    if (number := number_of_signal(error)) is not None:
        code = SIGNALS[number]
        word = code.name.lower().replace("_", " ")
        # The terminal has just shown ^C.
        is_after_sign = console.log_format == "text" and code is ExitCode.INTERRUPTED
        console.say(f"\n{word}" if is_after_sign else word)
        return code
    match error:
        case click.ClickException():
            context = getattr(error, "ctx", None)
            if console.log_format == "json":
                fix = f"{context.command_path} --help" if context is not None else None
                console.diagnostics([Diagnostic(error.format_message(), fix=fix)])
                return ExitCode.WRONG_USAGE
            if context is not None:
                console.say(context.get_usage())
                console.say(f"Try '{context.command_path} --help' for help.\n")
            console.say(f"error: {printable_lines(error.format_message())}")
            return ExitCode.WRONG_USAGE
        case ReconcilerError():
            console.diagnostics(error.diagnostics)
            return ExitCode(error.exit_code)
        case BrokenPipeError():
            # The reader has exited (`| head`).
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.DONE
        case OSError():
            what = error.strerror or type(error).__name__
            console.diagnostics([Diagnostic(what, path=str(error.filename or ""))])
            return ExitCode.FAILED
    return report_fault(error)


def report_fault(error: BaseException) -> ExitCode:
    """Write a redacted report of an internal error, and show its path."""
    import traceback

    report_traceback("".join(traceback.format_exception(error)), type(error).__name__)
    return ExitCode.INTERNAL_ERROR


def report_traceback(text: str, why: str) -> None:
    """Write a report from the text of a traceback. Only the owner may read the file."""
    import tempfile

    report = f"reconciler {__version__}, Python {sys.version}\n\n{console.clean(text)}"
    try:
        file = Path(tempfile.gettempdir(), f"reconciler-report-{os.urandom(8).hex()}.txt")
        write_file(file, report.encode("utf-8", "backslashreplace"), 0o600)
        fix = f"please report it with the file {file} (it contains no secrets)"
    except OSError:
        fix = "please report it; the report could not be written: run again with a TMPDIR that has free space"
    console.diagnostics([Diagnostic("internal error", why, fix)])


def redirect() -> None:
    """Redirect warnings, logs and unhandled exceptions to the console."""
    import logging

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        _say_failure(failed.exc_value, f"in the thread {failed.thread.name if failed.thread else '?'}")

    def warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        console.detail(console.redact(f"{category.__name__}: {message}"))

    # Receives records of loggers without handlers.
    heard = logging.Handler(logging.WARNING)
    heard.emit = lambda record: console.detail(f"{record.name}: {record.getMessage()}")  # type: ignore[method-assign]
    logging.lastResort = heard
    threading.excepthook = thread_failed
    sys.unraisablehook = not_raised
    warnings.showwarning = warn


def not_raised(failed: sys.UnraisableHookArgs) -> None:
    """Handle an exception in a destructor or callback. A signal that was lost there is sent again."""
    if (number := number_of_signal(failed.exc_value)) is not None:
        # On a thread, so that it arrives after the callback.
        _thread.start_new_thread(os.kill, (os.getpid(), number))
        return
    _say_failure(failed.exc_value, failed.err_msg or "in a destructor or callback")


def _say_failure(error: BaseException | None, where: str) -> None:
    if error is None:
        return
    console.say(f"error: internal error: {printable(console.redact(f'{where}: {error!r}'))}", "error")
    if console.verbosity:
        import traceback

        text = console.redact("".join(traceback.format_exception(error)))
        console.say(printable_lines(text.rstrip("\n")), "debug")


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Replace the handlers of the signals that end a run."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    # Signals that were ignored from the start (nohup, background jobs) stay ignored.
    before = {number: old for number, old in handlers.items() if old is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
