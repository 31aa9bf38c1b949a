"""Signals that end or stop the program by themselves: they leave a terminal that can be used.

Ctrl-C, SIGTERM and SIGHUP end it in order, see `interrupts`. Any other that ends it does so as the system has
it, core file and all, once the cursor is back and no half-written file is left; Ctrl-Z takes away what is
drawn, and draws it again afterwards.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType

from reconciler.cli.terminal.wait_table import display
from reconciler.files import remove_temporary_files

_FATAL = (
    *("SIGQUIT", "SIGABRT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGPOLL"),
    *("SIGSTKFLT", "SIGPWR", "SIGSYS", "SIGTRAP"),
)
#: A terminal that takes nothing any more keeps us no longer than that, in seconds.
_PATIENCE_S = 0.5
SHOW_CURSOR = b"\x1b[?25h"


def restore_on_signals() -> None:
    """Handle the signals that nobody else handles. Only the main thread may call it."""
    for name in _FATAL:
        _handle(name, _end)
    _handle("SIGTSTP", _stop)


def _handle(name: str, handler: signal._HANDLER) -> None:
    number = getattr(signal, name, None)
    # What is ignored from the start on stays so, and what Python itself handles (faulthandler) too.
    if number is not None and signal.getsignal(number) is signal.SIG_DFL:
        signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    display.pause(_PATIENCE_S)
    show_cursor()
    remove_temporary_files()
    _as_the_system_has_it(number)


def _stop(number: int, frame: FrameType | None) -> None:
    display.pause(_PATIENCE_S)
    show_cursor()
    _as_the_system_has_it(number)
    # Somebody has let us go on.
    signal.signal(number, _stop)
    display.resume()


def _as_the_system_has_it(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def show_cursor() -> None:
    """Show the cursor on each terminal of ours that something may be drawn on."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if display.was_drawn and os.isatty(descriptor):
                os.write(descriptor, SHOW_CURSOR)
