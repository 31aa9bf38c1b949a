"""The report of a fleet as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.render.json import dump
from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.core.fleet import FleetReport


def render_fleet(report: FleetReport, view: View) -> str:
    """The document of docs/fleets.md; those of the stacks hold no secret."""
    return dump(report.document()) + "\n"
