"""`reconciler schema`: the JSON Schemas, for editors and for CI."""

from __future__ import annotations

from typing import Any

import click

from reconciler.cli.options import with_options
from reconciler.cli.terminal.console import console

NAMES = ("manifest", "plan", "drift", "events", "history", "status", "review", "validate", "why", "fleet")


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document, made from the models that write and read it."""
    from reconciler.core.manifest_schema import manifest_schema
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.fleet import FleetDocument
    from reconciler.decide.history_report import HistoryReport
    from reconciler.decide.outcome import ApplyEvent
    from reconciler.decide.plan import Plan
    from reconciler.decide.reports import Explanation, StatusReport, Validation
    from reconciler.decide.review import Review

    match name:
        case "plan":
            return Plan.published_schema()
        case "drift":
            return DriftReport.published_schema()
        case "events":
            return ApplyEvent.published_schema()
        case "history":
            return HistoryReport.published_schema()
        case "status":
            return StatusReport.published_schema()
        case "why":
            return Explanation.published_schema()
        case "fleet":
            return FleetDocument.published_schema()
        case "review":
            return Review.published_schema()
        case "validate":
            return Validation.published_schema()
        case _:
            return manifest_schema()


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES), default="manifest")
@with_options()
def command(name: str) -> None:
    """Print the JSON Schema of a document; default: manifest."""

    console.document(schema(name))
