"""The jobs of a stack now, as text for people."""

from __future__ import annotations

from datetime import datetime

from reconciler.decide.groups import few
from reconciler.decide.status_report import JobStatus, LastChange, StatusReport, WaitKind
from reconciler.render.layout import fit
from reconciler.render.style import PLAIN, Style
from reconciler.render.texts.head import render_head
from reconciler.render.texts.listing import render_table
from reconciler.render.texts.warnings import render_warnings
from reconciler.text import format_duration, printable

COLUMNS = ("KEY", "REVISION", "PHASE", "QUEUED", "RAN", "NODES", "LAST CHANGE", "WAITS FOR")


def render_status(report: StatusReport, style: Style = PLAIN) -> str:
    """Show where each key stands: a table, what a person should know, and a last line that counts."""
    table = render_table(COLUMNS, (cells(one, report) for one in report.jobs), style)
    lines = [style.paint(head_line(report), "bold"), "", table]
    lines += render_warnings(report.warnings, style)
    keys = {one.key for one in report.jobs}
    return fit("\n".join([*lines, summary_line(report)]) + "\n", style, keys)


def head_line(report: StatusReport) -> str:
    """What the table is about."""
    return render_head(report.stack, report.target)


def cells(one: JobStatus, report: StatusReport) -> tuple[str, ...]:
    """One row of the table of a report."""
    return (
        one.key,
        "" if one.revision is None else f"r{one.revision}",
        _phase(one),
        _span(one.queued_s),
        _span(one.ran_s),
        _nodes(one),
        _change(one.last_change, report.created_at),
        _waits_for(one),
    )


def summary_line(report: StatusReport) -> str:
    """Count the jobs by phase, and the keys of which there is none."""
    counts = [f"{count} {printable(phase)}" for phase, count in report.summary.items()]
    if report.without_a_job:
        counts.append(f"{report.without_a_job} without a job")
    if report.unknown:
        counts.append(f"{report.unknown} unknown")
    return f"Status as of {report.created_at}: {', '.join(counts) or 'no jobs'}."


def _phase(one: JobStatus) -> str:
    if one.phase is None:
        return "unknown" if one.problem else ""
    secondary = f" ({one.secondary_phase})" if one.secondary_phase else ""
    return one.phase + secondary + (", aged out" if one.aged_out else "")


def _span(seconds: float | None) -> str:
    return format_duration(round(seconds)) if seconds else ""


def _nodes(one: JobStatus) -> str:
    count = "" if one.nodes is None else str(one.nodes)
    return f"{count} × {one.flavor}" if one.flavor else count


def _change(change: LastChange | None, now: str) -> str:
    if change is None:
        return ""
    age_s = (datetime.fromisoformat(now) - datetime.fromisoformat(change.at)).total_seconds()
    who = f" by {change.who}" if change.who else ""
    return f"{change.what}{who}, {format_duration(max(0.0, age_s))} ago"


def _waits_for(one: JobStatus) -> str:
    """What it waits for, and when its schedule comes next."""
    says_next = one.next_run is None or (one.waits_for and one.waits_for.kind is WaitKind.SCHEDULE)
    return "; ".join(filter(None, (_held_by(one), "" if says_next else f"next: {one.next_run}")))


def _held_by(one: JobStatus) -> str:
    waiting = one.waits_for
    if one.problem is not None:
        return one.problem
    if waiting is None:
        return "" if one.newest else "nothing (superseded)"
    if waiting.kind is WaitKind.NEEDS and waiting.keys:
        return few(waiting.keys)
    if waiting.kind is WaitKind.APPLY and waiting.action is not None:
        return f"apply, to {waiting.action.value} it"
    return waiting.detail
