"""The report of a fleet as SARIF 2.1.0: a run per stack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reconciler.decide.fleet import message_of
from reconciler.errors import Diagnostic
from reconciler.render.json import dump
from reconciler.render.sarif import SCHEMA, artifact_uri, unlinked
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult

#: The rule of what a stack failed by.
_FAILED = "stack_failed"


def render_fleet(report: FleetReport, view: View) -> str:
    """The runs of all stacks; that of a stack which failed has a result per problem."""
    runs: list[dict[str, Any]] = []
    for result in report.results:
        if result.errors:
            runs.append(_failed(report, result, view))
        else:
            runs += json.loads(result.parts["sarif"])["runs"]
    return dump({"$schema": SCHEMA, "version": "2.1.0", "runs": runs}) + "\n"


def _failed(report: FleetReport, result: StackResult, view: View) -> dict[str, Any]:
    root = printable(result.root)
    rule = {"id": _FAILED, "shortDescription": {"text": _FAILED.replace("_", " ")}}
    driver = {"name": "reconciler", "semanticVersion": report.version, "rules": [rule]}
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"reconciler/{report.command}/{root}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_result(root, one, view) for one in result.errors],
    }


def _result(root: str, problem: Diagnostic, view: View) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"name": root, "fullyQualifiedName": root}]}
    if (place := problem.location) is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": artifact_uri(view.in_repository(printable(place.file)))},
            "region": {"startLine": place.line, "startColumn": place.column},
        }
    return {
        "ruleId": _FAILED,
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": unlinked(printable(message_of(problem)))},
        "locations": [location],
        "partialFingerprints": {"reconciler/v1": f"{root}/{printable(problem.what)}"},
    }
