"""Plans, drift reports and results as SARIF 2.1.0: a result per finding.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reconciler.render import Content, Place, View
from reconciler.render.json import dump
from reconciler.render.sheet import sheet_of
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(content: Content, value: Any, view: View) -> str:
    """Render a result per finding. Its rule is the reason, class or status, or the name of the policy."""
    sheet = sheet_of(content, value, view)
    rules = list(dict.fromkeys(row.rule for row in sheet.findings))
    results = [
        {
            "ruleId": row.rule,
            "ruleIndex": rules.index(row.rule),
            "level": row.level.value,
            "message": {"text": _unlinked(row.sentence)},
            "locations": [_location(row.key, f"{sheet.name}/{row.key}", row.source, view)],
            # Identifies the finding even if its line number changes.
            "partialFingerprints": {"reconciler/v1": f"{sheet.name}/{row.key}/{row.rule}"},
        }
        for row in sheet.findings
    ]
    about = f"{sheet.command}/{sheet.stack}/{sheet.target}"
    return _document([_run(about, sheet.version, rules, results)])


def _document(runs: Sequence[dict[str, Any]]) -> str:
    return dump({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}) + "\n"


def _run(about: str, version: str, rules: Sequence[str], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    driver = {
        "name": "reconciler",
        "semanticVersion": version,
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("_", " ")}} for rule in rules],
    }
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"reconciler/{about}/"},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }


def _location(name: str, full_name: str, place: Place | None, view: View) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"name": name, "fullyQualifiedName": full_name}]}
    if place is not None:
        # A relative URI reference. A colon in its first segment would be read as a scheme.
        uri = quote(view.in_repository(printable(place.file)), safe="/~@!$&'()*+,;=")
        location["physicalLocation"] = {
            "artifactLocation": {"uri": f"file://{uri}" if uri.startswith("/") else uri},
            "region": {"startLine": place.line, "startColumn": place.column},
        }
    return location


def _unlinked(text: str) -> str:
    """Escape links in a message: `[text](place)` is one (section 3.11.6)."""
    return text.replace("](", "] (")


def render_fleet(report: FleetReport, view: View) -> str:
    """Render the runs of all stacks. A failed stack has a result per problem."""
    runs: list[dict[str, Any]] = []
    for one in report.results:
        if not one.errors:
            runs += json.loads(one.parts["sarif"])["runs"]
            continue
        root = printable(one.root)
        results = [
            {
                "ruleId": "stack_failed",
                "ruleIndex": 0,
                "level": "error",
                "message": {"text": _unlinked(printable(problem.message))},
                "locations": [_location(root, root, problem.location, view)],
                "partialFingerprints": {"reconciler/v1": f"{root}/{printable(problem.what)}"},
            }
            for problem in one.errors
        ]
        runs.append(_run(f"{report.command}/{root}", report.version, ["stack_failed"], results))
    return _document(runs)
