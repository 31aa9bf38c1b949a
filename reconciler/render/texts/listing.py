"""What the service's own calls answer, as text for people: tables, and one job in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reconciler.core.observed_job import ObservedJob
from reconciler.core.values import timestamp
from reconciler.render.layout import fit, table
from reconciler.render.style import PLAIN, Style
from reconciler.text import format_duration, printable

NOTHING = "-"


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]], style: Style = PLAIN) -> str:
    """Columns as wide as they need to be, and the terminal lets them be; "" if there are no rows."""
    body = [[printable(cell) or NOTHING for cell in row] for row in rows]
    if not body:
        return ""
    return "\n".join(table([head, *body], style)) + "\n"


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


def render_tree(value: Mapping[str, Any] | Sequence[Any], depth: int) -> Iterator[str]:
    """Nested data as indented lines, laid out as YAML is."""
    indent = "  " * depth
    if isinstance(value, Mapping):
        for name, member in value.items():
            if member and isinstance(member, Mapping | list):
                yield printable(f"{indent}{name}:")
                yield from render_tree(member, depth + 1)
            else:
                yield printable(f"{indent}{name}: {_leaf(member)}")
        return
    for member in value:
        if member and isinstance(member, Mapping | list):
            first, *others = render_tree(member, depth + 1)
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from others
        else:
            yield printable(f"{indent}- {_leaf(member)}")


def _leaf(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case "":
            return '""'
        case _:
            return str(value)


def render_lines(text: str) -> str:
    """A log, harmless for a terminal, line by line."""
    return "\n".join(printable(line.removesuffix("\r")) for line in text.split("\n"))
