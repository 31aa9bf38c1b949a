"""Plans, drift reports and results as JUnit XML: a testcase per key, which fails where it needs attention.

Valid for both published schemas, Ant's (the stricter one) and that of the Jenkins xUnit plugin: at most one
failure per testcase, and only attributes that both know.
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
    from reconciler.decide.fleet import FleetReport
    from reconciler.decide.policies import CasesReport

#: Characters that XML 1.0 cannot express, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: For reports that do not depend on the time.
_NO_TIME = "1970-01-01T00:00:00"


def render(content: Content, value: Any, view: View) -> str:
    """Render a testcase per key, or per file for validation, with a failure if it needs attention."""
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
    # The schemas allow no time zone.
    created_at = sheet.created_at.removesuffix("Z") or _NO_TIME
    suite = _new_suite(about, created_at, len(sheet.keys), len(findings))
    for key in sheet.keys:
        case = _add_case(suite, key, about)
        if not (rows := findings.get(key)):
            continue
        # One failure with all findings about a key.
        lines = []
        for row in rows:
            lines += [row.sentence, *([f"  --> {row.place}"] if row.place else [])]
            lines += (f"  {one.path}: {one.before or NONE} -> {one.after or NONE}" for one in row.changes)
        kinds = dict.fromkeys(f"{row.kind}: {row.rule}" if row.rule != row.kind else row.kind for row in rows)
        _add_failure(
            case, ", ".join(kinds), "; ".join(row.text or row.rule for row in rows), "\n".join(lines)
        )
    # All keys, also those without failures.
    sentences = [row.sentence for row in sorted(sheet.rows, key=lambda row: row.key)]
    words = {Level.ERROR: "refused", Level.WARNING: "warning"}
    notes = (
        f"{words[note.level]}: {note.key + ': ' if note.key else ''}{note.what}: {note.why}"
        for note in sheet.notes
    )
    return _with_output(suite, "\n".join([*sentences, *sheet.sums, sheet.last_line]), "\n".join(notes))


def _cases(report: CasesReport, view: View) -> Xml.Element:
    """Make a testcase for each case of `policies test`, with a failure if the result is not as expected."""

    def clean(text: str) -> str:
        return printable(view.redact(text))

    about = clean(f"policies.{report.stack}")
    suite = _new_suite(about, _NO_TIME, len(report.results), len(report.failed))
    for result in report.results:
        case = _add_case(suite, clean(result.name), about)
        if not result.has_passed:
            message = "; ".join(map(clean, result.problems))
            _add_failure(case, "expectation", message, message)
    return _with_output(suite)


def render_fleet(report: FleetReport, view: View) -> str:
    """Render the suites of all stacks. A failed stack has a single testcase, with a failure."""
    suites: list[Xml.Element] = []
    for one in report.results:
        if not one.errors:
            suites += Xml.fromstring(one.parts["junit"].encode())  # noqa: S314 - a format of ours wrote it
            continue
        name = printable(one.root)
        about, ended_at = f"{report.command}.{name}", timestamp(one.ended_at_s).removesuffix("Z")
        suite = _new_suite(about, ended_at, tests=1, failures=1)
        lines = [printable(e.message + (f" ({e.location})" if e.location else "")) for e in one.errors]
        _add_failure(
            _add_case(suite, name, about), f"exit code {int(one.exit_code)}", lines[0], "\n".join(lines)
        )
        suites.append(_with_output(suite))
    return _document(suites)


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


def _add_failure(case: Xml.Element, kind: str, message: str, text: str) -> None:
    Xml.SubElement(case, "failure", {"type": _xml(kind), "message": _xml(message)}).text = _xml(text)


def _with_output(suite: Xml.Element, out: str = "", err: str = "") -> Xml.Element:
    Xml.SubElement(suite, "system-out").text = _xml(out)
    Xml.SubElement(suite, "system-err").text = _xml(err)
    return suite


def _xml(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
