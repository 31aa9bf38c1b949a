"""Something to see while a slow service is read: a line that moves on a terminal, a plain one elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.wait_table import BusyLine, can_draw, display

#: Seconds after which a terminal shows it, seconds after which a file has a line, and then one each minute.
DRAW_AFTER_S, SAY_AFTER_S, SAY_EVERY_S = 0.5, 10.0, 60.0
TellJobs = Callable[[int], None]


class Reading:
    """Is told when the workspace is read, and of each page that came."""

    def __init__(self) -> None:
        self._is_silent = False

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Say nothing: whoever waits for jobs sees them."""
        before, self._is_silent = self._is_silent, True
        try:
            yield
        finally:
            self._is_silent = before

    @contextmanager
    def __call__(self) -> Iterator[TellJobs]:
        """Yield what is told how many jobs a page had, while a list is read."""
        if self._is_silent or display.is_running:
            yield lambda _: None
            return
        one = _OneReading()
        # Whoever is told of it is a thread: a single request may take a minute.
        watcher = threading.Thread(target=one.watch, name="reading shown", daemon=True)
        watcher.start()
        try:
            yield one.tell
        finally:
            one.is_over.set()
            watcher.join()


class _OneReading:
    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._jobs = 0
        self._lock = threading.Lock()

    def tell(self, jobs: int) -> None:
        with self._lock:
            self._jobs += jobs

    @property
    def _text(self) -> str:
        return "reading the workspace" + (f", {self._jobs} jobs so far" if self._jobs else "")

    def watch(self) -> None:
        if can_draw(sys.stderr):
            self._draw()
        else:
            self._say()

    def _draw(self) -> None:
        if self.is_over.wait(DRAW_AFTER_S):
            return
        line = BusyLine()
        with display.part(line, sys.stderr):
            while not self.is_over.is_set():
                line.text = self._text
                self.is_over.wait(0.1)

    def _say(self) -> None:
        wait_s = SAY_AFTER_S
        while not self.is_over.wait(wait_s):
            console.say(self._text)
            wait_s = SAY_EVERY_S


#: The one of this process.
reading = Reading()
