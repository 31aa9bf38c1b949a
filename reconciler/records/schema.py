"""The tables, one schema for SQLite and PostgreSQL: what each cell may hold, and the steps between versions.

A file may hold anything in any cell, whatever its column says. So the type of a column checks what it reads:
a value that this program cannot have written makes the store unreadable (`Damaged`), wherever it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
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

from reconciler.core.identity import DIGEST_PATTERN, ScheduleMark, read_schedule_mark
from reconciler.core.record import Declared, Scope

#: No time or duration that the service may say is longer; seconds.
_LONGEST_S = 1e30
#: Endpoint hosts, project and workspace ids are far shorter.
_LONGEST_PLACE = 1000
#: What PostgreSQL's integers and identities hold.
LARGEST, _LARGEST_ID = 2**31 - 1, 2**63 - 1


class Damaged(SQLAlchemyError):
    """What the database answers cannot have been written by this program; the text says what it is."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class Cell(TypeDecorator[Any]):
    """What a column holds, checked when it is read: `Damaged` instead of passing on what was never written.

    `is_sound` says whether this program can have written what the driver read, NULL aside. `decode` makes of
    that what the program works with, and may raise `Damaged` as well; `encode` is its reverse.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True

    def __init__(
        self,
        what: str,
        is_sound: Callable[[Any], bool] = _is_text,
        stored_as: type[TypeEngine[Any]] = Text,
        decode: Callable[[Any], Any] | None = None,
        encode: Callable[[Any], Any] | None = None,
        nullable: bool = False,
    ) -> None:
        super().__init__()
        self.what, self.is_sound, self.stored_as, self.impl = what, is_sound, stored_as, stored_as()
        self.decode, self.encode, self.nullable = decode, encode, nullable

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return value if self.encode is None else self.encode(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        nullable, is_sound, decode = self.nullable, self.is_sound, self.decode

        def read(value: Any) -> Any:
            if value is None and nullable:
                return None
            if value is None or not is_sound(value):
                kinds = {str: "another text", bytes: "bytes", int: "another number", float: "another number"}
                found = "nothing" if value is None else kinds.get(type(value), "something else")
                raise Damaged(f"{self.what} expected, got {found}")
            return value if decode is None else decode(value)

        return read


def dump(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


def _refuse(constant: str) -> None:
    """NaN and infinity are no JSON, and nothing here writes them."""
    raise ValueError(constant)


# One for all: `json.loads` would make a decoder for each document.
_decode = json.JSONDecoder(parse_constant=_refuse).decode


def _read_document(value: str, what: str = "a document") -> Any:
    try:
        return _decode(value or "null")
    except (ValueError, RecursionError):
        raise Damaged(f"{what} cannot be read") from None


def _write_document(value: Any) -> str | None:
    """A text is written as it is: documents are redacted before they come here."""
    return value if value is None or isinstance(value, str) else dump(value)


def _read_schedule(value: str) -> ScheduleMark | None:
    mark = read_schedule_mark(value)
    if value and mark is None:
        raise Damaged("the schedule of a revision is not one that a marker can have")
    return mark


def _read_phases(value: str) -> tuple[tuple[str, float], ...]:
    found = _read_document(value, "the observed phases") or []
    if not isinstance(found, list) or not all(map(_is_phase, found)):
        raise Damaged("the observed phases are not a list")
    return tuple((phase, at_s) for phase, at_s in found)


def _is_phase(one: Any) -> bool:
    match one:
        case [str() as phase, int() | float() as at_s]:
            return phase != "" and 0 <= at_s <= _LONGEST_S
    return False


def _read_summary(value: str) -> dict[str, int]:
    found = _read_document(value, "the summary of a run") or {}
    if isinstance(found, dict) and all(type(count) is int and count >= 0 for count in found.values()):
        return found
    raise Damaged("the summary of a run is not a mapping")


# Many revisions of a key are of one declaration.
@lru_cache(maxsize=256)
def _read_declared(value: str) -> Declared:
    match tree := _read_document(value, "the declaration"):
        case {"immutable": dict(), "mutable": dict(), "description": str(), "protect": bool() | None}:
            if len(tree) == 4:
                return Declared(**tree)
    raise Damaged("the declaration differs from what was written")


def declared_document(declared: Declared) -> dict[str, Any]:
    """What is written of a declaration, as plain data."""
    names = ("immutable", "mutable", "description", "protect")
    return {name: getattr(declared, name) for name in names}


def _write_declared(value: Any) -> Any:
    return dump(declared_document(value)) if isinstance(value, Declared) else value


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and least <= value <= most


TEXT = partial(Cell, "a text")
NAME = partial(Cell, "a name", lambda value: _is_text(value) and value != "")
#: A part of a scope: one word, of a length that an address can have.
PLACE = partial(
    Cell,
    "the stack or the target that rows are about",
    lambda value: _is_text(value) and 0 < len(value) <= _LONGEST_PLACE and value.isprintable(),
)
#: Of whatever algorithm.
DIGEST = partial(
    Cell, "a digest", lambda value: _is_text(value) and DIGEST_PATTERN.fullmatch(value) is not None
)
COUNT, NUMBER = (partial(Cell, "a number", _whole(least, LARGEST), Integer) for least in (0, 1))
ID = partial(Cell, "the number of a row", _whole(1, _LARGEST_ID), BigInteger)
#: A time since 1970 or a duration; NaN is none.
SECONDS = partial(
    Cell, "a time", lambda value: isinstance(value, int | float) and 0 <= value <= _LONGEST_S, Double
)
#: SQLite writes 1 and 0.
TRUTH = partial(Cell, "a truth value", _whole(0, 1), Boolean, bool)
#: What a marker says of the schedule of its job, written as there, or "".
SCHEDULE = partial(
    Cell, "a text", decode=_read_schedule, encode=lambda value: "" if value is None else str(value)
)
DOCUMENT = partial(Cell, "a document", decode=_read_document, encode=_write_document)
#: The phases in which a revision was seen, each with the time of the first look that saw it.
PHASES = partial(Cell, "the observed phases", decode=_read_phases, encode=_write_document)
#: How many actions of a run ended in each way.
SUMMARY = partial(Cell, "the summary of a run", decode=_read_summary, encode=_write_document)
DECLARED = partial(Cell, "the declaration", decode=_read_declared, encode=_write_declared)

# --- the tables

METADATA = MetaData()


def _text(name: str, kind: Callable[[], Cell] = TEXT) -> Column[Any]:
    return Column(name, kind(), nullable=False, server_default="")


def _texts(*names: str) -> list[Column[Any]]:
    return [_text(name) for name in names]


def _times(*names: str) -> list[Column[Any]]:
    """Times that may be unknown."""
    return [Column(name, SECONDS(nullable=True)) for name in names]


def _key(name: str, kind: Callable[[], Cell], *refers_to: ForeignKey, **options: Any) -> Column[Any]:
    return Column(name, kind(), *refers_to, primary_key=True, **options)


VERSION = Table("reconciler_version", METADATA, _key("version", NUMBER))

SCOPES = Table(
    "reconciler_scopes",
    METADATA,
    _key("id", ID),
    *(_text(name, PLACE) for name in Scope._fields),
    # When a drift check could compare something last.
    *_times("compared_at_s"),
    # Where the manifest was of the last apply; NULL where none said what it declared.
    Column("applied_from", TEXT(nullable=True)),
    UniqueConstraint(*Scope._fields),
)

# A row stays when the lock is released: token is "" then, so that there is always a row to contend for.
LOCKS = Table(
    "reconciler_locks",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    *_texts("token", "who", "place", "command"),
    Column("since_s", SECONDS(), nullable=False, server_default="0"),
    Column("expires_s", SECONDS(), nullable=False, server_default="0"),
    _text("lifeline"),
)

RUNS = Table(
    "reconciler_runs",
    METADATA,
    _key("id", ID),
    Column("scope_id", ID(), ForeignKey(SCOPES.c.id), nullable=False),
    *_texts("kind", "who", "place", "command", "commit_id", "plan_digest"),
    Column("at_s", SECONDS(), nullable=False),
    *_times("ended_at_s"),
    _text("result"),
    _text("summary", SUMMARY),
    *_times("alive_until_s"),
    _text("lifeline"),
    Index("reconciler_runs_of_a_scope", "scope_id", "at_s"),
    # The number of a run that was deleted is not given again.
    sqlite_autoincrement=True,
)

LINES = Table(
    "reconciler_lines",
    METADATA,
    _key("run_id", ID, ForeignKey(RUNS.c.id, ondelete="CASCADE")),
    _key("line", NUMBER),
    _text("key"),
    Column("number", NUMBER(nullable=True)),
    *_texts("digest", "action", "call", "name"),
    Column("job", TEXT(nullable=True)),
    Column("at_s", SECONDS(), nullable=False),
    *_times("ended_at_s"),
    Column("ok", TRUTH(nullable=True)),
    Column("is_certain", TRUTH(nullable=True)),
    *_texts("code", "message", "request_id"),
    Column("declared", DECLARED(nullable=True)),
    Index("reconciler_lines_of_a_revision", "key", "number"),
)

OUTCOMES = Table(
    "reconciler_outcomes",
    METADATA,
    _key("run_id", ID, ForeignKey(RUNS.c.id, ondelete="CASCADE")),
    _key("position", NUMBER),
    *_texts("key", "action", "reason", "status", "detail"),
    Column("job", TEXT(nullable=True)),
    _text("code"),
    Index("reconciler_outcomes_of_a_key", "key"),
)

REVISIONS = Table(
    "reconciler_revisions",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", NAME),
    _key("number", NUMBER),
    _text("name", NAME),
    _text("job", NAME),
    _text("digest", DIGEST),
    _text("phase"),
    *_times("created_at_s", "started_at_s", "duration_s"),
    Column("node_count", COUNT(), nullable=False, server_default="1"),
    *_times("seen_at_s"),
    _text("phases", PHASES),
    Column("declared", DECLARED(nullable=True)),
    Column("stopped", TRUTH(), nullable=False, server_default=false()),
    *_times("released_at_s"),
    _text("schedule", SCHEDULE),
    Index("reconciler_revisions_by_digest", "digest"),
)

# The keys that were ever applied, each with its sweep; the last apply declared some of them.
KEYS = Table(
    "reconciler_keys",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", NAME),
    _text("sweep"),
    Column("is_declared", TRUTH(), nullable=False),
)

# The drift that stands: a row for each, however many checks saw it.
DRIFT = Table(
    "reconciler_drift",
    METADATA,
    _key("scope_id", ID, ForeignKey(SCOPES.c.id)),
    _key("key", NAME),
    _key("class", NAME),
    _key("job", TEXT, server_default=""),
    _text("entry", DOCUMENT),
    _text("content"),
    Column("since_s", SECONDS(), nullable=False),
    *_times("reported_at_s"),
    Column("is_hidden", TRUTH(), nullable=False, server_default=false()),
)

# --- versions

#: The statements that lead to version 2, those that lead to version 3, … A released step never changes in
#: what it does to the tables. (Version 4 added the copies of rows that the dialect of SQLite looks after;
#: since version 9 three columns of the drift are not used, and stay in the stores that have them.)
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
            if len(versions) == 1:
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
