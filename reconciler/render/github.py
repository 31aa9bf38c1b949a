"""Plans, drift reports and results for GitHub Actions: workflow commands, and the outputs of a step.

The commands are annotations where the manifest stands. Escaped as GitHub's toolkit does it
(actions/toolkit, packages/core/src/command.ts and file-command.ts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from reconciler.core.catalog import PreflightReason
from reconciler.decide.policy_verdict import DENIED_BY_A_POLICY
from reconciler.render.sheet import Level, Note, Row, Sheet, sheet_of_drift, sheet_of_plan
from reconciler.render.sheets.result import sheet_of_result
from reconciler.render.sheets.review import sheet_of_review
from reconciler.render.sheets.validation import sheet_of_validation
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.decide.review_report import Review
    from reconciler.decide.validation_report import Validation

_TOLD_AT_JOBS = frozenset({DENIED_BY_A_POLICY, *(reason.words for reason in PreflightReason)})


def render_plan(plan: Plan, view: View) -> str:
    """Workflow commands about a plan."""
    return _commands(sheet_of_plan(plan, view), view)


def render_drift(report: DriftReport, view: View) -> str:
    """Workflow commands about a drift report."""
    return _commands(sheet_of_drift(report, view), view)


def render_result(result: Result, view: View) -> str:
    """Workflow commands about an apply."""
    return _commands(sheet_of_result(result, view), view)


def render_review(review: Review, view: View) -> str:
    """Workflow commands about a change of the manifests."""
    return _commands(sheet_of_review(review, view), view)


def render_validation(report: Validation, view: View) -> str:
    """Workflow commands about a check of a manifest."""
    return _commands(sheet_of_validation(report, view), view)


def plan_outputs(plan: Plan, view: View) -> str:
    """The outputs of a step that makes a plan, as GITHUB_OUTPUT takes them."""
    return output_lines(_outputs_of(sheet_of_plan(plan, view)))


def drift_outputs(report: DriftReport, view: View) -> str:
    """The outputs of a step that checks for drift."""
    return output_lines(_outputs_of(sheet_of_drift(report, view)))


def review_outputs(review: Review, view: View) -> str:
    """The outputs of a step that reviews a change."""
    return output_lines(_outputs_of(sheet_of_review(review, view)))


def validation_outputs(report: Validation, view: View) -> str:
    """The outputs of a step that checks a manifest."""
    sheet = sheet_of_validation(report, view)
    counts = {name: str(count) for name, count in sheet.counts.items()}
    return output_lines({"valid": "true" if report.valid else "false", "summary": sheet.last_line, **counts})


def result_outputs(result: Result, view: View) -> str:
    """The outputs of a step that applies, beside those of its plan: the summary is that of the result."""
    return output_lines({"summary": sheet_of_result(result, view).last_line})


def _commands(sheet: Sheet, view: View) -> str:
    lines = [
        *(_note(note) for note in sheet.notes if _is_told_once(note)),
        *_rows(sheet.rows, Level.ERROR, view),
        *_rows(sheet.denied, Level.ERROR, view),
        *_rows(sheet.rows, Level.WARNING, view),
        command_line("notice", {"title": f"reconciler {sheet.name}"}, sheet.last_line),
    ]
    return "".join(f"{line}\n" for line in lines)


def _is_told_once(note: Note) -> bool:
    """Whether a note is an error of the whole; denials and findings of pre-flight are told at each job."""
    return note.level is Level.ERROR and note.what not in _TOLD_AT_JOBS


def _rows(rows: Iterable[Row], level: Level, view: View) -> Iterator[str]:
    for row in rows:
        if row.level is level:
            source = row.source
            where: dict[str, object] = {}
            if source is not None:
                where = {"file": view.in_repository(source.file), "line": source.line, "col": source.column}
            yield command_line(level, {**where, "title": f"{row.kind} {row.key}"}, row.text or row.rule)


def _note(note: Note) -> str:
    said = "; ".join(part for part in (note.why, note.fix and f"fix: {note.fix}") if part)
    return command_line(note.level, {"title": note.what}, said or note.what)


def command_line(name: str, properties: Mapping[str, object], message: str) -> str:
    """One workflow command."""
    said = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name} {said}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _outputs_of(sheet: Sheet) -> dict[str, str]:
    return {
        "has_changes": "true" if sheet.has_changes else "false",
        "digest": sheet.digest,
        "summary": sheet.last_line,
        **{name: str(count) for name, count in sheet.counts.items()},
    }


def output_lines(values: Mapping[str, str]) -> str:
    """The outputs of a step, a line each."""
    # Each is one line, of words and numbers of ours: nothing from outside can add an output.
    return "".join(f"{name}={printable(value)}\n" for name, value in values.items())
