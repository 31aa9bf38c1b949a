"""What is drawn while something goes on: a table of jobs, and a line that says what is being done."""

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

#: Lines that are not a row: the head of a table, the line that counts what is cut, and the cursor's own.
_BESIDE_ROWS = 3


class TableRow(NamedTuple):
    """One row of a table. Where not all fit those of the lowest `rank` stay; `word` counts the others."""

    cells: Sequence[str]
    rank: int
    word: str


class LiveTable:
    """A table that is never higher or wider than the terminal; see `render.text.table`."""

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
    """The rows that there is room for, those that matter most, and a line that counts the others.

    Where all fit they stay in their order, and the line is empty.
    """
    if len(rows) <= room:
        return rows, ""
    by_rank = sorted(rows, key=lambda row: row.rank)
    hidden = Counter(row.word for row in by_rank[room:])
    counts = ", ".join(f"{count} {word}" for word, count in hidden.items())
    return by_rank[:room], f"and {hidden.total()} more: {counts}"


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
    """How many are what is waited for, and how many ended otherwise, each in its own words."""
    ends = Counter(waited.end.value for waited in waits)
    others = (f", {ends[end]} {end.replace('_', ' ')}" for end in (*_BAD_ENDS, "gone") if ends[end])
    # A short job may be over before anybody looks.
    words = "running or completed" if goal.value == "running" else goal.value
    return f"{ends['reached']} of {len(waits)} jobs {words}" + "".join(others)


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
