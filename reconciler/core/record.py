"""What is written down of a stack: who holds its lock, what was done, what each revision was.

Values only; the stores are in `records/`. No secret is in them: a sensitive value stands there by its
name. Times are seconds since 1970, durations seconds; None where nobody knows.

Source: docs/semantics.md, "Decisions", "Apply" and "Records".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.core.identity import Marker, ScheduleMark, remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.stack import Declared as Declared
from reconciler.core.values import LOCAL, TargetIdentity
from reconciler.errors import ExitCode, ReconcilerError

#: How long a lock is held without a sign of life.
LEASE_S = 60.0
#: A drift that lasts is reported again after so long, if nobody says another time.
REMIND_S = 86_400.0
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}


class Scope(NamedTuple):
    """One stack on one target: what a lock and a history are about.

    A target's identity is endpoint host, project and workspace, never its name.
    """

    stack: str
    host: str
    project_id: str
    workspace_id: str

    @classmethod
    def of(cls, stack: str, target: TargetIdentity) -> Scope:
        """The scope of a stack on a target."""
        parts = urlsplit(target.endpoint)
        host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, "")) or target.endpoint
        return cls(stack, host, target.project_id, target.workspace_id)

    @property
    def is_local(self) -> bool:
        """Whether the embedded emulator is meant, which has no host."""
        return self.host == LOCAL

    @property
    def place(self) -> str:
        """The target's identity, for people."""
        return f"{self.host}, project {self.project_id}, workspace {self.workspace_id}"


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


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: a person or a CI user, on which machine, with which command."""

    who: str
    where: str
    command: str
    since_s: float
    expires_s: float
    #: The store's own name for this hold of the lock, and no other; for `break_lock`, never shown.
    hold: str = field(default="", repr=False, compare=False)


class LockHeld(ReconcilerError):
    """Another process holds the lock."""

    exit_code = ExitCode.LOCKED


class LockLost(ReconcilerError):
    """The lease of our lock ran out, or somebody broke it: nothing more may be sent."""

    exit_code = ExitCode.LOCKED


class RecordsUnavailable(ReconcilerError):
    """The store cannot be reached, read or written."""


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
        return self.result or ("running" if self.is_running else "interrupted")


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

        One that was still active when it was seen last counts as terminated (docs/semantics.md, "Decisions").
        """
        phase_text = self.phase_text if self.has_ended else Phase.TERMINATED.value
        times = (self.created_at_s, self.started_at_s, self.duration_s)
        return ObservedJob(self.job, self.name, "", phase_text, "", *times, self.node_count)

    def marker(self, stack: str, key: str, protected: bool = False) -> Marker:
        """The marker that such a revision bears, as one of `key`."""
        marker = Marker(stack, key, self.number, self.digest, None, self.schedule, protected, self.stopped)
        return marker.for_job(self.name, self.job)


class FinishedWork(NamedTuple):
    """A revision of another key that completed; `stack` is None for one of the same stack."""

    key: str
    number: int
    stack: str | None = None


@dataclass(frozen=True)
class HistorySnapshot:
    """What the store knows of a stack on a target.

    `by_key` holds the revisions of each key, oldest first. `elsewhere` are the other targets under
    which the store knows the stack; `local` ones do not count. `problem` says why it could not be asked,
    `fix` what to do about that. `sweeps` has the sweep of each key that was ever applied, or "". `finished`
    is what other stacks completed on this target and do not declare any more, by digest, as far as asked.
    """

    by_key: Mapping[str, tuple[PastRevision, ...]] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    problem: str | None = None
    fix: str | None = None
    sweeps: Mapping[str, str] = field(default_factory=dict)
    finished: Mapping[str, FinishedWork] = field(default_factory=dict)

    def key_of(self, job_id: str) -> str | None:
        """The key whose job this was last: one that was renamed is remembered under both its keys.

        It is the one under which the job was written down last, where it was not looked at since.
        """
        return self._key_by_job.get(job_id)

    @cached_property
    def _key_by_job(self) -> dict[str, str]:
        # Of equals the first counts.
        last_first = sorted(self._revisions, key=_last_written, reverse=True)
        return {past.job: past.key for past in reversed(last_first)}

    @property
    def _revisions(self) -> Iterator[PastRevision]:
        return chain.from_iterable(self.by_key.values())

    def limited_to(self, revisions: Collection[RevisionId]) -> HistorySnapshot:
        """The same without any other revision."""
        by_key = {
            key: kept
            for key, of_key in self.by_key.items()
            if (kept := tuple(one for one in of_key if (key, one.number) in revisions))
        }
        return replace(self, by_key=by_key)

    @property
    def knows_stack(self) -> bool:
        """Whether anything of the stack was ever recorded here, and not released since."""
        return any(past.released_at_s is None for past in self._revisions)

    @property
    def seen_active(self) -> tuple[str, ...]:
        """The keys, sorted, of which a revision had not ended when it was seen last, and was not released."""
        active = (past for past in self._revisions if past.released_at_s is None and not past.has_ended)
        return tuple(sorted({past.key for past in active}))

    @property
    def knows_applies(self) -> bool:
        """Whether it was recorded what was applied, and not only what was seen."""
        return any(past.declared is not None for past in self._revisions)


class RevisionId(NamedTuple):
    """Key and number of a revision."""

    key: str
    number: int


class RecordedRevision(NamedTuple):
    """What the store has of a revision that may change: enough to say whether a look shows anything new."""

    job: str
    digest: str
    phase_text: str
    stopped: bool
    schedule: ScheduleMark | None = None
    is_released: bool = False


def _last_written(revision: PastRevision) -> tuple[float, bool]:
    # Renaming leaves the job its name, so of two keys the one that gives another name came later.
    is_renamed = revision.name != remote_name(revision.key, revision.number)
    return math.inf if revision.seen_at_s is None else revision.seen_at_s, is_renamed


NO_HISTORY = HistorySnapshot()
