"""A review as text for people; as JSON it is the document that it is."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.decide.groups import (
    fold_alike,
    in_order_for_people,
    is_harmless,
    is_one_sweep,
    look_of_changes,
    without_name,
)
from reconciler.render.layout import fit
from reconciler.render.style import View
from reconciler.render.texts.denials import render_denials
from reconciler.render.texts.groups import GroupText, render_change, render_group, width_of_names
from reconciler.render.texts.warnings import render_warnings
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.review_report import NodeCount, Review, ReviewedJob, ReviewedSide

#: So many flavors are listed.
_MOST_FLAVORS = 20


def review_text(review: Review, view: View) -> str:
    """Show a review; the last line is fixed: docs/cli.md, "Review"."""
    style = view.style
    lines = [style.paint(_head(review), "bold"), ""]
    groups = fold_alike(in_order_for_people(review.jobs), _look, is_folded=not view.verbose)
    texts = [_text_of(group) for group in groups]
    width = width_of_names((text.name for text in texts), style)
    for text in texts:
        lines += render_group(text, style, width)
    if texts:
        lines.append("")
    lines += settings_lines(review)
    lines += nodes_lines(review)
    lines += render_warnings(review.warnings, style)
    lines += render_denials(review.denied, style)
    lines.append(review.last_line)
    return fit("\n".join(lines) + "\n", style, {job.key for job in review.jobs})


def _head(review: Review) -> str:
    target = f" on {review.target}" if review.target else ""
    return printable(
        f"Stack {review.stack}{target}: {name_of_side(review.base)} -> {name_of_side(review.head)}"
    )


def name_of_side(side: ReviewedSide) -> str:
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


def _text_of(group: Sequence[ReviewedJob]) -> GroupText:
    first = group[0]
    is_one = len(group) == 1
    return GroupText(
        symbol=first.symbol,
        word=first.action.value,
        colour=first.traits.colour,
        names=[_renamed(job, is_one=is_one) for job in group],
        explanation=first.detail if is_one else _detail(first),
        starts=[job.starts for job in group],
        changes=first.changes,
        is_cut=is_harmless(first.action),
        place=first.source,
        is_sweep=first.formerly is None and is_one_sweep(job.source for job in group),
    )


def _renamed(job: ReviewedJob, *, is_one: bool) -> str:
    """The key; of several that were renamed with the former one."""
    return job.key if is_one or job.formerly is None else f"{job.formerly} -> {job.key}"


def settings_lines(review: Review) -> Iterator[str]:
    """What changed outside of jobs."""
    if not review.settings:
        return
    yield "Settings:"
    for change in review.settings:
        yield "  " + render_change(change)
    yield ""


def nodes_lines(review: Review) -> Iterator[str]:
    """The nodes of all jobs together, before and after, where a flavor's number differs."""
    nodes = review.nodes
    changed = {name: count for name, count in nodes.flavors.items() if count.before != count.after}
    if not changed:
        yield f"Nodes: {nodes.after}, unchanged."
        return
    yield f"Nodes: {_change(nodes)}"
    listed = list(changed.items())
    for name, count in listed[:_MOST_FLAVORS]:
        yield printable(f"  {name}: {_change(count)}")
    if len(listed) > _MOST_FLAVORS:
        yield f"  and {len(listed) - _MOST_FLAVORS} more flavors"
    if same := len(nodes.flavors) - len(listed):
        yield f"  {same} {'flavor' if same == 1 else 'flavors'} unchanged"


def _change(count: NodeCount) -> str:
    return f"{count.before} -> {count.after} ({count.after - count.before:+})"
