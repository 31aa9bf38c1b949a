"""What Python and libraries write to stderr by themselves: it goes through the console, as all else does.

A thread that fails, a warning, a logger that nobody listens to: each would be written past the redactor, and
quote what it was given.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any, TextIO

from reconciler.cli.entrypoint import number_of_signal
from reconciler.cli.terminal.console import console
from reconciler.text import printable, printable_lines

if TYPE_CHECKING:
    from logging import LogRecord


def redirect() -> None:
    """Have everything said through the console from now on."""
    threading.excepthook = _thread_failed
    sys.unraisablehook = not_raised
    warnings.showwarning = _warn
    _redirect_loggers()


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    _say_failure(failed.exc_value, f"in the thread {failed.thread.name if failed.thread else '?'}")


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
        said = console.redact("".join(traceback.format_exception(error)))
        console.say(printable_lines(said.rstrip("\n")), "debug")


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    console.detail(console.redact(f"{category.__name__}: {message}"))


def _redirect_loggers() -> None:
    import logging

    class _ToConsole(logging.Handler):
        def emit(self, record: LogRecord) -> None:
            said: Any = record.getMessage()
            console.detail(console.redact(f"{record.name}: {said}"))

    # A logger that nobody listens to is heard by this one.
    logging.lastResort = _ToConsole(logging.WARNING)
