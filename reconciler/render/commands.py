"""What single commands show of jobs: `status`, `jobs`, `doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reconciler.core.values import timestamp
from reconciler.decide.doctor import Check, Health
from reconciler.decide.plan import few
from reconciler.decide.status_report import JobStatus, LastChange, StatusReport, WaitKind
from reconciler.render.layout import fit, fit_line
from reconciler.render.lines import NOTHING, render_head, render_table, render_tree, render_warnings
from reconciler.render.style import PLAIN, Style
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob

_COLOURS = {Health.WELL: "green", Health.NOTE: "yellow", Health.WRONG: "red", Health.UNCHECKED: "dim"}
#: The heads of the table of `status`.
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


# ── jobs of the service ─────────────────────────────────────────────────────────────────────────────


def render_jobs(jobs: Iterable[ObservedJob], at_s: float, style: Style = PLAIN) -> str:
    """One line per job."""
    head = ("ID", "NAME", "PHASE", "OWNER", "AGE", "DURATION", "NODES")
    return render_table(head, (_row(job, at_s) for job in jobs), style)


def _row(job: ObservedJob, at_s: float) -> tuple[str, ...]:
    age = "" if job.created_at_s is None else format_duration(max(0, round(at_s - job.created_at_s)))
    ran_s = job.ran_s(at_s)
    ran = format_duration(round(ran_s)) if ran_s else ""
    return job.id, job.name, job.phase_text, owner(job), age, ran, str(job.node_count)


def owner(job: ObservedJob) -> str:
    """Whose job it is, by the marker that is believed: `stack/key r2`."""
    if job.marker is not None:
        return f"{job.marker.stack}/{job.marker.key} r{job.marker.revision}"
    return "(copied marker)" if job.claimed_marker else ""


def render_job(job: ObservedJob, body: Mapping[str, Any], at_s: float, style: Style = PLAIN) -> str:
    """One job: what one asks for first, then all that the service told. `body` holds no tokens."""
    phase = job.phase_text
    if job.secondary_phase and job.secondary_phase != phase:
        phase += f" ({job.secondary_phase})"
    ran_s = job.ran_s(at_s)
    first = {
        "name": job.name,
        "id": job.id,
        "phase": phase,
        "owner": owner(job) or "none (unmanaged)",
        "description": job.text,
        "created": timestamp(job.created_at_s) if job.created_at_s else "",
        "started": timestamp(job.started_at_s) if job.started_at_s else "",
        "ran": format_duration(round(ran_s)) if ran_s else "",
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
        said = [f"  {word}  {printable(f'{check.name:<{width}}  {check.detail}')}".rstrip()]
        if check.fix:
            said.append(printable(f"{'':{width + 17}}fix: {check.fix}"))
        for line in said:
            lines += fit_line(line, style, hanging=width + 17)
    counts = {health: sum(check.health is health for check in checks) for health in Health}
    told = ", ".join(f"{n} {health.value}" for health, n in counts.items() if n or health is Health.WRONG)
    return fit("\n".join([*lines, "", f"Doctor: {told}."]) + "\n", style)


def checks_document(head: Mapping[str, object], checks: Sequence[Check]) -> dict[str, object]:
    """The same as plain data."""
    is_well = all(check.health is not Health.WRONG for check in checks)
    return {**head, "well": is_well, "checks": [_document(check) for check in checks]}


def _document(check: Check) -> dict[str, object]:
    told = asdict(check)
    told["status"] = told.pop("health")
    if check.health is not Health.WRONG:
        told["trouble"] = None
    return {name: told[name] for name in ("name", "status", "detail", "fix", "trouble")}
