"""Recorded runs, and what each revision was: values only, without secrets.

Times are seconds since 1970, durations seconds; None if unknown.

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
    """The calls that change something; each has two lines in the journal."""

    CREATE = "create"
    UPDATE = "update"
    TERMINATE = "terminate"


class PastStep(NamedTuple):
    """A line of the journal. `ended_at_s` is None if the process died before the second line."""

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
    """The outcome of one action."""

    key: str
    action: str
    reason: str
    status: str
    detail: str = ""
    job: str | None = None
    code: str = ""


class PastChange(NamedTuple):
    """A call that changed a job of a key: for which action and command, by whom, and when."""

    key: str
    action: str
    call: str
    kind: str
    who: str
    job: str | None
    at_s: float


class PastRun(NamedTuple):
    """A recorded run.

    `ended_at_s` is None while it is running (`is_running`), or if its process died. `result` is complete,
    partial, interrupted, refused, nothing to do or unknown; for a drift check drift, no drift or unknown.
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
        """How it ended: `result`, or if none was recorded, whether it is still running."""
        return self.result or ("running" if self.is_running else "unfinished")


class PastRevision(NamedTuple):
    """A recorded revision: what it was and, as far as it was observed, how it went.

    `phases` are the observed phases, each with the time when it was first seen. `stopped`: we terminated it.
    `released_at_s` is when it was released: it is not ours any more, but its number stays taken. `schedule`
    is the one in its marker.
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

    def supersedes(self, other: PastRevision | None) -> bool:
        """Whether this is a later observation of the same job, or the only one."""
        if other is None:
            return True
        return other.job == self.job and (other.seen_at_s or 0.0) < (self.seen_at_s or 0.0)

    @property
    def code_digest(self) -> str:
        """The digest of its code; "" if it has none or is unknown."""
        return str(self.declared.immutable.get("code", "")) if self.declared else ""

    @property
    def phase(self) -> Phase | None:
        return parse_phase(self.phase_text)

    @property
    def has_ended(self) -> bool:
        return self.phase is not None and self.phase.is_terminal

    @property
    def ended_at_s(self) -> float | None:
        """When it ended, as far as the service reported."""
        begin = self.started_at_s or self.created_at_s
        return None if begin is None or self.duration_s is None else begin + self.duration_s

    def job_as_ended(self) -> ObservedJob:
        """Return the job as it ended, since the service only deletes ended jobs.

        One that was active when last seen counts as terminated (docs/concepts/decisions.md).
        """
        phase_text = self.phase_text if self.has_ended else Phase.TERMINATED.value
        times = (self.created_at_s, self.started_at_s, self.duration_s)
        return ObservedJob(self.job, self.name, "", phase_text, "", *times, self.node_count)

    def marker(self, stack: str, key: str, protected: bool = False) -> Marker:
        """Return the marker of this revision as one of `key`."""
        marker = Marker(stack, key, self.number, self.digest, None, self.schedule, protected, self.stopped)
        return marker.for_job(self.name, self.job)


@dataclass(frozen=True)
class Holder:
    """The holder of a stack's lock: the user, also of CI, the machine and the command."""

    who: str
    where: str
    command: str
    since_s: float
    expires_s: float
    #: The store's unique name for this hold; for `break_lock`, never shown.
    hold: str = field(default="", repr=False, compare=False)


class FinishedWork(NamedTuple):
    """A completed revision of another key. `stack` is None if it is of the same stack."""

    key: str
    number: int
    stack: str | None = None
