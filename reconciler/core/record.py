"""The records of a stack on a target: their scope and contents.

Values only; the stores are in `records/`. They contain no secrets, only their names. Times are seconds since
1970, durations seconds; None if unknown.

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

#: How long a lock is held without a heartbeat.
LEASE_S = 60.0
#: The default interval after which lasting drift is reported again.
REMIND_S = 86_400.0
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}


class Scope(NamedTuple):
    """One stack on one target, which a lock or a history belongs to.

    A target's identity is endpoint host, project and workspace, never its name.
    """

    stack: str
    host: str
    project_id: str
    workspace_id: str

    @classmethod
    def of(cls, stack: str, target: TargetIdentity) -> Scope:
        parts = urlsplit(target.endpoint)
        host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, "")) or target.endpoint
        return cls(stack, host, target.project_id, target.workspace_id)

    @property
    def is_local(self) -> bool:
        """Whether it is the embedded emulator, which has no host."""
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
    """The history of a stack on a target.

    `by_key` has the revisions of each key, oldest first. `elsewhere` are other targets with a history of the
    stack; `local` ones do not count. `problem` says why the history could not be read, `fix` what to do.
    `sweeps` has the sweep of each key that was ever applied, or "". `finished` is what other stacks have
    completed on this target and do not declare any more, by digest, as far as requested.
    """

    by_key: Mapping[str, tuple[PastRevision, ...]] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    problem: str | None = None
    fix: str | None = None
    sweeps: Mapping[str, str] = field(default_factory=dict)
    finished: Mapping[str, FinishedWork] = field(default_factory=dict)

    @cached_property
    def key_by_job(self) -> dict[str, str]:
        """The key that each job belonged to last: a renamed job is recorded under both keys.

        If it was not observed since, that is the key under which it was recorded last.
        """
        # Of equals the first one wins.
        last_first = sorted(self.revisions, key=_last_written, reverse=True)
        return {past.job: past.key for past in reversed(last_first)}

    @property
    def revisions(self) -> Iterator[PastRevision]:
        return chain.from_iterable(self.by_key.values())

    def limited_to(self, revisions: Collection[RevisionId]) -> HistorySnapshot:
        """Return the history of these revisions only."""
        by_key = {
            key: kept
            for key, of_key in self.by_key.items()
            if (kept := tuple(past for past in of_key if (key, past.number) in revisions))
        }
        return replace(self, by_key=by_key)

    @property
    def knows_stack(self) -> bool:
        """Whether a revision of the stack was recorded here, and not released since."""
        return any(past.released_at_s is None for past in self.revisions)


class RevisionId(NamedTuple):
    """Key and number of a revision."""

    key: str
    number: int


class RecordedRevision(NamedTuple):
    """The recorded state of a revision, to tell whether an observation has news."""

    job: str
    digest: str
    phase_text: str
    stopped: bool
    schedule: ScheduleMark | None = None
    is_released: bool = False


def _last_written(revision: PastRevision) -> tuple[float, bool]:
    # A renamed job keeps its name, so of two keys the one that would give another name is the later one.
    is_renamed = revision.name != remote_name(revision.key, revision.number)
    return math.inf if revision.seen_at_s is None else revision.seen_at_s, is_renamed


NO_HISTORY = HistorySnapshot()
