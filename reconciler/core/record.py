"""The records of a stack on a target: their scope, and what is remembered of its revisions.

Values only; the stores are in `records/`. No secret is in them: a sensitive value stands there by its
name. Times are seconds since 1970, durations seconds; None where nobody knows.

Source: docs/concepts/decisions.md; docs/concepts/crash-safety.md, "Apply"; docs/operations/records.md,
"Records".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from reconciler.core.identity import ScheduleMark, remote_name
from reconciler.core.stack import Declared as Declared
from reconciler.core.values import LOCAL, TARGET_KINDS, TargetIdentity
from reconciler.errors import ReconcilerError

if TYPE_CHECKING:
    from reconciler.core.past import FinishedWork, PastRevision

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
        if self.is_local:
            return f"{LOCAL} ({TARGET_KINDS[LOCAL].note})"
        return f"{self.host}, project {self.project_id}, workspace {self.workspace_id}"


class RecordsUnavailable(ReconcilerError):
    """The store cannot be reached, read or written."""


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
        last_first = sorted(self.revisions, key=_last_written, reverse=True)
        return {past.job: past.key for past in reversed(last_first)}

    @property
    def revisions(self) -> Iterator[PastRevision]:
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
        return any(past.released_at_s is None for past in self.revisions)

    @property
    def seen_active(self) -> tuple[str, ...]:
        """The keys, sorted, of which a revision had not ended when it was seen last, and was not released."""
        active = (past for past in self.revisions if past.released_at_s is None and not past.has_ended)
        return tuple(sorted({past.key for past in active}))

    @property
    def knows_applies(self) -> bool:
        """Whether it was recorded what was applied, and not only what was seen."""
        return any(past.declared is not None for past in self.revisions)


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
