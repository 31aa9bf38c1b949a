"""The SQLite file of a store: tables, transactions and the shared clock; and a clock for tests.

One connection serves all threads of a process, one at a time; several processes may open the same file.
Writes begin with BEGIN IMMEDIATE, so that nothing changes what they read. Times are milliseconds since 1970.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Any call of a store may raise it: the file is locked, read-only or broken, or the disk is full.
StoreError = sqlite3.Error

# Large texts come last, so that a filter can be checked without reading them.
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL, workspace_id TEXT NOT NULL, name_key TEXT NOT NULL, name TEXT NOT NULL,
    kind TEXT NOT NULL, create_ms INTEGER NOT NULL, delete_ms INTEGER,
    phase TEXT NOT NULL, secondary TEXT NOT NULL, next_ms INTEGER,
    started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, held_ms INTEGER NOT NULL,
    node_count INTEGER NOT NULL, fine_tuned INTEGER NOT NULL, user_id TEXT NOT NULL, user_name TEXT NOT NULL,
    algorithm_id TEXT NOT NULL, algorithm_name TEXT NOT NULL, runtime_type TEXT NOT NULL,
    pool_id TEXT NOT NULL, experiment_id TEXT NOT NULL, priority TEXT NOT NULL,
    reserved_hours INTEGER NOT NULL, noisy INTEGER NOT NULL, steps TEXT NOT NULL, past TEXT NOT NULL,
    head TEXT NOT NULL, tail TEXT NOT NULL, body TEXT NOT NULL,
    UNIQUE (project, workspace_id, name_key)
)""",
    "CREATE INDEX IF NOT EXISTS jobs_by_time ON jobs (project, workspace_id)",
    "CREATE INDEX IF NOT EXISTS jobs_by_phase ON jobs (project, workspace_id, phase)",
    "CREATE INDEX IF NOT EXISTS jobs_due ON jobs (next_ms) WHERE next_ms IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS jobs_leaving ON jobs (delete_ms) WHERE delete_ms IS NOT NULL",
    """
CREATE TABLE IF NOT EXISTS tags (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (job_id, key)
) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1), wall_ms INTEGER NOT NULL, emulated_ms INTEGER NOT NULL,
    speed REAL NOT NULL, reached_ms INTEGER NOT NULL
)""",
)

# Indexes, so that the cost of a call does not grow with the number of jobs. `name_ends` holds every suffix of
# each name: a text is contained in the names of which it begins a suffix. `counts` holds the number of jobs.
# Triggers maintain both, so that no statement about jobs can forget them.
_INDEXES = (
    "CREATE INDEX jobs_by_create ON jobs (project, workspace_id, create_ms)",
    "CREATE INDEX jobs_by_experiment ON jobs (project, experiment_id) WHERE experiment_id != ''",
    "CREATE INDEX tags_by_key ON tags (key, value)",
    """
CREATE TABLE counts (
    project TEXT NOT NULL, workspace_id TEXT NOT NULL, phase TEXT NOT NULL, jobs INTEGER NOT NULL,
    PRIMARY KEY (project, workspace_id, phase)
) WITHOUT ROWID""",
    "INSERT INTO counts SELECT project, workspace_id, phase, count(*) FROM jobs GROUP BY 1, 2, 3",
    "CREATE TABLE letters (place INTEGER PRIMARY KEY)",
    """
WITH RECURSIVE counting (place) AS (SELECT 1 UNION ALL SELECT place + 1 FROM counting WHERE place < 64)
INSERT INTO letters SELECT place FROM counting""",
    """
CREATE TABLE name_ends (
    ending TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (ending, seq)
) WITHOUT ROWID""",
    """
INSERT INTO name_ends
    SELECT substr(name_key, place), seq FROM jobs JOIN letters ON place <= length(name_key)""",
    """
CREATE TRIGGER job_moved AFTER UPDATE OF phase ON jobs WHEN new.phase != old.phase BEGIN
    UPDATE counts SET jobs = jobs - 1
        WHERE project = old.project AND workspace_id = old.workspace_id AND phase = old.phase;
    INSERT OR IGNORE INTO counts VALUES (new.project, new.workspace_id, new.phase, 0);
    UPDATE counts SET jobs = jobs + 1
        WHERE project = new.project AND workspace_id = new.workspace_id AND phase = new.phase;
END""",
    """
CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN
    UPDATE counts SET jobs = jobs - 1
        WHERE project = old.project AND workspace_id = old.workspace_id AND phase = old.phase;
    DELETE FROM name_ends WHERE seq = old.seq AND ending IN (
        SELECT substr(old.name_key, place) FROM letters WHERE place <= length(old.name_key));
END""",
)

# Names are put into `name_ends` many at once, since the suffixes of each lie far apart: until then they are
# in `new_names`, which is short.
_NEW_NAMES = (
    "CREATE TABLE new_names (seq INTEGER PRIMARY KEY, name_key TEXT NOT NULL)",
    "DROP TRIGGER IF EXISTS job_added",  # a former version of it
    """
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
    INSERT OR IGNORE INTO counts VALUES (new.project, new.workspace_id, new.phase, 0);
    UPDATE counts SET jobs = jobs + 1
        WHERE project = new.project AND workspace_id = new.workspace_id AND phase = new.phase;
    INSERT INTO new_names VALUES (new.seq, new.name_key);
END""",
    """
CREATE TRIGGER name_added AFTER INSERT ON new_names WHEN new.seq % 64 = 0 BEGIN
    INSERT INTO name_ends
        SELECT substr(name_key, place), seq FROM new_names JOIN letters ON place <= length(name_key)
        ORDER BY 1;
    DELETE FROM new_names;
END""",
    """
CREATE TRIGGER new_job_removed AFTER DELETE ON jobs BEGIN
    DELETE FROM new_names WHERE seq = old.seq;
END""",
)

_VERSIONS = (_TABLES, _INDEXES, _NEW_NAMES)
"""The statements of each version of the file; `user_version` is the number of those that were run."""


class JobDatabase:
    """An open SQLite file, or a database in memory."""

    def __init__(self, path: str | Path = ":memory:") -> None:
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        try:
            self._connection.execute("PRAGMA foreign_keys = ON")
            # A machine that loses its power may lose the last jobs; they were pretended anyway.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            # The indexes of many jobs stay in memory (KB), and are written back in lots (pages).
            self._connection.execute("PRAGMA cache_size = -16000")
            self._connection.execute("PRAGMA wal_autocheckpoint = 4000")
            if self._version < len(_VERSIONS):
                # Two processes that make the same file at once cannot both switch it to the faster journal;
                # the one that is refused may use it all the same.
                with suppress(sqlite3.OperationalError):
                    self._connection.execute("PRAGMA journal_mode = WAL")
                with self.transaction(write=True):
                    # Read again: another process may have done it meanwhile.
                    for version, statements in enumerate(_VERSIONS[self._version :], self._version + 1):
                        for statement in (*statements, f"PRAGMA user_version = {version}"):
                            self.run(statement)
        except BaseException:
            self._connection.close()
            raise

    @property
    def _version(self) -> int:
        return int(self.one("PRAGMA user_version")[0])

    def run(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> int:
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        with self._lock:
            return self._connection.execute(sql, values).fetchone()

    def all(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[None]:
        """Run the block as one transaction; inside another it joins that one."""
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
        with self._lock:
            self._connection.close()


class EmulatorClock(ABC):
    """Where a store asks for the time; `advance` moves the time forward at once."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the emulated time."""

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let emulated time pass without waiting for it.

        Raises:
            ValueError: the span is negative or not a number; emulated time never runs backwards.
        """
        total = hours * 3_600_000 + minutes * 60_000 + seconds * 1000
        if not 0 <= total < 1e14:
            raise ValueError(f"time can be advanced by zero or more, not by {total} ms")
        self._advance(round(total))

    @abstractmethod
    def _advance(self, span_ms: int) -> None: ...


class ManualClock(EmulatorClock):
    """A clock that is advanced by hand, for tests."""

    def __init__(self, start_ms: int = 1_786_000_000_000) -> None:
        self._now_ms = start_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now_ms

    def _advance(self, span_ms: int) -> None:
        with self._lock:
            self._now_ms += span_ms


class SharedClock(EmulatorClock):
    """The clock of all processes that share a file: real time, `speed` times as fast.

    It runs on while the file is closed, does not jump if the speed changes, and never goes back.
    """

    def __init__(self, database: JobDatabase, speed: float | None = None) -> None:
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

    def _advance(self, span_ms: int) -> None:
        with self._database.transaction(write=True):
            self._rebase(self.now_ms() + span_ms, None)

    def record_reached(self, now_ms: int) -> None:
        """Remember that this time has been; called inside a write."""
        self._database.run("UPDATE clock SET reached_ms = max(reached_ms, ?)", (now_ms,))

    def _rebase(self, emulated_ms: int, speed: float | None) -> None:
        self._database.run(
            "UPDATE clock SET wall_ms = ?, emulated_ms = ?, reached_ms = ?, speed = coalesce(?, speed)",
            (wall_ms(), emulated_ms, emulated_ms, speed),
        )


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
