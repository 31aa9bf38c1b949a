"""Plans, drift reports and results for GitHub Actions: workflow commands, and the outputs of a step.

The commands annotate lines of the manifest. Text is escaped as GitHub's toolkit does it
(actions/toolkit, packages/core/src/command.ts and file-command.ts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.core.values import SHOWN_WITH_ACTIONS
from reconciler.render import Content, Place, View
from reconciler.render.sheet import Level, Row, sheet_of
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport


def render(content: Content, value: Any, view: View) -> str:
    """Render workflow commands: errors of the whole, errors of jobs, warnings, and a notice."""
    sheet = sheet_of(content, value, view)
    lines = []
    for note in sheet.notes:
        if note.level is Level.ERROR and note.what not in SHOWN_WITH_ACTIONS:
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
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    listed = ",".join(
        f"{key}={escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in properties.items()
    )
    return f"::{name} {listed}::{escaped(message)}"


def render_fleet(report: FleetReport, view: View) -> str:
    """Render workflow commands about all stacks, errors first because GitHub limits their number."""
    found: list[str] = []
    for result in report.results:
        if not result.errors:
            found += result.parts["github"].split("\n")
        for problem in result.errors:
            message = problem.message + (f"; fix: {problem.fix}" if problem.fix else "")
            about = {**_place(problem.location, view), "title": printable(f"stack {result.root}")}
            found.append(_command("error", about, printable(message)))
    lines = [line for start in ("::error ", "::warning ") for line in found if line.startswith(start)]
    lines.append(_command("notice", {"title": "fleet"}, printable(report.last_line)))
    return "".join(f"{line}\n" for line in lines)


# ── step outputs, as lines for GITHUB_OUTPUT ────────────────────────────────────────────────────────


def outputs_of(content: Content, value: Any, view: View, *, is_result: bool = False) -> str:
    """Render `has_changes`, `digest`, `summary` and the counts. After a plan its result adds `summary`."""
    head: dict[str, object]
    if content is Content.FLEET:
        head, counts = {"has_changes": bool(value.changed)}, value.counts
        summary = {"summary": value.last_line, "stacks": len(value.results), "failed": len(value.failed)}
    else:
        sheet = sheet_of(content, value, view)
        head = {"has_changes": sheet.has_changes, "digest": sheet.digest}
        if content is Content.VALIDATION:
            head = {"valid": value.valid}
        summary, counts = {"summary": sheet.last_line}, sheet.counts
    values = summary if is_result else {**head, **summary, **counts}
    # Single lines of our own words and numbers, so untrusted text cannot add an output.
    words = {True: "true", False: "false"}
    return "".join(
        f"{name}={words[one] if isinstance(one, bool) else printable(str(one))}\n"
        for name, one in values.items()
    )
