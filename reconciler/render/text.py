"""Plans, drift reports and results as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.core.diagnostic import Diagnostic, Severity
from reconciler.core.drift import Drift, DriftReport
from reconciler.core.outcome import Result, Status, WaitEnd
from reconciler.core.plan import Action, Change, Plan, PlannedAction, PlanWarning, TargetIdentity, last_line
from reconciler.core.printable import printable
from reconciler.render.style import COLOURS, PLAIN, Style, View


def render_plan(plan: Plan, view: View) -> str:
    """Show a plan; the last line is fixed by CLI.md 7."""
    style = view.style
    lines = [style.paint(render_head(plan.stack, plan.target), "bold"), ""]
    shown = [a for a in plan.actions if view.show_keep or a.action is not Action.KEEP]
    width = max((len(a.key) for a in shown), default=0)
    for action in shown:
        lines += _action(action, style, width)
    if shown:
        lines.append("")
    lines += _warnings(plan.warnings, style)
    if hours := plan.lost_node_hours:
        lost = f"{hours:.1f} node-hours" if hours >= 0.1 else f"{hours * 3600:.0f} node-seconds"
        lines.append(f"Throws away {lost} of work.")
    lines.append(last_line(plan.summary))
    return "\n".join(lines) + "\n"


def render_head(stack: str, target: TargetIdentity) -> str:
    """Say what a text is about."""
    where = f"{target.name} ({target.kind.value}"
    where += (
        f", {target.endpoint}, project {target.project_id}" if target.endpoint != target.kind.value else ""
    )
    return printable(f"Stack {stack} on {where})")


def _warnings(warnings: Iterable[PlanWarning], style: Style) -> Iterator[str]:
    for warning in warnings:
        about = f"{warning.key}: " if warning.key else ""
        yield printable_line(style.paint("warning: ", "yellow"), f"{about}{warning.what}: {warning.why}")


def _action(action: PlannedAction, style: Style, width: int) -> Iterator[str]:
    colour = COLOURS[action.action]
    word = style.paint(f"{action.symbol:>3} {action.action.value:<9}", colour)
    name = f"{action.key:<{width}}"
    shown = action.after or action.before
    revision = f"r{shown.revision}" if shown else ""
    yield printable_line(f"{word} {name}  {revision:<4} ", action.detail)
    for change in action.changes:
        yield " " * 8 + render_change(change)


def printable_line(ours: str, theirs: str) -> str:
    """Join text of ours, which may hold colours, and text from outside, which must not."""
    return f"{ours}{printable(theirs)}".rstrip()


def render_change(change: Change) -> str:
    """One field with its value before and after."""
    mark = "  # forces a new job" if change.forces_new_job else ""
    note = "  # sensitive" if change.sensitive else ""
    return printable(f"{change.path}: {_value(change.before)} -> {_value(change.after)}") + mark + note


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def render_drift(report: DriftReport, view: View) -> str:
    """Show a drift report; the last line counts."""
    style = view.style
    lines = [style.paint(render_head(report.stack, report.target), "bold"), ""]
    keys = [*(item.key for item in report.drift), *(item.key for item in report.pending)]
    width = max(map(len, keys), default=0)
    lines += [_drift_line(item, style, width) for item in report.drift]
    if report.pending:
        lines += [*([""] if report.drift else []), "Pending changes (not drift; run apply):"]
        lines += [
            printable(f"  {'pending':<10} {item.key:<{width}}  {item.detail}") for item in report.pending
        ]
    if report.drift or report.pending:
        lines.append("")
    lines += _warnings(report.warnings, style)
    found = ", ".join(f"{count} {name.value}" for name, count in report.summary.items() if count)
    lines.append(f"Drift: {found or 'none'}; {len(report.pending)} pending, {report.compared} compared.")
    return "\n".join(lines) + "\n"


def _drift_line(item: Drift, style: Style, width: int) -> str:
    word = style.paint(f"  {item.class_.value:<10}", "red")
    since = f" (since {item.since})" if item.since else ""
    return printable_line(f"{word} ", f"{item.key:<{width}}  {item.detail}{since}")


def render_result(result: Result, style: Style = PLAIN, at_s: float = 0.0) -> str:
    """Show what became of a plan, and of the jobs that were waited for, as of `at_s`."""
    lines = [_outcome_line(o.status, o.action, o.detail, style) for o in result.outcomes]
    width = max((len(waited.key) for waited in result.waits), default=0)
    for waited in result.waits:
        word = f"{waited.end.value.replace('_', ' '):<11}"
        colour = "green" if waited.end is WaitEnd.REACHED else "red"
        said = f"{waited.key:<{width}}  {waited.describe(at_s)}"
        lines.append(printable_line(f"  {style.paint(word, colour)} ", said))
    counts = result.summary
    told = [f"{counts[Status.DONE]} done"]
    told += [
        f"{count} {status.replace('_', ' ')}"
        for status, count in counts.items()
        if count and status != Status.DONE
    ]
    lines.append(f"Apply{' interrupted' if result.interrupted else ''}: {', '.join(told)}.")
    return "\n".join(lines) + "\n"


_STATUS_COLOURS = {Status.DONE: "green", Status.SKIPPED: "dim"}


def _outcome_line(status: Status, action: PlannedAction, detail: str, style: Style) -> str:
    word = style.paint(f"{status.value.replace('_', ' '):<9}", _STATUS_COLOURS.get(status, "red"))
    name = action.after.name if action.after else action.before.name if action.before else action.key
    return printable_line(f"  {word} ", f"{action.action.value} {name}" + (f": {detail}" if detail else ""))


def render_diagnostics(diagnostics: Iterable[Diagnostic], style: Style = PLAIN) -> str:
    """Show problems as the guide has them: what, where, the line, why, and how to fix it."""
    return "\n".join("\n".join(_diagnostic(d, style)) for d in diagnostics) + "\n"


def _diagnostic(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    is_error = diagnostic.severity is Severity.ERROR
    word = style.paint(diagnostic.severity.value, "red" if is_error else "yellow")
    yield printable_line(f"{word}: ", diagnostic.what)
    if diagnostic.location is not None:
        yield printable(f"  --> {diagnostic.location}" + (f"  {diagnostic.path}" if diagnostic.path else ""))
        if diagnostic.snippet is not None:
            number = str(diagnostic.location.line)
            snippet = diagnostic.snippet
            yield f"{' ' * len(number)} |"
            yield f"{number} | {printable(snippet.text)}"
            yield f"{' ' * len(number)} | {' ' * snippet.start}{'^' * snippet.length}"
    elif diagnostic.path:
        yield printable(f"  --> {diagnostic.path}")
    if diagnostic.why:
        yield printable(f"  why: {diagnostic.why}")
    if diagnostic.fix:
        yield printable(f"  fix: {diagnostic.fix}")
