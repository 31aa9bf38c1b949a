"""What the service reported. Reading is tri-state: a job is present, absent, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from reconciler.core.identity import Description, Marker, parse_description
from reconciler.core.phase import Phase, parse_phase


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
        """The description without a marker."""
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
        """Whether the job is in a known active phase."""
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
