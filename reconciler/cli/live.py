"""The jobs that are waited for, as a table that lives on a terminal; lines elsewhere are the events'."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.cli.console import console
from reconciler.core.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from reconciler.core.goal import Goal
    from reconciler.core.outcome import Waited
    from reconciler.core.ports import Clock

Show = Callable[[tuple["Waited", ...]], None]


@contextmanager
def live_table(clock: Clock, goal: Goal | None) -> Iterator[Show]:
    """Yield what shows the jobs; it does so on a terminal, and only where something is waited for."""
    if goal is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live

    no_colour = not console.style(sys.stderr).colour
    terminal = Console(stderr=True, no_color=no_colour, highlight=False)
    with Live(console=terminal, auto_refresh=False, transient=True) as live:
        yield lambda waits: live.update(_table(waits, clock.now()), refresh=True)


def _table(waits: tuple[Waited, ...], at_s: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    from reconciler.core.duration import spell

    table = Table("job", "phase", "queued", "running", "wait", box=None)
    for waited in waits:
        job = waited.job
        row = [
            waited.key,
            job.phase_text if job else waited.action.value,
            spell(round(job.queued_s(at_s))) if job else "",
            spell(round(job.ran_s(at_s))) if job else "",
            waited.end.value.replace("_", " "),
        ]
        table.add_row(*(Text(console.redact(printable(cell))) for cell in row))
    return table
