"""What is told while actions are carried out: a line that counts on a terminal, lines elsewhere, JSON for
programs."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.wait_table import BusyLine, can_draw, display
from reconciler.decide.outcome import ApplyEvent, EventType
from reconciler.decide.plan import ACTIONS, Action
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.plan import Plan

_WORDS = {
    EventType.ACTION_STARTED: "started",
    EventType.ACTION_COMPLETED: "succeeded",
    EventType.ACTION_FAILED: "failed",
    EventType.ACTION_SKIPPED: "skipped",
}
_ENDS = frozenset({EventType.ACTION_COMPLETED, EventType.ACTION_FAILED, EventType.ACTION_SKIPPED})
#: Where lines stay, waiting is worth one of them each minute, in seconds.
PROGRESS_EVERY_S = 60.0
#: A span of time within a text grows by itself.
_SPAN = re.compile(r"\d+(\.\d+)? (s|min|h|d)\b")


class Listener(ABC):
    """Takes events; `begin` says that nobody is asked any more, so that nothing drawn hides a question."""

    def begin(self) -> None:  # noqa: B027 - most listeners have nothing to prepare
        """Actions are about to begin."""

    @abstractmethod
    def __call__(self, event: ApplyEvent) -> None:
        """Take one event."""


class _JsonLines(Listener):
    """One JSON object per line on stdout."""

    def __call__(self, event: ApplyEvent) -> None:
        console.document(event.document(), indent=None)


class _Lines(Listener):
    """One line per event on stderr. Waiting is told where something changed, once a minute at most."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._changed: dict[str, ApplyEvent] = {}
        self._told_at_s = float("-inf")

    def __call__(self, event: ApplyEvent) -> None:
        if event.type is EventType.ACTION_PROGRESS:
            self._progress(event)
        elif event.type in _WORDS:
            # What ended is told by this line, and is no change of a wait any more.
            self._changed.pop(event.key or "", None)
            console.say(_line(event))

    def _progress(self, event: ApplyEvent) -> None:
        key, state = event.key or "", _SPAN.sub("", event.detail or "")
        if self._told.get(key) != state:
            self._told[key] = state
            self._changed[key] = event
        elif key in self._changed:
            self._changed[key] = event
        now_s = datetime.fromisoformat(event.ts).timestamp()
        if self._changed and now_s - self._told_at_s >= PROGRESS_EVERY_S:
            self._told_at_s = now_s
            changed = list(self._changed.values())
            self._changed.clear()
            console.say(_line(changed[0]) + (f", and {len(changed) - 1} more" if changed[1:] else ""))


class _Counting(Listener):
    """A line on the terminal that counts jobs, with what is being done beside it."""

    def __init__(self, plan: Plan, drawn: ExitStack) -> None:
        self._drawn = drawn
        self._open = Counter(action.key for action in plan.to_execute)
        self._total = len(self._open)
        self._failed: set[str] = set()
        self.line = BusyLine(self._text(""))

    def begin(self) -> None:
        self._drawn.enter_context(display.part(self.line, sys.stderr))

    def __call__(self, event: ApplyEvent) -> None:
        key = event.key or ""
        if event.type in _ENDS and key in self._open:
            # A job counts once, when its last action has ended; what is done for it later counts no more.
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        if event.type is EventType.ACTION_FAILED:
            self._failed.add(key)
        elif event.type is EventType.ACTION_COMPLETED:
            self._failed.discard(key)
        if event.type in _WORDS or event.type is EventType.ACTION_PROGRESS:
            # When all are done there is only waiting, which a table shows.
            self.line.text = self._text(_line(event) if self._open else "")

    def _text(self, said: str) -> str:
        failed = f", {len(self._failed)} failed" if self._failed else ""
        done = self._total - len(self._open)
        return f"{done} of {self._total} jobs done{failed}" + (f"  {said}" if said else "")


def _line(event: ApplyEvent) -> str:
    said = event.message or event.detail or ""
    verb = event.action.value if event.action else ""
    if event.type is EventType.ACTION_PROGRESS:
        return printable(f"{event.key}: {said}")
    if event.type is EventType.ACTION_SKIPPED and event.action and ACTIONS[event.action].is_skipped:
        word = "not started" if event.action is Action.DEFER else event.action.value
        return printable(f"{event.key}: {word}, {said}")
    return printable(f"{verb} {event.key}: {_WORDS[event.type]}" + (f", {said}" if said else ""))


def lines() -> Listener:
    """Events for people, as lines wherever stderr leads."""
    return _Lines()


@contextmanager
def json_lines() -> Iterator[Listener]:
    """Events for programs."""
    yield _JsonLines()


@contextmanager
def progress(plan: Plan) -> Iterator[Listener]:
    """Events for people: drawn on a terminal only, and where it is text that is wanted."""
    if not can_draw(sys.stderr):
        yield lines()
        return
    with ExitStack() as drawn:
        yield _Counting(plan, drawn)
