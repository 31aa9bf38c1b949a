"""What was recorded of a stack, as text for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.decide.outcome import spell_status
from reconciler.render.layout import fit
from reconciler.render.style import Style, View
from reconciler.render.texts.groups import render_change
from reconciler.render.texts.head import render_head
from reconciler.render.texts.listing import render_table, render_tree
from reconciler.text import format_count, format_duration, printable

if TYPE_CHECKING:
    from reconciler.decide.history_report import (
        HistoryAction,
        HistoryDeclared,
        HistoryDiff,
        HistoryReport,
        HistoryRevision,
        HistoryRun,
        HistoryStep,
    )

_COLUMNS = 100
COLOURS = {
    "done": "green",
    "complete": "green",
    "no drift": "green",
    "skipped": "dim",
    "drift": "yellow",
    "new": "yellow",
    "changed": "yellow",
    "gone": "green",
    "accepted": "green",
    "removed": "green",
    "interrupted": "yellow",
    "running": "blue",
}
#: Runs that tell of drift and not of actions.
_CHECKS = frozenset({"drift", "accept"})
#: So much of a digest or a commit tells it from others.
_SHORT = 12
NOTHING = "Nothing is recorded yet.\n"


def history_text(report: HistoryReport, view: View) -> str:
    """Show a history: of one key its revisions and what was done to it, else the runs, and a table.

    `view.verbose` lists the calls of each run.
    """
    style = view.style
    if report.diff is not None:
        return _diff(report, report.diff, style)
    if not report.runs and not report.revisions:
        return f"Nothing is recorded of {report.key} yet.\n" if report.key else NOTHING
    parts = [_head(report, style)]
    if report.key is not None:
        parts += [list(_revision(one, style)) for one in report.revisions]
    parts += [list(_run(run, style, with_steps=view.verbose)) for run in report.runs]
    text = fit("\n\n".join("\n".join(lines) for lines in parts) + "\n", style, _names(report))
    return text if report.key is not None else text + _table(report, style)


def _names(report: HistoryReport) -> set[str]:
    """What must not be broken."""
    return {one.key for one in report.revisions} | {one.key for run in report.runs for one in run.actions}


def _head(report: HistoryReport, style: Style, more: str = "") -> list[str]:
    lines = [render_head(report.stack, report.target)]
    if report.key:
        lines.append(f"Key {printable(report.key)}{more}")
    return [style.paint(line, "bold") for line in lines]


def _run(run: HistoryRun, style: Style, *, with_steps: bool) -> Iterator[str]:
    word = run.result or ""
    took = "" if run.duration_s is None else f", took {format_duration(rounded(run.duration_s))}"
    painted = style.paint(printable(word), COLOURS.get(word, "red"))
    yield f"#{run.id} {printable(run.kind)}: {painted}, {run.began_at}{took}"
    yield from _wrapped("    ", "by " + "; ".join(filter(None, origin_of(run))), style)
    yield from _actions(run, style)
    if with_steps:
        for step in run.steps:
            yield from _step(step, style)
    elif lost := sum(step.ok is None for step in run.steps):
        calls = "1 call has" if lost == 1 else f"{lost} calls have"
        yield f"      {calls} no recorded answer; use -v to list the calls"


def _actions(run: HistoryRun, style: Style) -> Iterator[str]:
    """Each action, or where none was recorded how many ended how; of a check both."""
    counts = ", ".join(f"{n} {spell_status(name)}" for name, n in run.summary.items() if n)
    if counts and (run.kind in _CHECKS or not run.actions):
        yield from _wrapped("    ", counts, style)
    words = [what_was_done(run, action) for action in run.actions]
    width = max(map(len, words), default=0)
    for action, word in zip(run.actions, words, strict=True):
        yield from _action(action, f"{word:<{width}}", style)


def what_was_done(run: HistoryRun, action: HistoryAction) -> str:
    """The action, or of a drift check the class of the drift."""
    return action.reason if run.kind in _CHECKS else action.action


def origin_of(run: HistoryRun) -> Iterator[str]:
    """Who did it, where, and from what."""
    yield " on ".join(filter(None, (run.who or "somebody", run.where)))
    if run.commit:
        yield f"commit {_commit(run.commit)}"
    if run.plan_digest:
        what = "manifest" if run.kind in _CHECKS else "plan"
        yield f"{what} {run.plan_digest.removeprefix('sha256:')[:_SHORT]}"


def _commit(commit: str) -> str:
    return commit.removesuffix("+")[:_SHORT] + "+" * commit.endswith("+")


def _action(action: HistoryAction, what: str, style: Style) -> Iterator[str]:
    status = spell_status(action.status)
    lines = _wrapped(" " * 16, f"{what} {action.key}{detail_of(action)}", style)
    word = style.paint(f"{printable(status):<9}", COLOURS.get(action.status, "red"))
    yield f"      {word} {next(lines).lstrip()}"
    yield from lines


def detail_of(action: HistoryAction) -> str:
    """What is said of an action beside its key."""
    said = f": {action.detail}" if action.detail else ""
    return said + (f" ({action.code})" if action.code and action.code not in action.detail else "")


def _step(step: HistoryStep, style: Style) -> Iterator[str]:
    yield from _wrapped(" " * 6, call_of(step), style)


def call_of(step: HistoryStep) -> str:
    """One call of a run, and how it ended."""
    end = "no answer recorded" if step.ok is None else _answer(step)
    took = "" if step.duration_s is None else f", took {format_duration(rounded(step.duration_s))}"
    return f"call {step.call} {step.name} {step.began_at}{took}: {end}"


def _answer(step: HistoryStep) -> str:
    marks = ", ".join(filter(None, (step.code, step.request_id and f"request {step.request_id}")))
    return "succeeded" if step.ok else f"failed: {step.message}" + (f" ({marks})" if marks else "")


def _revision(one: HistoryRevision, style: Style) -> Iterator[str]:
    phase = printable(one.phase) if one.phase else "not observed yet"
    yield style.paint(f"r{one.revision}  {printable(one.name)}  {phase}", "bold")
    nodes = format_count(one.node_count, "node")
    took = f", {ran(one)}" if one.ended_at else ""
    yield from _wrapped("    ", f"job {one.job}, digest {one.digest}, {nodes}{took}", style)
    if told := ", ".join(life_of(one)):
        yield f"    {told}"
    if one.phases:
        seen = ", ".join(f"{seen.phase} {seen.seen_at}" for seen in one.phases)
        yield from _wrapped("    ", f"first observed: {seen}", style)
    if one.declared is None or not one.declared.immutable:
        yield "    its declaration is not on record"
    if one.declared is not None and (spec := declared_spec(one.declared)):
        yield "    declared:"
        yield from render_tree(spec, 3)


def life_of(one: HistoryRevision) -> Iterator[str]:
    """When a revision was created, started and ended."""
    if one.created_at:
        yield f"created {one.created_at}"
    if one.started_at:
        yield f"started {one.started_at}"
    if one.ended_at:
        yield f"ended {one.ended_at}"
    elif one.duration_s is not None and one.seen_at:
        yield f"{ran(one)} by {one.seen_at}"
    if one.released_at:
        yield f"released {one.released_at}"


def ran(one: HistoryRevision) -> str:
    """For how long a revision ran."""
    return "" if one.duration_s is None else f"ran {format_duration(rounded(one.duration_s))}"


def declared_spec(declared: HistoryDeclared) -> dict[str, Any]:
    """What was declared, as a manifest would say it."""
    lifecycle = {} if declared.protect is None else {"lifecycle": {"protect": declared.protect}}
    text = {"description": declared.description} if declared.description else {}
    fields = {name: _plain(value) for name, value in _merged(declared.immutable, declared.mutable).items()}
    return text | fields | lifecycle


def _plain(value: Any) -> Any:
    """An argument that has a value only reads better as that value."""
    if isinstance(value, Mapping):
        return _plain(value["value"]) if set(value) == {"value"} else {k: _plain(v) for k, v in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(one)
    for name, value in other.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(below, value)
        result[name] = value
    return result


def _table(report: HistoryReport, style: Style) -> str:
    head = ("KEY", "REVISION", "PHASE", "CREATED", "RAN", "NODES", "DIGEST")
    rows = (
        (
            one.key,
            f"r{one.revision}",
            one.phase or "",
            one.created_at or "",
            "" if one.duration_s is None else format_duration(rounded(one.duration_s)),
            str(one.node_count),
            one.digest,
        )
        for one in report.revisions
    )
    table = render_table(head, rows, style)
    return f"\n{table}" if table else ""


def _diff(report: HistoryReport, diff: HistoryDiff, style: Style) -> str:
    head = _head(report, style, f", r{diff.before} -> r{diff.after}")
    lines = [*head, "", *(f"    {render_change(change)}" for change in diff.changes)]
    if diff.changes:
        lines.append("")
    lines.append(differences(report, diff))
    return fit("\n".join(lines) + "\n", style, _names(report))


def differences(report: HistoryReport, diff: HistoryDiff) -> str:
    """How many fields differ between two revisions."""
    count = len(diff.changes)
    if not count:
        return f"No field differs.{_same(report)}"
    return "1 field differs." if count == 1 else f"{count} fields differ."


def _same(report: HistoryReport) -> str:
    """Why there are two revisions all the same, if there are two."""
    if len({one.revision for one in report.revisions}) < 2:
        return ""
    digests = {one.digest for one in report.revisions}
    if len(digests) < 2:
        return " The same job was started again."
    return " But the digests do."


def _wrapped(indent: str, text: str, style: Style) -> Iterator[str]:
    """Break a text of ours or of somebody's into lines of a readable length; a terminal says which it is."""
    if style.width is not None:
        yield indent + printable(text)  # broken with everything else
        return
    lines = textwrap.wrap(
        printable(text),
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    # What stood within a line may begin one now.
    yield from map(printable, lines or [indent.rstrip()])


def rounded(seconds: float) -> float:
    """A span of time as precise as people want it."""
    return round(seconds, 1) if seconds < 10 else round(seconds)
