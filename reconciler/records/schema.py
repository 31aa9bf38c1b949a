"""The tables, one schema for SQLite and PostgreSQL, and the steps from one version of it to the next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    Table,
    TextClause,
    UniqueConstraint,
    create_mock_engine,
    false,
    inspect,
    select,
    text,
)

from reconciler.records.cells import (
    DigestCell,
    IdCell,
    KeyCell,
    NameCell,
    NumberCell,
    PlaceCell,
    SecondsCell,
    TextCell,
    TruthCell,
    damaged,
)
from reconciler.records.errors import Damaged

METADATA = MetaData()


def _text(name: str) -> Column[str]:
    return Column(name, TextCell(), nullable=False, server_default="")


def _key() -> Column[str]:
    return Column("key", KeyCell(), nullable=False, server_default="")


def _name(name: str) -> Column[str]:
    return Column(name, NameCell(), nullable=False, server_default="")


def _place(name: str) -> Column[str]:
    return Column(name, PlaceCell(), nullable=False, server_default="")


def _copy(name: str, table: Table) -> Index:
    """A second copy of a table's rows in the same SQLite file, which SQLite itself keeps.

    A byte of a row that changes differs from its copy then, and `PRAGMA integrity_check` tells. PostgreSQL
    limits how much an index holds, and its server looks after its own files.
    """
    return Index(name, *table.c).ddl_if(dialect="sqlite")


VERSION = Table("reconciler_version", METADATA, Column("version", NumberCell(least=1), primary_key=True))

SCOPES = Table(
    "reconciler_scopes",
    METADATA,
    Column("id", IdCell(), primary_key=True),
    _place("stack"),
    _place("host"),
    _place("project_id"),
    _place("workspace_id"),
    # When a drift check could compare something last.
    Column("compared_at_s", SecondsCell(nullable=True)),
    # Where the manifest was of the last apply; NULL where none said what it declared.
    Column("applied_from", TextCell(nullable=True)),
    UniqueConstraint("stack", "host", "project_id", "workspace_id"),
)

# A row stays when the lock is let go: token is "" then, so that there is always a row to contend for.
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
    _text("summary"),
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
    _key(),
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
    Column("declared", TextCell(nullable=True)),
    Index("reconciler_lines_of_a_revision", "key", "number"),
)

OUTCOMES = Table(
    "reconciler_outcomes",
    METADATA,
    Column("run_id", IdCell(), ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("position", NumberCell(least=1), primary_key=True),
    _key(),
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
    _name("name"),
    _name("job"),
    Column("digest", DigestCell(), nullable=False, server_default=""),
    _text("phase"),
    Column("created_at_s", SecondsCell(nullable=True)),
    Column("started_at_s", SecondsCell(nullable=True)),
    Column("duration_s", SecondsCell(nullable=True)),
    Column("node_count", NumberCell(), nullable=False, server_default="1"),
    Column("seen_at_s", SecondsCell(nullable=True)),
    _text("phases"),
    Column("declared", TextCell(nullable=True)),
    Column("stopped", TruthCell(), nullable=False, server_default=false()),
    Column("released_at_s", SecondsCell(nullable=True)),
    _text("schedule"),
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
    _text("entry"),
    _text("content"),
    Column("since_s", SecondsCell(), nullable=False),
    Column("reported_at_s", SecondsCell(nullable=True)),
    Column("is_hidden", TruthCell(), nullable=False, server_default=false()),
    Column("accepted_at_s", SecondsCell(nullable=True)),
    _text("accepted_by"),
    _text("accept_reason"),
)

_COPY_OF_LOCKS = _copy("reconciler_copy_of_locks", LOCKS)
_COPY_OF_REVISIONS = _copy("reconciler_copy_of_revisions", REVISIONS)
_COPY_OF_DRIFT = _copy("reconciler_copy_of_drift", DRIFT)
_COPY_OF_KEYS = _copy("reconciler_copy_of_keys", KEYS)


class Statement(NamedTuple):
    """A statement that is for one database alone, whose name is that of SQLAlchemy's dialect."""

    dialect: str
    text: str


#: The statements that lead to version 2, those that lead to version 3, … A released row never changes.
MIGRATIONS: tuple[tuple[str | Statement, ...], ...] = (
    ("ALTER TABLE reconciler_revisions ADD COLUMN stopped BOOLEAN NOT NULL DEFAULT FALSE",),
    (
        "ALTER TABLE reconciler_runs ADD COLUMN alive_until_s DOUBLE PRECISION",
        "ALTER TABLE reconciler_runs ADD COLUMN lifeline TEXT NOT NULL DEFAULT ''",
    ),
    (
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_locks ON reconciler_locks"
            " (scope_id, token, who, place, command, since_s, expires_s, lifeline)",
        ),
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_revisions ON reconciler_revisions"
            " (scope_id, key, number, name, job, digest, phase, created_at_s, started_at_s, duration_s,"
            " node_count, seen_at_s, phases, declared, stopped)",
        ),
    ),
    (
        "ALTER TABLE reconciler_revisions ADD COLUMN released_at_s DOUBLE PRECISION",
        Statement("sqlite", "DROP INDEX reconciler_copy_of_revisions"),
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_revisions ON reconciler_revisions"
            " (scope_id, key, number, name, job, digest, phase, created_at_s, started_at_s, duration_s,"
            " node_count, seen_at_s, phases, declared, stopped, released_at_s)",
        ),
    ),
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
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_drift ON reconciler_drift"
            " (scope_id, key, class, job, entry, content, since_s, reported_at_s, is_hidden,"
            " accepted_at_s, accepted_by, accept_reason)",
        ),
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
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_keys ON reconciler_keys (scope_id, key, sweep, is_declared)",
        ),
    ),
    (
        "ALTER TABLE reconciler_revisions ADD COLUMN schedule TEXT NOT NULL DEFAULT ''",
        Statement("sqlite", "DROP INDEX IF EXISTS reconciler_copy_of_revisions"),
        Statement(
            "sqlite",
            "CREATE INDEX reconciler_copy_of_revisions ON reconciler_revisions"
            " (scope_id, key, number, name, job, digest, phase, created_at_s, started_at_s, duration_s,"
            " node_count, seen_at_s, phases, declared, stopped, released_at_s, schedule)",
        ),
    ),
)


def latest(migrations: Sequence[Sequence[str | Statement]] = MIGRATIONS) -> int:
    """The version that these tables are of."""
    return 1 + len(migrations)


def stored_version(connection: Connection) -> int | None:
    """The version of the tables that are there; None if there are none.

    Raises:
        Damaged: there are tables and not one version, so that what they hold cannot be read for certain.
    """
    # Asked once: who makes the tables meanwhile makes the version with them.
    there = {table.name for table in METADATA.sorted_tables} & set(inspect(connection).get_table_names())
    if not there:
        return None
    with suppress(Damaged):
        versions = (
            connection.execute(select(VERSION.c.version)).scalars().all() if VERSION.name in there else ()
        )
        if len(versions) == 1:
            return int(versions[0])
    raise damaged("the version of its tables is missing")


def migrate(connection: Connection, migrations: Sequence[Sequence[str | Statement]] = MIGRATIONS) -> None:
    """Make the tables, or lead those that are there to the latest version.

    The transaction is the caller's, and excludes everybody else who does the same.
    """
    found = stored_version(connection)
    if found is None:
        for creation in _creation(connection.dialect):
            connection.execute(creation)
        connection.execute(VERSION.insert().values(version=latest(migrations)))
    elif found < latest(migrations):
        mine = connection.dialect.name
        steps = (
            Statement(mine, one) if isinstance(one, str) else one
            for step in migrations[found - 1 :]
            for one in step
        )
        for statement in steps:
            if statement.dialect == mine:
                connection.execute(text(statement.text))
        connection.execute(VERSION.update().values(version=latest(migrations)))


@lru_cache(maxsize=4)
def _creation(dialect: Dialect) -> tuple[TextClause, ...]:
    """The statements that make the tables: to put them together takes longer than to execute them."""
    made: list[TextClause] = []

    def keep(statement: Any, *_: object, **__: object) -> None:
        made.append(text(str(statement.compile(dialect=dialect))))

    METADATA.create_all(create_mock_engine(f"{dialect.name}://", keep), checkfirst=False)
    return tuple(made)
