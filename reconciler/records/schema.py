"""The tables, one schema for SQLite and PostgreSQL: what each cell may hold, and the steps between versions.

A file may hold anything in any cell, whatever its column says. So the type of a column checks what it reads:
a value that this program cannot have written makes the store unreadable (`Damaged`), wherever it is read.
"""

from __future__ import annotations

import json
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

from reconciler.core.identity import DIGEST_PATTERN, ScheduleMark, read_schedule_mark
from reconciler.core.record import Declared

#: No time or duration that the service may say is longer; seconds.
_LONGEST_S = 1e30
#: Endpoint hosts, project and workspace ids are far shorter.
_LONGEST_PLACE = 1000
#: What PostgreSQL's integers and identities hold.
LARGEST, _LARGEST_ID = 2**31 - 1, 2**63 - 1


class Damaged(SQLAlchemyError):
    """What the database answers cannot have been written by this program; the text says what it is."""


class TextCell(TypeDecorator[Any]):
    """A text, and the base of all other cells: `is_sound` judges what the driver read, None aside."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    cache_ok = True
    what = "a text"

    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__()
        self.nullable = nullable

    def is_sound(self, value: Any) -> bool:
        """Whether this program can have written it."""
        return isinstance(value, str)

    def convert(self, value: Any) -> Any:
        """What the program works with; may raise `Damaged` as well."""
        return value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Check each value that is read; `Damaged` instead of passing on what was never written."""

        def read(value: Any) -> Any:
            if value is None and self.nullable:
                return None
            if value is None or not self.is_sound(value):
                raise Damaged(f"{self.what} expected, got {_kind_of(value)}")
            return self.convert(value)

        return read


def _kind_of(value: object) -> str:
    kinds = {str: "another text", bytes: "bytes", int: "another number", float: "another number"}
    return "nothing" if value is None else kinds.get(type(value), "something else")


class KeyCell(TextCell):
    """A key of the manifest: short enough for an index, in databases that limit what an index holds."""

    cache_ok = True


class NameCell(TextCell):
    """A text that is never empty."""

    cache_ok = True
    what = "a name"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, str) and value != ""


class PlaceCell(TextCell):
    """A part of a scope: one word, of a length that an address can have."""

    cache_ok = True
    what = "the stack or the target that rows are about"

    def is_sound(self, value: Any) -> bool:
        """Whether it can be one."""
        return isinstance(value, str) and 0 < len(value) <= _LONGEST_PLACE and value.isprintable()


class DigestCell(TextCell):
    """A digest, of whatever algorithm."""

    cache_ok = True
    what = "a digest"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, str) and DIGEST_PATTERN.fullmatch(value) is not None


class NumberCell(TextCell):
    """A whole number, `least` or more; SQLite has no truth values, so it cannot be one of those."""

    impl = Integer
    cache_ok = True
    what = "a number"

    def __init__(self, least: int = 0, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.least = least

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, int) and self.least <= value <= LARGEST


class IdCell(TextCell):
    """The number of a row that others refer to."""

    impl = BigInteger
    cache_ok = True
    what = "the number of a row"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, int) and 1 <= value <= _LARGEST_ID


class SecondsCell(TextCell):
    """A time since 1970 or a duration, in seconds."""

    impl = Double
    cache_ok = True
    what = "a time"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one; NaN is none."""
        return isinstance(value, int | float) and 0 <= value <= _LONGEST_S


class TruthCell(TextCell):
    """True or false, which SQLite writes as 1 and 0."""

    impl = Boolean
    cache_ok = True
    what = "a truth value"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, int) and value in (0, 1)

    def convert(self, value: Any) -> bool:
        """Take 0 and 1 for what they mean."""
        return bool(value)


class ScheduleCell(TextCell):
    """What a marker says of the schedule of its job, or ""."""

    cache_ok = True

    def convert(self, value: str) -> ScheduleMark | None:
        """Read it as it is read from a marker."""
        mark = read_schedule_mark(value)
        if value and mark is None:
            raise Damaged("the schedule of a revision is not one that a marker can have")
        return mark

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write it as in a marker."""
        return "" if value is None else str(value)


class DocumentCell(TextCell):
    """A JSON document. A text is written as it is: documents are redacted before they come here."""

    cache_ok = True
    what = "a document"

    def convert(self, value: str) -> Any:
        """Parse it."""
        try:
            return _DECODER.decode(value or "null")
        except (ValueError, RecursionError):
            raise Damaged(f"{self.what} cannot be read") from None

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Write plain data that was read from another row, or made of phases and times."""
        return value if value is None or isinstance(value, str) else dump(value)


class PhasesCell(DocumentCell):
    """The phases in which a revision was seen, each with the time of the first look that saw it."""

    cache_ok = True
    what = "the observed phases"

    def convert(self, value: str) -> tuple[tuple[str, float], ...]:
        """Parse and check them."""
        found = super().convert(value) or []
        if not isinstance(found, list) or not all(map(_is_phase, found)):
            raise Damaged("the observed phases are not a list")
        return tuple((phase, at_s) for phase, at_s in found)


class SummaryCell(DocumentCell):
    """How many actions of a run ended in each way."""

    cache_ok = True
    what = "the summary of a run"

    def convert(self, value: str) -> dict[str, int]:
        """Parse and check it."""
        found = super().convert(value) or {}
        if isinstance(found, dict) and all(type(count) is int and count >= 0 for count in found.values()):
            return found
        raise Damaged("the summary of a run is not a mapping")


class DeclaredCell(DocumentCell):
    """What was declared for a revision."""

    cache_ok = True
    what = "the declaration"

    def convert(self, value: str) -> Declared:
        """Parse and check it. Many revisions of a key are of one declaration."""
        return _read_declared(value)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Write one that was read from another row."""
        return dump(declared_document(value)) if isinstance(value, Declared) else value


def _is_phase(one: Any) -> bool:
    match one:
        case [str() as phase, int() | float() as at_s]:
            return phase != "" and 0 <= at_s <= _LONGEST_S
    return False


@lru_cache(maxsize=256)
def _read_declared(value: str) -> Declared:
    match tree := DocumentCell.convert(_DECLARED, value):
        case {"immutable": dict(), "mutable": dict(), "description": str(), "protect": bool() | None}:
            if len(tree) == 4:
                return Declared(**tree)
    raise Damaged("the declaration differs from what was written")


def declared_document(declared: Declared) -> dict[str, Any]:
    """What `DeclaredCell` reads, as plain data."""
    names = ("immutable", "mutable", "description", "protect")
    return {name: getattr(declared, name) for name in names}


def dump(tree: Any) -> str:
    """Write JSON."""
    return json.dumps(tree, separators=(",", ":"))


def _refuse(constant: str) -> None:
    raise ValueError(constant)


#: NaN and infinity are no JSON, and nothing here writes them.
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_DECLARED = DeclaredCell()

# --- the tables

METADATA = MetaData()


def _text(name: str, cell: type[TextCell] = TextCell) -> Column[Any]:
    return Column(name, cell(), nullable=False, server_default="")


VERSION = Table("reconciler_version", METADATA, Column("version", NumberCell(least=1), primary_key=True))

SCOPES = Table(
    "reconciler_scopes",
    METADATA,
    Column("id", IdCell(), primary_key=True),
    _text("stack", PlaceCell),
    _text("host", PlaceCell),
    _text("project_id", PlaceCell),
    _text("workspace_id", PlaceCell),
    # When a drift check could compare something last.
    Column("compared_at_s", SecondsCell(nullable=True)),
    # Where the manifest was of the last apply; NULL where none said what it declared.
    Column("applied_from", TextCell(nullable=True)),
    UniqueConstraint("stack", "host", "project_id", "workspace_id"),
)

# A row stays when the lock is released: token is "" then, so that there is always a row to contend for.
LOCKS = Table(
    "reconciler_locks",
    METADATA,
    Column("scope_id", IdCell(), ForeignKey(SCOPES.c.id), primary_key=True),
    _text("token"),
    _text("who"),
    _text("place"),
    _text("command"),
    Column("since_s", SecondsCell(), nullable=False, server_default="0"),
    Column("expires_s", SecondsCell(), nullable=False, server_default="0"),
    _text("lifeline"),
)

RUNS = Table(
    "reconciler_runs",
    METADATA,
    Column("id", IdCell(), primary_key=True),
    Column("scope_id", IdCell(), ForeignKey(SCOPES.c.id), nullable=False),
    _text("kind"),
    _text("who"),
    _text("place"),
    _text("command"),
    _text("commit_id"),
    _text("plan_digest"),
    Column("at_s", SecondsCell(), nullable=False),
    Column("ended_at_s", SecondsCell(nullable=True)),
    _text("result"),
    _text("summary", SummaryCell),
    Column("alive_until_s", SecondsCell(nullable=True)),
    _text("lifeline"),
    Index("reconciler_runs_of_a_scope", "scope_id", "at_s"),
    # The number of a run that was deleted is not given again.
    sqlite_autoincrement=True,
)

LINES = Table(
    "reconciler_lines",
    METADATA,
    Column("run_id", IdCell(), ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("line", NumberCell(least=1), primary_key=True),
    _text("key", KeyCell),
    Column("number", NumberCell(least=1, nullable=True)),
    _text("digest"),
    _text("action"),
    _text("call"),
    _text("name"),
    Column("job", TextCell(nullable=True)),
    Column("at_s", SecondsCell(), nullable=False),
    Column("ended_at_s", SecondsCell(nullable=True)),
    Column("ok", TruthCell(nullable=True)),
    Column("is_certain", TruthCell(nullable=True)),
    _text("code"),
    _text("message"),
    _text("request_id"),
    Column("declared", DeclaredCell(nullable=True)),
    Index("reconciler_lines_of_a_revision", "key", "number"),
)

OUTCOMES = Table(
    "reconciler_outcomes",
    METADATA,
    Column("run_id", IdCell(), ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("position", NumberCell(least=1), primary_key=True),
    _text("key", KeyCell),
    _text("action"),
    _text("reason"),
    _text("status"),
    _text("detail"),
    Column("job", TextCell(nullable=True)),
    _text("code"),
    Index("reconciler_outcomes_of_a_key", "key"),
)

REVISIONS = Table(
    "reconciler_revisions",
    METADATA,
    Column("scope_id", IdCell(), ForeignKey(SCOPES.c.id), primary_key=True),
    Column("key", NameCell(), primary_key=True),
    Column("number", NumberCell(least=1), primary_key=True),
    _text("name", NameCell),
    _text("job", NameCell),
    _text("digest", DigestCell),
    _text("phase"),
    Column("created_at_s", SecondsCell(nullable=True)),
    Column("started_at_s", SecondsCell(nullable=True)),
    Column("duration_s", SecondsCell(nullable=True)),
    Column("node_count", NumberCell(), nullable=False, server_default="1"),
    Column("seen_at_s", SecondsCell(nullable=True)),
    _text("phases", PhasesCell),
    Column("declared", DeclaredCell(nullable=True)),
    Column("stopped", TruthCell(), nullable=False, server_default=false()),
    Column("released_at_s", SecondsCell(nullable=True)),
    _text("schedule", ScheduleCell),
    Index("reconciler_revisions_by_digest", "digest"),
)

# The keys that were ever applied, each with its sweep; the last apply declared some of them.
KEYS = Table(
    "reconciler_keys",
    METADATA,
    Column("scope_id", IdCell(), ForeignKey(SCOPES.c.id), primary_key=True),
    Column("key", NameCell(), primary_key=True),
    _text("sweep"),
    Column("is_declared", TruthCell(), nullable=False),
)

# The drift that stands: a row for each, however many checks saw it.
DRIFT = Table(
    "reconciler_drift",
    METADATA,
    Column("scope_id", IdCell(), ForeignKey(SCOPES.c.id), primary_key=True),
    Column("key", NameCell(), primary_key=True),
    Column("class", NameCell(), primary_key=True),
    Column("job", KeyCell(), primary_key=True, server_default=""),
    _text("entry", DocumentCell),
    _text("content"),
    Column("since_s", SecondsCell(), nullable=False),
    Column("reported_at_s", SecondsCell(nullable=True)),
    Column("is_hidden", TruthCell(), nullable=False, server_default=false()),
    Column("accepted_at_s", SecondsCell(nullable=True)),
    _text("accepted_by"),
    _text("accept_reason"),
)

# --- versions

#: The statements that lead to version 2, those that lead to version 3, … A released step never changes in
#: what it does to the tables. (Version 4 added the copies of rows that the dialect of SQLite looks after.)
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
)


def latest(migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    """The version that these tables are of."""
    return 1 + len(migrations)


def stored_version(connection: Connection) -> int | None:
    """The version of the tables that are there; None if there are none.

    Raises:
        Damaged: there are tables and not one version, so that what they hold cannot be read for certain.
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
