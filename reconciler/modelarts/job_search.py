"""Which jobs, and which events of a job, are asked of the service: its filters, cut to what it takes.

Source: docs/modelarts.md, "Search".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.listing import Listing, SearchFilter
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.text import parse_duration

if TYPE_CHECKING:
    from reconciler.core.job_reports import EventQuery
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import SupportsSearch

#: One search covers so many days at most, and a filter takes so many values.
#: Source: docs/modelarts.md, "Calls".
WINDOW_S = 31 * 86_400
MAX_VALUES = 10
#: The service's clock may be ahead of ours.
_AHEAD_S = 3600.0


def _wrong(why: str) -> WrongUsage:
    return WrongUsage(Diagnostic("invalid filter", why))


class Moment(NamedTuple):
    """A point in time: seconds since 1970, or so many seconds ago."""

    seconds: float
    is_ago: bool = False

    @classmethod
    def parse(cls, value: object) -> Moment:
        """Read a time such as 2026-11-21 or 2026-11-21T08:00:00Z (without a zone: UTC), or a span such as 2d.

        Raises:
            ValueError: it is neither; the message says what can be written.
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
        """Seconds since 1970."""
        return now_s - self.seconds if self.is_ago else self.seconds


class JobSearch(NamedTuple):
    """What is asked of the service, and what is looked at on our side as well.

    `spans` are times that are searched one after the other, the newest first; none: whatever the times.
    `looks_back` says that the service looks at the last 31 days only.
    """

    filters: list[SearchFilter]
    more: dict[str, Any]
    after_s: float | None
    before_s: float | None
    spans: list[tuple[int, int]]
    looks_back: bool

    def matches(self, job: ObservedJob) -> bool:
        """Whether a job lies between the times; one search cannot span more than 31 days."""
        created_at_s = job.created_at_s
        if created_at_s is None:
            return self.after_s is None and self.before_s is None
        return (self.after_s is None or created_at_s >= self.after_s) and (
            self.before_s is None or created_at_s <= self.before_s
        )


class JobFilters(NamedTuple):
    """Which jobs are wanted. `name` and `algorithm_name` are parts of names, `filters` conditions as they
    are sent; of `phases`, `kinds` and `users` a job has one each.
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

    def conditions(self) -> list[SearchFilter]:
        """The service's conditions, times aside.

        Raises:
            WrongUsage: one has more values than the service takes.
        """
        given = [
            ("name", "like", [self.name] if self.name else []),
            ("phase", "in", list(self.phases)),
            ("kind", "in", list(self.kinds)),
            ("user_id", "in", list(self.users)),
            ("algorithm_name", "like", [self.algorithm_name] if self.algorithm_name else []),
        ]
        conditions: list[SearchFilter] = [
            {"key": key, "operator": how, "value": values} for key, how, values in given if values
        ]
        conditions += self.filters
        for condition in conditions:
            if len(condition["value"]) > MAX_VALUES:
                raise _wrong(f"the service accepts at most {MAX_VALUES} values of {condition['key']}")
        return conditions

    def more(self) -> dict[str, Any]:
        """The other fields of the service's search."""
        fields = {
            "tags": list(self.tags),
            "host_ips": list(self.host_ips),
            "train_type": self.train_type,
            "unified_jobs": self.unified,
            "group_by": self.group_by,
        }
        return {key: value for key, value in fields.items() if value}


def read(
    backend: SupportsSearch, search: JobSearch, *, sort_by: str, order: str, limit: int | None = None
) -> Listing:
    """Read what is wanted, one search after the other, until `limit` jobs are reached.

    Raises:
        WrongUsage: it takes several searches, whose jobs come in another order than asked for.
    """
    if len(search.spans) > 1 and sort_by != "create_time":
        raise _wrong(f"{_IN_PARTS}, so --sort requires a shorter period")
    spans = search.spans if order == "desc" else search.spans[::-1]
    whole = Listing()
    found: set[str] = set()

    def is_new(job: ObservedJob) -> bool:
        return job.id not in found and search.matches(job)

    for filters in [[*search.filters, _created(*span)] for span in spans] or [search.filters]:
        left = None if limit is None else limit - len(whole.jobs)
        part = backend.search(
            filters, sort_by=sort_by, order=order, more=search.more, limit=left, wanted=is_new
        )
        _join(whole, part, [job for job in part.jobs if is_new(job)])
        found.update(job.id for job in whole.jobs)
        if whole.problem is not None or len(whole.jobs) == limit:
            break
    return whole


def _join(whole: Listing, part: Listing, new: Sequence[ObservedJob]) -> None:
    whole.jobs += new
    whole.unreadable += [lost for lost in part.unreadable if lost not in whole.unreadable]
    whole.problem, whole.requests = part.problem, whole.requests + part.requests


_IN_PARTS = "with --tag and --host-ip the service searches 31 days at a time"


def _created(first_s: int, last_s: int) -> SearchFilter:
    span = [datetime.fromtimestamp(s, UTC).isoformat() for s in (first_s, last_s)]
    return {"key": "create_time", "operator": "between", "value": span}


def _spans(
    now_s: float, after_s: float | None, before_s: float | None, *, is_needed: bool
) -> list[tuple[int, int]]:
    """Cut the time into what one search may cover, in whole seconds, the newest first."""
    if after_s is None:
        if is_needed and before_s is not None:
            raise _wrong(f"{_IN_PARTS}, so --created-before needs --created-after")
        return []
    until_s = now_s + _AHEAD_S
    if (until_s if before_s is None else before_s) < after_s:
        raise _wrong("--created-before is before --created-after")
    first = math.floor(min(max(0.0, after_s), until_s))
    last = math.ceil(until_s if before_s is None else min(before_s, until_s))
    if not is_needed and last - first > WINDOW_S:
        return []
    return [(max(first, end - WINDOW_S), end) for end in range(last, first, -WINDOW_S)] or [(first, first)]


def job_search(now_s: float, filters: JobFilters) -> JobSearch:
    """Turn filters into the service's search.

    Raises:
        WrongUsage: a condition has more values than the service takes, the times are the wrong way round, or
            they have no beginning where the service needs one.
    """
    conditions = filters.conditions()
    after_s = filters.after.at_s(now_s) if filters.after else None
    before_s = filters.before.at_s(now_s) if filters.before else None
    in_parts = bool(filters.tags or filters.host_ips)
    spans = _spans(now_s, after_s, before_s, is_needed=in_parts)
    is_timed = spans or any(condition["key"] == "create_time" for condition in conditions)
    return JobSearch(
        conditions, filters.more(), after_s, before_s, spans, looks_back=in_parts and not is_timed
    )


def event_times(now_s: float, since: Moment | None, until: Moment | None, created_at_s: float) -> EventQuery:
    """Which events of a job are asked for; the service takes both times or none.

    Raises:
        WrongUsage: the times are the wrong way round.
    """
    if since is None and until is None:
        return {}
    first_s = since.at_s(now_s) if since else created_at_s
    last_s = until.at_s(now_s) if until else now_s + _AHEAD_S
    if since and until and last_s < first_s:
        raise _wrong("--until is before --since")
    last_s = max(0.0, min(last_s, now_s + _AHEAD_S))
    first_s = max(0.0, min(first_s, last_s))
    return {"start_time": _rfc3339(math.floor(first_s)), "end_time": _rfc3339(math.ceil(last_s))}


def _rfc3339(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
