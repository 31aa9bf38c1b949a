"""What a check of a manifest found, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.render.layout import fit
from reconciler.render.style import View
from reconciler.render.texts.denials import render_denials
from reconciler.render.texts.diagnostics import render_diagnostics
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.validation_report import ManifestProblem, Validation


def validation_text(report: Validation, view: View) -> str:
    """Problems, warnings and what policies deny; the last line counts."""
    found = [*map(_diagnostic, (*report.diagnostics, *report.warnings))]
    text = render_diagnostics(found, view.style, verbose=view.verbose) if found else ""
    denied = "".join(f"{line}\n" for line in render_denials(report.denied, view.style))
    said = f"{denied}{printable(report.last_line)}\n"
    return text + fit(said, view.style, {denial.key for denial in report.denied})


def _diagnostic(problem: ManifestProblem) -> Diagnostic:
    place, line = problem.location, problem.snippet
    return Diagnostic(
        problem.what,
        problem.why,
        problem.fix,
        None if place is None else Location(place.file, place.line, place.column),
        problem.path,
        None if line is None else Snippet(line.text, line.start, line.length),
        problem.severity,
    )
