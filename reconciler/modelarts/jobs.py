"""Single jobs of a workspace: finding, searching, terminating and deleting them; their logs and events.

Source: docs/reference/modelarts.md, "Search".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from reconciler.core.observed import Listing, Observation, SearchFilter, unseen
from reconciler.core.observed import named as name_filter
from reconciler.core.ownership import sort_by_key
from reconciler.core.phase import Operation, may
from reconciler.core.ports import SupportsSearch
from reconciler.core.stack import suggest_key
from reconciler.decide.key_state import Snapshot, current_revision
from reconciler.errors import Diagnostic, NotFound, Refused, Rejected, ServiceError, WrongPhase, WrongUsage
from reconciler.text import parse_duration

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob
    from reconciler.core.ownership import KeyView
    from reconciler.core.ports import Backend
    from reconciler.core.stack import Stack
    from reconciler.modelarts.operations import Event, Logs
    from reconciler.modelarts.target import Connected
    from reconciler.secrets import Redactor


# --- finding a job


def find_job(
    stack: Stack, target: Connected, named: str, say: Callable[[str], None] = lambda _: None
) -> ObservedJob:
    """Return the job that an argument names: a key's newest revision, else the job of this id or name.

    A key takes precedence over a name, which another revision of it may have. Names ignore case.

    Raises:
        NotFound: there is no such job.
        WrongUsage: there are several of that name.
        ServiceError: the workspace could not be read, so the newest revision is unknown.
    """
    backend = target.backend
    is_declared = named in stack.whole or named in stack.jobs
    is_id = _is_uuid(named)
    if (is_declared or not is_id) and (job := _by_key(stack, backend, named, is_declared=is_declared)):
        return job
    looks = (_by_id, _by_name) if is_id else (_by_name, _by_id)
    job = next((found for look in looks if (found := look(backend, named))), None)
    if job is None and is_declared:
        why = f"stack {stack.name} owns no job of key {named!r}, and no job has this id or name"
        raise NotFound(why, fix="reconciler status lists the keys")
    if job is None:
        raise NotFound(
            f"workspace {target.identity.workspace_id} has no job with the id or name {named!r}, "
            f"and stack {stack.name} has no such key",
            fix=suggest_key(named, stack.whole) or "reconciler jobs list shows the jobs",
        )
    if is_declared:
        say(f"{named} is a key without a job of the stack; using {job.id}, which has that name.")
    return job


def _by_key(stack: Stack, backend: Backend, key: str, *, is_declared: bool) -> ObservedJob | None:
    """Return the newest revision of a declared or owned key. None if there is none.

    An undeclared key is searched for by its remote names. A declared one may own a job of another name
    (adopted, or renamed), so its absence takes a full scan.
    """
    if not is_declared:
        if isinstance(backend, SupportsSearch):
            jobs: Iterable[ObservedJob] = backend.search([name_filter(key)]).jobs
        else:
            jobs = backend.observe({key}).jobs
        markers = (job.marker for job in jobs)
        if not any(marker and (marker.stack, marker.key) == (stack.name, key) for marker in markers):
            return None
    desired = stack.find(key)
    keys = frozenset({key, *(desired.formerly if desired else ())})

    def look_at(seen: Observation) -> KeyView:
        return Snapshot(sort_by_key(seen, stack.name, keys)).view(key, desired)

    seen = backend.observe(keys, lambda seen: is_declared and not look_at(seen).owned)
    view = look_at(seen)
    if view.unreadable or (seen.problem is not None and (view.owned or is_declared)):
        why = view.unreadable[0].why if view.unreadable else seen.problem
        raise ServiceError(f"{why}: cannot tell which revision of {key} is the newest")
    latest = current_revision(view, None if desired is None or desired.is_absent else desired)
    return latest.job if latest else None


def _is_uuid(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False


def _by_id(backend: Backend, named: str) -> ObservedJob | None:
    try:
        return backend.details(named)
    except Rejected as refusal:
        # The service may reject a text that is not an id as malformed.
        if isinstance(refusal, NotFound) or not _is_uuid(named):
            return None
        raise


def _by_name(backend: Backend, named: str) -> ObservedJob | None:
    jobs = backend.find(named)
    jobs = [job for job in jobs if job.name == named] or jobs
    if len(jobs) > 1:
        ids = ", ".join(f"{job.name} is {job.id}" for job in jobs)
        raise WrongUsage(Diagnostic("ambiguous job name", ids, "give the id of the job"))
    return jobs[0] if jobs else None


# --- searching


#: Longest time span of one search, and maximum number of values of a filter.
#: Source: docs/reference/modelarts.md, "Calls".
WINDOW_S = 31 * 86_400
MAX_VALUES = 10
#: The service's clock may be ahead of ours.
_AHEAD_S = 3600.0


def _wrong(why: str) -> WrongUsage:
    return WrongUsage(Diagnostic("invalid filter", why))


class Moment(NamedTuple):
    """A point in time: seconds since 1970, or seconds before now."""

    seconds: float
    is_ago: bool = False

    @classmethod
    def parse(cls, value: object) -> Moment:
        """Parse a time such as 2026-11-21 or 2026-11-21T08:00:00Z (default: UTC), or a duration such as 2d.

        Raises:
            ValueError: it is neither; the message shows the accepted forms.
        """
        if isinstance(value, str):
            try:
                return cls(parse_duration(value), is_ago=True)
            except ValueError:
                pass
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                text = f'"{value}" is not a valid time; write 2026-11-21, 2026-11-21T08:00:00Z, or 2d'
                raise ValueError(text) from None
        if not isinstance(value, datetime):
            raise ValueError(f"{value!r} is not a valid time; pass a datetime, or a text")
        return cls((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())

    def at_s(self, now_s: float) -> float:
        return now_s - self.seconds if self.is_ago else self.seconds


class JobFilters(NamedTuple):
    """The filters of a search.

    `name` and `algorithm_name` are substrings, `filters` the service's own conditions; a job must have one of
    the `phases`, `kinds` and `users`.
    """

    name: str | None = None
    phases: Sequence[str] = ()
    kinds: Sequence[str] = ()
    users: Sequence[str] = ()
    algorithm_name: str | None = None
    after: Moment | None = None
    before: Moment | None = None
    filters: Sequence[SearchFilter] = ()
    tags: Sequence[Mapping[str, Any]] = ()
    host_ips: Sequence[str] = ()
    train_type: str | None = None
    unified: bool = False
    group_by: str | None = None


def search_jobs(
    backend: SupportsSearch,
    filters: JobFilters,
    now_s: float,
    *,
    sort_by: str = "create_time",
    order: str = "desc",
    limit: int | None = None,
) -> Listing:
    """Read the matching jobs, at most about `limit`.

    Raises:
        WrongUsage: a filter has more values than the service takes, the times are in the wrong order, or they
            are too far apart for a search by tags or hosts.
    """
    after_s = filters.after.at_s(now_s) if filters.after else 0.0
    before_s = filters.before.at_s(now_s) if filters.before else math.inf
    conditions = [
        *_condition("name", "like", filters.name),
        *_condition("phase", "in", *filters.phases),
        *_condition("kind", "in", *filters.kinds),
        *_condition("user_id", "in", *filters.users),
        *_condition("algorithm_name", "like", filters.algorithm_name),
        *filters.filters,
    ]
    for condition in conditions:
        if len(condition["value"]) > MAX_VALUES:
            raise _wrong(f"the service accepts at most {MAX_VALUES} values of {condition['key']}")
    if before_s < after_s:
        raise _wrong("--created-before is before --created-after")
    is_timed = filters.after is not None or filters.before is not None
    if is_timed:
        last = math.ceil(min(before_s, now_s + _AHEAD_S))
        first = min(math.floor(max(0.0, after_s)), last)
        if filters.before is None and int(now_s) - first <= WINDOW_S:
            last = min(last, first + WINDOW_S)
        if last - first <= WINDOW_S:
            span = (datetime.fromtimestamp(max(0, at_s), UTC).isoformat() for at_s in (first, last))
            conditions += _condition("create_time", "between", *span)
        elif filters.tags or filters.host_ips:
            raise _wrong("with --tag and --host-ip the service searches 31 days at most")
        # A longer time span is filtered on our side.
    fields = {
        "tags": list(filters.tags),
        "host_ips": list(filters.host_ips),
        "train_type": filters.train_type,
        "unified_jobs": filters.unified,
        "group_by": filters.group_by,
    }

    def is_in_time(job: ObservedJob) -> bool:
        return not is_timed or (job.created_at_s is not None and after_s <= job.created_at_s <= before_s)

    listing = backend.search(
        conditions,
        sort_by=sort_by,
        order=order,
        more={key: value for key, value in fields.items() if value},
        limit=limit,
        wanted=is_in_time,
    )
    listing.jobs = [job for job in listing.jobs if is_in_time(job)]
    return listing


def _condition(key: str, operator: str, *values: str | None) -> list[SearchFilter]:
    given = [value for value in values if value]
    return [{"key": key, "operator": operator, "value": given}] if given else []


# --- terminating and deleting


def check_allowed(jobs: Sequence[ObservedJob], operation: Operation, *, force: bool) -> None:
    """Check that all of these jobs may be terminated, or their records deleted.

    Raises:
        Refused: one is protected, or a stack owns it and `force` is not given.
    """
    problems = []
    for job in jobs:
        marker, verdict = job.marker, may(operation, job.phase)
        if marker is not None and marker.protected and operation is Operation.TERMINATE:
            why = f"{job.name} is {marker.key} of stack {marker.stack}, and is protected by its marker"
            fix = f"set protect: false under lifecycle of {marker.key}, and apply"
            problems.append(Diagnostic("the job is protected", why, fix))
        elif marker is not None and not force:
            why = f"{job.name} is r{marker.revision} of {marker.key} in stack {marker.stack}"
            fix = f"change {marker.key} in the manifest, and apply; or add --force"
            if operation is Operation.DELETE_RECORD:
                fix = "keep its record, which proves that it has run; or add --force"
            problems.append(Diagnostic("the job is owned by a stack", why, fix))
        if not verdict:
            why = f"{job.name} is {job.phase_text}: {verdict.why}; legal {verdict.legal_when}"
            problems.append(Diagnostic(f"cannot {operation.value}", why))
    if problems:
        raise Refused(*problems)


def terminate(target: Connected, job: ObservedJob, note: Callable[[ObservedJob], None]) -> str:
    """Terminate a job. Returns a word for its new state. `note` records that the request was sent."""
    try:
        target.backend.terminate(job.id)
        note(job)
    except WrongPhase:
        # Its phase has changed since it was checked. If it has ended, that is fine.
        now = target.backend.details(job.id)
        if may(Operation.TERMINATE, now.phase):
            raise
        return now.phase_text.lower()
    return "terminating"


def delete(target: Connected, job: ObservedJob) -> str:
    """Delete the record of a job. Returns a word for its new state."""
    try:
        target.deletion.delete(job.id)
    except ServiceError as failure:
        return check_deleted(failure, target, job)
    return "deleting"


def check_deleted(failure: ServiceError, target: Connected, job: ObservedJob) -> str:
    """After a failure, return "deleted" if the record no longer exists.

    Raises:
        ServiceError: the failure, if the record still exists.
    """
    try:
        target.backend.details(job.id)
    except NotFound:
        return "deleted"
    raise failure


# --- logs and events


#: Polling interval of a growing log.
FOLLOW_EVERY_S = 5.0
_EVENT_PAGE = 100


def first_task(job: ObservedJob) -> str:
    """The default task of a job."""
    status = job.body.get("status")
    tasks = status.get("tasks") if isinstance(status, Mapping) else None
    named = [task for task in tasks if isinstance(task, str) and task] if isinstance(tasks, list) else []
    return named[0] if named else "worker-0"


class LogPart(NamedTuple):
    """New text of a job's log, redacted; None if there is no log. `size` is the number of bytes read."""

    job: ObservedJob
    text: str | None
    size: int
    has_gap: bool = False


def read_log(
    target: Connected, job: ObservedJob, task: str, redact: Redactor, seen: int = 0, *, is_last: bool = True
) -> LogPart:
    """Read a log after its first `seen` bytes; an unfinished line only if it `is_last`.

    Raises:
        ServiceError: the log cannot be read.
    """
    preview = target.logs.preview(job.id, task)
    if preview is None:
        return LogPart(job, None, seen)
    new = unseen(preview.content, preview.full_size, seen, is_last=is_last)
    if not is_last:
        new = new.without_end(redact.incomplete_suffix_length(new.text))
    return LogPart(job, redact_log(new.text, redact, is_cut=new.has_gap), new.size, new.has_gap)


def redact_log(text: str, redact: Redactor, *, is_cut: bool) -> str:
    """Redact a log before it is split into lines. `is_cut`: its beginning is missing."""
    return redact(f"…{text}")[1:] if is_cut else redact(text)


def follow_log(target: Connected, job: ObservedJob, task: str, redact: Redactor) -> Iterator[LogPart]:
    """Yield new text of a log, in whole lines, until the job has ended.

    Raises:
        ServiceError: the job or its log cannot be read.
    """
    seen = 0
    while True:
        # Read the phase first, so that the last read log is complete.
        job = target.backend.details(job.id)
        has_ended = job.phase is not None and job.phase.is_terminal
        part = read_log(target, job, task, redact, seen, is_last=has_ended)
        seen = part.size
        yield part
        if has_ended:
            return
        target.clock.sleep(FOLLOW_EVERY_S)


def read_events(logs: Logs, job_id: str, limit: int) -> list[Event]:
    """Read events page by page, oldest first, at most `limit`."""
    found: list[Event] = []
    while len(found) < limit:
        size = min(_EVENT_PAGE, limit - len(found))
        page = logs.events(job_id, len(found), size)
        found += page
        if len(page) < size:
            break
    return found[:limit]
