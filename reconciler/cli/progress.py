"""What is told while actions are carried out: bars on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reconciler.cli.console import console
from reconciler.core.outcome import Event, EventType
from reconciler.core.printable import printable

if TYPE_CHECKING:
    from reconciler.core.plan import Plan

_WORDS = {
    EventType.ACTION_STARTED: "started",
    EventType.ACTION_PROGRESS: "waiting",
    EventType.ACTION_COMPLETED: "done",
    EventType.ACTION_FAILED: "failed",
    EventType.ACTION_SKIPPED: "skipped",
}


class Listener(ABC):
    """Takes events; `begin` says that nobody is asked any more, so that bars do not hide a question."""

    def begin(self) -> None:  # noqa: B027 - most listeners have nothing to prepare
        """Actions are about to begin."""

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Take one event."""


class _JsonLines(Listener):
    """One JSON object per line on stdout."""

    def __call__(self, event: Event) -> None:
        console.document(event.document(), indent=None)


class _Lines(Listener):
    """One line per event on stderr."""

    def __call__(self, event: Event) -> None:
        if event.type in _WORDS:
            console.say(_line(event))


class _Bars(Listener):
    """A bar over all actions on the terminal, with what is being done beside it."""

    def __init__(self, plan: Plan) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        no_colour = not console.style(sys.stderr).colour
        self.bars: Any = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True, no_color=no_colour, highlight=False),
            transient=True,
        )
        self._task = self.bars.add_task("apply", total=len(plan.to_execute))

    def begin(self) -> None:
        self.bars.start()

    def __call__(self, event: Event) -> None:
        if event.type in (EventType.ACTION_STARTED, EventType.ACTION_PROGRESS):
            self.bars.update(self._task, description=console.redact(_line(event)))
        elif event.type in (EventType.ACTION_COMPLETED, EventType.ACTION_FAILED):
            self.bars.advance(self._task)


def _line(event: Event) -> str:
    said = event.message or event.detail
    verb = event.action.value if event.action else ""
    return printable(f"{verb} {event.key}: {_WORDS[event.type]}" + (f", {said}" if said else ""))


@contextmanager
def json_lines() -> Iterator[Listener]:
    """Events for programs."""
    yield _JsonLines()


@contextmanager
def progress(plan: Plan) -> Iterator[Listener]:
    """Events for people: bars on a terminal only, and where it is text that is wanted."""
    if not sys.stderr.isatty() or console.log_format == "json":
        yield _Lines()
        return
    listener = _Bars(plan)
    try:
        yield listener
    finally:
        listener.bars.stop()
