"""The first Ctrl-C or SIGTERM lets what is in flight finish; the second stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from reconciler.cli.console import console
from reconciler.cli.exits import Exit

#: A reader that takes nothing any more keeps us no longer than that, in seconds.
_LAST_WORDS_S = 1.0
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
            self._stop_at_once(code)
        self.exit = code
        self.stop.set()
        with suppress(Exception):  # the signal may have come in the middle of a line
            console.say(
                "interrupted: no new action begins, the ones in flight finish; once more stops at once"
            )

    def _stop_at_once(self, code: Exit) -> NoReturn:
        """Say the last words from a thread of their own: whoever waits for the reader must not hold us."""

        def say() -> None:
            with suppress(Exception):  # the reader has gone
                self.last_words()
                sys.stdout.flush()

        try:
            words = threading.Thread(target=say, name="last words", daemon=True)
            words.start()
            words.join(_LAST_WORDS_S)
        finally:
            os._exit(code)

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
