"""What Markdown and HTML show of a history: a row per run, a row per revision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconciler.decide.outcome import spell_status
from reconciler.render.sheet import Clean, Row, Sheet, field_of, harmless, place_of_target
from reconciler.render.style import View
from reconciler.render.texts.history import (
    COLOURS,
    call_of,
    declared_spec,
    detail_of,
    differences,
    life_of,
    origin_of,
    ran,
    rounded,
    what_was_done,
)
from reconciler.render.texts.listing import render_tree
from reconciler.text import format_count, format_duration

if TYPE_CHECKING:
    from reconciler.decide.history_report import HistoryReport, HistoryRevision, HistoryRun


def sheet_of_history(report: HistoryReport, view: View) -> Sheet:
    """What is shown of a history, newest first: runs with their actions, and revisions.

    `view.verbose` lists the calls of each run.
    """
    return harmless(lambda clean: _sheet(report, view, clean), view.redact)


def _sheet(report: HistoryReport, view: View, clean: Clean) -> Sheet:
    runs = tuple(_run(run, view, clean, is_only=len(report.runs) == 1) for run in report.runs)
    revisions = tuple(_revision(one, report, clean) for one in report.revisions)
    rows = (*_diff(report, clean), *runs, *revisions)
    about = f" of {report.key}" if report.key else ""
    return Sheet(
        title="History",
        stack=clean(report.stack),
        target=clean(report.target.name),
        where=clean(place_of_target(report.target)),
        last_line=clean(
            f"History{about}: {format_count(len(runs), 'run')}, {format_count(len(revisions), 'revision')}."
        ),
        counts={"runs": len(runs), "revisions": len(revisions)},
        has_changes=False,
        created_at=clean(report.created_at),
        version=clean(report.reconciler_version),
        rows=rows,
        folded=rows,
        keys=tuple(dict.fromkeys(row.key for row in revisions)),
        columns=("Result", "Run or job", "What"),
    )


def _run(run: HistoryRun, view: View, clean: Clean, *, is_only: bool) -> Row:
    result = run.result or "unknown"
    took = "" if run.duration_s is None else f", took {format_duration(rounded(run.duration_s))}"
    counts = ", ".join(f"{number} {spell_status(name)}" for name, number in run.summary.items() if number)
    said = [run.began_at + took, "by " + "; ".join(filter(None, origin_of(run))), counts]
    lines = [*_actions(run), *(map(call_of, run.steps) if view.verbose else ())]
    return Row(
        keys=(clean(f"#{run.id} {run.kind}"),),
        kind=clean(result),
        words="run" if is_only else "runs",
        symbol="",
        colour=COLOURS.get(result, "red"),
        rule=clean(run.kind),
        revision="",
        text=clean("; ".join(filter(None, said))),
        lines=tuple(map(clean, lines)),
        lines_title=format_count(len(run.actions), "action"),
    )


def _actions(run: HistoryRun) -> Iterator[str]:
    for action in run.actions:
        yield f"{spell_status(action.status)} {what_was_done(run, action)} {action.key}{detail_of(action)}"


def _revision(one: HistoryRevision, report: HistoryReport, clean: Clean) -> Row:
    nodes = format_count(one.node_count, "node")
    said = [f"job {one.job}", f"digest {one.digest}", nodes, ran(one) if one.ended_at else "", *life_of(one)]
    lines = [f"{seen.phase} first observed {seen.seen_at}" for seen in one.phases]
    if report.key and one.declared is not None:
        lines += render_tree(declared_spec(one.declared), 0)
    return Row(
        keys=(clean(one.key),),
        kind=clean(one.phase or "not observed yet"),
        words="revision" if len(report.revisions) == 1 else "revisions",
        symbol="",
        colour="dim",
        rule="revision",
        revision=f"r{one.revision}",
        text=clean(", ".join(filter(None, said))),
        lines=tuple(map(clean, lines)),
        lines_title="phases and declaration" if report.key else "phases",
        rank=1,
    )


def _diff(report: HistoryReport, clean: Clean) -> Iterator[Row]:
    """What differs between two revisions, where that was asked for."""
    diff = report.diff
    if diff is None:
        return
    yield Row(
        keys=(clean(report.key or ""),),
        kind="differences",
        words="difference" if len(diff.changes) == 1 else "differences",
        symbol="~",
        colour="yellow",
        rule="diff",
        revision=f"r{diff.before} -> r{diff.after}",
        text=differences(report, diff),
        changes=tuple(field_of(change, clean) for change in diff.changes),
    )
