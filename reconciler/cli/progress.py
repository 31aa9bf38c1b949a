"""Progress on a terminal, redrawn in place: one display per process, with parts that come and go."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TextIO

from reconciler.cli.console import console
from reconciler.text import format_size, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text


#: Refresh interval of the spinner.
_EVERY_S = 0.25


def can_draw(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can be redrawn, and its format is text."""
    is_dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    return stream.isatty() and not is_dumb and console.log_format == "text"


class BusyLine:
    """A spinner with a text."""

    def __init__(self, text: str = "") -> None:
        self.text, self.lines_beside = text, 0
        self._spinner: Any = None

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.spinner import Spinner
        from rich.text import Text

        self._spinner = self._spinner or Spinner("dots")
        yield one_line(Text.assemble(self._spinner.render(terminal.get_time()), " ", safe(self.text)))


def one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def safe(text: str) -> str:
    return console.clean(printable(console.redact(text)))


#: A message to the drawing thread: a command, and a text to print above the parts.
_News = tuple[Literal["say", "draw", "end"], str]


class Display:
    """Draws its parts, each a line or a table, and prints other messages above them.

    Only its thread draws, because a signal handler may print in the middle of a drawing.
    """

    def __init__(self) -> None:
        self._parts: tuple[Any, ...] = ()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        # `SimpleQueue.put` is reentrant, so signal handlers may call it.
        self._news: SimpleQueue[_News] = SimpleQueue()
        self.was_drawn = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @contextmanager
    def part(self, part: Any, stream: TextIO) -> Iterator[None]:
        """Add a part to the display. The stream of the first one is used."""
        with self._lock:
            self._parts += (part,)
            if self._thread is None:
                self.was_drawn = True
                self._thread = threading.Thread(
                    target=self._draw, args=(stream,), name="display", daemon=True
                )
                self._thread.start()
                if sys.stderr.isatty():
                    console.divert = lambda text: self._news.put(("say", text))
        self.refresh()
        try:
            yield
        finally:
            with self._lock:
                self._parts = tuple(one for one in self._parts if one is not part)
                if not self._parts:
                    self.end()
            self.refresh()

    def refresh(self) -> None:
        if self.is_running:
            self._news.put(("draw", ""))

    def end(self) -> None:
        """Clear the display: there are no more parts, or the program exits."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        console.divert = None
        self._news.put(("end", ""))
        thread.join()
        # Messages that arrived during the end.
        while not self._news.empty():
            if text := self._news.get()[1]:
                console.write_stderr(text)

    def _draw(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        terminal = Console(file=stream, no_color=not console.style(stream).colour, highlight=False)
        live = Live(
            self,
            console=terminal,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        sign = "draw"
        try:
            with suppress(OSError, ValueError), live:  # ignore a closed terminal
                while sign != "end":
                    try:
                        sign, text = self._news.get(timeout=_EVERY_S)
                    except Empty:
                        sign = "draw"
                    if sign == "say":
                        terminal.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
                    if sign != "end":
                        live.refresh()
        finally:
            console.divert = None

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        parts = self._parts
        for part in parts:
            part.lines_beside = len(parts) - 1
            yield part


display = Display()


# --- reading the workspace

#: Delay of the spinner on a terminal; elsewhere delay of the first line, and interval of further ones.
DRAW_AFTER_S, SAY_AFTER_S, SAY_EVERY_S = 0.5, 10.0, 60.0


class Reading:
    """Shows the progress of reading the workspace, page by page."""

    def __init__(self) -> None:
        self._is_silent = False

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Show nothing inside the `with` block."""
        before, self._is_silent = self._is_silent, True
        try:
            yield
        finally:
            self._is_silent = before

    @contextmanager
    def __call__(self) -> Iterator[Callable[[int], None]]:
        """Yield a function to call with the number of jobs of each page."""
        pages: list[int] = []
        if self._is_silent or display.is_running:
            yield pages.append
            return
        is_over = threading.Event()
        # On a thread, because a single request may take a minute.
        watcher = threading.Thread(
            target=_watch_reading, args=(pages, is_over), name="reading shown", daemon=True
        )
        watcher.start()
        try:
            yield pages.append
        finally:
            is_over.set()
            watcher.join()


def _watch_reading(pages: list[int], is_over: threading.Event) -> None:
    """Draw a spinner on a terminal; elsewhere print a line now and then."""

    def text() -> str:
        return "reading the workspace" + (f", {sum(pages)} jobs so far" if any(pages) else "")

    if not can_draw(sys.stderr):
        wait_s = SAY_AFTER_S
        while not is_over.wait(wait_s):
            console.say(text())
            wait_s = SAY_EVERY_S
    elif not is_over.wait(DRAW_AFTER_S):
        line = BusyLine()
        with display.part(line, sys.stderr):
            while not is_over.is_set():
                line.text = text()
                is_over.wait(0.1)


reading = Reading()


# --- uploading code


@contextmanager
def uploading() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the bytes sent and their total, on a terminal only."""
    line = BusyLine()
    with ExitStack() as drawn:

        def show_progress(done: int, total: int) -> None:
            if not line.text and can_draw(sys.stderr):
                drawn.enter_context(display.part(line, sys.stderr))
            line.text = f"uploading code, {format_size(done)} of {format_size(total)}"

        yield show_progress
