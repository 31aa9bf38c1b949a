"""Plans, drift reports and results as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from reconciler.core.diagnostic import Diagnostic, Severity
from reconciler.core.outcome import Result, Status, Waited, WaitEnd, spell_status
from reconciler.core.planning.groups import Group, fold, spell_work
from reconciler.core.planning.plan import Action, Change, Plan, PlannedAction, PlanWarning, TargetIdentity
from reconciler.core.text.sanitize import printable
from reconciler.core.text.secret import show
from reconciler.render.style import PLAIN, Style, View

if TYPE_CHECKING:
    from reconciler.core.drift.report import Drift, DriftReport

#: What stands below the line of an action.
INDENT = " " * 8
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


def render_plan(plan: Plan, view: View) -> str:
    """Show a plan; the last line is fixed: docs/cli.md, "Text output"."""
    style = view.style
    lines = [style.paint(render_head(plan.stack, plan.target), "bold"), ""]
    shown = [a for a in plan.actions if view.show_keep or not _is_quiet(a)]
    groups = [Group((action,)) for action in shown] if view.verbose else fold(shown)
    width = max((len(_name(group)) for group in groups), default=0)
    for group in groups:
        lines += _group(group, style, width)
        if view.verbose and group.first.desired is not None:
            lines += _body(group.first)
    if shown:
        lines.append("")
    lines += _warnings(plan.warnings, style)
    if plan.lost_node_hours:
        lines.append(f"Discards {spell_work(plan.lost_node_hours)} of work.")
    lines.append(plan.last_line)
    return "\n".join(lines) + "\n"


def render_head(stack: str, target: TargetIdentity) -> str:
    """Say what a text is about."""
    where = f"{target.name} ({target.kind}"
    where += f", {target.endpoint}, project {target.project_id}" if target.endpoint != target.kind else ""
    return printable(f"Stack {stack} on {where})")


def _warnings(warnings: Iterable[PlanWarning], style: Style) -> Iterator[str]:
    for warning in warnings:
        about = f"{warning.key}: " if warning.key else ""
        yield printable_line(style.paint("warning: ", "yellow"), f"{about}{warning.what}: {warning.why}")
        if warning.fix:
            yield printable_line("  fix: ", warning.fix)


def _is_quiet(action: PlannedAction) -> bool:
    """Whether an action is listed on request only: what is kept, unless it ended badly."""
    return action.action is Action.KEEP and not action.ended_badly


def _name(group: Group) -> str:
    return f"{len(group.actions)} jobs" if group.is_folded else printable(group.first.key)


def _group(group: Group, style: Style, width: int) -> Iterator[str]:
    action = group.first
    word = style.paint(f"{action.symbol:>3} {action.action.value:<9}", action.traits.colour)
    revision = "" if group.is_folded else _revision(action)
    yield printable_line(f"{word} {_name(group):<{width}}  {revision:<4} ", group.explanation)
    if group.is_folded:
        keys = ", ".join(f"{one.key} {_revision(one)}".rstrip() for one in group.actions)
        yield from wrap(printable(keys), 100, initial_indent=INDENT, subsequent_indent=INDENT, **_WHOLE_WORDS)
    if action.starts:
        yield INDENT + printable(action.starts)
    for change in action.changes:
        yield INDENT + render_change(change)


def _revision(action: PlannedAction) -> str:
    shown = action.after or action.before
    return f"r{shown.revision}" if shown else ""


def _body(action: PlannedAction) -> Iterator[str]:
    """The whole body that is sent, secrets by name."""
    for line in json.dumps(show(action.desired), indent=2, ensure_ascii=False).splitlines():
        yield INDENT + printable(line)


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


def render_result(result: Result, view: View) -> str:
    """Show what became of a plan, and of the jobs that were waited for."""
    style = view.style
    lines = [_outcome_line(o.status, o.action, o.detail, style) for o in result.outcomes]
    width = max((len(waited.key) for waited in result.waits), default=0)
    words = [_wait_end(waited, view.at_s) for waited in result.waits]
    ends = max((11, *(len(word) for word, _ in words)))
    for waited, (word, said) in zip(result.waits, words, strict=True):
        colour = "green" if waited.end is WaitEnd.REACHED else "red"
        end = style.paint(printable(f"{word:<{ends}}"), colour)
        lines.append(printable_line(f"  {end} ", f"{waited.key:<{width}}  {said}"))
    counts = result.summary
    told = [
        f"{count} {spell_status(status)}"
        for status, count in counts.items()
        if count or status == Status.DONE
    ]
    lines.append(f"{'Apply interrupted' if result.interrupted else 'Applied'}: {', '.join(told)}.")
    return "\n".join(lines) + "\n"


def _wait_end(waited: Waited, at_s: float) -> tuple[str, str]:
    """How a wait ended, in a word, and the rest: a goal that was reached is the phase of the job."""
    if waited.end is WaitEnd.REACHED and waited.job is not None:
        times = waited.times(at_s)
        return waited.job.phase_text, waited.job.name + (f" ({times})" if times else "")
    return waited.end.value.replace("_", " "), waited.describe(at_s)


_STATUS_COLOURS = {Status.DONE: "green", Status.SKIPPED: "dim"}


def _outcome_line(status: Status, action: PlannedAction, detail: str, style: Style) -> str:
    word = style.paint(f"{spell_status(status):<9}", _STATUS_COLOURS.get(status, "red"))
    name = action.after.name if action.after else action.before.name if action.before else action.key
    return printable_line(f"  {word} ", f"{action.action.value} {name}" + (f": {detail}" if detail else ""))


def render_diagnostics(diagnostics: Iterable[Diagnostic], style: Style = PLAIN) -> str:
    """Show problems: what, where, the line, why, and how to fix it."""
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
