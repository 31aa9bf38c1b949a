"""What is drawn in place on a terminal: one display per process, whose parts come and go."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from reconciler.cli.console import console
from reconciler.render import Style
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from reconciler.core.ports import Clock
    from reconciler.decide.outcome import Waited
    from reconciler.decide.wait import Goal


#: Seconds between two drawings of what has not changed, for the sign that moves.
_EVERY_S = 0.25
#: Lines that are not a row: the head of a table, the line that counts what is cut, and the cursor's own.
_BESIDE_ROWS = 3


def can_draw(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which one can draw, and text is wanted there."""
    is_dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    return stream.isatty() and not is_dumb and console.log_format == "text"


class TableRow(NamedTuple):
    """One row of a table. Where not all fit those of the lowest `rank` stay; `word` counts the others."""

    cells: Sequence[str]
    rank: int
    word: str


class LiveTable:
    """A table that is never higher or wider than the terminal; see `render.text.table`."""

    def __init__(self, head: Sequence[str]) -> None:
        self._head = head
        self.title = self.foot = ""
        self.rows: Sequence[TableRow] = ()
        self.lines_beside = 0

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from reconciler.render.text import table

        room = terminal.size.height - _BESIDE_ROWS - bool(self.title) - bool(self.foot) - self.lines_beside
        shown, hidden = fit(self.rows, max(1, room))
        rows = [self._head, *([_safe(cell) for cell in row.cells] for row in shown)]
        head, *lines = table(rows, Style(width=terminal.width))
        if self.title:
            yield _line(Text(_safe(self.title)))
        yield from (_line(Text(head, "bold")), *(_line(Text(line)) for line in lines))
        yield from (_line(Text(_safe(text))) for text in (hidden, self.foot) if text)


def fit(rows: Sequence[TableRow], room: int) -> tuple[Sequence[TableRow], str]:
    """The rows that there is room for, those that matter most, and a line that counts the others.

    Where all fit they stay in their order, and the line is empty.
    """
    if len(rows) <= room:
        return rows, ""
    by_rank = sorted(rows, key=lambda row: row.rank)
    hidden = Counter(row.word for row in by_rank[room:])
    counts = ", ".join(f"{count} {word}" for word, count in hidden.items())
    return by_rank[:room], f"and {hidden.total()} more: {counts}"


class BusyLine:
    """A line that says what is being done, behind a sign that moves."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._spinner: Any = None

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.spinner import Spinner
        from rich.text import Text

        self._spinner = self._spinner or Spinner("dots")
        yield _line(Text.assemble(self._spinner.render(terminal.get_time()), " ", _safe(self.text)))


def _line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _safe(text: str) -> str:
    return console.clean(printable(console.redact(text)))


#: What the drawing thread is told: texts to show above the parts, and what to do.
_News = tuple[Literal["say", "draw", "end"], str]


class Display:
    """What is drawn: its parts, each of one line, or a table.

    One thread draws, and nobody else: a signal may come in the middle of a drawing, and its handler has
    something to say. What is said meanwhile goes above the parts.
    """

    def __init__(self) -> None:
        self._parts: tuple[Any, ...] = ()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        # A simple queue may be put to by a signal handler while it is put to.
        self._news: SimpleQueue[_News] = SimpleQueue()
        self.was_drawn = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @contextmanager
    def part(self, part: Any, stream: TextIO) -> Iterator[None]:
        """Draw a part as well; the first one says where."""
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
        """Take everything away: nothing is left to draw, or the program is about to end."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        console.divert = None
        self._news.put(("end", ""))
        thread.join()
        # What was said when the end had begun.
        while not self._news.empty():
            if text := self._news.get()[1]:
                console.tell(text)

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
            with suppress(OSError, ValueError), live:  # nobody looking is no reason to stop
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
            if isinstance(part, LiveTable):
                part.lines_beside = len(parts) - 1
            yield part


#: The one of this process.
display = Display()


# --- the jobs that are waited for

#: What matters most first; a phase that is not here stands behind Creating.
RANKS = {"Running": 1, "Terminating": 2, "Creating": 3, "Pending": 5}
_BAD_ENDS = ("ended_badly", "superseded_elsewhere", "timed_out", "blocked")
_RANK_BY_END = {**dict.fromkeys(_BAD_ENDS, 0), "reached": 9}
Show = Callable[[tuple["Waited", ...]], None]


@contextmanager
def live_table(clock: Clock, goal: Goal | None, *, is_drawn: bool = True) -> Iterator[Show]:
    """Yield what shows the jobs; it does so on a terminal, and only where something is waited for.

    With or without a table nothing is said of reading the workspace, which is done over and over.
    """
    if goal is None:
        yield lambda _: None
        return
    with reading.silenced():
        if not (is_drawn and can_draw(sys.stderr)):
            yield lambda _: None
            return
        table = LiveTable(("job", "phase", "queued", "running", "wait"))

        def show(waits: tuple[Waited, ...]) -> None:
            at_s = clock.now()
            table.rows = [_row(waited, at_s) for waited in waits]
            ends = Counter(waited.end.value for waited in waits)
            bad = sum(ends[end] for end in _BAD_ENDS)
            failed = f", {bad} failed" if bad else ""
            table.title = f"{ends['reached']} of {len(waits)} jobs {goal.value}{failed}"
            display.refresh()

        with display.part(table, sys.stderr):
            yield show


def _row(waited: Waited, at_s: float) -> TableRow:
    job, end = waited.job, waited.end.value
    phase = job.phase_text if job else waited.action.value
    times = (
        [format_duration(round(time_s)) for time_s in (job.queued_s(at_s), job.ran_s(at_s))]
        if job
        else ["", ""]
    )
    cells = (waited.key, phase, *times, end.replace("_", " "))
    return TableRow(cells, _RANK_BY_END.get(end, RANKS.get(phase, 4)), phase)


# --- reading the workspace

#: Seconds after which a terminal shows it, seconds after which a file has a line, and then one each minute.
DRAW_AFTER_S, SAY_AFTER_S, SAY_EVERY_S = 0.5, 10.0, 60.0


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
    def __call__(self) -> Iterator[Callable[[int], None]]:
        """Yield what is told how many jobs a page had, while a list is read."""
        pages: list[int] = []
        if self._is_silent or display.is_running:
            yield pages.append
            return
        is_over = threading.Event()
        # Whoever is told of it is a thread: a single request may take a minute.
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
    """Draw it on a terminal; elsewhere say it now and then."""

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


#: The one of this process.
reading = Reading()
