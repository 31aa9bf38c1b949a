"""Records that remember nothing and lock nothing: for somebody who says to go on without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count

from reconciler.core.ownership import Revision
from reconciler.core.record import (
    NO_HISTORY,
    Declared,
    FinishedWork,
    HistorySnapshot,
    Holder,
    PastChange,
    PastRevision,
    PastRun,
    Prunable,
    Scope,
)
from reconciler.decide.drift_check import NO_CHECK, Acceptance, CheckRecord, DriftId, LastCheck
from reconciler.decide.journal import Run, RunEnd, Step, StepEnd
from reconciler.decide.outcome import Outcome


class NoJournal:
    """A journal that nobody will read."""

    problem: str | None = None

    def __init__(self) -> None:
        self._lines = count(1)

    def before(self, step: Step) -> int:
        """Count the line."""
        return next(self._lines)

    def after(self, line: int, end: StepEnd) -> None:
        """Forget it."""

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Forget it."""

    def end(self, ended: RunEnd) -> None:
        """Forget it."""


class NoLock:
    """A lock that excludes nobody."""

    def take(self) -> None:
        """Exclude nobody."""

    def release(self) -> None:
        """Let nobody in."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class NoRecords:
    """What `decide.journal.Records` asks for, without a store."""

    def locked(self, scope: Scope, holder: Holder, *, lease_s: float, on_lost: Callable[[], None]) -> NoLock:
        """Exclude nobody."""
        return NoLock()

    def holder(self, scope: Scope) -> Holder | None:
        """Nobody."""
        return None

    def break_lock(self, scope: Scope, seen: Holder | None = None) -> Holder | None:
        """Nobody held it."""
        return None

    def begin(self, run: Run) -> NoJournal:
        """Open a journal that nobody will read."""
        return NoJournal()

    def memory(self, scope: Scope) -> HistorySnapshot:
        """Nothing: who goes on without a history decides as if there were none."""
        return NO_HISTORY

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Forget it."""

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Nothing is known."""
        return 0

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Forget it."""

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """Nothing is known."""
        return {}

    def last_check(self, scope: Scope) -> LastCheck:
        """No check."""
        return NO_CHECK

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Forget it."""

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Forget it."""

    def accept(
        self, run: Run, ended: RunEnd, drift: Collection[DriftId], acceptance: Acceptance | None
    ) -> int:
        """Nothing stands."""
        return 0

    def runs(self, scope: Scope, *, key: str | None = None, limit: int | None = None) -> Sequence[PastRun]:
        """No run."""
        return ()

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """No change."""
        return {}

    def revisions(self, scope: Scope, key: str) -> Sequence[PastRevision]:
        """No revision."""
        return ()

    def prunable(self, scope: Scope, before_s: float) -> Prunable:
        """There is nothing to delete."""
        return Prunable(runs=0, revisions=0)

    def prune(self, scope: Scope, before_s: float) -> int:
        """There was nothing to delete."""
        return 0

    def check(self) -> None:
        """There is nothing to read."""

    def close(self) -> None:
        """Hold nothing."""
