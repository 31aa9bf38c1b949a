"""What single commands show of jobs: `status`, `jobs`, `doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reconciler.core.values import timestamp
from reconciler.decide.doctor import Check, Health
from reconciler.decide.plan import few
from reconciler.decide.reports import JobStatus, StatusReport, WaitKind
from reconciler.render.layout import fit, fit_line
from reconciler.render.lines import NOTHING, render_head, render_table, render_tree, render_warnings
from reconciler.render.style import PLAIN, Style
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob

#: The heads of the table of `status`.
COLUMNS = ("KEY", "REVISION", "PHASE", "QUEUED", "RAN", "NODES", "LAST CHANGE", "WAITS FOR")
_COLOURS = {Health.WELL: "green", Health.NOTE: "yellow", Health.WRONG: "red", Health.UNCHECKED: "dim"}


def render_status(report: StatusReport, style: Style = PLAIN) -> str:
    """Where each key stands: a table, what a person should know, and a last line that counts."""
    table = render_table(COLUMNS, (cells(one, report) for one in report.jobs), style)
    lines = [style.paint(head_line(report), "bold"), "", table]
    lines += render_warnings(report.warnings, style)
    keys = {one.key for one in report.jobs}
    return fit("\n".join([*lines, summary_line(report)]) + "\n", style, keys)


def head_line(report: StatusReport) -> str:
    """The line above the table."""
    return render_head(report.stack, report.target)


def cells(one: JobStatus, report: StatusReport) -> tuple[str, ...]:
    """One row of the table."""
    phase = "" if one.problem is None else "unknown"
    if one.phase is not None:
        secondary = f" ({one.secondary_phase})" if one.secondary_phase else ""
        phase = one.phase + secondary + (", aged out" if one.aged_out else "")
    nodes = "" if one.nodes is None else str(one.nodes)
    last = ""
    if change := one.last_change:
        age = datetime.fromisoformat(report.created_at) - datetime.fromisoformat(change.at)
        who = f" by {change.who}" if change.who else ""
        last = f"{change.what}{who}, {format_duration(max(0.0, age.total_seconds()))} ago"
    return (
        one.key,
        "" if one.revision is None else f"r{one.revision}",
        phase,
        _span(one.queued_s),
        _span(one.ran_s),
        f"{nodes} × {one.flavor}" if one.flavor else nodes,
        last,
        _waits_for(one),
    )


def _span(seconds: float | None) -> str:
    return format_duration(round(seconds)) if seconds else ""


def _waits_for(one: JobStatus) -> str:
    """What it waits for, and when its schedule comes next."""
    waiting = one.waits_for
    if one.problem is not None:
        held_by = one.problem
    elif waiting is None:
        held_by = "" if one.newest else "nothing (superseded)"
    elif waiting.kind is WaitKind.NEEDS and waiting.keys:
        held_by = few(waiting.keys)
    elif waiting.kind is WaitKind.APPLY and waiting.action is not None:
        held_by = f"apply, to {waiting.action.value} it"
    else:
        held_by = waiting.detail
    says_next = one.next_run is None or (waiting is not None and waiting.kind is WaitKind.SCHEDULE)
    return "; ".join(filter(None, (held_by, "" if says_next else f"next: {one.next_run}")))


def summary_line(report: StatusReport) -> str:
    """Count the jobs by phase, and the keys of which there is none."""
    counts = [f"{count} {printable(phase)}" for phase, count in report.summary.items()]
    if report.without_a_job:
        counts.append(f"{report.without_a_job} without a job")
    if report.unknown:
        counts.append(f"{report.unknown} unknown")
    return f"Status as of {report.created_at}: {', '.join(counts) or 'no jobs'}."


# ── jobs of the service ─────────────────────────────────────────────────────────────────────────────


def render_jobs(jobs: Iterable[ObservedJob], at_s: float, style: Style = PLAIN) -> str:
    """One line per job."""
    head = ("ID", "NAME", "PHASE", "OWNER", "AGE", "DURATION", "NODES")
    rows = (
        (
            job.id,
            job.name,
            job.phase_text,
            _owner(job),
            "" if job.created_at_s is None else format_duration(max(0, round(at_s - job.created_at_s))),
            _span(job.ran_s(at_s)),
            str(job.node_count),
        )
        for job in jobs
    )
    return render_table(head, rows, style)


def _owner(job: ObservedJob) -> str:
    """Whose job it is, by the marker that is believed: `stack/key r2`."""
    if job.marker is not None:
        return f"{job.marker.stack}/{job.marker.key} r{job.marker.revision}"
    return "(copied marker)" if job.claimed_marker else ""


def render_job(job: ObservedJob, body: Mapping[str, Any], at_s: float, style: Style = PLAIN) -> str:
    """One job: a summary, then the full service response. `body` holds no tokens."""
    phase = job.phase_text
    if job.secondary_phase and job.secondary_phase != phase:
        phase += f" ({job.secondary_phase})"
    first = {
        "name": job.name,
        "id": job.id,
        "phase": phase,
        "owner": _owner(job) or "none (unmanaged)",
        "description": job.text,
        "created": timestamp(job.created_at_s) if job.created_at_s else "",
        "started": timestamp(job.started_at_s) if job.started_at_s else "",
        "ran": _span(job.ran_s(at_s)),
        "nodes": str(job.node_count),
    }
    width = max(map(len, first))
    lines = [f"{name:<{width}}  {printable(value) or NOTHING}" for name, value in first.items()]
    text = "\n".join([*lines, "", style.paint("Service response", "bold"), *render_tree(body, 1)]) + "\n"
    return fit(text, style, {job.id, job.name})


# ── doctor ──────────────────────────────────────────────────────────────────────────────────────────


def render_checks(head: str, checks: Sequence[Check], style: Style = PLAIN) -> str:
    """One line per check, its fix below it; the last line counts."""
    width = max(len(check.name) for check in checks)
    lines = [style.paint(printable(head), "bold"), ""]
    for check in checks:
        word = style.paint(f"{check.health.value:<11}", _COLOURS[check.health])
        found = [f"  {word}  {printable(f'{check.name:<{width}}  {check.detail}')}".rstrip()]
        if check.fix:
            found.append(printable(f"{'':{width + 17}}fix: {check.fix}"))
        for line in found:
            lines += fit_line(line, style, hanging=width + 17)
    counts = {health: sum(check.health is health for check in checks) for health in Health}
    total = ", ".join(f"{n} {health.value}" for health, n in counts.items() if n or health is Health.WRONG)
    return fit("\n".join([*lines, "", f"Doctor: {total}."]) + "\n", style)


def checks_document(head: Mapping[str, object], checks: Sequence[Check]) -> dict[str, object]:
    """The same as plain data."""
    documents = []
    for check in checks:
        fields = asdict(check)
        trouble = fields["trouble"] if check.health is Health.WRONG else None
        documents.append(
            {
                "name": check.name,
                "status": fields["health"],
                "detail": check.detail,
                "fix": check.fix,
                "trouble": trouble,
            }
        )
    is_well = all(check.health is not Health.WRONG for check in checks)
    return {**head, "well": is_well, "checks": documents}
