"""Showing a plan or a drift report in the formats that were asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconciler.cli.console import console
from reconciler.cli.options import OutputSpec

if TYPE_CHECKING:
    from reconciler.core.drift import DriftReport
    from reconciler.core.plan import Plan


def show_plan(plan: Plan, outputs: Sequence[OutputSpec], *, show_keep: bool = False) -> None:
    """Write a plan to the outputs, see `wanted`, and its refusals to stderr."""
    from reconciler.render import render_plan

    def render(format_: str, to_file: bool) -> str:
        from reconciler.render.style import PLAIN

        style = PLAIN if to_file else console.style(sys.stdout)
        return render_plan(plan, format_, style, show_keep=show_keep)

    _write(outputs, render)
    if plan.refusals:
        console.diagnostics(plan.refusals)


def show_drift(report: DriftReport, outputs: Sequence[OutputSpec]) -> None:
    """Write a drift report to the outputs, see `wanted`."""
    from reconciler.render import render_drift

    def render(format_: str, to_file: bool) -> str:
        from reconciler.render.style import PLAIN

        return render_drift(report, format_, PLAIN if to_file else console.style(sys.stdout))

    _write(outputs, render)


def wanted(outputs: Sequence[OutputSpec], *, as_json: bool) -> list[OutputSpec]:
    """The outputs that were asked for; text on stdout where nothing else goes there."""
    specs = list(outputs)
    if as_json:
        specs.append(OutputSpec("json", None))
    if not any(spec.file is None for spec in specs):
        specs.insert(0, OutputSpec("text", None))
    return list(dict.fromkeys(specs))


def _write(specs: Sequence[OutputSpec], render: Callable[[str, bool], str]) -> None:
    for spec in specs:
        text = render(spec.format, spec.file is not None)
        if spec.file is None:
            console.result(text)
        else:
            console.write_file(spec.file, text)
