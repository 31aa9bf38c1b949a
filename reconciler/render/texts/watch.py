"""A check of `reconciler watch` as a short line, with the drift that is new below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.core.values import timestamp
from reconciler.decide.watch_check import MOST_SHOWN, CheckReport, CheckResult
from reconciler.errors import ExitCode
from reconciler.render.style import Style
from reconciler.text import printable

_COLOURS = {ExitCode.DONE: "green", ExitCode.CHANGES: "yellow"}


def render_check(report: CheckReport, style: Style) -> str:
    """One line, and one more for each drift that is new, changed or gone; of many the first."""
    result = report.result
    words = "; ".join(part for part in (_found(result), result.applied) if part)
    colour = _COLOURS.get(ExitCode(result.exit_code), "red")
    lines = [f"{timestamp(report.ended_at_s)} check {report.number}: {style.paint(printable(words), colour)}"]
    lines += _entries("new", result.new)
    lines += _entries("changed", result.changed)
    lines += _entries("gone", result.gone)
    return "".join(f"{line}\n" for line in lines)


def _found(result: CheckResult) -> str:
    if result.has_failed and not result.has_compared:
        return f"failed: {result.problem or f'exit code {result.exit_code}'}"
    counts = ", ".join(f"{count} {name}" for name, count in result.summary.items() if count)
    return counts or "no drift"


def _entries(word: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for entry in entries[:MOST_SHOWN]:
        yield printable(
            f"  {word}: {entry['class']} {entry['key']}: {entry.get('detail') or ''}".rstrip(": ")
        )
    if len(entries) > MOST_SHOWN:
        yield f"  {word}: {len(entries) - MOST_SHOWN} more"
