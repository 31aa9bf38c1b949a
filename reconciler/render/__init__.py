"""One function per format and value: value in, text out. A new format is a row in `FORMATS`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.render.style import View

if TYPE_CHECKING:
    from reconciler.core.drift.report import DriftReport
    from reconciler.core.planning.plan import Plan


class Format(NamedTuple):
    """A format: the module of this package that renders it, imported when it is used.

    `redacts` says that its module takes secrets out value by value: replacing them in the finished
    text would break it.
    """

    module: str
    redacts: bool = False


FORMATS: dict[str, Format] = {"text": Format("text"), "json": Format("json", redacts=True)}


def render_plan(plan: Plan, format_: str, view: View | None = None) -> str:
    """Show a plan in a format of the table."""
    return str(_module(format_).render_plan(plan, view or View()))


def render_drift(report: DriftReport, format_: str, view: View | None = None) -> str:
    """Show a drift report in a format of the table."""
    return str(_module(format_).render_drift(report, view or View()))


def _module(format_: str) -> Any:
    return import_module(f"reconciler.render.{FORMATS[format_].module}")
