"""What became of the cases of policies, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.render.lines import INDENT, printable_line
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.policy_cases import CasesReport


def text(report: CasesReport, view: View) -> str:
    """A line for each case; the last one counts."""
    lines = []
    for one in report.results:
        word, colour = ("passed", "green") if one.has_passed else ("failed", "red")
        lines.append(printable_line(view.style.paint(f"  {word} ", colour), one.name))
        lines += (printable_line(INDENT, problem) for problem in one.problems)
    passed = len(report.results) - len(report.failed)
    lines.append(f"Policies of {printable(report.stack)}: {passed} passed, {len(report.failed)} failed.")
    return "\n".join(lines) + "\n"
