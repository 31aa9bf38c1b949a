"""A history: what was recorded of a stack, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.core.canonical import overlay
from reconciler.decide.outcome import spell_counts, spell_status
from reconciler.render import Style, View
from reconciler.render.text import render_change, render_head, render_table, render_tree
from reconciler.text import format_count, format_duration, printable

if TYPE_CHECKING:
    from reconciler.decide.history import (
        HistoryAction,
        HistoryDeclared,
        HistoryDiff,
        HistoryReport,
        HistoryRevision,
        HistoryRun,
        HistoryStep,
    )

COLOURS = {
    "done": "green",
    "complete": "green",
    "no drift": "green",
    "skipped": "dim",
    "drift": "yellow",
    "new": "yellow",
    "changed": "yellow",
    "gone": "green",
    "interrupted": "yellow",
    "running": "blue",
}
#: Runs about drift and not about actions.
_CHECKS = frozenset({"drift"})
#: As many letters of a digest or a commit tell it from others.
_SHORT = 12


def history_text(report: HistoryReport, view: View) -> str:
    """Text for people: of one key its revisions and what was done to it, else the runs, and a table.

    `view.verbose` lists the calls of each run.
    """
    style, key, diff = view.style, report.key, report.diff
    if diff is None and not report.runs and not report.revisions:
        return f"Nothing is recorded of {key} yet.\n" if key else "Nothing is recorded yet.\n"
    head = [render_head(report.stack, report.target)]
    if key:
        head.append(f"Key {printable(key)}" + (f", r{diff.before} -> r{diff.after}" if diff else ""))
    head = [style.paint(line, "bold") for line in head]
    if diff is not None:
        changes = [f"    {render_change(change)}" for change in diff.changes]
        lines = [*head, "", *changes, *([""] if changes else []), differences(report, diff)]
        return "\n".join(lines) + "\n"
    parts = [head]
    if key is not None:
        parts += [list(_revision_lines(one, style)) for one in report.revisions]
    parts += [list(_run_lines(run, view)) for run in report.runs]
    found = "\n\n".join("\n".join(lines) for lines in parts) + "\n"
    if key is not None or not report.revisions:
        return found
    rows = (
        (
            one.key,
            f"r{one.revision}",
            one.phase or "",
            one.created_at or "",
            _span(one.duration_s),
            str(one.node_count),
            one.digest,
        )
        for one in report.revisions
    )
    columns = ("KEY", "REVISION", "PHASE", "CREATED", "RAN", "NODES", "DIGEST")
    return f"{found}\n{render_table(columns, rows, style)}"


def _run_lines(run: HistoryRun, view: View) -> Iterator[str]:
    style = view.style
    word = run.result or ""
    painted = style.paint(printable(word), COLOURS.get(word, "red"))
    yield f"#{run.id} {printable(run.kind)}: {painted}, {run.began_at}{took(run.duration_s)}"
    yield "    " + printable(f"by {origin_of(run, view.redact)}")
    # Each action, or where none was recorded how many ended how; of a check both.
    counts = spell_counts(run.summary)
    if counts and (run.kind in _CHECKS or not run.actions):
        yield "    " + printable(counts)
    words = [what_was_done(run, action) for action in run.actions]
    width = max(map(len, words), default=0)
    for action, what in zip(run.actions, words, strict=True):
        status = style.paint(
            printable(f"{spell_status(action.status):<9}"), COLOURS.get(action.status, "red")
        )
        yield f"      {status} " + printable(f"{what:<{width}} {action.key}{detail_of(action)}")
    if view.verbose:
        for step in run.steps:
            yield " " * 6 + printable(call_of(step))
    elif lost := sum(step.ok is None for step in run.steps):
        calls = "1 call has" if lost == 1 else f"{lost} calls have"
        yield f"      {calls} no recorded answer; use -v to list the calls"


def what_was_done(run: HistoryRun, action: HistoryAction) -> str:
    """The action, or of a drift check the class of the drift."""
    return action.reason if run.kind in _CHECKS else action.action


def origin_of(run: HistoryRun, redact: Callable[[str], str]) -> str:
    """Who did it, where, and from what; `redact` would not find a secret that was shortened before."""
    parts = [" on ".join(filter(None, (run.who or "somebody", run.where)))]
    if run.commit:
        commit = redact(run.commit.removesuffix("+"))[:_SHORT]
        parts.append(f"commit {commit}{'+' * run.commit.endswith('+')}")
    if run.plan_digest:
        what = "manifest" if run.kind in _CHECKS else "plan"
        parts.append(f"{what} {redact(run.plan_digest.removeprefix('sha256:'))[:_SHORT]}")
    return "; ".join(filter(None, parts))


def detail_of(action: HistoryAction) -> str:
    """Why an action ended as it did, to stand behind its key."""
    detail = f": {action.detail}" if action.detail else ""
    return detail + (f" ({action.code})" if action.code and action.code not in action.detail else "")


def call_of(step: HistoryStep) -> str:
    """One call of a run, and how it ended."""
    marks = ", ".join(filter(None, (step.code, step.request_id and f"request {step.request_id}")))
    end = f"failed: {step.message}" + (f" ({marks})" if marks else "")
    end = "no answer recorded" if step.ok is None else "succeeded" if step.ok else end
    return f"call {step.call} {step.name} {step.began_at}{took(step.duration_s)}: {end}"


def _revision_lines(one: HistoryRevision, style: Style) -> Iterator[str]:
    phase = printable(one.phase) if one.phase else "not observed yet"
    yield style.paint(f"r{one.revision}  {printable(one.name)}  {phase}", "bold")
    yield "    " + printable(", ".join(facts_of(one)))
    if life := ", ".join(life_of(one)):
        yield f"    {life}"
    if one.phases:
        seen = ", ".join(f"{seen.phase} {seen.seen_at}" for seen in one.phases)
        yield "    " + printable(f"first observed: {seen}")
    if one.declared is None or not one.declared.immutable:
        yield "    its declaration is not on record"
    if one.declared is not None and (spec := declared_spec(one.declared)):
        yield "    declared:"
        yield from render_tree(spec, 3)


def facts_of(one: HistoryRevision) -> Iterator[str]:
    yield f"job {one.job}"
    yield f"digest {one.digest}"
    yield format_count(one.node_count, "node")
    if one.ended_at and one.duration_s is not None:
        yield f"ran {_span(one.duration_s)}"


def life_of(one: HistoryRevision) -> Iterator[str]:
    """When a revision was created, started and ended."""
    if one.created_at:
        yield f"created {one.created_at}"
    if one.started_at:
        yield f"started {one.started_at}"
    if one.ended_at:
        yield f"ended {one.ended_at}"
    elif one.duration_s is not None and one.seen_at:
        yield f"ran {_span(one.duration_s)} by {one.seen_at}"
    if one.released_at:
        yield f"released {one.released_at}"


def _span(seconds: float | None) -> str:
    """A span of time as precise as people want it."""
    if seconds is None:
        return ""
    return format_duration(round(seconds, 1) if seconds < 10 else round(seconds))


def took(seconds: float | None) -> str:
    return "" if seconds is None else f", took {_span(seconds)}"


def declared_spec(declared: HistoryDeclared) -> dict[str, Any]:
    """What was declared, as a manifest would say it."""
    lifecycle = {} if declared.protect is None else {"lifecycle": {"protect": declared.protect}}
    about = {"description": declared.description} if declared.description else {}
    fields = {name: _plain(value) for name, value in overlay(declared.immutable, declared.mutable).items()}
    return about | fields | lifecycle


def _plain(value: Any) -> Any:
    """An argument that has a value only reads better as that value."""
    if isinstance(value, Mapping):
        return _plain(value["value"]) if set(value) == {"value"} else {k: _plain(v) for k, v in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def differences(report: HistoryReport, diff: HistoryDiff) -> str:
    """How many fields differ between two revisions; if none, why there are two all the same."""
    count = len(diff.changes)
    if count:
        return "1 field differs." if count == 1 else f"{count} fields differ."
    if len({one.revision for one in report.revisions}) < 2:
        return "No field differs."
    is_same = len({one.digest for one in report.revisions}) < 2
    return "No field differs. " + ("The same job was started again." if is_same else "But the digests do.")
