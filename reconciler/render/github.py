"""Plans, drift reports and results for GitHub Actions: workflow commands, and the outputs of a step.

The commands annotate lines of the manifest. Text is escaped as GitHub's toolkit does it
(actions/toolkit, packages/core/src/command.ts and file-command.ts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.core.values import PreflightReason
from reconciler.decide.policies import DENIED_BY_A_POLICY
from reconciler.render import Content, Place, View
from reconciler.render.sheet import Level, Row, sheet_of
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult

#: Notes that the rows of single jobs say, too.
_SAID_AT_JOBS = frozenset({DENIED_BY_A_POLICY, *(reason.words for reason in PreflightReason)})


def render(content: Content, value: Any, view: View) -> str:
    """Workflow commands: errors of the whole, errors of jobs, warnings, and a notice."""
    sheet = sheet_of(content, value, view)
    lines = []
    for note in sheet.notes:
        if note.level is Level.ERROR and note.what not in _SAID_AT_JOBS:
            why = "; ".join(filter(None, (note.why, note.fix and f"fix: {note.fix}")))
            lines.append(_command(note.level, {"title": note.what}, why or note.what))
    lines += _rows(sheet.rows, Level.ERROR, view)
    lines += _rows(sheet.denied, Level.ERROR, view)
    lines += _rows(sheet.rows, Level.WARNING, view)
    lines.append(_command("notice", {"title": f"reconciler {sheet.name}"}, sheet.last_line))
    return "".join(f"{line}\n" for line in lines)


def _rows(rows: Iterable[Row], level: Level, view: View) -> Iterator[str]:
    for row in rows:
        if row.level is level:
            title = f"{row.kind} {row.key}"
            yield _command(level, {**_place(row.source, view), "title": title}, row.text or row.rule)


def _place(place: Place | None, view: View) -> dict[str, object]:
    if place is None:
        return {}
    file = view.in_repository(printable(place.file))
    return {"file": file, "line": place.line, "col": place.column}


def _command(name: str, properties: Mapping[str, object], message: str) -> str:
    """One workflow command."""
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_fleet(report: FleetReport, view: View) -> str:
    """Workflow commands about all stacks, errors first, for a step shows only some; one notice for all."""
    found = [line for result in report.results for line in _stack(result, view)]
    lines = [line for start in ("::error ", "::warning ") for line in found if line.startswith(start)]
    lines.append(_command("notice", {"title": "fleet"}, printable(report.last_line)))
    return "".join(f"{line}\n" for line in lines)


def _stack(result: StackResult, view: View) -> Iterator[str]:
    if not result.errors:
        yield from result.parts["github"].split("\n")
    for problem in result.errors:
        message = problem.message + (f"; fix: {problem.fix}" if problem.fix else "")
        properties = {**_place(problem.location, view), "title": printable(f"stack {result.root}")}
        yield _command("error", properties, printable(message))


# ── the outputs of a step, as GITHUB_OUTPUT takes them ──────────────────────────────────────────────


def outputs_of(content: Content, value: Any, view: View) -> str:
    """Whether there are changes, the last line of the text, and the counts; of a result the last line."""
    if content is Content.FLEET:
        return _outputs(_fleet_outputs(value))
    sheet = sheet_of(content, value, view)
    if content is Content.RESULT:  # beside those of its plan
        return _outputs({"summary": sheet.last_line})
    if content is Content.VALIDATION:
        about = {"valid": "true" if value.valid else "false"}
    else:
        about = {"has_changes": "true" if sheet.has_changes else "false", "digest": sheet.digest}
    return _outputs({**about, "summary": sheet.last_line, **sheet.counts})


def _fleet_outputs(report: FleetReport) -> dict[str, object]:
    return {
        "has_changes": "true" if report.changed else "false",
        "summary": report.last_line,
        "stacks": len(report.results),
        "failed": len(report.failed),
        **report.counts,
    }


def _outputs(values: Mapping[str, object]) -> str:
    # Each is one line, of words and numbers of ours: nothing from outside can add an output.
    return "".join(f"{name}={printable(str(value))}\n" for name, value in values.items())
