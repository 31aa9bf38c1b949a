"""How a run ends: by an exception or a signal, with which exit code and which words."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from reconciler.cli.console import console
from reconciler.cli.progress import display
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError
from reconciler.files import remove_temporary_files, write_file
from reconciler.text import printable, printable_lines
from reconciler.version import __version__

#: The signals that end a run in order, with their exit codes and words; not every system has each.
_ENDING = (
    ("SIGHUP", ExitCode.HUNG_UP, "hung up"),
    ("SIGINT", ExitCode.INTERRUPTED, "interrupted"),
    ("SIGTERM", ExitCode.TERMINATED, "terminated"),
)
SIGNALS = {getattr(signal, name): code for name, code, _ in _ENDING if hasattr(signal, name)}


class Stopped(BaseException):
    """A signal came; like KeyboardInterrupt it is no error that anybody should catch on the way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def number_of_signal(error: BaseException | None) -> int | None:
    """The signal that an exception came of; in some places Python wraps what is raised."""
    while error is not None:
        if isinstance(error, Stopped):
            return error.number
        if isinstance(error, KeyboardInterrupt):
            return signal.SIGINT
        error = error.__cause__ or error.__context__
    return None


def of_exception(error: BaseException) -> ExitCode:
    """Show what ended a run, and return its code; never a traceback."""
    if (number := number_of_signal(error)) is not None:
        code = SIGNALS[number]
        [word] = (word for _, of_word, word in _ENDING if of_word is code)
        # A terminal shows ^C where the line was.
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
            # The reader has gone (`| head`); nobody is left to be told.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.DONE
        case OSError():
            what = error.strerror or type(error).__name__
            console.diagnostics([Diagnostic(what, path=str(error.filename or ""))])
            return ExitCode.FAILED
    return report_fault(error)


def report_fault(error: BaseException) -> ExitCode:
    """Write a report, without secrets, and say where it is."""
    import traceback

    report_traceback("".join(traceback.format_exception(error)), type(error).__name__)
    return ExitCode.INTERNAL_ERROR


def report_traceback(text: str, why: str) -> None:
    """The same for an error that came as the text of its traceback. Only its owner may read the report."""
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
    """Have everything said through the console from now on."""
    import logging

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        _say_failure(failed.exc_value, f"in the thread {failed.thread.name if failed.thread else '?'}")

    def warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        console.detail(console.redact(f"{category.__name__}: {message}"))

    class ToConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.detail(console.redact(f"{record.name}: {record.getMessage()}"))

    threading.excepthook = thread_failed
    sys.unraisablehook = not_raised
    warnings.showwarning = warn
    # A logger that nobody listens to is heard by this one.
    logging.lastResort = ToConsole(logging.WARNING)


def not_raised(failed: sys.UnraisableHookArgs) -> None:
    """Take an exception of a destructor or callback. That of a signal was lost there: it is sent again."""
    if (number := number_of_signal(failed.exc_value)) is not None:
        # From a thread, to come when the callback is over.
        _thread.start_new_thread(os.kill, (os.getpid(), number))
        return
    _say_failure(failed.exc_value, failed.err_msg or "in a destructor or callback")


def _say_failure(error: BaseException | None, where: str) -> None:
    if error is None:
        return
    console.say(f"error: internal error: {printable(console.redact(f'{where}: {error!r}'))}", "error")
    if console.verbosity:
        import traceback

        said = console.redact("".join(traceback.format_exception(error)))
        console.say(printable_lines(said.rstrip("\n")), "debug")


def show_cursor() -> None:
    """Show the cursor on each terminal of ours that something may be drawn on."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if display.was_drawn and os.isatty(descriptor):
                os.write(descriptor, b"\x1b[?25h")


#: A reader that takes nothing any more keeps us no longer than that, in seconds.
_LAST_WORDS_S = 1.0


class Interrupt:
    """Whether the program was asked to stop, and by which signal.

    When it has to stop at once it takes away what is drawn on the terminal, tells of the calls that are
    `in_flight`, and says its `last_words`.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit: ExitCode | None = None
        self.last_words: Callable[[], None] = lambda: None
        self.in_flight: Callable[[], list[str]] = list
        self._being_said: list[_thread.LockType] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal while actions are carried out."""
        code = SIGNALS[number]
        if self.exit in SIGNALS.values():
            self._stop_at_once(code)
        self.exit = code
        self.stop.set()
        # From a thread of its own: the signal may have come in the middle of a line, or of a table.
        said = "interrupted: finishing the actions in flight; interrupt again to stop immediately"
        self._being_said.append(_in_thread(lambda: console.say(said)))

    def abort(self, number: int, frame: FrameType | None) -> None:
        """Take a signal while nothing has been begun: threads that wait end, and nothing is done.

        Raises:
            Stopped: always.
        """
        self.exit = SIGNALS[number]
        self.stop.set()
        raise Stopped(number)

    def _stop_at_once(self, code: ExitCode) -> NoReturn:
        """Say the last words from a thread of their own: whoever waits for the reader must not hold us."""

        def say() -> None:
            with suppress(BaseException):
                # Not by way of sys.stderr: what lives on the terminal may hold it.
                os.write(2, console.line(f"stopped immediately; {in_flight_words(self.in_flight())}"))
            with suppress(BaseException):  # the reader has gone
                self.last_words()
                sys.stdout.flush()

        try:
            _in_thread(display.end).acquire(timeout=_LAST_WORDS_S / 2)
            show_cursor()
            _in_thread(say).acquire(timeout=_LAST_WORDS_S)
        finally:
            remove_temporary_files()
            os._exit(code)

    def finish_speaking(self) -> None:
        """Wait until what was begun to be said is said, for as long as somebody may listen."""
        for is_said in self._being_said:
            is_said.acquire(timeout=_LAST_WORDS_S)
        self._being_said.clear()

    def lock_lost(self) -> None:
        """Somebody else may hold the lock by now: begin nothing more."""
        if self.exit is None:
            self.exit = ExitCode.LOCKED
        self.stop.set()
        console.say(
            "error: the lock was lost: its lease expired, or it was broken; no new actions will start",
            "error",
        )


def in_flight_words(calls: list[str]) -> str:
    """What is not known of the calls that were sent and not answered."""
    if not calls:
        return "no call was in flight"
    return f"in flight, possibly completed: {', '.join(calls)}; the next plan shows the outcome"


def _in_thread(say: Callable[[], None]) -> _thread.LockType:
    """Say something in a thread; the lock is free once that is done.

    Not by `threading`: its own locks may be held by what the signal interrupted.
    """
    is_said = _thread.allocate_lock()
    is_said.acquire()

    def run() -> None:
        try:
            with suppress(BaseException):
                say()
        finally:
            is_said.release()

    _thread.start_new_thread(run, ())
    return is_said


@contextmanager
def interruptible(interrupt: Interrupt) -> Iterator[None]:
    with handled_by(interrupt.handle):
        try:
            yield
        finally:
            interrupt.finish_speaking()


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have the signals that end a run handled by somebody else."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    # What is ignored from the start on (nohup, a job in the background) stays so.
    before = {number: old for number, old in handlers.items() if old is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
