"""How far a fleet is: a line that counts on a terminal; elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reconciler.cli.console import console
from reconciler.cli.progress import SAY_AFTER_S, SAY_EVERY_S, BusyLine, can_draw, display
from reconciler.decide.fleet import StackResult, message_of
from reconciler.text import printable


@contextmanager
def fleet_progress(total: int) -> Iterator[Callable[[StackResult], None]]:
    """Yield what is told of each stack that is done; with `-v` each has a line."""
    progress = _Progress(total)
    if not can_draw(sys.stderr):
        yield progress.take
        return
    progress.line = BusyLine(progress.text)
    with display.part(progress.line, sys.stderr):
        yield progress.take


class _Progress:
    def __init__(self, total: int) -> None:
        self._total, self._done, self._failed = total, 0, 0
        self._next_s = time.monotonic() + SAY_AFTER_S
        self.line: BusyLine | None = None

    @property
    def text(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._done} of {self._total} stacks done{failed}"

    def take(self, result: StackResult) -> None:
        """One more is done."""
        self._done += 1
        self._failed += bool(result.errors)
        said = message_of(result.errors[0]) if result.errors else result.last_line
        line = printable(f"{result.root}: {said}")
        console.detail(f"{self.text}; {line}")
        if self.line is not None:
            self.line.text = f"{self.text}  {line}"
        elif not console.verbosity and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + SAY_EVERY_S
            console.say(self.text)
