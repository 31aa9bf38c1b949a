"""The lock of a scope: a row with a random token and a lease, kept alive by a heartbeat."""

from __future__ import annotations

import _thread
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, select, update

from reconciler.core.record import Holder, LockHeld, LockLost, RecordsUnavailable, Scope
from reconciler.core.values import timestamp
from reconciler.errors import Diagnostic
from reconciler.records.database import Database
from reconciler.records.locks.process_lock import ProcessLock
from reconciler.records.schema import LOCKS
from reconciler.records.serialization import Texts
from reconciler.text import printable

_FREE: dict[str, Any] = {"token": "", "lifeline": ""}


class Locks:
    """The locks of a store: looking at them, breaking them."""

    def __init__(self, database: Database, texts: Texts) -> None:
        self._database, self._texts = database, texts

    def lease(self, scope: Scope, scope_id: int, holder: Holder, lease_s: float) -> Lease:
        """A lease that is not taken yet."""
        said = {name: self._texts.text(getattr(holder, name)) for name in ("who", "where", "command")}
        row = {"who": said["who"], "place": said["where"], "command": said["command"]}
        return Lease(self._database, scope, scope_id, row, lease_s)

    def was_held(self, scope: Scope) -> bool:
        """Whether the lock of a scope was ever held from this machine, as far as that leaves a trace."""
        return self._database.dialect.process_locks.was_held(scope)

    def holder(self, scope: Scope, scope_id: int) -> Holder | None:
        """Who holds the lock; None if nobody does, or the holder is known to be dead."""
        with self._database.reading() as connection:
            row = _read(self._database, connection, scope_id)
        if row is None or not _is_taken(row) or self._is_dead(row, scope, scope_id):
            return None
        return _holder(row)

    def _is_dead(self, row: Row[Any], scope: Scope, scope_id: int) -> bool:
        if not row.lifeline:
            return False
        # A taker of the lock tries the same file, inside the same kind of transaction: not at the same time.
        with suppress(RecordsUnavailable), self._database.writing():
            return _proves_death(row, self._database.dialect.process_locks.seize_lock(scope))
        return False

    def break_lock(self, scope: Scope, scope_id: int, seen: Holder | None) -> Holder | None:
        """Take the lock away from whoever holds it, or from `seen` only."""
        found = self.holder(scope, scope_id)
        with self._database.writing() as connection:
            row = _read(self._database, connection, scope_id, hold_still=True)
            if seen is not None and row is not None and row.token != seen.hold:
                return None
            connection.execute(update(LOCKS).where(LOCKS.c.scope_id == scope_id).values(_FREE))
        if row is None or not _is_taken(row):
            return None
        return found and _holder(row)


class Lease:
    """Our hold on the lock of one scope, from taking it to letting it go."""

    def __init__(
        self, database: Database, scope: Scope, scope_id: int, row: dict[str, str], lease_s: float
    ) -> None:
        self.scope, self.lease_s = scope, lease_s
        self._database, self._scope_id, self._row = database, scope_id, row
        self._token = secrets.token_hex(16)
        self._ours = (LOCKS.c.scope_id == scope_id) & (LOCKS.c.token == self._token)
        self._process_lock: ProcessLock | None = None
        self._may_be_ours = False
        self.is_lost = False
        #: By our own clock; later than that nobody who asks may find it ours.
        self.good_until_s = 0.0

    def take(self) -> None:
        """Take the lock if it is free, if its lease ran out, or if its holder is known to be dead.

        Raises:
            LockHeld: another process holds it.
        """
        database, begun_s = self._database, self._database.clock.now()
        try:
            with database.writing() as connection:
                connection.execute(database.dialect.insert_missing(LOCKS).values(scope_id=self._scope_id))
                row = _read(database, connection, self._scope_id, hold_still=True)
                assert row is not None
                self._process_lock = database.dialect.process_locks.seize_lock(self.scope)
                if _is_taken(row) and not _is_of_the_dead(row, self._process_lock):
                    raise _held(self.scope, row)
                values = {
                    **self._row,
                    "token": self._token,
                    "since_s": row.now_s,
                    "expires_s": row.now_s + self.lease_s,
                    "lifeline": self._process_lock.name if self._process_lock else "",
                }
                # From here on it may be ours: of a commit that is made we may never hear.
                self._may_be_ours = True
                connection.execute(update(LOCKS).where(LOCKS.c.scope_id == self._scope_id).values(values))
        except BaseException:
            self._let_go()
            raise
        self.good_until_s = begun_s + self.lease_s

    def renew(self) -> None:
        """Lengthen the lease, if it has not run out.

        Raises:
            LockLost: it ran out, or somebody broke the lock.
        """
        begun_s, now = self._database.clock.now(), self._database.now()
        lengthen = (
            update(LOCKS).where(self._ours, LOCKS.c.expires_s > now).values(expires_s=now + self.lease_s)
        )
        with self._database.writing() as connection:
            renewed = connection.execute(lengthen).rowcount
        if not renewed:
            self.is_lost = True
            raise self.lost()
        self.good_until_s = begun_s + self.lease_s

    def is_held(self, connection: Connection) -> bool:
        """Whether the lock is ours, and stays ours until the transaction ends."""
        if self.is_lost:
            return False
        look = select(LOCKS.c.scope_id).where(self._ours, LOCKS.c.expires_s > self._database.now())
        # FOR SHARE: who wants to take or break the lock waits for the end of this transaction.
        self.is_lost = connection.execute(look.with_for_update(read=True)).first() is None
        return not self.is_lost

    def release(self) -> None:
        """Let the lock go, if it may be ours; doing so twice is no harm.

        A store that is unavailable ends it by the lease.
        """
        # The process lock first: nobody is to find the lock free, and its process lock held.
        self._let_go()
        if self._may_be_ours:
            with suppress(RecordsUnavailable), self._database.writing() as connection:
                connection.execute(update(LOCKS).where(self._ours).values(_FREE))
            self._may_be_ours = False

    def _let_go(self) -> None:
        if self._process_lock is not None:
            self._process_lock.let_go()
            self._process_lock = None

    def lost(self) -> LockLost:
        """Say that it is not ours any more."""
        why = f"stack {self.scope.stack}: its lease of {self.lease_s:g} s expired, or it was broken"
        return LockLost(Diagnostic("the lock was lost", why, "check who else is applying, then run it again"))


class Heartbeat:
    """Renews a lease every third of its length, from a thread of its own."""

    def __init__(self, lease: Lease, clock_now: Callable[[], float], on_lost: Callable[[], None]) -> None:
        self._lease, self._now, self._on_lost = lease, clock_now, on_lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler-lease", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        wait_s: float | None = self._lease.lease_s / 3
        while wait_s is not None and not self._stop.wait(wait_s):
            wait_s = self.beat()

    def beat(self) -> float | None:
        """Renew once; return the seconds until the next time, None if the lock was lost."""
        try:
            self._lease.renew()
        except LockLost:
            pass
        except Exception:  # whatever kept us from renewing, the lease goes on running out
            if self._now() < self._lease.good_until_s:
                return self._lease.lease_s / 10
        else:
            return self._lease.lease_s / 3
        self._lease.is_lost = True
        if not self._stop.is_set():
            self._on_lost()
        return None


class StoredLock:
    """The lock of a scope, with its heartbeat, as somebody takes it and lets it go.

    `held` are the leases that this process holds. A signal cuts neither short; letting go is right however
    far taking it came. Closing the store does it, too, if a signal came before it was begun.
    """

    def __init__(
        self,
        lease: Lease,
        held: dict[Scope, Lease],
        clock_now: Callable[[], float],
        on_lost: Callable[[], None],
    ) -> None:
        self._lease, self._held, self._heartbeat = lease, held, Heartbeat(lease, clock_now, on_lost)
        self._taking, self._releasing = _Uninterrupted(self._take), _Uninterrupted(self._release)

    def take(self) -> None:
        """Take it, and keep its lease alive.

        Raises:
            LockHeld: another process holds it.
        """
        self._taking.finish()

    def release(self) -> None:
        """Let it go, if it was taken; doing so twice is no harm."""
        if self._taking.has_begun():
            self._releasing.finish()

    def _take(self) -> None:
        self._lease.take()
        self._held[self._lease.scope] = self._lease
        self._heartbeat.start()

    def _release(self) -> None:
        self._heartbeat.stop()
        if self._held.get(self._lease.scope) is self._lease:
            del self._held[self._lease.scope]
        self._lease.release()

    def __enter__(self) -> None:
        try:
            self.take()
        except BaseException:
            self.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.release()


class _Uninterrupted:
    """What is done once, and not cut short by a signal: those are raised in the main thread only."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do
        self._future: Future[None] | None = None

    def finish(self) -> None:
        """Do it, or wait until it is done; what it raises is raised."""
        # One whose thread was never started is cancelled, and begun anew.
        if self._future is None or self._future.cancel():
            self._future = Future()
            _thread.start_new_thread(_carry_out, (self._future, self._do))
        self._future.result()

    def has_begun(self) -> bool:
        """Whether it was done, now that it has ended; if it was not begun, it never is."""
        if self._future is None or self._future.cancel():
            return False
        self._future.exception()
        return True


def _carry_out(future: Future[None], do: Callable[[], None]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            do()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)


def _read(
    database: Database, connection: Connection, scope_id: int, *, hold_still: bool = False
) -> Row[Any] | None:
    look = select(LOCKS, database.now().label("now_s")).where(LOCKS.c.scope_id == scope_id)
    return connection.execute(look.with_for_update() if hold_still else look).first()


def _is_taken(row: Row[Any]) -> bool:
    return bool(row.token) and row.expires_s > row.now_s


def _is_of_the_dead(row: Row[Any], process_lock: ProcessLock | None) -> bool:
    """Whether the process lock that we got hold of is the one that the holder kept."""
    return process_lock is not None and row.lifeline == process_lock.name


def _proves_death(row: Row[Any], process_lock: ProcessLock | None) -> bool:
    try:
        return _is_of_the_dead(row, process_lock)
    finally:
        if process_lock is not None:
            process_lock.let_go()


def _holder(row: Row[Any]) -> Holder:
    return Holder(row.who, row.place, row.command, row.since_s, row.expires_s, row.token)


def _held(scope: Scope, row: Row[Any]) -> LockHeld:
    left_s = max(1, round(row.expires_s - row.now_s))
    who, where, command = (printable(text) for text in (row.who, row.place, row.command))
    why = (
        f"stack {scope.stack}: held by {who} on {where} since {timestamp(row.since_s)}, for {command}; "
        f"it expires in {left_s} s unless renewed"
    )
    fix = "wait until it is released; if its process is gone: reconciler unlock"
    return LockHeld(Diagnostic("another process holds the lock", why, fix))
