"""The lock of a scope: a row with a random token and a lease.

In a SQLite store it also has a process lock, by which a dead holder is detected at once.

Source: docs/concepts/crash-safety.md, "Apply"; docs/operations/records.md, "The lock".
"""

from __future__ import annotations

import _thread
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from reconciler.core.past import Holder
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.values import timestamp
from reconciler.errors import Diagnostic, LockHeld, LockLost
from reconciler.records.database import Database, HasNow
from reconciler.records.dialects import Dialect, Transaction
from reconciler.records.file import ProcessLock, seize
from reconciler.text import printable

_FREE = "UPDATE reconciler_locks SET token = '', lifeline = '' WHERE scope_id = :scope_id"
_TAKE = (
    "UPDATE reconciler_locks SET token = :token, who = :who, place = :place, command = :command,"
    " since_s = :since_s, expires_s = :expires_s, lifeline = :lifeline WHERE scope_id = :scope_id"
)
_IS_OURS = "scope_id = :scope_id AND token = :token AND expires_s > clock_s()"


class _LockRow(NamedTuple):
    """The row of a lock, with the current time."""

    token: str
    who: str
    place: str
    command: str
    since_s: float
    expires_s: float
    lifeline: str
    now_s: float


class ScopeLock:
    """The lock of a scope, for a single use. As a context manager it is held in the block.

    It is taken, renewed and released on a thread of its own, which signals cannot interrupt. It may be
    released at any time, even if taking it failed; closing the store also releases it.
    """

    def __init__(
        self, store: Locks, scope: Scope, holder: Holder, lease_s: float, on_lost: Callable[[], None]
    ) -> None:
        self._store, self._scope, self._lease_s, self._on_lost = store, scope, lease_s, on_lost
        self._scope_id = store.scope_id(scope)
        names = {"who": holder.who, "place": holder.where, "command": holder.command}
        self._row = {name: store.text(value) for name, value in names.items()}
        self._token = secrets.token_hex(16)
        self._ours = {"scope_id": self._scope_id, "token": self._token}
        self._process_lock: ProcessLock | None = None
        self._may_be_ours = self._is_lost = self._is_started = False
        #: End of the lease by our own clock.
        self._good_until_s = 0.0
        self._begun, self._ended = Future[None](), Future[None]()
        #: Any item requests the release. Unlike an Event, it is safe in signal handlers.
        self._orders: SimpleQueue[None] = SimpleQueue()

    def take(self) -> None:
        """Take the lock, and keep its lease alive.

        Raises:
            LockHeld: another process holds it; the message names the holder.
        """
        _thread.start_new_thread(self._live, ())
        self._is_started = True
        self._begun.result()

    def release(self) -> None:
        """Release it. Idempotent."""
        self._orders.put(None)
        if self._is_started:
            self._ended.result()

    def _live(self) -> None:
        wait_s: float | None = self._lease_s / 3
        try:
            self._take()
        except BaseException as error:
            self._end()
            self._begun.set_exception(error)
            return
        self._begun.set_result(None)
        while True:
            try:
                self._orders.get(timeout=wait_s)
                break
            except Empty:
                wait_s = self._beat()
        self._end()

    def _end(self) -> None:
        try:
            self._release()
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def __enter__(self) -> None:
        try:
            self.take()
        except BaseException:
            self.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.release()

    def is_held(self, transaction: Transaction) -> bool:
        """Whether the lock is ours, and stays ours until the transaction ends."""
        if self._is_lost:
            return False
        # FOR SHARE makes others who want to take or break the lock wait for the end of this transaction.
        look = f"SELECT scope_id FROM reconciler_locks WHERE {_IS_OURS} FOR SHARE"
        clock_s = self._store.clock.now()
        self._is_lost = transaction.row(look, clock_s=clock_s, **self._ours) is None
        return not self._is_lost

    def lost(self) -> LockLost:
        why = f"stack {self._scope.stack}: its lease of {self._lease_s:g} s expired, or it was broken"
        return LockLost(Diagnostic("the lock was lost", why, "check who else is applying, then run it again"))

    def _take(self) -> None:
        """Take the lock if it is free, its lease has expired, or its holder is known to be dead."""
        store, begun_s = self._store, self._store.clock.now()
        try:
            with store.writing() as transaction:
                of_scope = {"scope_id": self._scope_id}
                transaction.insert("reconciler_locks", [of_scope], "ON CONFLICT DO NOTHING")
                row = store.lock_row(transaction, self._scope_id, hold_still=True)
                assert row is not None
                self._process_lock = seize(store.process_locks.of_scope(self._scope))
                if _is_taken(row) and not _proves_death(row, self._process_lock):
                    who, where, command = map(printable, (row.who, row.place, row.command))
                    why = (
                        f"stack {self._scope.stack}: held by {who} on {where} since {timestamp(row.since_s)},"
                        f" for {command}; it expires in {max(1, round(row.expires_s - row.now_s))} s unless"
                        " renewed"
                    )
                    fix = "wait until it is released; if its process is gone: reconciler unlock"
                    raise LockHeld(Diagnostic("another process holds the lock", why, fix))
                values = {
                    **self._row,
                    **self._ours,
                    "since_s": row.now_s,
                    "expires_s": row.now_s + self._lease_s,
                    "lifeline": self._process_lock.name if self._process_lock else "",
                }
                # From here on it may be ours: the response to the commit may get lost.
                self._may_be_ours = True
                transaction.execute(_TAKE, **values)
        except BaseException:
            self._release_process_lock()
            raise
        self._good_until_s = begun_s + self._lease_s
        store.held[self._scope] = self

    def _renew(self) -> None:
        """Renew the lease. Raises `LockLost` if it has expired, or the lock was broken."""
        begun_s = self._store.clock.now()
        lengthen = f"UPDATE reconciler_locks SET expires_s = clock_s() + :lease_s WHERE {_IS_OURS}"
        with self._store.writing() as transaction:
            values = {"clock_s": begun_s, "lease_s": self._lease_s, **self._ours}
            if not transaction.execute(lengthen, **values).rowcount:
                self._is_lost = True
                raise self.lost()
        self._good_until_s = begun_s + self._lease_s

    def _beat(self) -> float | None:
        """Renew once. Returns the seconds until the next renewal, None if the lock was lost."""
        try:
            self._renew()
            return self._lease_s / 3
        except LockLost:
            pass
        except Exception:  # whatever the cause, the lease expires if it is not renewed
            if self._store.clock.now() < self._good_until_s:
                return self._lease_s / 10
        self._is_lost = True
        if self._orders.empty():
            self._on_lost()
        return None

    def _release(self) -> None:
        """Clear the row, if it may be ours. If the store is unavailable, the lease expires."""
        if self._store.held.get(self._scope) is self:
            del self._store.held[self._scope]
        # The process lock first, so that a free lock never has a held process lock.
        self._release_process_lock()
        if self._may_be_ours:
            with suppress(RecordsUnavailable), self._store.writing() as transaction:
                transaction.execute(f"{_FREE} AND token = :token", **self._ours)
            self._may_be_ours = False

    def _release_process_lock(self) -> None:
        if self._process_lock is not None:
            self._process_lock.release()
            self._process_lock = None


class Locks(Database):
    """The locks in a store."""

    def __init__(self, dialect: Dialect, clock: HasNow, redact: Callable[[str], str]) -> None:
        super().__init__(dialect, clock, redact)
        #: The locks held by this process.
        self.held: dict[Scope, ScopeLock] = {}
        self._locks: list[ScopeLock] = []

    def locked(
        self, scope: Scope, holder: Holder, *, lease_s: float, on_lost: Callable[[], None]
    ) -> ScopeLock:
        """Return the lock of a scope, not taken yet. `on_lost` is called if its lease cannot be renewed.

        The store sets `since_s` and `expires_s` of the holder.
        """
        lock = ScopeLock(self, scope, holder, lease_s, on_lost)
        self._locks.append(lock)
        return lock

    def holder(self, scope: Scope) -> Holder | None:
        """Return the holder of a scope's lock. None if it is free, or the holder is known to be dead."""
        scope_id = self.find_scope(scope)
        if scope_id is None:
            return None
        with self.reading() as transaction:
            row = self.lock_row(transaction, scope_id)
        return None if row is None or not _is_taken(row) or self._is_dead(row, scope) else _holder(row)

    def break_lock(self, scope: Scope, seen: Holder | None = None) -> Holder | None:
        """Break the lock of a scope, and return its holder.

        With `seen`, a result of `holder`, only if that still holds the lock; otherwise None.
        """
        scope_id = self.find_scope(scope)
        if scope_id is None:
            return None
        found = self.holder(scope)
        with self.writing() as transaction:
            row = self.lock_row(transaction, scope_id, hold_still=True)
            if row is None or (seen is not None and row.token != seen.hold):
                return None
            transaction.execute(_FREE, scope_id=scope_id)
        return _holder(row) if found and _is_taken(row) else None

    def lock_row(
        self, transaction: Transaction, scope_id: int, *, hold_still: bool = False
    ) -> _LockRow | None:
        """The row of a lock, with the current time as `now_s`. None if the lock was never taken."""
        fields = ", ".join(_LockRow._fields[:-1])
        look = f"SELECT {fields}, clock_s() AS now_s FROM reconciler_locks WHERE scope_id = :scope_id"
        look += " FOR UPDATE" if hold_still else ""
        row = transaction.row(look, scope_id=scope_id, clock_s=self.clock.now())
        return None if row is None else _LockRow._make(row)

    def _is_dead(self, row: _LockRow, scope: Scope) -> bool:
        if not row.lifeline:
            return False
        # In a write transaction, because whoever takes the lock seizes the same file in one.
        with suppress(RecordsUnavailable), self.writing():
            process_lock = seize(self.process_locks.of_scope(scope))
            try:
                return _proves_death(row, process_lock)
            finally:
                if process_lock is not None:
                    process_lock.release()
        return False

    def close(self) -> None:
        for lock in self._locks:
            lock.release()
        super().close()


def _is_taken(row: _LockRow) -> bool:
    return bool(row.token) and row.expires_s > row.now_s


def _proves_death(row: _LockRow, process_lock: ProcessLock | None) -> bool:
    """Whether the process lock that we could take is the holder's."""
    return process_lock is not None and row.lifeline == process_lock.name


def _holder(row: _LockRow) -> Holder:
    return Holder(row.who, row.place, row.command, row.since_s, row.expires_s, row.token)
