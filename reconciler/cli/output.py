"""Showing a plan or a drift report in the formats that were asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconciler.cli.options import OutputSpec
from reconciler.cli.terminal.console import console

if TYPE_CHECKING:
    from reconciler.core.drift.report import DriftReport
    from reconciler.core.planning.plan import Plan
    from reconciler.render.style import View


def show_plan(plan: Plan, outputs: Sequence[OutputSpec], *, show_keep: bool = False) -> None:
    """Write a plan to the outputs, see `wanted`, and its refusals to stderr."""
    from reconciler.render import render_plan

    _write(outputs, lambda format_, view: render_plan(plan, format_, view), show_keep=show_keep)
    if plan.refusals:
        console.diagnostics(plan.refusals)


def show_digest(digest: str, outputs: Sequence[OutputSpec]) -> None:
    """Write a saved plan's digest on a line of its own: to stdout if that is text, else to stderr."""
    if OutputSpec("text", None) in outputs:
        console.result(f"{digest}\n")
    else:
        console.say(digest)


def show_drift(report: DriftReport, outputs: Sequence[OutputSpec]) -> None:
    """Write a drift report to the outputs, see `wanted`."""
    from reconciler.render import render_drift

    _write(outputs, lambda format_, view: render_drift(report, format_, view))


def wanted(outputs: Sequence[OutputSpec], *, as_json: bool) -> list[OutputSpec]:
    """The outputs that were asked for; text on stdout where nothing else goes there."""
    specs = list(outputs)
    if as_json:
        specs.append(OutputSpec("json", None))
    if not any(spec.file is None for spec in specs):
        specs.insert(0, OutputSpec("text", None))
    return list(dict.fromkeys(specs))


def _write(
    specs: Sequence[OutputSpec], render: Callable[[str, View], str], *, show_keep: bool = False
) -> None:
    from reconciler.render import FORMATS
    from reconciler.render.style import PLAIN, View

    for spec in specs:
        style = console.style(sys.stdout) if spec.file is None else PLAIN
        text = render(spec.format, View(style, show_keep, console.redact, console.verbosity > 0))
        is_redacted = FORMATS[spec.format].redacts
        if spec.file is None:
            console.result(text, is_redacted=is_redacted)
        else:
            console.write_file(spec.file, text, is_redacted=is_redacted)
