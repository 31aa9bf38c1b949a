"""What is written down while a run goes on, and who keeps it: the journal, the lock and the record store.

Source: docs/semantics.md, "Apply" and "Records".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from reconciler.core.record import Call
from reconciler.core.stack import Declared

if TYPE_CHECKING:
    from reconciler.core.ownership import Revision
    from reconciler.core.record import (
        FinishedWork,
        HistorySnapshot,
        Holder,
        PastChange,
        PastRevision,
        PastRun,
        Prunable,
        RunKind,
        Scope,
    )
    from reconciler.decide.drift_check import Acceptance, CheckRecord, DriftId, LastCheck
    from reconciler.decide.outcome import Outcome
    from reconciler.decide.plan import PlannedAction


@dataclass(frozen=True)
class Step:
    """One call that is about to be made for an action. `declared` is that of the job it makes or changes."""

    action: PlannedAction
    call: Call
    job: str | None = None
    declared: Declared | None = None


@dataclass(frozen=True)
class StepEnd:
    """How the call ended. `is_certain`: whether it is known that it took effect, or did not."""

    ok: bool
    is_certain: bool = True
    job: str | None = None
    code: str = ""
    message: str = ""
    request_id: str = ""


@dataclass(frozen=True)
class Run:
    """One apply, destroy or drift check, as it begins."""

    scope: Scope
    kind: RunKind
    who: str
    where: str
    command: str
    commit: str
    plan_digest: str
    at_s: float


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, with what became of its actions."""

    at_s: float
    result: str
    summary: Mapping[str, int]
    outcomes: tuple[Outcome, ...] = ()


class Journal(Protocol):
    """The lines of one run; each method returns when its line is safe on disk. Safe to call from threads."""

    @property
    def problem(self) -> str | None:
        """Why lines that no call waits for could not be written; None if all were."""
        ...

    def before(self, step: Step) -> int:
        """Write down what is about to be asked; return the line's number.

        Raises:
            LockLost: the run no longer holds its lock, so the call must not be made.
            RecordsUnavailable: the line could not be written, so the call must not be made.
        """
        ...

    def after(self, line: int, end: StepEnd) -> None:
        """Write down how it went. A store that is unavailable by now is no failure of the call."""
        ...

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write down what became of an action; `declared` is that of the job it made or changed."""
        ...

    def end(self, ended: RunEnd) -> None:
        """Close the run."""
        ...


class ScopeLock(Protocol):
    """The lock of a scope. As a context manager it is held in the block."""

    def take(self) -> None:
        """Take it, and keep its lease alive.

        Raises:
            LockHeld: somebody else holds it; the words say who, since when, from where, and for how long yet.
        """
        ...

    def release(self) -> None:
        """Let it go, however far taking it came; doing so twice is no harm."""
        ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Records(Protocol):
    """One store for journal, lock and history. Any method may raise `RecordsUnavailable`."""

    def locked(
        self, scope: Scope, holder: Holder, *, lease_s: float, on_lost: Callable[[], None]
    ) -> ScopeLock:
        """The lock of a scope, not taken yet; `on_lost` is called if its lease cannot be kept alive.

        `since_s` and `expires_s` of the holder are the store's to set.
        """
        ...

    def holder(self, scope: Scope) -> Holder | None:
        """Who holds the lock; None if nobody does, or the holder is known to be dead."""
        ...

    def break_lock(self, scope: Scope, seen: Holder | None = None) -> Holder | None:
        """Take the lock away from whoever holds it, and return who that was.

        With `seen`, as `holder` gave it, from that one only: None if it does not hold the lock any more.
        """
        ...

    def begin(self, run: Run) -> Journal:
        """Open a run. Its journal is fenced by the lock that this process holds of the scope, if any."""
        ...

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What is known of a scope."""
        ...

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write down owned revisions as they were seen: new ones, and new phases of those known."""
        ...

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Write down for a scope what is known of these jobs in another one; return how many were new.

        What is known of the scope already stays as it is.
        """
        ...

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Write down what an apply declares: each key with its sweep or "", and where the manifest is."""
        ...

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the target of a scope, by digest, and do not declare any more.

        Of a stack that was last applied from `place` all that it completed: it had another name then.
        """
        ...

    def last_check(self, scope: Scope) -> LastCheck:
        """The drift that stands by earlier checks, and when the last one could compare."""
        ...

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Write down a check that has ended: the run, its events, and the drift that stands by now.

        A drift of another check that this one says nothing of stays as it is, and what was accepted stays
        accepted as long as its content is the same. Of the checks without an event only the newest stay.
        """
        ...

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Write down that drifts which stand were reported at a time: somebody was notified of them."""
        ...

    def accept(
        self, run: Run, ended: RunEnd, drift: Collection[DriftId], acceptance: Acceptance | None
    ) -> int:
        """Write down that drifts which stand are known, or with None that they are not; return how many."""
        ...

    def runs(self, scope: Scope, *, key: str | None = None, limit: int | None = None) -> Sequence[PastRun]:
        """The runs of a scope, newest first; with `key` those that did something about it."""
        ...

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key, by key; failed calls aside."""
        ...

    def revisions(self, scope: Scope, key: str) -> Sequence[PastRevision]:
        """The revisions of one key, oldest first."""
        ...

    def prunable(self, scope: Scope, before_s: float) -> Prunable:
        """Count what `prune` would delete."""
        ...

    def prune(self, scope: Scope, before_s: float) -> int:
        """Delete runs that ended before a time; return how many.

        Also the revisions that are neither the newest of their key nor younger than that.
        """
        ...

    def check(self) -> None:
        """Read the whole store, of all stacks: `RecordsUnavailable` says what in it is damaged."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...
