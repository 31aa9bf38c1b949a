"""A job as the service shows it: its details, a page of the list, its log and its events."""

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
    """One job id, as search or details returned it.

    `phase_text` is the level-1 status as the service spells it; `secondary_phase` is shown, and never
    decided on. Times are seconds since 1970, durations seconds; None where the service says nothing.
    `body` is the whole answer, unknown fields included.
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
        """The marker, if it is believed: it stands on the job it was written for."""
        marker = self.claimed_marker
        return marker if marker and marker.is_on_its_own_job(self.name, self.id) else None

    @property
    def is_active(self) -> bool:
        return self.phase is not None and self.phase.is_active

    def ran_s(self, at_s: float) -> float:
        """How long the job has run until `at_s`, in seconds; 0 if it has not started."""
        if self.duration_s:
            return self.duration_s
        # Where it runs and does not say since when, its creation is the earliest: rather too much than
        # too little is said to be at stake.
        begin = self.started_at_s or (self.created_at_s if self.phase is Phase.RUNNING else None)
        return max(0.0, at_s - begin) if self.is_active and begin else 0.0

    def queued_s(self, at_s: float) -> float:
        """How long the job has waited to start, until `at_s` at most, in seconds; 0 if that is not known."""
        if self.created_at_s is None:
            return 0.0
        is_waiting = self.is_active and self.started_at_s is None
        until = self.started_at_s or (at_s if is_waiting else self.created_at_s)
        return max(0.0, until - self.created_at_s)

    def ended_at_s(self) -> float | None:
        """When the job ended, as far as the service says: its start (else its creation) plus its duration."""
        begin = self.started_at_s or self.created_at_s
        return None if begin is None else begin + (self.duration_s or 0.0)


class Unreadable(NamedTuple):
    """One job that is there and could not be read. `name` and `id` where they could be."""

    why: str
    name: str | None = None
    id: str | None = None
    claimed: Marker | None = None


class Observation(NamedTuple):
    """Everything that was learnt of a workspace in one look.

    `is_whole` says that a job which is not here does not exist, as far as the account can see.
    `problem` says why nothing, or not everything, could be read; None if nothing went wrong.
    """

    jobs: tuple[ObservedJob, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    is_whole: bool = True
    problem: str | None = None
    requests: int = 0
    strategy: str = ""


# --- What a search for jobs found

#: A condition of a search: `key`, `operator` (between, like, in, not) and `value`, a list of text.
SearchFilter = Mapping[str, Any]


def named(name: str) -> SearchFilter:
    """Return the condition for a name; it also finds names that merely contain this one."""
    return {"key": "name", "operator": "like", "value": [name]}


@dataclass
class Listing:
    """What was read of a list. `problem` is the failure, or the words, that kept the rest from being read.

    `jobs` and `unreadable` are in the order of the list, each id once.
    """

    jobs: list[ObservedJob] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    problem: ServiceError | str | None = None
    requests: int = 0


# --- The end of a log as it grows: what of it has not been shown


class Unseen(NamedTuple):
    """What is new: whole lines, how many bytes of the log are seen with them, and whether some are lost."""

    text: str
    size: int
    has_gap: bool = False

    def without_end(self, count: int) -> Unseen:
        """The same with so many characters left for later."""
        shown, later = self.text[: len(self.text) - count], self.text[len(self.text) - count :]
        return self._replace(text=shown, size=self.size - len(later.encode()))


def unseen(content: str, full_size: int | None, seen: int, *, is_last: bool) -> Unseen:
    """Return what of a preview lies behind the first `seen` bytes of the log.

    `content` is the end of a log of `full_size` bytes (None: all of it). A line that is not finished
    waits for its rest, unless this `is_last`. A log that became shorter was begun anew.
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
    """The last lines of a text."""
    return "".join(content.splitlines(keepends=True)[-count:]) if count else ""
