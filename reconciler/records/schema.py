"""The tables, one schema for SQLite and PostgreSQL, and the steps between versions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.types import TypeDecorator, TypeEngine

from reconciler.core.code import CodeFile
from reconciler.core.identity import ScheduleMark, read_schedule_mark
from reconciler.core.record import Declared, Scope

#: What PostgreSQL's integers hold.
LARGEST = 2**31 - 1
#: No time or duration that the service may say is longer.
_LONGEST_S = 1e30


class Damaged(SQLAlchemyError):
    """What the database answers cannot have been written by this program; the text says what it is."""


class Cell(TypeDecorator[Any]):
    """What a column holds; SQLite takes anything, and what is of another kind, or no code, is `Damaged`."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def __init__(
        self,
        stored_as: type[TypeEngine[Any]],
        kind: type | tuple[type, ...],
        decode: Callable[[Any], Any] | None = None,
        encode: Callable[[Any], Any] | None = None,
        most: float = math.inf,
    ) -> None:
        super().__init__()
        self.stored_as, self.impl, self.kind = stored_as, stored_as(), kind
        self.decode, self.encode, self.most = decode, encode, most

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return value if self.encode is None else self.encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            is_sound = isinstance(value, self.kind)
            if is_sound and not (isinstance(value, int | float) and not 0 <= value <= self.most):
                return value if self.decode is None else self.decode(value)
        raise Damaged("a cell differs from what was written")


TEXT, WHOLE, ID = Cell(Text, str), Cell(Integer, int, most=LARGEST), Cell(BigInteger, int)
#: Times since 1970 and durations.
SECONDS, TRUTH = Cell(Double, (int, float), most=_LONGEST_S), Cell(Boolean, bool)


def dump(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


def _read_document(value: str) -> Any:
    return json.loads(value or "null")


def _write_document(value: Any) -> str | None:
    """A text is written as it is: documents are redacted before they come here."""
    return value if value is None or isinstance(value, str) else dump(value)


def _read_phases(value: str) -> tuple[tuple[str, float], ...]:
    found = _read_document(value) or []
    for phase, at_s in found:
        if not isinstance(phase, str) or not 0 <= at_s <= _LONGEST_S:
            raise ValueError(phase)
    return tuple((phase, at_s) for phase, at_s in found)


def _read_summary(value: str) -> dict[str, int]:
    found = _read_document(value) or {}
    if all(type(count) is int and count >= 0 for count in found.values()):
        return dict(found)
    raise ValueError(value)


# Many revisions of a key are of one declaration.
@lru_cache(maxsize=256)
def _read_declared(value: str) -> Declared:
    match tree := _read_document(value):
        case {"immutable": dict(), "mutable": dict(), "description": str(), "protect": bool() | None}:
            if isinstance(tree.get("commit", ""), str):
                return Declared(**tree)
    raise ValueError(value)


def declared_document(declared: Declared) -> dict[str, Any]:
    """What is written of a declaration, as plain data."""
    names = ("immutable", "mutable", "description", "protect", *(("commit",) if declared.commit else ()))
    return {name: getattr(declared, name) for name in names}


def _read_code(value: str) -> tuple[str, tuple[CodeFile, ...]]:
    match _read_document(value):
        case {"name": str(name), "files": list(files)}:
            found = tuple(CodeFile(*file) for file in files)
            if all(map(isinstance, file, (str, int, str)) for file in found):
                return name, found
    raise ValueError(value)


def _write_declared(value: Any) -> Any:
    return dump(declared_document(value)) if isinstance(value, Declared) else value


def _write_schedule(value: ScheduleMark | None) -> str:
    return "" if value is None else str(value)


#: What a marker says of the schedule of its job, written as there, or "".
SCHEDULE = Cell(Text, str, read_schedule_mark, _write_schedule)
DOCUMENT = Cell(Text, str, _read_document, _write_document)
#: The phases in which a revision was seen, each with the time of the first look that saw it.
PHASES = Cell(Text, str, _read_phases, _write_document)
#: How many actions of a run ended in each way.
SUMMARY = Cell(Text, str, _read_summary, _write_document)
DECLARED = Cell(Text, str, _read_declared, _write_declared)
#: The name of a directory of code, and its files.
CODE = Cell(Text, str, _read_code)

# --- the tables

METADATA = MetaData()


def _text(name: str, kind: Cell = TEXT) -> Column[Any]:
    return Column(name, kind, nullable=False, server_default="")


def _texts(*names: str) -> list[Column[Any]]:
    return [_text(name) for name in names]


def _times(*names: str) -> list[Column[Any]]:
    """Times that may be unknown."""
    return [Column(name, SECONDS) for name in names]


def _key(name: str, kind: Cell, *refers_to: ForeignKey) -> Column[Any]:
    return Column(name, kind, *refers_to, primary_key=True)


VERSION = Table("reconciler_version", METADATA, _key("version", WHOLE))

SCOPES = Table(
    "reconciler_scopes",
    METADATA,
    _key("id", ID),
    *_texts(*Scope._fields),
    # When a drift check could compare something last.
    *_times("compared_at_s"),
    # Where the manifest was of the last apply; NULL where none said what it declared.
    Column("applied_from", TEXT),
    UniqueConstraint(*Scope._fields),
)

# A row stays when the lock is released: token is "" then, so that there is always a row to contend for.
LOCKS = Table(
    "reconciler_locks",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    *_texts("token", "who", "place", "command"),
    Column("since_s", SECONDS, nullable=False, server_default="0"),
    Column("expires_s", SECONDS, nullable=False, server_default="0"),
    _text("lifeline"),
)

RUNS = Table(
    "reconciler_runs",
    METADATA,
    _key("id", ID),
    Column("scope_id", ID, ForeignKey(SCOPES.c.id), nullable=False),
    *_texts("kind", "who", "place", "command", "plan_digest"),
    Column("at_s", SECONDS, nullable=False),
    *_times("ended_at_s"),
    _text("result"),
    _text("summary", SUMMARY),
    Index("reconciler_runs_of_a_scope", "scope_id", "at_s"),
    # The number of a run that was deleted is not given again.
    sqlite_autoincrement=True,
)

LINES = Table(
    "reconciler_lines",
    METADATA,
    _key("run_id", ID, ForeignKey(RUNS.c.id, ondelete="CASCADE")),
    _key("line", WHOLE),
    _text("key"),
    Column("number", WHOLE),
    *_texts("digest", "action", "call", "name"),
    Column("job", TEXT),
    Column("at_s", SECONDS, nullable=False),
    *_times("ended_at_s"),
    Column("ok", TRUTH),
    Column("is_certain", TRUTH),
    *_texts("code", "message", "request_id"),
    Column("declared", DECLARED),
    Index("reconciler_lines_of_a_revision", "key", "number"),
)

OUTCOMES = Table(
    "reconciler_outcomes",
    METADATA,
    _key("run_id", ID, ForeignKey(RUNS.c.id, ondelete="CASCADE")),
    _key("position", WHOLE),
    *_texts("key", "action", "reason", "status", "detail"),
    Column("job", TEXT),
    _text("code"),
    Index("reconciler_outcomes_of_a_key", "key"),
)

REVISIONS = Table(
    "reconciler_revisions",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", TEXT),
    _key("number", WHOLE),
    _text("name"),
    _text("job"),
    _text("digest"),
    _text("phase"),
    *_times("created_at_s", "started_at_s", "duration_s"),
    Column("node_count", WHOLE, nullable=False, server_default="1"),
    *_times("seen_at_s"),
    _text("phases", PHASES),
    Column("declared", DECLARED),
    Column("stopped", TRUTH, nullable=False, server_default=false()),
    *_times("released_at_s"),
    _text("schedule", SCHEDULE),
    Index("reconciler_revisions_by_digest", "digest"),
)

# The keys that were ever applied, each with its sweep; the last apply declared some of them.
KEYS = Table(
    "reconciler_keys",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", TEXT),
    _text("sweep"),
    Column("is_declared", TRUTH, nullable=False),
)

# The code of revisions, by its digest: what is declared for them says which.
CODES = Table("reconciler_code", METADATA, _key("digest", TEXT), _text("content", CODE))

# The drift that stands: a row for each, however many checks saw it.
DRIFT = Table(
    "reconciler_drift",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", TEXT),
    _key("class", TEXT),
    _key("job", TEXT),
    _text("entry", DOCUMENT),
    _text("content"),
    Column("since_s", SECONDS, nullable=False),
    *_times("reported_at_s"),
    Column("is_hidden", TRUTH, nullable=False, server_default=false()),
)

# --- versions

#: The statements that lead to version 2, those that lead to version 3, … A released step never changes in
#: what it does to the tables. (From version 4 to 9 SQLite had copies of rows; since version 9 three columns
#: of the drift are not used, since version 10 three of the runs, and stay in the stores that have them.)
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
)


def latest(migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    return 1 + len(migrations)


def stored_version(connection: Connection) -> int | None:
    """The version of the tables that are there; None if there are none.

    Tables without one version are `Damaged`: what they hold cannot be read for certain.
    """
    # Asked once: whoever makes the tables meanwhile makes the version with them.
    there = {table.name for table in METADATA.sorted_tables} & set(inspect(connection).get_table_names())
    if not there:
        return None
    if VERSION.name in there:
        with suppress(Damaged):
            versions = connection.execute(select(VERSION.c.version)).scalars().all()
            if len(versions) == 1 and (versions[0] or 0) > 0:
                return int(versions[0])
    raise Damaged("the version of its tables is missing")


def migrate(connection: Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Make the tables, or lead those that are there to the latest version.

    The transaction is the caller's, and excludes everybody else who does the same.
    """
    found = stored_version(connection)
    if found is None:
        METADATA.create_all(connection, checkfirst=False)
        connection.execute(VERSION.insert().values(version=latest(migrations)))
    elif found < latest(migrations):
        for step in migrations[found - 1 :]:
            for statement in step:
                connection.execute(text(statement))
        connection.execute(VERSION.update().values(version=latest(migrations)))
