"""Plans, drift reports and results as JUnit XML: a testcase per key, which fails where it needs attention.

Written for the two schemas that are published, that of Ant (the stricter one) and that of the Jenkins xUnit
plugin: one failure in a testcase at most, and no attribute that only one of them knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as Xml

from reconciler.core.values import timestamp
from reconciler.render import Content, View
from reconciler.render.sheet import NONE, Level, Row, Sheet, by_file, sheet_of
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult
    from reconciler.decide.policy_cases import CasesReport

#: What XML 1.0 has no way to write, not even escaped; most of it was made visible before.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Of what does not depend on the time.
_NO_TIME = "1970-01-01T00:00:00"


def render(content: Content, value: Any, view: View) -> str:
    """A testcase per key, of a manifest per file; a failure for each that needs attention."""
    if content is Content.CASES:
        return _document([_cases(value, view)])
    sheet = sheet_of(content, value, view)
    return _document([_suite(by_file(sheet) if content is Content.VALIDATION else sheet)])


def _document(suites: Sequence[Xml.Element]) -> str:
    root = Xml.Element("testsuites")
    for number, suite in enumerate(suites):
        suite.set("id", str(number))
        root.append(suite)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _suite(sheet: Sheet) -> Xml.Element:
    findings: dict[str, list[Row]] = {}
    for row in sheet.findings:
        findings.setdefault(row.key, []).append(row)
    about = f"{sheet.command}.{sheet.name}"
    # Neither schema takes a zone.
    created_at = sheet.created_at.removesuffix("Z") or _NO_TIME
    suite = _new_suite(about, created_at, len(sheet.keys), len(findings))
    for key in sheet.keys:
        case = _add_case(suite, key, about)
        if rows := findings.get(key):
            _add_failure(case, rows)
    # Also about the keys that have no failure.
    sentences = [row.sentence for row in sorted(sheet.rows, key=lambda row: row.key)]
    words = {Level.ERROR: "refused", Level.WARNING: "warning"}
    notes = (
        f"{words[note.level]}: {note.key + ': ' if note.key else ''}{note.what}: {note.why}"
        for note in sheet.notes
    )
    return _with_output(suite, "\n".join([*sentences, *sheet.sums, sheet.last_line]), "\n".join(notes))


def _cases(report: CasesReport, view: View) -> Xml.Element:
    """A testcase for each case of policies; a failure where they did not decide as expected."""

    def clean(text: str) -> str:
        return printable(view.redact(text))

    about = clean(f"policies.{report.stack}")
    suite = _new_suite(about, _NO_TIME, len(report.results), len(report.failed))
    for result in report.results:
        case = _add_case(suite, clean(result.name), about)
        if not result.has_passed:
            message = _xml("; ".join(map(clean, result.problems)))
            Xml.SubElement(case, "failure", {"type": "expectation", "message": message}).text = message
    return _with_output(suite)


def render_fleet(report: FleetReport, view: View) -> str:
    """The suites of all stacks; a stack that failed has one testcase, which failed."""
    suites: list[Xml.Element] = []
    for one in report.results:
        if one.errors:
            suites.append(_failed(report.command, one))
        else:
            suites += Xml.fromstring(one.parts["junit"].encode())  # noqa: S314 - a format of ours wrote it
    return _document(suites)


def _failed(command: str, result: StackResult) -> Xml.Element:
    """The one suite of a stack that has no report of its own."""
    name = printable(result.root)
    about = f"{command}.{name}"
    suite = _new_suite(about, timestamp(result.ended_at_s).removesuffix("Z"), tests=1, failures=1)
    case = _add_case(suite, name, about)
    lines = [printable(one.message + (f" ({one.location})" if one.location else "")) for one in result.errors]
    attributes = {"type": f"exit code {int(result.exit_code)}", "message": _xml(lines[0])}
    Xml.SubElement(case, "failure", attributes).text = _xml("\n".join(lines))
    return _with_output(suite)


# ── elements ────────────────────────────────────────────────────────────────────────────────────────


def _new_suite(name: str, created_at: str, tests: int, failures: int) -> Xml.Element:
    attributes = {
        "id": "0",
        "package": "reconciler",
        "name": _xml(name),
        "timestamp": _xml(created_at),
        "hostname": "localhost",
        "tests": str(tests),
        "failures": str(failures),
        "errors": "0",
        "time": "0",
    }
    suite = Xml.Element("testsuite", attributes)
    Xml.SubElement(suite, "properties")
    return suite


def _add_case(suite: Xml.Element, name: str, about: str) -> Xml.Element:
    return Xml.SubElement(suite, "testcase", {"name": _xml(name), "classname": _xml(about), "time": "0"})


def _with_output(suite: Xml.Element, out: str = "", err: str = "") -> Xml.Element:
    """The suite with what was printed, which comes last."""
    Xml.SubElement(suite, "system-out").text = _xml(out)
    Xml.SubElement(suite, "system-err").text = _xml(err)
    return suite


def _add_failure(case: Xml.Element, rows: Sequence[Row]) -> None:
    """One failure of all that is wrong with a key: its reason, and where the manifest has it."""
    kinds = dict.fromkeys(f"{row.kind}: {row.rule}" if row.rule != row.kind else row.kind for row in rows)
    message = "; ".join(row.text or row.rule for row in rows)
    attributes = {"type": ", ".join(kinds), "message": message}
    failure = Xml.SubElement(case, "failure", {name: _xml(value) for name, value in attributes.items()})
    lines = []
    for row in rows:
        lines.append(row.sentence)
        lines += [f"  --> {row.place}"] if row.place else []
        lines += [f"  {field.path}: {field.before or NONE} -> {field.after or NONE}" for field in row.changes]
    failure.text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """The text as XML can hold it."""
    return _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
