"""How often, and when, a job that ended badly is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reconciler.core.lifecycle import OnFailure, OnTerminated
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob
from reconciler.core.values import timestamp
from reconciler.decide.plan import Reason

#: A run that ended this close to its auto_stop, or later, was stopped by it (docs/semantics.md, "Decisions").
AUTO_STOP_SLACK_S = 300.0
_ENDED_OTHERWISE_THAN_WELL = frozenset({Phase.FAILED, Phase.ABNORMAL, Phase.TERMINATING, Phase.TERMINATED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """Whether a retry is due (RETRY), not yet (RETRY_LATER), or none is left (RETRIES_EXHAUSTED)."""

    reason: Literal[Reason.RETRY, Reason.RETRY_LATER, Reason.RETRIES_EXHAUSTED]
    detail: str
    due_s: float | None = None


def next_attempt(run: Sequence[Revision], desired: DesiredJob, at_s: float) -> Attempt:
    """Judge the retry that would follow an unbroken run of bad ends, newest first.

    The k-th retry comes no earlier than `retry_delay` x 2^(k-1) after the end of the last.
    """
    attempt, most = len(run), desired.lifecycle.max_retries
    if attempt > most:
        return Attempt(Reason.RETRIES_EXHAUSTED, f"all {most} retries used")
    ended_at_s = (run[0].job.ended_at_s() if run else None) or 0.0
    due_s = ended_at_s + desired.lifecycle.retry_delay * 2 ** max(0, attempt - 1)
    if due_s > at_s:
        said = f"retry {attempt} of {most} at {timestamp(due_s)}"
        return Attempt(Reason.RETRY_LATER, said, due_s)
    return Attempt(Reason.RETRY, f"attempt {attempt} of {most}")


def bad_run(revisions: Sequence[Revision], desired: DesiredJob) -> list[Revision]:
    """The unbroken run of revisions, newest first, that had the declared digest and ended badly.

    A start by the schedule breaks it: each time has its own retries.
    """
    run: list[Revision] = []
    for revision in sorted(revisions, key=lambda r: r.number, reverse=True):
        if not desired.is_declared_by(revision.marker.digest) or not _ended_badly(revision, desired):
            break
        if run and _was_scheduled(run[-1], revision, desired):
            break
        run.append(revision)
    return run


def _was_scheduled(revision: Revision, before: Revision, desired: DesiredJob) -> bool:
    """Whether a time of the schedule had come when a revision followed the one before it."""
    started_s, since_s = revision.job.created_at_s, before.job.created_at_s
    counts_from_s = desired.schedule_counts_from(before.marker.schedule)
    if desired.schedule is None or counts_from_s is None or started_s is None or since_s is None:
        return False
    return desired.schedule.due(max(since_s, counts_from_s), started_s) is not None


def _ended_badly(revision: Revision, desired: DesiredJob) -> bool:
    phase = revision.job.phase
    if phase is None or stopped_itself(desired, revision.job):
        return False
    was_ended = phase in (Phase.TERMINATED, Phase.TERMINATING) and not revision.marker.stopped
    return phase.ended_badly or was_ended


def stopped_itself(desired: DesiredJob, job: ObservedJob) -> bool:
    """Whether the job ended by its own auto_stop: it ran for that long, give or take five minutes."""
    auto_stop = ((desired.body or {}).get("spec") or {}).get("auto_stop")
    if not auto_stop or job.phase not in _ENDED_OTHERWISE_THAN_WELL:
        return False
    return (job.duration_s or 0.0) >= float(auto_stop["duration"]) * 3600 - AUTO_STOP_SLACK_S


def may_retry(last: Revision, desired: DesiredJob) -> bool:
    """Whether the declared lifecycle lets a job that ended like this one be started again."""
    lifecycle = desired.lifecycle
    if last.job.phase in (Phase.TERMINATED, Phase.TERMINATING):
        return lifecycle.on_terminated is OnTerminated.RECREATE
    return lifecycle.on_failure is OnFailure.RETRY
