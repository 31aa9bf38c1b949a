"""A signal while actions are carried out: those in flight are finished, and a second one stops at once."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from reconciler.cli.console import console
from reconciler.cli.exits import SIGNALS, Stopped, handled_by
from reconciler.cli.progress import display
from reconciler.errors import ExitCode
from reconciler.files import remove_temporary_files


def show_cursor() -> None:
    """Show the cursor on each terminal of ours that something may be drawn on."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if display.was_drawn and os.isatty(descriptor):
                os.write(descriptor, b"\x1b[?25h")


STOPPED = "stopped immediately; the next plan shows the outcome of calls in flight"
#: A reader that takes nothing any more keeps us no longer than that, in seconds.
_LAST_WORDS_S = 1.0


class Interrupt:
    """Whether the program was asked to stop, and by which signal.

    When it has to stop at once it takes away what is drawn on the terminal, and says its `last_words`.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit: ExitCode | None = None
        self.last_words: Callable[[], None] = lambda: None
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
                os.write(2, console.line(STOPPED))
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
