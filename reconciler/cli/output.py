"""Showing a plan, a drift report or a result in the formats that were asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from reconciler.cli.options import OutputSpec
from reconciler.cli.terminal.console import console
from reconciler.core.drift.report import DriftReport
from reconciler.core.outcome import Result
from reconciler.core.planning.plan import Plan
from reconciler.core.review.report import Review
from reconciler.render import FORMATS, Content, formats_of, render
from reconciler.render.style import PLAIN, View


def show_plan(plan: Plan, outputs: Sequence[OutputSpec], *, show_keep: bool = False) -> None:
    """Write a plan to the outputs, see `requested_outputs`, and its refusals to stderr."""
    _write(Content.PLAN, plan, outputs, show_keep=show_keep)
    if plan.refusals:
        console.diagnostics(plan.refusals)


def show_digest(digest: str, outputs: Sequence[OutputSpec]) -> None:
    """Write a saved plan's digest on a line of its own: to stdout if that is text, else to stderr."""
    if OutputSpec("text", None) in outputs:
        console.result(f"{digest}\n")
    else:
        console.say(digest)


def show_drift(report: DriftReport, outputs: Sequence[OutputSpec]) -> None:
    """Write a drift report to the outputs, see `requested_outputs`."""
    _write(Content.DRIFT, report, outputs)


def show_review(review: Review, outputs: Sequence[OutputSpec]) -> None:
    """Write a review to the outputs, see `requested_outputs`."""
    _write(Content.REVIEW, review, outputs)


def show_result(result: Result, outputs: Sequence[OutputSpec], at_s: float) -> None:
    """Write to stdout what became of a plan, as of `at_s`, below the plan; files hold the plan only."""
    known = formats_of(Content.RESULT)
    specs = [spec for spec in outputs if spec.file is None and spec.format in known]
    if OutputSpec("text", None) in specs:
        console.result("\n")
    _write(Content.RESULT, result, specs, at_s=at_s)


def requested_outputs(outputs: Sequence[OutputSpec], *, as_json: bool) -> list[OutputSpec]:
    """The outputs that were asked for; text on stdout where nothing else goes there."""
    specs = list(outputs)
    if as_json:
        specs.append(OutputSpec("json", None))
    if not any(spec.file is None for spec in specs):
        specs.insert(0, OutputSpec("text", None))
    return list(dict.fromkeys(specs))


def _write(
    content: Content,
    value: object,
    specs: Sequence[OutputSpec],
    *,
    show_keep: bool = False,
    at_s: float = 0.0,
) -> None:
    for spec in specs:
        style = console.style(sys.stdout) if spec.file is None else PLAIN
        view = View(style, show_keep, console.redact, console.verbosity > 0, at_s)
        text = render(content, value, spec.format, view)
        is_redacted = FORMATS[spec.format].redacts
        if spec.file is None:
            console.result(text, is_redacted=is_redacted)
        else:
            console.write_file(spec.file, text, is_redacted=is_redacted)
