"""What is drawn in place on a terminal: one display per process, whose parts come and go."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from reconciler.cli.console import console
from reconciler.text import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from reconciler.core.ports import Clock
    from reconciler.decide.outcome import Waited
    from reconciler.decide.wait import Goal


Show = Callable[[tuple["Waited", ...]], None]
#: Seconds between two drawings of what has not changed, for the sign that moves.
_EVERY_S = 0.25
#: Lines that are not a row: the head of a table, the line that counts what is cut, and the cursor's own.
_BESIDE_ROWS = 3
#: No column is narrower, unless it wants no more.
_LEAST_COLUMN = 8


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
    """A table that is never higher or wider than the terminal.

    What of a cell does not fit ends with `…`, those of the first column (names) last; columns for which there
    is no room at all are left out, and the head says so.
    """

    def __init__(self, head: Sequence[str], title: str = "") -> None:
        self._head = head
        self.title = title
        self.rows: Sequence[TableRow] = ()
        self.foot = ""
        self.lines_beside = 0

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        texts = [text for text in (self.title, self.foot) if text]
        room = terminal.size.height - _BESIDE_ROWS - len(texts) - self.lines_beside
        shown, hidden = fit(self.rows, max(1, room))
        cells = [[_safe(cell) for cell in row.cells] for row in shown]
        natural = [max(map(cell_len, column)) for column in zip(self._head, *cells, strict=True)]
        widths = column_widths(natural, terminal.width)
        head = [*self._head[: len(widths)]]
        if len(widths) < len(natural):
            head[-1] = f"{head[-1]} …"
            widths[-1] = max(
                widths[-1], min(cell_len(head[-1]), terminal.width - sum(widths[:-1]) - len(widths))
            )
        table = Table(box=None)
        for name, width in zip(head, widths, strict=True):
            table.add_column(name, no_wrap=True, overflow="ellipsis", width=width)
        for row in cells:
            table.add_row(*map(Text, row[: len(widths)]))
        lines = [_line(Text(_safe(text))) if text else None for text in (self.title, hidden, self.foot)]
        yield from (part for part in (lines[0], table, *lines[1:]) if part is not None)


def column_widths(natural: Sequence[int], width: int) -> list[int]:
    """How wide the columns of a table are, each with a space on both sides; the last ones may be missing.

    The first is as wide as it wants to be, if that can be; of the others those on the right are narrowed.
    """
    widths = [min(natural[0], width - 2)]
    for wanted in natural[1:]:
        if sum(widths) + min(wanted, _LEAST_COLUMN) + 2 * (len(widths) + 1) > width:
            break
        widths.append(min(wanted, _LEAST_COLUMN))
    # What is left goes to those that want more, the leftmost first.
    for place, wanted in enumerate(natural[: len(widths)]):
        widths[place] = min(wanted, width - 2 * len(widths) - sum(widths) + widths[place])
    return widths


def fit(rows: Sequence[TableRow], room: int) -> tuple[Sequence[TableRow], str]:
    """The rows that there is room for, those that matter most, and a line that counts the others.

    Where all fit they stay in their order, and the line is empty.
    """
    if len(rows) <= room:
        return rows, ""
    by_rank = sorted(rows, key=lambda row: row.rank)
    hidden = by_rank[room:]
    counts = ", ".join(f"{count} {word}" for word, count in Counter(row.word for row in hidden).items())
    return by_rank[:room], f"and {len(hidden)} more: {counts}"


class _Sign(Enum):
    """What the drawing thread is told besides texts to show."""

    DRAW = "draw"
    END = "end"
    PAUSE = "pause"
    RESUME = "resume"


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
        self._news: SimpleQueue[str | _Sign] = SimpleQueue()
        self._paused: SimpleQueue[None] = SimpleQueue()
        self.was_drawn = False

    @property
    def is_running(self) -> bool:
        """Whether something is drawn just now."""
        return self._thread is not None

    @contextmanager
    def part(self, part: Any, stream: TextIO) -> Iterator[None]:
        """Draw a part as well; the first one says where."""
        with self._lock:
            self._parts += (part,)
            if self._thread is None:
                self._start(stream)
        self.refresh()
        try:
            yield
        finally:
            with self._lock:
                self._parts = tuple(one for one in self._parts if one is not part)
                if not self._parts:
                    self._stop()
            self.refresh()

    def refresh(self) -> None:
        """Have all parts drawn as they are now."""
        if self.is_running:
            self._news.put(_Sign.DRAW)

    def end(self) -> None:
        """Take everything away: the program is about to end, whatever else is going on."""
        if self.is_running:
            self._stop()

    def pause(self, patience_s: float) -> None:
        """Take everything away until `resume`; for a signal handler, which waits no longer than that."""
        if self.is_running:
            self._news.put(_Sign.PAUSE)
            with suppress(Empty):
                self._paused.get(timeout=patience_s)

    def resume(self) -> None:
        """Draw again."""
        self._news.put(_Sign.RESUME)

    def _start(self, stream: TextIO) -> None:
        self.was_drawn = True
        self._thread = threading.Thread(target=self._draw, args=(stream,), name="display", daemon=True)
        self._thread.start()
        if sys.stderr.isatty():
            console.divert = self._news.put

    def _stop(self) -> None:
        thread, self._thread = self._thread, None
        console.divert = None
        self._news.put(_Sign.END)
        if thread is not None:
            thread.join()
        # What was said when the end had begun.
        while not self._news.empty():
            if isinstance(text := self._news.get(), str) and text:
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
        try:
            with suppress(OSError, ValueError), live:  # nobody looking is no reason to stop
                while (news := self._next()) is not _Sign.END:
                    if news is _Sign.PAUSE:
                        live.stop()
                        self._wait_for_resume()
                        live.start()
                    elif isinstance(news, str):
                        terminal.print(Text.from_ansi(news.rstrip("\n")), soft_wrap=True)
                    live.refresh()
        finally:
            console.divert = None

    def _wait_for_resume(self) -> None:
        """Wait until somebody lets us draw again; what is said meanwhile is said then."""
        self._paused.put(None)
        said: list[str | _Sign] = []
        while (news := self._news.get()) is not _Sign.RESUME:
            said.append(news)
            if news is _Sign.END:
                break
        for news in said:
            self._news.put(news)

    def _next(self) -> str | _Sign:
        try:
            return self._news.get(timeout=_EVERY_S)
        except Empty:
            return _Sign.DRAW

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        parts = self._parts
        for part in parts:
            if isinstance(part, LiveTable):
                part.lines_beside = len(parts) - 1
            yield part


#: The one of this process.
display = Display()


class BusyLine:
    """A line that says what is being done, behind a sign that moves."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self._spinner: Any = None

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.spinner import Spinner
        from rich.text import Text

        self._spinner = self._spinner or Spinner("dots")
        sign = self._spinner.render(terminal.get_time())
        yield _line(Text.assemble(sign, " ", _safe(self.text)))


def _line(text: Any) -> Any:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _safe(text: str) -> str:
    return console.clean(printable(console.redact(text)))


# --- the jobs that are waited for

_WAITED_FOR = ("job", "phase", "queued", "running", "wait")
#: What matters most first; a phase that is not here stands behind Creating.
RANKS = {"Running": 1, "Terminating": 2, "Creating": 3, "Pending": 5}
_BEHIND = {"ended_badly": 0, "superseded_elsewhere": 0, "timed_out": 0, "blocked": 0, "reached": 9}


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
        table = LiveTable(_WAITED_FOR)

        def show(waits: tuple[Waited, ...]) -> None:
            at_s = clock.now()
            table.rows = [_row(waited, at_s) for waited in waits]
            ends = Counter(waited.end.value for waited in waits)
            bad = sum(ends[end] for end in ("ended_badly", "superseded_elsewhere", "timed_out", "blocked"))
            failed = f", {bad} failed" if bad else ""
            table.title = f"{ends['reached']} of {len(waits)} jobs {goal.value}{failed}"
            display.refresh()

        with display.part(table, sys.stderr):
            yield show


def _row(waited: Waited, at_s: float) -> TableRow:
    from reconciler.text import format_duration

    job = waited.job
    phase = job.phase_text if job else waited.action.value
    cells = (
        waited.key,
        phase,
        format_duration(round(job.queued_s(at_s))) if job else "",
        format_duration(round(job.ran_s(at_s))) if job else "",
        waited.end.value.replace("_", " "),
    )
    return TableRow(cells, _BEHIND.get(waited.end.value, RANKS.get(phase, 4)), phase)


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
        """Draw it on a terminal; elsewhere say it now and then."""
        if not can_draw(sys.stderr):
            wait_s = SAY_AFTER_S
            while not self.is_over.wait(wait_s):
                console.say(self._text)
                wait_s = SAY_EVERY_S
        elif not self.is_over.wait(DRAW_AFTER_S):
            line = BusyLine()
            with display.part(line, sys.stderr):
                while not self.is_over.is_set():
                    line.text = self._text
                    self.is_over.wait(0.1)


#: The one of this process.
reading = Reading()
