"""Plans, drift reports and results as JUnit XML: a testcase per key, which fails where somebody is needed.

Written for the two schemas that are published, that of Ant (the stricter one) and that of the Jenkins xUnit
plugin: one failure in a testcase at most, and no attribute that only one of them knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

from reconciler.render.sheet import NONE, Level, Row, Sheet, sheet_of_drift, sheet_of_plan
from reconciler.render.sheets.result import sheet_of_result
from reconciler.render.sheets.review import sheet_of_review
from reconciler.render.sheets.validation import by_file, sheet_of_validation
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.decide.policy_cases import CasesReport
    from reconciler.decide.review_report import Review
    from reconciler.decide.validation_report import Validation

#: What XML 1.0 has no way to write, not even escaped; most of it was made visible before.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: Of what does not depend on the time.
_NO_TIME = "1970-01-01T00:00:00"


def render_plan(plan: Plan, view: View) -> str:
    """A failure for each key in conflict, blocked or unknown."""
    return _render(sheet_of_plan(plan, view), "plan")


def render_drift(report: DriftReport, view: View) -> str:
    """A failure for each key that has drifted."""
    return _render(sheet_of_drift(report, view), "drift")


def render_result(result: Result, view: View) -> str:
    """A failure for each key of which an action failed, or was not to be had."""
    return _render(sheet_of_result(result, view), "apply")


def render_review(review: Review, view: View) -> str:
    """A failure for each key that differs and would be in conflict or blocked, or is denied."""
    return _render(sheet_of_review(review, view), "review")


def render_validation(report: Validation, view: View) -> str:
    """A testcase for each file; a failure where it has a problem, or a job that a policy denies."""
    return _render(by_file(sheet_of_validation(report, view)), "validate")


def render_cases(report: CasesReport, view: View) -> str:
    """A testcase for each case of policies; a failure where they said something else than expected."""

    def clean(text: str) -> str:
        return printable(view.redact(text))

    about = clean(f"policies.{report.stack}")
    root, top = new_suite(about, _NO_TIME, len(report.results), len(report.failed))
    for result in report.results:
        case = add_case(top, clean(result.name), about)
        if not result.has_passed:
            message = xml_text("; ".join(map(clean, result.problems)))
            Xml.SubElement(case, "failure", {"type": "expectation", "message": message}).text = message
    return finished(root, top, "", "")


def _render(sheet: Sheet, suite: str) -> str:
    findings: dict[str, list[Row]] = {}
    for row in sheet.findings:
        findings.setdefault(row.key, []).append(row)
    about = f"{suite}.{sheet.name}"
    # Neither schema takes a zone.
    created_at = sheet.created_at.removesuffix("Z") or _NO_TIME
    root, top = new_suite(about, created_at, len(sheet.keys), len(findings))
    for key in sheet.keys:
        case = add_case(top, key, about)
        if rows := findings.get(key):
            _add_failure(case, rows)
    return finished(root, top, _output(sheet), _warnings(sheet))


def new_suite(name: str, timestamp: str, tests: int, failures: int) -> tuple[Xml.Element, Xml.Element]:
    """The document with its one suite."""
    attributes = {
        "id": "0",
        "package": "reconciler",
        "name": name,
        "timestamp": timestamp,
        "hostname": "localhost",
        "tests": str(tests),
        "failures": str(failures),
        "errors": "0",
        "time": "0",
    }
    root = Xml.Element("testsuites")
    top = Xml.SubElement(root, "testsuite", {name: xml_text(value) for name, value in attributes.items()})
    Xml.SubElement(top, "properties")
    return root, top


def add_case(top: Xml.Element, name: str, suite: str) -> Xml.Element:
    """Add a testcase to a suite."""
    return Xml.SubElement(
        top, "testcase", {"name": xml_text(name), "classname": xml_text(suite), "time": "0"}
    )


def finished(root: Xml.Element, top: Xml.Element, out: str, err: str) -> str:
    """The text of the document, with what was printed."""
    Xml.SubElement(top, "system-out").text = xml_text(out)
    Xml.SubElement(top, "system-err").text = xml_text(err)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _add_failure(case: Xml.Element, rows: Sequence[Row]) -> None:
    """One failure of all that is wrong with a key: its reason, and where the manifest has it."""
    kinds = dict.fromkeys(f"{row.kind}: {row.rule}" if row.rule != row.kind else row.kind for row in rows)
    message = "; ".join(row.text or row.rule for row in rows)
    attributes = {"type": ", ".join(kinds), "message": message}
    failure = Xml.SubElement(case, "failure", {name: xml_text(value) for name, value in attributes.items()})
    lines = []
    for row in rows:
        lines.append(row.sentence)
        lines += [f"  --> {row.place}"] if row.place else []
        lines += [f"  {field.path}: {field.before or NONE} -> {field.after or NONE}" for field in row.changes]
    failure.text = xml_text("\n".join(lines))


def _output(sheet: Sheet) -> str:
    """What is said of each key, as it is in no failure, and the last line of the text."""
    rows = sorted(sheet.rows, key=lambda row: row.key)
    return "\n".join([*(row.sentence for row in rows), *sheet.sums, sheet.last_line])


def _warnings(sheet: Sheet) -> str:
    words = {Level.ERROR: "refused", Level.WARNING: "warning"}
    return "\n".join(
        f"{words[note.level]}: {note.key + ': ' if note.key else ''}{note.what}: {note.why}"
        for note in sheet.notes
    )


def xml_text(text: str) -> str:
    """The text as XML can hold it."""
    return _FORBIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
