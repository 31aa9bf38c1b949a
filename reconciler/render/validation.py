"""A check of a manifest: its problems, its warnings and what policies deny."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import Diagnostic, Location, Severity, Snippet
from reconciler.render import Content
from reconciler.render.layout import fit
from reconciler.render.lines import render_denials, render_diagnostics
from reconciler.render.sheet import Clean, Level, Note, Row, Sheet, place_of, row_of_denial
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.validation import DeniedJob, ManifestProblem, Validation


def text(report: Validation, view: View) -> str:
    """Text for people: problems, warnings and what policies deny; the last line counts."""
    found = [_diagnostic(one) for one in (*report.diagnostics, *report.warnings)]
    problems = render_diagnostics(found, view.style, verbose=view.verbose) if found else ""
    lines = (*render_denials(report.denied, view.style), printable(report.last_line))
    rest = "".join(f"{line}\n" for line in lines)
    return problems + fit(rest, view.style, {denial.key for denial in report.denied})


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


# ── the sheet ───────────────────────────────────────────────────────────────────────────────────────


def sheet(report: Validation, view: View, clean: Clean) -> Sheet:
    """A row per problem with its place, then what policies deny, then warnings."""
    rows = (
        *_rows(report.diagnostics, "problem", clean),
        *(_denied(one, report, clean) for one in report.denied),
        *_rows(report.warnings, "warning", clean),
    )
    return Sheet(
        Content.VALIDATION,
        stack=clean(report.stack or ""),
        target=clean(report.target or ""),
        where="",
        last_line=clean(report.last_line),
        counts={
            "jobs": report.jobs,
            "errors": len(report.diagnostics),
            "warnings": len(report.warnings),
            "denied": len(report.denied),
        },
        version=clean(report.reconciler_version),
        rows=rows,
        folded=rows,
        keys=tuple(map(clean, report.files)),
        columns=("Severity", "Key", "Problem"),
    )


def _rows(problems: Sequence[ManifestProblem], word: str, clean: Clean) -> Iterator[Row]:
    words = word if len(problems) == 1 else f"{word}s"
    for one in problems:
        is_error = one.severity is Severity.ERROR
        about = ": ".join(filter(None, (one.what, one.why)))
        yield Row(
            keys=(clean(one.path or (one.location.file if one.location else "manifest")),),
            kind="invalid" if is_error else "warning",
            words=words,
            symbol="!",
            colour="red" if is_error else "yellow",
            rule=re.sub("[^a-z0-9]+", "_", clean(one.what).lower()).strip("_") or "problem",
            text=clean(f"{about}; fix: {one.fix}" if one.fix else about),
            source=place_of(one.location, clean),
            level=Level.ERROR if is_error else Level.WARNING,
            is_finding=True,
            must_stay=is_error,
        )


def _denied(denial: DeniedJob, report: Validation, clean: Clean) -> Row:
    row = row_of_denial(denial, denial.job, clean)
    if set(denial.targets) == set(report.targets):
        return row
    kind = "target" if len(denial.targets) == 1 else "targets"
    return row._replace(text=f"{row.text} ({kind} {clean(', '.join(denial.targets))})")


def by_file(sheet: Sheet) -> Sheet:
    """The same findings as those of the files that have them; warnings become notes."""
    errors = [row for row in sheet.rows if row.level is Level.ERROR]
    rows = tuple(
        row._replace(
            keys=("manifest" if row.source is None else row.source.file,), text=f"{row.key}: {row.text}"
        )
        for row in errors
    )
    notes = (Note(Level.WARNING, row.key, row.text, "") for row in sheet.rows if row.level is Level.WARNING)
    keys = tuple(dict.fromkeys((*sheet.keys, *(row.key for row in rows))))
    return sheet._replace(rows=rows, folded=rows, keys=keys, notes=(*sheet.notes, *notes))
