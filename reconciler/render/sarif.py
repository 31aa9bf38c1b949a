"""Plans, drift reports and results as SARIF 2.1.0: a result per thing to do something about.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reconciler.render.json import dump
from reconciler.render.sheet import Row, Sheet, sheet_of_drift, sheet_of_plan
from reconciler.render.sheets.result import sheet_of_result
from reconciler.render.sheets.review import sheet_of_review
from reconciler.render.sheets.validation import sheet_of_validation
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.decide.review_report import Review
    from reconciler.decide.validation_report import Validation

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_plan(plan: Plan, view: View) -> str:
    """A result per key in conflict, blocked or unknown; its rule is the reason."""
    return _render(sheet_of_plan(plan, view), "plan", view)


def render_drift(report: DriftReport, view: View) -> str:
    """A result per drift; its rule is the class."""
    return _render(sheet_of_drift(report, view), "drift", view)


def render_result(result: Result, view: View) -> str:
    """A result per action that failed, or was not to be had; its rule is the status or the reason."""
    return _render(sheet_of_result(result, view), "apply", view)


def render_review(review: Review, view: View) -> str:
    """A result per key that would be in conflict or blocked, or that a policy denies."""
    return _render(sheet_of_review(review, view), "review", view)


def render_validation(report: Validation, view: View) -> str:
    """A result per problem, warning and denied job; its rule is what is wrong, or the policy."""
    return _render(sheet_of_validation(report, view), "validate", view)


def _render(sheet: Sheet, command: str, view: View) -> str:
    rules = list(dict.fromkeys(row.rule for row in sheet.findings))
    driver: dict[str, Any] = {
        "name": "reconciler",
        "semanticVersion": sheet.version,
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("_", " ")}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"reconciler/{command}/{sheet.stack}/{sheet.target}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_result(row, rules.index(row.rule), sheet, view) for row in sheet.findings],
    }
    return dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def _result(row: Row, rule: int, sheet: Sheet, view: View) -> dict[str, Any]:
    name = {"name": row.key, "fullyQualifiedName": f"{sheet.name}/{row.key}"}
    location: dict[str, Any] = {"logicalLocations": [name]}
    if (source := row.source) is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": artifact_uri(view.in_repository(source.file))},
            "region": {"startLine": source.line, "startColumn": source.column},
        }
    return {
        "ruleId": row.rule,
        "ruleIndex": rule,
        "level": row.level.value,
        "message": {"text": unlinked(row.sentence)},
        "locations": [location],
        # So that a finding is the same one after the lines above it moved.
        "partialFingerprints": {"reconciler/v1": f"{sheet.name}/{row.key}/{row.rule}"},
    }


def unlinked(text: str) -> str:
    """A message that makes no link: readers take `[text](place)` for one (section 3.11.6)."""
    return text.replace("](", "] (")


def artifact_uri(file: str) -> str:
    """A path as the reference of a URI; the colon of its first part would read as a scheme."""
    text = quote(file, safe="/~@!$&'()*+,;=")
    return f"file://{text}" if text.startswith("/") else text
