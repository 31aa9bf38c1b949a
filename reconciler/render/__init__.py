"""One function per format and value: value in, text out. A new format is a row in `FORMATS`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from reconciler.render.style import PLAIN, Style

if TYPE_CHECKING:
    from reconciler.core.drift import DriftReport
    from reconciler.core.plan import Plan

#: Format → the module of this package that renders it; imported when it is used.
FORMATS: dict[str, str] = {"text": "text", "json": "json"}


def render_plan(plan: Plan, format_: str, style: Style = PLAIN, *, show_keep: bool = False) -> str:
    """Show a plan in a format of the table."""
    module = import_module(f"reconciler.render.{FORMATS[format_]}")
    if format_ == "text":
        return str(module.render_plan(plan, style, show_keep=show_keep))
    return str(module.render_plan(plan))


def render_drift(report: DriftReport, format_: str, style: Style = PLAIN) -> str:
    """Show a drift report in a format of the table."""
    module = import_module(f"reconciler.render.{FORMATS[format_]}")
    return str(module.render_drift(report, style) if format_ == "text" else module.render_drift(report))
