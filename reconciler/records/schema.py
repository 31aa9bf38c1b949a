"""The tables (one schema for SQLite and PostgreSQL), migrations, and the types of cells."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from reconciler.core.code import CodeFile
from reconciler.core.identity import ScheduleMark, read_schedule_mark
from reconciler.core.record import Declared

#: The largest integer of PostgreSQL.
LARGEST = 2**31 - 1
#: Upper limit of times and durations.
_LONGEST_S = 1e30


class Damaged(Exception):
    """The database contains what this program cannot have written."""


# --- the tables

#: Lines of columns begin in lower case, other lines do not. Scopes: `applied_from` is the place of the
#: manifest of the last apply, NULL if it is unknown. Locks: the row stays when a lock is released, with an
#: empty token, so that there is always a row to lock. Runs: AUTOINCREMENT, so that numbers are not reused.
#: Keys: every key that was ever applied, with its sweep. Code: referenced by the declarations of revisions.
#: Drift: one row per lasting drift, however many checks saw it.
_SCHEMA = """\
CREATE TABLE reconciler_version (
    version INTEGER NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE reconciler_scopes (
    id INTEGER NOT NULL PRIMARY KEY,
    stack TEXT DEFAULT '' NOT NULL, host TEXT DEFAULT '' NOT NULL,
    project_id TEXT DEFAULT '' NOT NULL, workspace_id TEXT DEFAULT '' NOT NULL,
    compared_at_s DOUBLE PRECISION, applied_from TEXT,
    UNIQUE (stack, host, project_id, workspace_id)
);
CREATE TABLE reconciler_locks (
    scope_id BIGINT NOT NULL,
    token TEXT DEFAULT '' NOT NULL, who TEXT DEFAULT '' NOT NULL, place TEXT DEFAULT '' NOT NULL,
    command TEXT DEFAULT '' NOT NULL, since_s DOUBLE PRECISION DEFAULT '0' NOT NULL,
    expires_s DOUBLE PRECISION DEFAULT '0' NOT NULL, lifeline TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (scope_id),
    FOREIGN KEY (scope_id) REFERENCES reconciler_scopes (id)
);
CREATE TABLE reconciler_runs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, scope_id BIGINT NOT NULL,
    kind TEXT DEFAULT '' NOT NULL, who TEXT DEFAULT '' NOT NULL, place TEXT DEFAULT '' NOT NULL,
    command TEXT DEFAULT '' NOT NULL, plan_digest TEXT DEFAULT '' NOT NULL,
    at_s DOUBLE PRECISION NOT NULL, ended_at_s DOUBLE PRECISION,
    result TEXT DEFAULT '' NOT NULL, summary TEXT DEFAULT '' NOT NULL,
    FOREIGN KEY (scope_id) REFERENCES reconciler_scopes (id)
);
CREATE INDEX reconciler_runs_of_a_scope ON reconciler_runs (scope_id, at_s);
CREATE TABLE reconciler_lines (
    run_id BIGINT NOT NULL, line INTEGER NOT NULL,
    key TEXT DEFAULT '' NOT NULL, number INTEGER, digest TEXT DEFAULT '' NOT NULL,
    action TEXT DEFAULT '' NOT NULL, call TEXT DEFAULT '' NOT NULL, name TEXT DEFAULT '' NOT NULL, job TEXT,
    at_s DOUBLE PRECISION NOT NULL, ended_at_s DOUBLE PRECISION, ok BOOLEAN, is_certain BOOLEAN,
    code TEXT DEFAULT '' NOT NULL, message TEXT DEFAULT '' NOT NULL, request_id TEXT DEFAULT '' NOT NULL,
    declared TEXT,
    PRIMARY KEY (run_id, line),
    FOREIGN KEY (run_id) REFERENCES reconciler_runs (id) ON DELETE CASCADE
);
CREATE INDEX reconciler_lines_of_a_revision ON reconciler_lines (key, number);
CREATE TABLE reconciler_outcomes (
    run_id BIGINT NOT NULL, position INTEGER NOT NULL,
    key TEXT DEFAULT '' NOT NULL, action TEXT DEFAULT '' NOT NULL, reason TEXT DEFAULT '' NOT NULL,
    status TEXT DEFAULT '' NOT NULL, detail TEXT DEFAULT '' NOT NULL, job TEXT, code TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (run_id, position),
    FOREIGN KEY (run_id) REFERENCES reconciler_runs (id) ON DELETE CASCADE
);
CREATE INDEX reconciler_outcomes_of_a_key ON reconciler_outcomes (key);
CREATE TABLE reconciler_revisions (
    scope_id BIGINT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL,
    name TEXT DEFAULT '' NOT NULL, job TEXT DEFAULT '' NOT NULL, digest TEXT DEFAULT '' NOT NULL,
    phase TEXT DEFAULT '' NOT NULL, created_at_s DOUBLE PRECISION, started_at_s DOUBLE PRECISION,
    duration_s DOUBLE PRECISION, node_count INTEGER DEFAULT '1' NOT NULL, seen_at_s DOUBLE PRECISION,
    phases TEXT DEFAULT '' NOT NULL, declared TEXT, stopped BOOLEAN DEFAULT FALSE NOT NULL,
    released_at_s DOUBLE PRECISION, schedule TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (scope_id, key, number),
    FOREIGN KEY (scope_id) REFERENCES reconciler_scopes (id)
);
CREATE INDEX reconciler_revisions_by_digest ON reconciler_revisions (digest);
CREATE TABLE reconciler_keys (
    scope_id BIGINT NOT NULL, key TEXT NOT NULL, sweep TEXT DEFAULT '' NOT NULL, is_declared BOOLEAN NOT NULL,
    PRIMARY KEY (scope_id, key),
    FOREIGN KEY (scope_id) REFERENCES reconciler_scopes (id)
);
CREATE TABLE reconciler_code (
    digest TEXT NOT NULL, content TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (digest)
);
CREATE TABLE reconciler_drift (
    scope_id BIGINT NOT NULL, key TEXT NOT NULL, class TEXT NOT NULL, job TEXT NOT NULL,
    entry TEXT DEFAULT '' NOT NULL, content TEXT DEFAULT '' NOT NULL,
    since_s DOUBLE PRECISION NOT NULL, reported_at_s DOUBLE PRECISION,
    is_hidden BOOLEAN DEFAULT FALSE NOT NULL, delivered TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (scope_id, key, class, job),
    FOREIGN KEY (scope_id) REFERENCES reconciler_scopes (id)
)"""
SCHEMA = _SCHEMA.split(";\n")


def _columns(statement: str) -> tuple[str, ...]:
    lines = (line.strip() for line in statement.splitlines()[1:])
    columns = ", ".join(line.rstrip(",") for line in lines if line[0].islower())
    return tuple(column.split()[0] for column in columns.split(", "))


#: The columns of each table.
TABLES: Mapping[str, tuple[str, ...]] = {
    **{sql.split()[2]: _columns(sql) for sql in SCHEMA if sql.startswith("CREATE TABLE")},
    # `content` has another type in the table of drift.
    "reconciler_code": ("digest", "content AS listing"),
}

#: The statements that lead to version 2, to version 3, … The effect of a released step never changes. (From
#: version 4 to 9 SQLite had copies of rows. Three columns of drift are unused since version 9, three of runs
#: since version 10; they stay in existing stores.)
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE reconciler_revisions ADD COLUMN stopped BOOLEAN NOT NULL DEFAULT FALSE",),
    (
        "ALTER TABLE reconciler_runs ADD COLUMN alive_until_s DOUBLE PRECISION",
        "ALTER TABLE reconciler_runs ADD COLUMN lifeline TEXT NOT NULL DEFAULT ''",
    ),
    (),
    ("ALTER TABLE reconciler_revisions ADD COLUMN released_at_s DOUBLE PRECISION",),
    (
        "ALTER TABLE reconciler_scopes ADD COLUMN compared_at_s DOUBLE PRECISION",
        "CREATE TABLE reconciler_drift ("
        " scope_id BIGINT NOT NULL REFERENCES reconciler_scopes (id),"
        " key TEXT DEFAULT '' NOT NULL,"
        " class TEXT DEFAULT '' NOT NULL,"
        " job TEXT DEFAULT '' NOT NULL,"
        " entry TEXT DEFAULT '' NOT NULL,"
        " content TEXT DEFAULT '' NOT NULL,"
        " since_s DOUBLE PRECISION NOT NULL,"
        " reported_at_s DOUBLE PRECISION,"
        " is_hidden BOOLEAN DEFAULT FALSE NOT NULL,"
        " accepted_at_s DOUBLE PRECISION,"
        " accepted_by TEXT DEFAULT '' NOT NULL,"
        " accept_reason TEXT DEFAULT '' NOT NULL,"
        " PRIMARY KEY (scope_id, key, class, job))",
    ),
    (
        "ALTER TABLE reconciler_scopes ADD COLUMN applied_from TEXT",
        "CREATE INDEX reconciler_revisions_by_digest ON reconciler_revisions (digest)",
        "CREATE TABLE reconciler_keys ("
        " scope_id BIGINT NOT NULL REFERENCES reconciler_scopes (id),"
        " key TEXT NOT NULL,"
        " sweep TEXT DEFAULT '' NOT NULL,"
        " is_declared BOOLEAN NOT NULL,"
        " PRIMARY KEY (scope_id, key))",
    ),
    ("ALTER TABLE reconciler_revisions ADD COLUMN schedule TEXT NOT NULL DEFAULT ''",),
    (),
    tuple(
        f"DROP INDEX IF EXISTS reconciler_copy_of_{name}" for name in ("locks", "revisions", "keys", "drift")
    ),
    ("CREATE TABLE reconciler_code (digest TEXT NOT NULL PRIMARY KEY, content TEXT DEFAULT '' NOT NULL)",),
    ("ALTER TABLE reconciler_drift ADD COLUMN delivered TEXT DEFAULT '' NOT NULL",),
)


def latest(migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    return 1 + len(migrations)


# --- types of cells, by column name; SQLite does not enforce them


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _number(kind: Any, most: float = math.inf) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, kind) and 0 <= value <= most:
            return value
        raise ValueError(value)

    return read


def dump(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


def _read_document(value: str) -> Any:
    return json.loads(_text(value) or "null")


def _read_phases(value: str) -> tuple[tuple[str, float], ...]:
    return tuple((_text(phase), _seconds(at_s)) for phase, at_s in _read_document(value) or ())


def _numbers(read: Callable[[Any], Any]) -> Callable[[str], dict[str, Any]]:
    return lambda value: {name: read(number) for name, number in (_read_document(value) or {}).items()}


def _read_schedule(value: str) -> ScheduleMark | None:
    """Parse the schedule part of a marker, or ""."""
    mark = read_schedule_mark(value) if _text(value) else None
    if value and mark is None:
        raise ValueError(value)
    return mark


# Revisions of a key often share a declaration.
@lru_cache(maxsize=256)
def _read_declared(value: str) -> Declared:
    match tree := _read_document(value):
        case {"immutable": dict(), "mutable": dict(), "description": str(), "protect": bool() | None}:
            if isinstance(tree.get("commit", ""), str):
                return Declared(**tree)
    raise ValueError(value)


def declared_document(declared: Declared) -> dict[str, Any]:
    """The stored form of a declaration, as plain data."""
    names = ("immutable", "mutable", "description", "protect", *(("commit",) if declared.commit else ()))
    return {name: getattr(declared, name) for name in names}


def _read_listing(value: str) -> tuple[str, tuple[CodeFile, ...]]:
    """Parse the name and files of a directory of code."""
    match _read_document(value):
        case {"name": str(name), "files": list(files)}:
            found = tuple(CodeFile(*file) for file in files)
            if all(map(isinstance, file, (str, int, str)) for file in found):
                return name, found
    raise ValueError(value)


#: Times (since 1970) and durations.
_seconds = _number((int, float), _LONGEST_S)
#: SQLite stores booleans as integers.
_bit = _number(int, 1)
#: Readers of columns that hold neither text nor seconds (`…_s`).
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("id", "scope_id", "run_id"), _number(int)),
    **dict.fromkeys(("version", "line", "number", "position", "node_count"), _number(int, LARGEST)),
    **dict.fromkeys(
        ("ok", "is_certain", "stopped", "is_declared", "is_hidden"), lambda cell: bool(_bit(cell))
    ),
    "phases": _read_phases,
    "summary": _numbers(_number(int)),
    "declared": _read_declared,
    "schedule": _read_schedule,
    "delivered": _numbers(_seconds),
    "entry": _read_document,
    "listing": _read_listing,
}


@lru_cache
def row_reader(columns: tuple[str, ...]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a reader of rows with these columns, which raises `Damaged` for a cell of the wrong type."""
    readers = [_READERS.get(name) or (_seconds if name.endswith("_s") else _text) for name in columns]

    def read(row: Sequence[Any]) -> tuple[Any, ...]:
        try:
            cells = zip(readers, row, strict=True)
            return tuple([None if cell is None else read(cell) for read, cell in cells])
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise Damaged("a cell differs from what was written") from None

    return read
