"""Whether a run goes on: a time that its process renews, and a file that the kernel unlocks at its end.

A run may let the lock of its scope go while it waits, so the lock tells nothing of it. The file proves at
once that a process of this machine has died; elsewhere the time does, when nobody has renewed it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, select, update

from reconciler.core.record import LEASE_S, RecordsUnavailable
from reconciler.records.database import Database
from reconciler.records.locks.process_lock import ProcessLock
from reconciler.records.schema import RUNS


class Liveness:
    """The signs of life of one run of this process, until it ends."""

    def __init__(self, database: Database, run_id: int) -> None:
        self._database, self._run_id = database, run_id
        self._process_lock: ProcessLock | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="reconciler-run", daemon=True)

    def begin(self, connection: Connection) -> None:
        """Give the first sign, in the transaction that writes the run down."""
        self._process_lock = self._database.dialect.process_locks.seize_run(self._run_id)
        name = self._process_lock.name if self._process_lock else ""
        connection.execute(self._renewal().values(lifeline=name))

    def go_on(self) -> None:
        """Give further signs from now on."""
        self._thread.start()

    def end(self) -> None:
        """The run has an end, or its store is closed: give no further sign."""
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        if self._process_lock is not None:
            self._database.dialect.process_locks.end_run(self._run_id)
            self._process_lock.let_go()
            self._process_lock = None

    def _renewal(self) -> Any:
        until_s = self._database.now() + LEASE_S
        return update(RUNS).where(RUNS.c.id == self._run_id).values(alive_until_s=until_s)

    def _beat(self) -> None:
        while not self._stop.wait(LEASE_S / 3):
            # A store that is unavailable for a while does no harm: only history rests on this.
            with suppress(RecordsUnavailable), self._database.writing() as connection:
                connection.execute(self._renewal())


def running_runs(database: Database, connection: Connection, rows: list[Row[Any]]) -> set[int]:
    """Of runs without an end, as rows of RUNS, the ids of those that go on."""
    if not rows:
        return set()
    now_s = connection.execute(select(database.now())).scalar_one()
    is_dead = database.dialect.process_locks.is_run_dead
    return {
        row.id for row in rows if (row.alive_until_s or 0.0) > now_s and not is_dead(row.id, row.lifeline)
    }
