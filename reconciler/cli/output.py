"""Showing a plan, a drift report or a result in the formats that were asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.final_outputs import OutputSpec, final_outputs
from reconciler.cli.terminal.console import console
from reconciler.decide.guards import blockers
from reconciler.decide.policies import refusals_of
from reconciler.files import append_file
from reconciler.render import FORMATS, Content, formats_of, render, step_outputs
from reconciler.render.layout import fit
from reconciler.render.style import PLAIN, View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.fleet import FleetReport
    from reconciler.decide.history_report import HistoryReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan
    from reconciler.decide.policy_cases import CasesReport
    from reconciler.decide.reports import Validation
    from reconciler.decide.review import Review
    from reconciler.errors import Diagnostic


def show_plan(
    plan: Plan, outputs: Sequence[OutputSpec], *, show_keep: bool = False, digest: str = ""
) -> None:
    """Write a plan to the outputs, see `requested_outputs`, and what refuses it or blocks keys to stderr.

    `digest` is that of the plan's file, if it has one.
    """
    final_outputs.about(plan.stack, plan.target.name)
    _show(Content.PLAN, plan, outputs, View(show_keep=show_keep, digest=digest))
    if found := blockers(plan):
        console.diagnostics(found)


def show_digest(digest: str, outputs: Sequence[OutputSpec]) -> None:
    """Write a saved plan's digest on a line of its own: to stdout if that is text, else to stderr."""
    if OutputSpec("text", None) in outputs:
        console.result(f"{digest}\n")
    else:
        console.say(digest)


def show_drift(report: DriftReport, outputs: Sequence[OutputSpec]) -> None:
    """Write a drift report to the outputs, see `requested_outputs`."""
    _show(Content.DRIFT, report, outputs, View())


def show_review(review: Review, outputs: Sequence[OutputSpec]) -> None:
    """Write a review to the outputs, see `requested_outputs`, and what policies deny to stderr."""
    _show(Content.REVIEW, review, outputs, View())
    if review.denied:
        console.diagnostics(refusals_of(review.denied))


def show_validation(
    report: Validation, outputs: Sequence[OutputSpec], diagnostics: Sequence[Diagnostic]
) -> None:
    """Write a check of a manifest to the outputs, see `requested_outputs`, and what it found to stderr.

    As text, stdout has the line that says it all, and nothing where the manifest is invalid. Programs that
    read the document from stdout need no problems on stderr as well.
    """
    final_outputs.about(report.stack or "", report.target)
    on_stdout = OutputSpec("text", None)
    _show(Content.VALIDATION, report, [spec for spec in outputs if spec != on_stdout], View())
    if report.valid and on_stdout in outputs:
        console.result(fit(f"{printable(report.last_line)}\n", console.style(sys.stdout)))
    if diagnostics and (report.valid or OutputSpec("json", None) not in outputs):
        console.diagnostics(diagnostics)


def show_history(report: HistoryReport, outputs: Sequence[OutputSpec]) -> None:
    """Write a history to the outputs, see `requested_outputs`."""
    _show(Content.HISTORY, report, outputs, View())


def show_cases(report: CasesReport, outputs: Sequence[OutputSpec]) -> None:
    """Write what became of the cases of policies to the outputs, see `requested_outputs`."""
    _show(Content.CASES, report, outputs, View())


def show_fleet(report: FleetReport, outputs: Sequence[OutputSpec]) -> None:
    """Write the report of a fleet to the outputs, see `requested_outputs`.

    Each stack's secrets were taken out of what is said of that stack.
    """
    _show(Content.FLEET, report, outputs, View(), is_redacted=True)


def show_result(
    result: Result, plan: Plan, outputs: Sequence[OutputSpec], at_s: float, *, digest: str = ""
) -> None:
    """Write to the outputs what became of a plan, as of `at_s`.

    On stdout it stands below the plan. A file holds both, or the result alone, as its format says.
    """
    view = View(at_s=at_s, digest=digest, plan=plan)
    final_outputs.show(Content.RESULT, result, view)
    for spec in _at_once(outputs):
        if spec.format not in formats_of(Content.RESULT):
            continue
        text = _rendered(Content.RESULT, result, spec, view)
        if FORMATS[spec.format].is_whole:
            _write(spec, text)
        elif spec.file is None:
            _write(spec, f"\n{text}")
        else:
            _write(spec, _rendered(Content.PLAN, plan, spec, view) + "\n" + text)
    _tell_github(Content.RESULT, result, outputs, view)


def requested_outputs(outputs: Sequence[OutputSpec], *, as_json: bool) -> list[OutputSpec]:
    """The outputs that were asked for; text on stdout where nothing else goes there."""
    specs = list(outputs)
    if as_json:
        specs.append(OutputSpec("json", None))
    if not any(spec.file is None for spec in specs):
        specs.insert(0, OutputSpec("text", None))
    return list(dict.fromkeys(specs))


def _show(
    content: Content,
    value: object,
    outputs: Sequence[OutputSpec],
    view: View,
    *,
    is_redacted: bool = False,
) -> None:
    """Write a value to the outputs; those that say how the run ended wait for that."""
    final_outputs.show(content, value, view)
    for spec in _at_once(outputs):
        _write(spec, _rendered(content, value, spec, view), is_redacted=is_redacted)
    _tell_github(content, value, outputs, view)


def _at_once(outputs: Sequence[OutputSpec]) -> list[OutputSpec]:
    return [spec for spec in outputs if not FORMATS[spec.format].is_final]


def _rendered(content: Content, value: object, spec: OutputSpec, view: View) -> str:
    style = console.style(sys.stdout) if spec.file is None else PLAIN
    return render(content, value, spec.format, _completed(view)._replace(style=style))


def _completed(view: View) -> View:
    return view._replace(
        redact=console.redact,
        verbose=console.verbosity > 0,
        directory=directory_in_repository(),
    )


def directory_in_repository() -> str:
    """Where the current directory is in the repository of a GitHub workflow; "" elsewhere."""
    here = Path.cwd()
    top = os.environ.get("GITHUB_WORKSPACE")
    return here.relative_to(top).as_posix() if top and here.is_relative_to(top) else ""


def wants_step_outputs(outputs: Sequence[OutputSpec]) -> bool:
    """Whether the format of a GitHub workflow is asked for, in a step that has outputs."""
    return bool(os.environ.get("GITHUB_OUTPUT")) and any(spec.format == "github" for spec in outputs)


def _tell_github(content: Content, value: object, outputs: Sequence[OutputSpec], view: View) -> None:
    """Write the summary and the outputs of a step of a GitHub workflow, if its format is asked for."""
    if not any(spec.format == "github" for spec in outputs):
        return
    view = _completed(view)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        text = render(content, value, "markdown", view)
        append_file(Path(summary), console.encoded(text, is_redacted=True))
    if file := os.environ.get("GITHUB_OUTPUT"):
        text = step_outputs(content, value, view)
        append_file(Path(file), console.encoded(text, is_redacted=True))


def _write(spec: OutputSpec, text: str, *, is_redacted: bool = False) -> None:
    is_redacted = is_redacted or FORMATS[spec.format].redacts
    if spec.file is None:
        console.result(text, is_redacted=is_redacted)
    else:
        console.write_file(spec.file, text, is_redacted=is_redacted)
