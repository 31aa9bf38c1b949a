"""A job as the service reports it: its details, a page of the list, its log and its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.identity import Description, Marker, parse_description
from reconciler.core.phase import Phase, parse_phase

if TYPE_CHECKING:
    from reconciler.errors import ServiceError


@dataclass(frozen=True)
class ObservedJob:
    """One job, as search or details returned it.

    `phase_text` is the level-1 status as the service spells it; `secondary_phase` is only displayed. Times
    are seconds since 1970, durations seconds; None if the service does not report them. `body` is the whole
    response, including unknown fields.
    """

    id: str
    name: str
    description: str
    phase_text: str
    secondary_phase: str = ""
    created_at_s: float | None = None
    started_at_s: float | None = None
    duration_s: float | None = None
    node_count: int = 1
    body: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def phase(self) -> Phase | None:
        """The phase, or None for one that this version does not know."""
        return parse_phase(self.phase_text)

    @cached_property
    def _description(self) -> Description:
        return parse_description(self.description)

    @property
    def text(self) -> str:
        return self._description.text

    @property
    def claimed_marker(self) -> Marker | None:
        """The marker in the description, regardless of owner."""
        return self._description.marker

    @cached_property
    def marker(self) -> Marker | None:
        """The marker, if it was written for this job."""
        marker = self.claimed_marker
        return marker if marker and marker.is_on_its_own_job(self.name, self.id) else None

    @property
    def is_active(self) -> bool:
        return self.phase is not None and self.phase.is_active

    @property
    def is_live(self) -> bool:
        return self.phase is not None and self.phase.is_live

    def ran_s(self, at_s: float) -> float:
        """How long the job has run until `at_s`, in seconds; 0 if it has not started."""
        if self.duration_s:
            return self.duration_s
        # A running job without a start time counts from its creation: better to overstate than to
        # understate what is at stake.
        begin = self.started_at_s or (self.created_at_s if self.phase is Phase.RUNNING else None)
        return max(0.0, at_s - begin) if self.is_active and begin else 0.0

    def queued_s(self, at_s: float) -> float:
        """How long the job has waited to start, at most until `at_s`, in seconds; 0 if unknown."""
        if self.created_at_s is None:
            return 0.0
        is_waiting = self.is_active and self.started_at_s is None
        until = self.started_at_s or (at_s if is_waiting else self.created_at_s)
        return max(0.0, until - self.created_at_s)

    def ended_at_s(self) -> float | None:
        """When the job ended, as far as reported: its start (else its creation) plus its duration."""
        begin = self.started_at_s or self.created_at_s
        return None if begin is None else begin + (self.duration_s or 0.0)


class Unreadable(NamedTuple):
    """A job that exists but could not be read. `name` and `id` are None if unknown, too."""

    why: str
    name: str | None = None
    id: str | None = None
    claimed: Marker | None = None


class Observation(NamedTuple):
    """The result of reading a workspace once.

    `is_whole`: a job that is not in it does not exist, as far as the account can see.
    `problem` says why some or all jobs could not be read; None if all were.
    """

    jobs: tuple[ObservedJob, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    is_whole: bool = True
    problem: str | None = None
    requests: int = 0
    strategy: str = ""


# --- Results of a search for jobs

#: A condition of a search: `key`, `operator` (between, like, in, not) and `value`, a list of text.
SearchFilter = Mapping[str, Any]


def named(name: str) -> SearchFilter:
    """Return the condition for a name. It also finds names that contain this one."""
    return {"key": "name", "operator": "like", "value": [name]}


@dataclass
class Listing:
    """The part of a list that was read. `problem` is what kept the rest from being read.

    `jobs` and `unreadable` are in the order of the list, each id once.
    """

    jobs: list[ObservedJob] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    problem: ServiceError | str | None = None
    requests: int = 0


# --- The new part of a growing log


class Unseen(NamedTuple):
    """New lines of a log, the bytes of the log seen including them, and whether some were lost."""

    text: str
    size: int
    has_gap: bool = False

    def without_end(self, count: int) -> Unseen:
        """Return this without the last `count` characters, which are left for later."""
        shown, later = self.text[: len(self.text) - count], self.text[len(self.text) - count :]
        return self._replace(text=shown, size=self.size - len(later.encode()))


def unseen(content: str, full_size: int | None, seen: int, *, is_last: bool) -> Unseen:
    """Return the part of a preview after the first `seen` bytes of the log.

    `content` is the end of a log of `full_size` bytes (None: all of it). An incomplete line waits for its
    rest, unless `is_last`. A log that became shorter has started again.
    """
    data = content.encode()
    size = len(data) if full_size is None else max(full_size, len(data))
    begins = size - len(data)
    if size < seen:
        seen = 0
    new = data[max(0, seen - begins) :]
    if not is_last:
        new = new[: new.rfind(b"\n") + 1]
        size = max(seen, begins) + len(new)
    return Unseen(new.decode(errors="replace"), size, has_gap=begins > seen)


def last_lines(content: str, count: int) -> str:
    return "".join(content.splitlines(keepends=True)[-count:]) if count else ""
