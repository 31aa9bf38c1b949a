"""A live table of jobs on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from reconciler.cli.progress import can_draw, display, one_line, reading, safe
from reconciler.render import Style
from reconciler.render.text import table
from reconciler.text import format_duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from reconciler.core.ports import Clock
    from reconciler.decide.outcome import Goal, Waited

#: Lines besides the rows: the head, the count of hidden rows, and the cursor's line.
_BESIDE_ROWS = 3


class TableRow(NamedTuple):
    """A row of a table. If not all fit, those of low `rank` stay; the others are counted by `word`."""

    cells: Sequence[str]
    rank: int
    word: str


class LiveTable:
    """A table that fits the terminal; see `render.text.table`."""

    def __init__(self, head: Sequence[str], order: Sequence[str] = ()) -> None:
        self._head, self._order = head, order
        self.title = self.foot = ""
        self.rows: Sequence[TableRow] = ()
        self.lines_beside = 0

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        room = terminal.size.height - _BESIDE_ROWS - bool(self.title) - bool(self.foot) - self.lines_beside
        shown, hidden = fit(self.rows, max(1, room))
        rows = [self._head, *([safe(cell) for cell in row.cells] for row in shown)]
        head, *lines = table(rows, Style(width=terminal.width), self._order, wraps=False)
        if self.title:
            yield one_line(Text(safe(self.title)))
        yield from (one_line(Text(head, "bold")), *(one_line(Text(line)) for line in lines))
        yield from (one_line(Text(safe(text))) for text in (hidden, self.foot) if text)


def fit(rows: Sequence[TableRow], room: int) -> tuple[Sequence[TableRow], str]:
    """Return the most important rows that fit, and a line that counts the others.

    If all fit, their order is kept and the line is empty.
    """
    if len(rows) <= room:
        return rows, ""
    by_rank = sorted(rows, key=lambda row: row.rank)
    hidden = Counter(row.word for row in by_rank[room:])
    counts = ", ".join(f"{count} {word}" for word, count in hidden.items())
    return by_rank[:room], f"and {hidden.total()} more: {counts}"


# --- waiting for jobs

#: Importance of a phase, highest first; others come after Creating.
RANKS = {"Running": 1, "Terminating": 2, "Creating": 3, "Pending": 5}
_BAD_ENDS = ("ended_badly", "superseded_elsewhere", "timed_out", "blocked")
_RANK_BY_END = {**dict.fromkeys(_BAD_ENDS, 0), "reached": 9}
Show = Callable[[tuple["Waited", ...]], None]


@contextmanager
def live_table(clock: Clock, goal: Goal | None, *, is_drawn: bool = True) -> Iterator[Show]:
    """Yield a function that shows the jobs, on a terminal and if there is a goal.

    Meanwhile the spinner about reading the workspace is silent, because that is read repeatedly.
    """
    if goal is None:
        yield lambda _: None
        return
    with reading.silenced():
        if not (is_drawn and can_draw(sys.stderr)):
            yield lambda _: None
            return
        drawn = LiveTable(
            ("job", "phase", "queued", "running", "wait"), ("job", "phase", "wait", "running", "queued")
        )

        def show(waits: tuple[Waited, ...]) -> None:
            at_s = clock.now()
            drawn.rows = [_row(waited, at_s) for waited in waits]
            drawn.title = title_of(waits, goal)
            display.refresh()

        with display.part(drawn, sys.stderr):
            yield show


def title_of(waits: Sequence[Waited], goal: Goal) -> str:
    """Count the jobs that have reached the goal, and those that ended otherwise, by outcome."""
    ends = Counter(waited.end.value for waited in waits)
    others = (f", {ends[end]} {end.replace('_', ' ')}" for end in (*_BAD_ENDS, "gone") if ends[end])
    # A short job may have completed before it was seen running.
    words = "running or completed" if goal.value == "running" else goal.value
    return f"{ends['reached']} of {len(waits)} jobs {words}" + "".join(others)


def _row(waited: Waited, at_s: float) -> TableRow:
    job, end = waited.job, waited.end.value
    phase = job.phase_text if job else waited.action.value
    times = (job.queued_s(at_s), job.ran_s(at_s)) if job else ()
    spans = [format_duration(round(time_s)) for time_s in times] or ["", ""]
    cells = (waited.key, phase, *spans, end.replace("_", " "))
    return TableRow(cells, _RANK_BY_END.get(end, RANKS.get(phase, 4)), phase)
