"""What the formats beside text and JSON show of a check of a manifest: a row per problem, with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import Severity
from reconciler.render.sheet import (
    Clean,
    Level,
    Note,
    Row,
    Sheet,
    harmless,
    place_of,
    row_of_denial,
)
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.decide.validation_report import DeniedJob, ManifestProblem, Validation

INVALID, WARNING = "invalid", "warning"
_NO_WORD = re.compile("[^a-z0-9]+")


def sheet_of_validation(report: Validation, view: View) -> Sheet:
    """What is shown of a check: problems of the manifest, then what policies deny, then warnings."""
    return harmless(lambda clean: _sheet(report, clean), view.redact)


def _sheet(report: Validation, clean: Clean) -> Sheet:
    rows = (
        *_rows(report.diagnostics, "problem", clean),
        *(_denied(one, report, clean) for one in report.denied),
        *_rows(report.warnings, "warning", clean),
    )
    return Sheet(
        title="Validation",
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
        has_changes=False,
        created_at="",
        version=clean(report.reconciler_version),
        rows=rows,
        folded=rows,
        keys=tuple(map(clean, report.files)),
        columns=("Severity", "Key", "Problem"),
    )


def _rows(problems: Sequence[ManifestProblem], word: str, clean: Clean) -> Iterator[Row]:
    words = word if len(problems) == 1 else f"{word}s"
    yield from (_row(problem, clean)._replace(words=words) for problem in problems)


def _row(problem: ManifestProblem, clean: Clean) -> Row:
    is_error = problem.severity is Severity.ERROR
    said = ": ".join(part for part in (problem.what, problem.why) if part)
    place = problem.location
    return Row(
        keys=(clean(problem.path or (place.file if place else "manifest")),),
        kind=INVALID if is_error else WARNING,
        words="",
        symbol="!",
        colour="red" if is_error else "yellow",
        rule=_NO_WORD.sub("_", clean(problem.what).lower()).strip("_") or "problem",
        revision="",
        text=clean(f"{said}; fix: {problem.fix}" if problem.fix else said),
        source=place_of(place, clean),
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
    warnings = [row for row in sheet.rows if row.level is Level.WARNING]
    rows = tuple(row._replace(keys=(_file_of(row),), text=f"{row.key}: {row.text}") for row in errors)
    files = dict.fromkeys((*sheet.keys, *(row.key for row in rows)))
    notes = tuple(Note(Level.WARNING, row.key, row.text, "") for row in warnings)
    return sheet._replace(rows=rows, folded=rows, keys=tuple(files), notes=(*sheet.notes, *notes))


def _file_of(row: Row) -> str:
    return "manifest" if row.source is None else row.source.file
