"""The SQLite file behind a store: its tables, its transactions and its shared clock.

One connection serves all threads of a process, one at a time; several processes may open the same
file. A write begins with BEGIN IMMEDIATE, so that what it reads is still so when it writes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reconciler.emulator.clock import milliseconds, wall_ms

#: What any call of a store may raise: its file is locked, read-only, broken, or has no room.
StoreError = sqlite3.Error

# Large texts come last, so that a filter can be checked without reading them.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    name_key TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    create_ms INTEGER NOT NULL,
    delete_ms INTEGER,
    phase TEXT NOT NULL,
    secondary TEXT NOT NULL,
    next_ms INTEGER,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL,
    held_ms INTEGER NOT NULL,
    node_count INTEGER NOT NULL,
    fine_tuned INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    user_name TEXT NOT NULL,
    algorithm_id TEXT NOT NULL,
    algorithm_name TEXT NOT NULL,
    runtime_type TEXT NOT NULL,
    pool_id TEXT NOT NULL,
    experiment_id TEXT NOT NULL,
    priority TEXT NOT NULL,
    reserved_hours INTEGER NOT NULL,
    noisy INTEGER NOT NULL,
    steps TEXT NOT NULL,
    past TEXT NOT NULL,
    head TEXT NOT NULL,
    tail TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (project, workspace_id, name_key)
);
CREATE INDEX IF NOT EXISTS jobs_by_time ON jobs (project, workspace_id);
CREATE INDEX IF NOT EXISTS jobs_by_phase ON jobs (project, workspace_id, phase);
CREATE INDEX IF NOT EXISTS jobs_due ON jobs (next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_leaving ON jobs (delete_ms) WHERE delete_ms IS NOT NULL;
CREATE TABLE IF NOT EXISTS tags (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job_id, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    wall_ms INTEGER NOT NULL,
    emulated_ms INTEGER NOT NULL,
    speed REAL NOT NULL,
    reached_ms INTEGER NOT NULL
);
"""


class Database:
    """An open SQLite file, or a database in memory."""

    def __init__(self, path: str | Path = ":memory:", *, busy_timeout_s: float = 30) -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            path, timeout=busy_timeout_s, check_same_thread=False, isolation_level=None
        )
        self._connection.row_factory = sqlite3.Row
        try:
            self._connection.execute("PRAGMA foreign_keys = ON")
            # A machine that loses its power may lose the last jobs; they were pretended anyway.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        if self.one("PRAGMA user_version")[0] == 1:
            return
        # Two processes that make the same file at once cannot both switch it to the faster journal;
        # the one that is refused may use it all the same.
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = WAL")
        with self.transaction(write=True):
            for statement in _SCHEMA.split(";\n"):
                self.run(statement)
            self.run("PRAGMA user_version = 1")

    def run(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> int:
        """Run one statement; return the number of rows it changed."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        """Return the first row, None if there is none."""
        with self._lock:
            return self._connection.execute(sql, values).fetchone()

    def all(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """Do what is inside as one step, or none of it. A transaction inside another joins it."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        with self._lock:
            self._connection.close()


class SharedClock:
    """The clock of everyone who has the same file open: real time, `speed` times as fast.

    It goes on while nobody has the file open, and it does not jump when the speed changes or the
    machine's own clock is set back.
    """

    def __init__(self, database: Database, speed: float | None = None) -> None:
        if speed is not None and not 0 < speed <= 1e6:
            raise ValueError(f"speed must be above 0 and at most 1,000,000, not {speed}")
        self._database = database
        with database.transaction(write=True):
            now = wall_ms()
            database.run("INSERT OR IGNORE INTO clock VALUES (1, ?, ?, ?, ?)", (now, now, speed or 1.0, now))
            if speed is not None:
                self._rebase(self.now_ms(), speed)

    def now_ms(self) -> int:
        """Return the emulated time; it never goes back."""
        row = self._database.one("SELECT * FROM clock")
        passed = (wall_ms() - row["wall_ms"]) * row["speed"]
        return max(int(row["emulated_ms"] + passed), int(row["reached_ms"]))

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock forward, for every process that shares it."""
        span = milliseconds(hours=hours, minutes=minutes, seconds=seconds)
        with self._database.transaction(write=True):
            self._rebase(self.now_ms() + span, None)

    def reached(self, now_ms: int) -> None:
        """Remember that this time has been; called inside a write."""
        self._database.run("UPDATE clock SET reached_ms = max(reached_ms, ?)", (now_ms,))

    def _rebase(self, emulated_ms: int, speed: float | None) -> None:
        self._database.run(
            "UPDATE clock SET wall_ms = ?, emulated_ms = ?, reached_ms = ?, speed = coalesce(?, speed)",
            (wall_ms(), emulated_ms, emulated_ms, speed),
        )
