"""Logs and events of one job, read as far as they go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from reconciler.core.logtail import Unseen, unseen

if TYPE_CHECKING:
    from reconciler.core.job_reports import EventQuery, JobEvent
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import Logs
    from reconciler.modelarts.target import Connected

#: Seconds between two looks at a log that grows.
FOLLOW_EVERY_S = 5.0
_EVENT_PAGE = 100


def first_task(job: ObservedJob) -> str:
    """The task that is meant where none is named."""
    status = job.body.get("status")
    tasks = status.get("tasks") if isinstance(status, Mapping) else None
    named = [task for task in tasks if isinstance(task, str) and task] if isinstance(tasks, list) else []
    return named[0] if named else "worker-0"


def follow_log(target: Connected, job_id: str, task: str) -> Iterator[Unseen]:
    """Yield what is new in a log, whole lines each time, until the job has ended.

    Raises:
        ServiceError: the job or its log cannot be read.
    """
    seen, logs = 0, target.logs
    while True:
        # The phase first: what the job wrote before it ended is in the log that is read after it.
        job = target.backend.details(job_id)
        has_ended = job.phase is not None and job.phase.is_terminal
        preview = logs.preview(job.id, task)
        if preview is not None:
            new = unseen(preview.content, preview.full_size, seen, is_last=has_ended)
            seen = new.size
            yield new
        if has_ended:
            return
        target.clock.sleep(FOLLOW_EVERY_S)


def read_events(logs: Logs, job_id: str, limit: int, query: EventQuery, offset: int = 0) -> list[JobEvent]:
    """Read events page by page from the one at `offset` on, `limit` at most."""
    found: list[JobEvent] = []
    while len(found) < limit:
        size = min(_EVENT_PAGE, limit - len(found))
        part: EventQuery = {**query, "offset": offset + len(found), "limit": size}
        page = logs.events(job_id, **part)
        found += page.events
        if len(page.events) < size:
            break
    return found[:limit]
