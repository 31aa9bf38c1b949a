"""An open record store: what `decide.journal.Records` asks for, over a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from sqlalchemy import ColumnElement, delete, func, select

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
from reconciler.decide.drift_check import NO_CHECK, Acceptance, CheckRecord, DriftId, LastCheck
from reconciler.decide.journal import Run, RunEnd
from reconciler.records import HasNow
from reconciler.records.cells import damaged
from reconciler.records.database import Database
from reconciler.records.declarations import forget_keys, read_finished, write_declared
from reconciler.records.dialect import dialect_of
from reconciler.records.drift_checks import DriftChecks, read_last_check
from reconciler.records.errors import unavailable
from reconciler.records.examination import check_everything
from reconciler.records.history import History, is_scope, old_revisions
from reconciler.records.journal import StoredJournal
from reconciler.records.locks.liveness import Liveness
from reconciler.records.locks.lock import Lease, Locks, StoredLock
from reconciler.records.observation_changes import observation_changes
from reconciler.records.runs import insert_run, read_last_changes, read_runs
from reconciler.records.schema import RUNS, SCOPES
from reconciler.records.serialization import Texts


class StoredRecords:
    """Journal, lock and history in one database."""

    def __init__(self, database: Database, redact: Callable[[str], str]) -> None:
        self._database, self._texts = database, Texts(redact)
        self._locks = Locks(database, self._texts)
        self._history = History(database)
        self._scope_ids: dict[Scope, int] = {}
        self._leases: dict[Scope, Lease] = {}
        self._scope_locks: list[StoredLock] = []
        self._alive: list[Liveness] = []

    def locked(
        self, scope: Scope, holder: Holder, *, lease_s: float, on_lost: Callable[[], None]
    ) -> StoredLock:
        """The lock of a scope, not taken yet; `on_lost` is called if its lease cannot be kept alive."""
        lease = self._locks.lease(scope, self._id(scope), holder, lease_s)
        lock = StoredLock(lease, self._leases, self._database.clock.now, on_lost)
        self._scope_locks.append(lock)
        return lock

    def holder(self, scope: Scope) -> Holder | None:
        """Who holds the lock; None if nobody does, or the holder is known to be dead."""
        known = self._find(scope)
        return None if known is None else self._locks.holder(scope, known)

    def break_lock(self, scope: Scope, seen: Holder | None = None) -> Holder | None:
        """Take the lock away from whoever holds it, or from `seen` only, and return who that was."""
        known = self._find(scope)
        return None if known is None else self._locks.break_lock(scope, known, seen)

    def begin(self, run: Run) -> StoredJournal:
        """Open a run. Its journal is fenced by the lock that this process holds of the scope, if any."""
        scope_id = self._id(run.scope)
        with self._database.writing() as connection:
            run_id = insert_run(connection, scope_id, run, self._texts)
            liveness = Liveness(self._database, run_id)
            liveness.begin(connection)
        liveness.go_on()
        self._alive.append(liveness)
        return StoredJournal(
            self._database,
            self._texts,
            run_id,
            scope_id,
            partial(self._leases.get, run.scope),
            liveness.end,
            # To its stack, what is terminated by hand was terminated outside.
            marks_stopped=run.kind is not RunKind.TERMINATE,
        )

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What is known of a scope."""
        self._find(scope)
        return self._history.memory(scope)

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write down owned revisions as they were seen: new ones, and new phases of those known."""
        if seen := list(seen):
            known = self._history.known(scope)
            with self._database.translating_errors():
                found = observation_changes(known, seen, at_s, self._texts.text)
            if found.rows:
                self._history.write(self._id(scope), found)

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Write down for a scope what is known of these jobs in another one; return how many were new."""
        known = self._find(old)
        return 0 if known is None or not jobs else self._history.copy(known, self._id(scope), jobs)

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Write down what an apply declares: each key with its sweep or "", and where the manifest is."""
        write_declared(self._database, self._id(scope), sweeps, self._texts.text(place))

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the target of a scope, by digest, and do not declare any more."""
        with self._database.reading() as connection:
            return read_finished(connection, scope, digests, self._texts.text(place))

    def last_check(self, scope: Scope) -> LastCheck:
        """The drift that stands by earlier checks, and when the last one could compare."""
        known = self._find(scope)
        if known is None:
            return NO_CHECK
        with self._database.reading() as connection:
            return read_last_check(connection, known)

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Write down a check that has ended: the run, its events, and the drift that stands by now."""
        scope_id = self._id(run.scope)
        with self._database.writing() as connection:
            DriftChecks(self._database, self._texts, connection, scope_id).write(run, ended, check)

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Write down that drifts which stand were reported."""
        scope_id = self._id(scope)
        with self._database.writing() as connection:
            DriftChecks(self._database, self._texts, connection, scope_id).mark_reported(drift, at_s)

    def accept(
        self, run: Run, ended: RunEnd, drift: Collection[DriftId], acceptance: Acceptance | None
    ) -> int:
        """Write down that drifts which stand are known, or with None that they are not; return how many."""
        scope_id = self._id(run.scope)
        with self._database.writing() as connection:
            return DriftChecks(self._database, self._texts, connection, scope_id).accept(
                run, ended, drift, acceptance
            )

    def runs(self, scope: Scope, *, key: str | None = None, limit: int | None = None) -> Sequence[PastRun]:
        """The runs of a scope, newest first; with `key` those that did something about it, and only that."""
        with self._database.reading() as connection:
            return read_runs(self._database, connection, scope, key, limit)

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key, by key; failed calls aside."""
        with self._database.reading() as connection:
            return read_last_changes(connection, scope)

    def revisions(self, scope: Scope, key: str) -> Sequence[PastRevision]:
        """The revisions of one key, oldest first."""
        return self._history.revisions(scope, key)

    def prunable(self, scope: Scope, before_s: float) -> Prunable:
        """Count what `prune` would delete."""
        known = self._find(scope)
        if known is None:
            return Prunable(runs=0, revisions=0)
        is_old = _is_old(known, before_s)
        with self._database.reading() as connection:
            runs = connection.execute(select(func.count()).select_from(RUNS).where(is_old)).scalar_one()
            return Prunable(runs=runs, revisions=len(old_revisions(connection, known, before_s)))

    def prune(self, scope: Scope, before_s: float) -> int:
        """Delete runs that ended before a time, and old revisions; return how many runs.

        A run that died ended when it gave its last sign of life.
        """
        known = self._find(scope)
        if known is None:
            return 0
        is_old = _is_old(known, before_s)
        with self._database.writing() as connection:
            gone = connection.execute(delete(RUNS).where(is_old)).rowcount
            self._history.prune(connection, known, before_s)
            forget_keys(connection, known)
        return gone

    def check(self) -> None:
        """Read the whole store."""
        with self._database.reading() as connection:
            check_everything(self._database.dialect, connection)

    def close(self) -> None:
        """Let go of what is held."""
        for lock in self._scope_locks:
            lock.release()
        for liveness in self._alive:
            liveness.end()
        self._database.close()

    def _find(self, scope: Scope) -> int | None:
        if scope not in self._scope_ids:
            # Asked before the rows are: who takes the lock for the first time has written down the scope.
            was_held = self._locks.was_held(scope)
            with self._database.reading() as connection:
                found = connection.execute(select(SCOPES.c.id).where(is_scope(scope))).scalar()
                if found is None and was_held:
                    raise damaged(
                        f"it contains nothing of stack {scope.stack}, although its lock was held here"
                    )
            if found is None:
                return None
            self._scope_ids[scope] = found
        return self._scope_ids[scope]

    def _id(self, scope: Scope) -> int:
        """The number of a scope, which is written down if it is new."""
        found = self._find(scope)
        if found is None:
            values = {n: getattr(scope, n) for n in ("stack", "host", "project_id", "workspace_id")}
            # Inline: where somebody else was first SQLite has no number of a new row to tell.
            insertion = self._database.dialect.insert_missing(SCOPES).values(values).inline()
            with self._database.writing() as connection:
                connection.execute(insertion)
            found = self._find(scope)
            assert found is not None
        return found


def _is_old(scope_id: int, before_s: float) -> ColumnElement[bool]:
    ended = func.coalesce(RUNS.c.ended_at_s, RUNS.c.alive_until_s, RUNS.c.at_s)
    return (RUNS.c.scope_id == scope_id) & (ended < before_s)


def open_store(
    url: str, *, clock: HasNow, redact: Callable[[str], str], create: bool
) -> StoredRecords | None:
    """What `reconciler.records.open_records` does."""
    dialect = dialect_of(url)
    if not dialect.has_store():
        if not create:
            return None
        try:
            dialect.make_store()
        except OSError as error:
            raise unavailable(error, dialect, redact) from None
    database = Database(dialect, clock, redact)
    try:
        if database.prepare(create=create):
            return StoredRecords(database, redact)
    except BaseException:
        database.close()
        raise
    database.close()
    return None
