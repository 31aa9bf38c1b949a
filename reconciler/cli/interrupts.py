"""The first Ctrl-C or SIGTERM lets what is in flight finish; the second stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from reconciler.cli.console import console
from reconciler.cli.exits import Exit

_EXITS = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


class Interrupt:
    """Whether the program was asked to stop, and by which signal.

    `last_words` are said when it has to stop at once.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit: Exit | None = None
        self.last_words: Callable[[], None] = lambda: None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        code = _EXITS[signal.Signals(number)]
        if self.exit in _EXITS.values():
            self.last_words()
            sys.stdout.flush()
            os._exit(code)
        self.exit = code
        self.stop.set()
        console.say("interrupted: no new action begins, the ones in flight finish; once more stops at once")

    def lock_lost(self) -> None:
        """Somebody else may hold the lock by now: begin nothing more."""
        if self.exit is None:
            self.exit = Exit.LOCKED
        self.stop.set()
        console.say(
            "error: the lock was lost: its lease ran out, or somebody broke it; no new action begins", "error"
        )


@contextmanager
def interruptible(interrupt: Interrupt) -> Iterator[None]:
    """Handle the signals while actions are carried out."""
    before = {number: signal.signal(number, interrupt.handle) for number in _EXITS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
