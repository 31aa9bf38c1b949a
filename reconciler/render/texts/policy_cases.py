"""What became of the cases of policies, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.render.style import View
from reconciler.render.texts.groups import INDENT, printable_line
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.policy_cases import CaseResult, CasesReport


def cases_text(report: CasesReport, view: View) -> str:
    """A line for each case; the last one counts."""
    lines = [line for result in report.results for line in _lines(result, view)]
    passed = len(report.results) - len(report.failed)
    lines.append(f"Policies of {printable(report.stack)}: {passed} passed, {len(report.failed)} failed.")
    return "\n".join(lines) + "\n"


def _lines(result: CaseResult, view: View) -> Iterator[str]:
    word, colour = ("passed", "green") if result.has_passed else ("failed", "red")
    yield printable_line(view.style.paint(f"  {word} ", colour), result.name)
    yield from (printable_line(INDENT, problem) for problem in result.problems)
