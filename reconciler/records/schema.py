"""The tables, one schema for SQLite and PostgreSQL, and the steps from one version of it to the next."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
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

from reconciler.records.away import Damaged

METADATA = MetaData()

# SQLite counts up a column only if its type is INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


VERSION = Table("reconciler_version", METADATA, Column("version", Integer, primary_key=True))

SCOPES = Table(
    "reconciler_scopes",
    METADATA,
    Column("id", _Id, primary_key=True),
    _text("stack"),
    _text("host"),
    _text("project_id"),
    _text("workspace_id"),
    UniqueConstraint("stack", "host", "project_id", "workspace_id"),
)

# A row stays when the lock is let go: token is "" then, so that there is always a row to contend for.
LOCKS = Table(
    "reconciler_locks",
    METADATA,
    Column("scope_id", _Id, ForeignKey(SCOPES.c.id), primary_key=True),
    _text("token"),
    _text("who"),
    _text("place"),
    _text("command"),
    Column("since_s", Double, nullable=False, server_default="0"),
    Column("expires_s", Double, nullable=False, server_default="0"),
    _text("lifeline"),
)

RUNS = Table(
    "reconciler_runs",
    METADATA,
    Column("id", _Id, primary_key=True),
    Column("scope_id", _Id, ForeignKey(SCOPES.c.id), nullable=False),
    _text("kind"),
    _text("who"),
    _text("place"),
    _text("command"),
    _text("commit_id"),
    _text("plan_digest"),
    Column("at_s", Double, nullable=False),
    Column("ended_at_s", Double),
    _text("result"),
    _text("summary"),
    Column("alive_until_s", Double),
    _text("lifeline"),
    Index("reconciler_runs_of_a_scope", "scope_id", "at_s"),
    # The number of a run that was deleted is not given again.
    sqlite_autoincrement=True,
)

LINES = Table(
    "reconciler_lines",
    METADATA,
    Column("run_id", _Id, ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("line", Integer, primary_key=True),
    _text("key"),
    Column("number", Integer),
    _text("digest"),
    _text("action"),
    _text("call"),
    _text("name"),
    Column("job", Text),
    Column("at_s", Double, nullable=False),
    Column("ended_at_s", Double),
    Column("ok", Boolean),
    Column("is_certain", Boolean),
    _text("code"),
    _text("message"),
    _text("request_id"),
    Column("declared", Text),
    Index("reconciler_lines_of_a_revision", "key", "number"),
)

OUTCOMES = Table(
    "reconciler_outcomes",
    METADATA,
    Column("run_id", _Id, ForeignKey(RUNS.c.id, ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    _text("key"),
    _text("action"),
    _text("reason"),
    _text("status"),
    _text("detail"),
    Column("job", Text),
    _text("code"),
    Index("reconciler_outcomes_of_a_key", "key"),
)

REVISIONS = Table(
    "reconciler_revisions",
    METADATA,
    Column("scope_id", _Id, ForeignKey(SCOPES.c.id), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    _text("name"),
    _text("job"),
    _text("digest"),
    _text("phase"),
    Column("created_at_s", Double),
    Column("started_at_s", Double),
    Column("duration_s", Double),
    Column("node_count", Integer, nullable=False, server_default="1"),
    Column("seen_at_s", Double),
    _text("phases"),
    Column("declared", Text),
    Column("stopped", Boolean, nullable=False, server_default=false()),
)

#: The statements that lead to version 2, those that lead to version 3, … A released row never changes.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE reconciler_revisions ADD COLUMN stopped BOOLEAN NOT NULL DEFAULT FALSE",),
    (
        "ALTER TABLE reconciler_runs ADD COLUMN alive_until_s DOUBLE PRECISION",
        "ALTER TABLE reconciler_runs ADD COLUMN lifeline TEXT NOT NULL DEFAULT ''",
    ),
)


def latest(migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    """The version that these tables are of."""
    return 1 + len(migrations)


def stored_version(connection: Connection) -> int | None:
    """The version of the tables that are there; None if there are none.

    Raises:
        Damaged: there are tables and no version, so that what they hold cannot be read for certain.
    """
    inspector = inspect(connection)
    # Asked first: who makes the tables meanwhile makes the version with them.
    has_tables = inspector.has_table(REVISIONS.name)
    if inspector.has_table(VERSION.name):
        version: int | None = connection.execute(select(VERSION.c.version)).scalar()
        if version is not None and version >= 1:
            return version
    elif not has_tables:
        return None
    raise Damaged("malformed: the version of its tables is missing")


def migrate(connection: Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Make the tables, or lead those that are there to the latest version.

    The transaction is the caller's, and excludes everybody else who does the same.
    """
    found = stored_version(connection)
    if found is None:
        METADATA.create_all(connection)
        connection.execute(VERSION.insert().values(version=latest(migrations)))
    elif found < latest(migrations):
        for statement in (one for step in migrations[found - 1 :] for one in step):
            connection.execute(text(statement))
        connection.execute(VERSION.update().values(version=latest(migrations)))
