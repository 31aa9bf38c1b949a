"""The text of a history, newest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from reconciler.core.canonical import overlay
from reconciler.core.diff import without_wrappers
from reconciler.core.past import PastAction, PastRevision, PastRun, PastStep, RunKind
from reconciler.core.record import RevisionId
from reconciler.core.values import timestamp, timestamp_or_none
from reconciler.decide.history import duration_s
from reconciler.decide.outcome import spell_counts, spell_status
from reconciler.render import Style, View
from reconciler.render.text import render_head, render_table, render_tree
from reconciler.text import format_count, format_duration, printable

if TYPE_CHECKING:
    from reconciler.core.stack import Declared
    from reconciler.decide.history import HistoryReport, RevisionCode

COLOURS = {
    "done": "green",
    "complete": "green",
    "no drift": "green",
    "skipped": "dim",
    "nothing to do": "dim",
    "drift": "yellow",
    "new": "yellow",
    "changed": "yellow",
    "gone": "green",
    "refused": "yellow",
    "interrupted": "yellow",
    "unfinished": "yellow",
    "running": "blue",
}
#: Length of an abbreviated digest.
_SHORT = 12


def history_text(report: HistoryReport, view: View) -> str:
    """Render the runs and a table of revisions; for one key its revisions and the actions on it.

    `view.verbose` lists the calls of each run.
    """
    style, key = view.style, report.key
    if not report.runs and not report.revisions:
        return f"Nothing is recorded for {key} yet.\n" if key else "Nothing is recorded yet.\n"
    head = [render_head(report.stack, report.target), *([f"Key {printable(key)}"] if key else ())]
    parts = [[style.paint(line, "bold") for line in head]]
    is_one = key is not None and len(report.selected_keys) == 1
    if is_one:
        parts += [
            list(_revision_lines(one, report.codes.get(RevisionId(one.key, one.number)), style))
            for one in report.revisions
        ]
    parts += [list(_run_lines(run, view)) for run in report.runs]
    found = "\n\n".join("\n".join(lines) for lines in parts) + "\n"
    if is_one or not report.revisions:
        return found
    rows = (
        (
            one.key,
            f"r{one.number}",
            one.phase_text,
            timestamp_or_none(one.created_at_s) or "",
            "" if one.duration_s is None else format_duration(one.duration_s),
            str(one.node_count),
            one.digest,
        )
        for one in report.revisions
    )
    columns = ("KEY", "REVISION", "PHASE", "CREATED", "RAN", "NODES", "DIGEST")
    order = ("KEY", "PHASE", "REVISION", "CREATED", "RAN", "NODES", "DIGEST")
    return f"{found}\n{render_table(columns, rows, style, order)}"


def _run_lines(run: PastRun, view: View) -> Iterator[str]:
    style, is_check = view.style, run.kind == RunKind.DRIFT
    painted = style.paint(printable(run.word), COLOURS.get(run.word, "red"))
    yield f"#{run.id} {printable(run.kind)}: {painted}, {timestamp(run.at_s)}{_took(run)}"
    yield "    " + printable(f"by {origin_of(run, view.redact)}")
    # The actions, or their counts if none were recorded; both for a drift check.
    counts = spell_counts(run.summary)
    if counts and (is_check or not run.actions):
        yield "    " + printable(counts)
    # The action, or the class of drift.
    words = [action.reason if is_check else action.action for action in run.actions]
    width = max(map(len, words), default=0)
    for action, what in zip(run.actions, words, strict=True):
        status = style.paint(
            printable(f"{spell_status(action.status):<9}"), COLOURS.get(action.status, "red")
        )
        yield f"      {status} " + printable(f"{what:<{width}} {action.key}{_detail_of(action)}")
    if view.verbose:
        for step in run.steps:
            yield " " * 6 + printable(_call_of(step))
    elif lost := sum(step.ok is None for step in run.steps):
        calls = "1 call has" if lost == 1 else f"{lost} calls have"
        yield f"      {calls} no recorded answer; use -v to list the calls"


def origin_of(run: PastRun, redact: Callable[[str], str]) -> str:
    """Who ran it, where, and from which commit. Redacts before it shortens."""
    parts = [" on ".join(filter(None, (run.who or "somebody", run.where)))]
    if run.plan_digest:
        what = "manifest" if run.kind == RunKind.DRIFT else "plan"
        parts.append(f"{what} {redact(run.plan_digest.removeprefix('sha256:'))[:_SHORT]}")
    return "; ".join(filter(None, parts))


def _detail_of(action: PastAction) -> str:
    """The suffix of an action's key that explains its outcome."""
    detail = f": {action.detail}" if action.detail else ""
    return detail + (f" ({action.code})" if action.code and action.code not in action.detail else "")


def _call_of(step: PastStep) -> str:
    marks = ", ".join(filter(None, (step.code, step.request_id and f"request {step.request_id}")))
    end = f"failed: {step.message}" + (f" ({marks})" if marks else "")
    end = "no answer recorded" if step.ok is None else "succeeded" if step.ok else end
    return f"call {step.call} {step.name} {timestamp(step.at_s)}{_took(step)}: {end}"


def _revision_lines(one: PastRevision, code: RevisionCode | None, style: Style) -> Iterator[str]:
    phase = printable(one.phase_text) or "not observed yet"
    yield style.paint(f"r{one.number}  {printable(one.name)}  {phase}", "bold")
    facts = [f"job {one.job}", f"digest {one.digest}", format_count(one.node_count, "node")]
    if one.has_ended and one.ended_at_s is not None and one.duration_s is not None:
        facts.append(f"ran {format_duration(one.duration_s)}")
    yield "    " + printable(", ".join(facts))
    if life := ", ".join(life_of(one)):
        yield f"    {life}"
    if one.phases:
        seen = ", ".join(f"{phase} {timestamp(at_s)}" for phase, at_s in one.phases)
        yield "    " + printable(f"first observed: {seen}")
    if code is not None:
        yield "    " + printable(f"code: {code.words}")
    if one.declared is None or not one.declared.immutable:
        yield "    its declaration is not on record"
    if one.declared is not None and (spec := _declared_spec(one.declared)):
        yield "    declared:"
        yield from render_tree(spec, 3)


def life_of(one: PastRevision) -> Iterator[str]:
    """The times at which a revision was created, started and ended."""
    if one.created_at_s is not None:
        yield f"created {timestamp(one.created_at_s)}"
    if one.started_at_s is not None:
        yield f"started {timestamp(one.started_at_s)}"
    if one.has_ended and one.ended_at_s is not None:
        yield f"ended {timestamp(one.ended_at_s)}"
    elif one.duration_s is not None and one.seen_at_s is not None:
        yield f"ran {format_duration(one.duration_s)} by {timestamp(one.seen_at_s)}"
    if one.released_at_s is not None:
        yield f"released {timestamp(one.released_at_s)}"


def _took(one: PastRun | PastStep) -> str:
    took_s = duration_s(one)
    return "" if took_s is None else f", took {format_duration(took_s)}"


def _declared_spec(declared: Declared) -> dict[str, Any]:
    """The declaration of a revision in manifest form."""
    lifecycle = {} if declared.protect is None else {"lifecycle": {"protect": declared.protect}}
    about = {"description": declared.description} if declared.description else {}
    fields: dict[str, Any] = without_wrappers(overlay(declared.immutable, declared.mutable))
    return about | fields | lifecycle
