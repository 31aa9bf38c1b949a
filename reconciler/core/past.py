"""What was done, by whom, and what each revision was, as it is recorded: values only, without secrets.

Times are seconds since 1970, durations seconds; None where nobody knows.

Source: docs/operations/records.md, "Records".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from reconciler.core.identity import Marker, ScheduleMark
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.stack import Declared


class RunKind(StrEnum):
    """The commands that leave a record."""

    APPLY = "apply"
    DESTROY = "destroy"
    DRIFT = "drift"
    ADOPT = "adopt"
    RELEASE = "release"
    TERMINATE = "jobs terminate"


class Call(StrEnum):
    """The calls that change something, each between two lines of the journal."""

    CREATE = "create"
    UPDATE = "update"
    TERMINATE = "terminate"


class PastStep(NamedTuple):
    """A line of the journal; `ended_at_s` is None where no second line followed: the process died."""

    key: str
    action: str
    call: str
    name: str
    job: str | None
    at_s: float
    ended_at_s: float | None = None
    ok: bool | None = None
    code: str = ""
    message: str = ""
    request_id: str = ""


class PastAction(NamedTuple):
    """What became of one action."""

    key: str
    action: str
    reason: str
    status: str
    detail: str = ""
    job: str | None = None
    code: str = ""


class PastChange(NamedTuple):
    """A call that changed a job of a key: for which action, of which command, by whom, and when."""

    key: str
    action: str
    call: str
    kind: str
    who: str
    job: str | None
    at_s: float


class PastRun(NamedTuple):
    """A run that was recorded.

    `ended_at_s` is None while it goes on (`is_running`), or where its process died. `result` is a word:
    complete, partial, interrupted, failed, or of a drift check drift, no drift, unknown.
    """

    id: int
    kind: str
    who: str
    where: str
    command: str
    plan_digest: str
    at_s: float
    ended_at_s: float | None = None
    result: str = ""
    summary: Mapping[str, int] = MappingProxyType({})
    actions: tuple[PastAction, ...] = ()
    steps: tuple[PastStep, ...] = ()
    is_running: bool = False

    @property
    def word(self) -> str:
        """How it ended: `result`, or, where none was recorded, whether it goes on."""
        return self.result or ("running" if self.is_running else "unfinished")


class PastRevision(NamedTuple):
    """A revision that was recorded: what it was, and as far as anybody looked, how it went.

    `phases` are the phases in which it was seen, each with the time of the first look that saw it;
    `stopped` says that we terminated it ourselves. `released_at_s` is when its marker was taken off because
    somebody asked for that: from then on it is no revision of ours, and only its number stays taken.
    `schedule` is what its marker says of the schedule.
    """

    key: str
    number: int
    name: str
    job: str
    digest: str
    phase_text: str = ""
    created_at_s: float | None = None
    started_at_s: float | None = None
    duration_s: float | None = None
    node_count: int = 1
    seen_at_s: float | None = None
    declared: Declared | None = None
    phases: tuple[tuple[str, float], ...] = ()
    stopped: bool = False
    released_at_s: float | None = None
    schedule: ScheduleMark | None = None

    def says_more_than(self, other: PastRevision | None) -> bool:
        """Whether this is worth keeping in the place of another record: a later look at the same job."""
        if other is None:
            return True
        return other.job == self.job and (other.seen_at_s or 0.0) < (self.seen_at_s or 0.0)

    @property
    def code_digest(self) -> str:
        """The digest of its code; "" if it has none, or what was declared is not known."""
        return str(self.declared.immutable.get("code", "")) if self.declared else ""

    @property
    def phase(self) -> Phase | None:
        return parse_phase(self.phase_text)

    @property
    def has_ended(self) -> bool:
        return self.phase is not None and self.phase.is_terminal

    @property
    def ended_at_s(self) -> float | None:
        """When it ended, as far as the service said."""
        begin = self.started_at_s or self.created_at_s
        return None if begin is None or self.duration_s is None else begin + self.duration_s

    def job_as_ended(self) -> ObservedJob:
        """The job as it ended, for the service only forgets what has ended.

        One that was still active when it was seen last counts as terminated (docs/concepts/decisions.md).
        """
        phase_text = self.phase_text if self.has_ended else Phase.TERMINATED.value
        times = (self.created_at_s, self.started_at_s, self.duration_s)
        return ObservedJob(self.job, self.name, "", phase_text, "", *times, self.node_count)

    def marker(self, stack: str, key: str, protected: bool = False) -> Marker:
        """The marker that such a revision bears, as one of `key`."""
        marker = Marker(stack, key, self.number, self.digest, None, self.schedule, protected, self.stopped)
        return marker.for_job(self.name, self.job)


@dataclass(frozen=True)
class Holder:
    """Who holds the lock of a stack: a person or a CI user, on which machine, with which command."""

    who: str
    where: str
    command: str
    since_s: float
    expires_s: float
    #: The store's own name for this hold of the lock, and no other; for `break_lock`, never shown.
    hold: str = field(default="", repr=False, compare=False)


class FinishedWork(NamedTuple):
    """A revision of another key that completed; `stack` is None for one of the same stack."""

    key: str
    number: int
    stack: str | None = None
