"""What the formats beside text and JSON show of a review: the sheet of the jobs that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.decide.groups import ACTION_ORDER
from reconciler.decide.policy_verdict import refusals_of
from reconciler.render.sheet import (
    Level,
    Row,
    Sheet,
    field_of,
    folded,
    harmless,
    place_of,
    refusal_notes,
    row_of_denial,
    warning_notes,
)
from reconciler.render.style import View
from reconciler.render.texts.review import name_of_side, nodes_lines, settings_lines

if TYPE_CHECKING:
    from reconciler.decide.review_report import Review, ReviewedJob


def sheet_of_review(review: Review, view: View) -> Sheet:
    """What is shown of a review; nothing of it depends on the time or on a service."""
    return harmless(lambda clean: _sheet(review, clean), view.redact)


def _sheet(review: Review, clean: Callable[[str], str]) -> Sheet:
    rows = tuple(_row(job, clean) for job in review.jobs)
    sources = {job.key: job.source for job in review.jobs}
    return Sheet(
        title="Review",
        stack=clean(review.stack),
        target=clean(review.target or ""),
        where=clean(f"{name_of_side(review.base)} -> {name_of_side(review.head)}"),
        last_line=review.last_line,
        counts=review.summary.model_dump(),
        has_changes=bool(review.jobs or review.settings),
        created_at="",
        version=clean(review.reconciler_version),
        rows=rows,
        folded=folded(rows),
        keys=tuple(row.key for row in rows),
        notes=(
            *refusal_notes(refusals_of(review.denied), clean),
            *warning_notes(review.warnings, clean),
        ),
        denied=tuple(row_of_denial(one, sources.get(one.key), clean) for one in review.denied),
        sums=tuple(clean(line) for line in (*settings_lines(review), *nodes_lines(review)) if line),
    )


def _row(job: ReviewedJob, clean: Callable[[str], str]) -> Row:
    traits = job.traits
    ends_work = traits.stops_a_job
    needs_help = traits.stands_in_the_way
    return Row(
        keys=(clean(job.key),),
        kind=job.action.value,
        words=traits.summary,
        symbol=job.symbol,
        colour=traits.colour,
        rule=job.reason.value,
        revision="",
        text=clean(job.detail),
        starts=clean(job.starts),
        changes=tuple(field_of(change, clean) for change in job.changes),
        source=place_of(job.source, clean),
        level=Level.ERROR if needs_help else Level.WARNING if ends_work else Level.NONE,
        is_finding=needs_help,
        must_stay=ends_work or needs_help,
        is_cut_first=traits.is_executed and not ends_work,
        rank=ACTION_ORDER.index(job.action),
    )
