"""A review: the jobs that differ between two sides; the last line is fixed (docs/cli.md, "Review")."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.decide.policies import refusals_of
from reconciler.render import Content
from reconciler.render.groups import (
    fold_alike,
    in_order_for_people,
    is_one_sweep,
    look_of_changes,
    without_name,
)
from reconciler.render.layout import fit
from reconciler.render.lines import name_of, render_change, render_denials, render_warnings, width_of_names
from reconciler.render.plan import job_lines, job_row
from reconciler.render.sheet import Clean, Sheet, folded, refusal_notes, row_of_denial, warning_notes
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.review import NodeCount, Review, ReviewedJob, ReviewedSide

#: How many flavors are listed.
_MOST_FLAVORS = 20


def text(review: Review, view: View) -> str:
    """Text for people: jobs, settings, nodes, and what policies deny."""
    style = view.style
    on = f" on {review.target}" if review.target else ""
    lines = [style.paint(printable(f"Stack {review.stack}{on}: {_sides(review)}"), "bold"), ""]
    groups = fold_alike(in_order_for_people(review.jobs), _look, is_folded=not view.verbose)
    width = width_of_names((name_of(_names(group)) for group in groups), style)
    for group in groups:
        first = group[0]
        lines += job_lines(
            first,
            _names(group),
            first.detail if len(group) == 1 else _detail(first),
            style,
            width,
            starts=[job.starts for job in group],
            is_cut=first.traits.is_harmless,
            is_sweep=first.formerly is None and is_one_sweep(job.source for job in group),
        )
    if groups:
        lines.append("")
    lines += (*_settings(review), *_nodes(review))
    lines += render_warnings(review.warnings, style)
    lines += render_denials(review.denied, style)
    lines.append(review.last_line)
    return fit("\n".join(lines) + "\n", style, {job.key for job in review.jobs})


def _sides(review: Review) -> str:
    return f"{_name_of_side(review.base)} -> {_name_of_side(review.head)}"


def _name_of_side(side: ReviewedSide) -> str:
    """The directory or revision, with the commit that it is."""
    return side.name if side.commit is None else f"{side.name} ({side.commit[:10]})"


def _look(job: ReviewedJob) -> Hashable | None:
    """What is shown of a job beside its key; an added one is shown with others of its sweep only."""
    if job.starts and job.sweep is None:
        return None
    sweep = job.sweep if job.starts else None
    return job.symbol, job.action, job.change, _detail(job), look_of_changes(job.changes), sweep


def _detail(job: ReviewedJob) -> str:
    return without_name(job.detail, job.formerly) if job.formerly else job.detail


def _names(group: Sequence[ReviewedJob]) -> list[str]:
    """The keys; of several that were renamed with the former ones."""
    if len(group) == 1:
        return [group[0].key]
    return [job.key if job.formerly is None else f"{job.formerly} -> {job.key}" for job in group]


def _settings(review: Review) -> Iterator[str]:
    """What changed outside of jobs."""
    if review.settings:
        yield "Settings:"
        yield from ("  " + render_change(change) for change in review.settings)
        yield ""


def _nodes(review: Review) -> Iterator[str]:
    """The nodes of all jobs together, before and after, where a flavor's number differs."""
    nodes = review.nodes
    changed = {name: count for name, count in nodes.flavors.items() if count.before != count.after}
    if not changed:
        yield f"Nodes: {nodes.after}, unchanged."
        return
    yield f"Nodes: {_difference(nodes)}"
    listed = list(changed.items())
    for name, count in listed[:_MOST_FLAVORS]:
        yield printable(f"  {name}: {_difference(count)}")
    if len(listed) > _MOST_FLAVORS:
        yield f"  and {len(listed) - _MOST_FLAVORS} more flavors"
    if same := len(nodes.flavors) - len(listed):
        yield f"  {same} {'flavor' if same == 1 else 'flavors'} unchanged"


def _difference(count: NodeCount) -> str:
    return f"{count.before} -> {count.after} ({count.after - count.before:+})"


# ── the sheet ───────────────────────────────────────────────────────────────────────────────────────


def sheet(review: Review, view: View, clean: Clean) -> Sheet:
    """A row per job that differs; nothing of it depends on the time or on a service."""
    rows = tuple(job_row(job, job.detail, job.starts, clean) for job in review.jobs)
    sources = {job.key: job.source for job in review.jobs}
    return Sheet(
        Content.REVIEW,
        stack=clean(review.stack),
        target=clean(review.target or ""),
        where=clean(_sides(review)),
        last_line=review.last_line,
        counts=review.summary.model_dump(),
        has_changes=bool(review.jobs or review.settings),
        version=clean(review.reconciler_version),
        rows=rows,
        folded=folded(rows),
        keys=tuple(row.key for row in rows),
        notes=(
            *refusal_notes(refusals_of(review.denied), clean),
            *warning_notes(review.warnings, clean),
        ),
        denied=tuple(row_of_denial(one, sources.get(one.key), clean) for one in review.denied),
        sums=tuple(clean(line) for line in (*_settings(review), *_nodes(review)) if line),
    )
