"""The report of a fleet as Markdown: a line for each stack with something to see, then the stacks in full.

What there is no room for is left out by whole stacks, whose lines stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.decide.fleet import message_of
from reconciler.render.markdown import MOST_CHARACTERS, code, prose
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult

#: By which a workflow finds its own comment.
MARK = "<!-- reconciler: fleet -->"
#: What is kept for the lines that say what was left out.
_ROOM_FOR_COUNTS = 400
#: So much of the room may the lines of the stacks take.
_ROOM_FOR_LINES = MOST_CHARACTERS // 2
_LONGEST = 500


def render_fleet(report: FleetReport, view: View) -> str:
    """A comment about all stacks."""
    head = [MARK, f"**{prose(report.last_line)}**", ""]
    shown = sorted((one for one in report.results if not one.is_quiet), key=lambda one: not one.errors)
    lines, unlisted = _fit([f"- {_line(one)}" for one in shown], _ROOM_FOR_LINES)
    room = MOST_CHARACTERS - _ROOM_FOR_COUNTS - sum(len(line) + 1 for line in (*head, *lines, ""))
    sections, left_out = _fit(["\n".join(_section(one)) for one in shown if not one.errors], room)
    tail = []
    if unlisted or left_out:
        counts = [f"{unlisted} stacks"] * bool(unlisted) + [f"the details of {left_out} stacks"] * bool(
            left_out
        )
        tail = [f"**Left out, for want of room:** {', '.join(counts)}.", ""]
    quiet = len(report.results) - len(shown)
    unchanged = [f"{quiet} without anything to see.", ""] if quiet else []
    return "\n".join([*head, *lines, *([""] if lines else []), *unchanged, *sections, *tail]).rstrip() + "\n"


def _line(result: StackResult) -> str:
    if not result.errors:
        return f"{code(_short(result.root))}: {prose(_short(result.last_line))}"
    more = f", and {len(result.errors) - 1} more problems" if result.errors[1:] else ""
    said = code(_short(message_of(result.errors[0])))
    return f"{code(_short(result.root))}: **failed** with exit code {int(result.exit_code)}: {said}{more}"


def _section(result: StackResult) -> Iterator[str]:
    """What is said of one stack alone, without the mark of its own comment."""
    yield f"### {code(_short(result.root))}"
    yield ""
    yield from result.parts["markdown"].rstrip("\n").split("\n")[1:]
    yield ""


def _fit(blocks: Sequence[str], room: int) -> tuple[list[str], int]:
    """As many blocks as there is room for, in their order, and how many that leaves out."""
    fitting: list[str] = []
    for block in blocks:
        if len(block) + 1 <= room:
            fitting.append(block)
            room -= len(block) + 1
    return fitting, len(blocks) - len(fitting)


def _short(text: str) -> str:
    """A text on one line, that nothing obeys, and no longer than there is room for."""
    shown = " ".join(printable(text).split())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
