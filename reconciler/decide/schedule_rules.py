"""The rules for a declared key that has a schedule, and of which a revision is owned.

A time of the schedule is decided from the jobs alone: it has come if it lies after the key was last started,
after the schedule began to count, and not after now by the service's clock. Who starts a job for it settles
all of these, so each time is run once. One that is late by more than the starting deadline is left to the
next. Source: docs/semantics.md, "Schedules".
"""

from __future__ import annotations

from reconciler.core.lifecycle import OnChange
from reconciler.core.schedule import Overlap
from reconciler.core.values import Change, PlanWarning, timestamp
from reconciler.decide.existing_job_rules import Difference, ExistingJob, Row
from reconciler.decide.plan import Action, Reason


def start_unknown(job: ExistingJob) -> Row | None:
    """Scheduled; when its newest job was created is not known, and a start depends on it."""
    if job.counts_from_s is None or job.draft.view.last_start_s is not None:
        return None
    if not job.is_ended and not _replaces(job):
        return None
    newest = job.draft.view.ever_owned[-1]
    detail = f"when {newest.job.name} was created is not known, so it is unknown whether a start is due"
    return job.draft.plain(Action.UNKNOWN, Reason.UNREADABLE, detail), []


def scheduled(job: ExistingJob) -> Row | None:
    """Ended, however; a time of its schedule has come since the key was last started."""
    if job.due_s is None or not job.is_ended or _is_refused(job):
        return None
    action, warnings = job.next_revision(Reason.SCHEDULED, _said(job), _changes(job))
    # A schedule is there to run finished work again, so that is no news.
    more = {"scheduled_for": timestamp(job.due_s), "rerun_of": None}
    return action.model_copy(update=more), warnings


def overlapping(job: ExistingJob) -> Row | None:
    """The same, but active; `overlap: replace`; blocked if it is protected."""
    if job.due_s is None or job.is_ended or not _replaces(job) or _is_refused(job):
        return None
    protect, marker = job.entry.lifecycle.protect, job.latest.marker
    if marker.protected and protect is False:
        return None  # The protection goes first: an update.
    if marker.protected or protect:
        return job.blocked_by_protection(_said(job), _changes(job))
    action, warnings = job.replacement(Reason.SCHEDULED, _said(job), _changes(job))
    return action.model_copy(update={"scheduled_for": timestamp(job.due_s)}), warnings


def change_waits(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; scheduled; `on_change` is unset; no time of the schedule has come, or the job is active."""
    if not job.edit_waits:
        return None
    bad_end = job.bad_end and f"; {job.bad_end}"
    detail = f"{edit.said}; waits for the next time of the schedule{bad_end}{job.postponed}"
    action, warnings = job.keep_or_update(Reason.WAITS_FOR_SCHEDULE, detail, edit.changes)
    # What is kept is not listed: without a warning, an edit would seem to have been overlooked.
    return action, [*warnings, _waiting(job, edit)]


def _waiting(job: ExistingJob, edit: Difference) -> PlanWarning:
    return PlanWarning(
        what="edit waits for the schedule",
        why=f"{edit.said}; the next job that lifecycle.schedule starts has it",
        fix="not to wait: lifecycle.on_change: replace",
        key=job.entry.key,
    )


def _replaces(job: ExistingJob) -> bool:
    return job.entry.lifecycle.overlap is Overlap.REPLACE


def _is_refused(job: ExistingJob) -> bool:
    """Whether what would be started was edited, and edits are conflicts."""
    return job.entry.lifecycle.on_change is OnChange.FAIL and job.edit is not None


def _changes(job: ExistingJob) -> tuple[Change, ...]:
    return job.edit.changes if job.edit else ()


def _said(job: ExistingJob) -> str:
    schedule, due_s = job.entry.schedule, job.due_s
    assert schedule is not None
    assert due_s is not None
    edited = f"; {job.edit.said}" if job.edit else ""
    return f"scheduled for {schedule.spell(due_s)}{edited}"
