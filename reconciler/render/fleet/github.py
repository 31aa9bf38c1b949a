"""The report of a fleet for GitHub Actions: errors of all stacks first, for a step shows only some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.decide.fleet import message_of
from reconciler.render.github import command_line, output_lines
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult

_ORDER = ("::error ", "::warning ")


def render_fleet(report: FleetReport, view: View) -> str:
    """Workflow commands about all stacks; of those without changes none, and one notice with the total."""
    said = [line for result in report.results for line in _lines(result, view)]
    lines = [line for start in _ORDER for line in said if line.startswith(start)]
    notice = command_line("notice", {"title": "fleet"}, printable(report.last_line))
    return "".join(f"{line}\n" for line in (*lines, notice))


def fleet_outputs(report: FleetReport, view: View) -> str:
    """The outputs of a step: what all stacks come to."""
    return output_lines(
        {
            "has_changes": "true" if report.changed else "false",
            "summary": report.last_line,
            "stacks": str(len(report.results)),
            "failed": str(len(report.failed)),
            **{name: str(count) for name, count in report.counts.items()},
        }
    )


def _lines(result: StackResult, view: View) -> Iterator[str]:
    if not result.errors:
        yield from result.parts["github"].split("\n")
    for problem in result.errors:
        place = problem.location
        where: dict[str, object] = {}
        if place is not None:
            where = {
                "file": view.in_repository(printable(place.file)),
                "line": place.line,
                "col": place.column,
            }
        said = message_of(problem) + (f"; fix: {problem.fix}" if problem.fix else "")
        yield command_line("error", {**where, "title": printable(f"stack {result.root}")}, printable(said))
