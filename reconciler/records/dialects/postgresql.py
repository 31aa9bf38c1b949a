"""Records on a PostgreSQL server, which any number of machines may share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    cast,
    create_engine,
    event,
    extract,
    func,
    select,
)
from sqlalchemy.dialects import postgresql

from reconciler.records import HasNow
from reconciler.records.dialect import BUSY_S, ErrorRow, OnConflict, ServerDialect
from reconciler.records.errors import UNREACHABLE, UNREADABLE, UNWRITABLE

#: Excludes others who make or change the tables of the same database at this moment.
_MIGRATION_LOCK = 0x7265636F6E63696C


class StoreDialect(OnConflict, ServerDialect):
    """PostgreSQL, by psycopg."""

    title = "PostgreSQL"
    insert = staticmethod(postgresql.insert)
    errors = (
        ErrorRow(
            "authentication failed",
            UNREACHABLE,
            "check the user and password of {place}, PGPASSWORD and ~/.pgpass",
        ),
        ErrorRow("no password supplied", UNREACHABLE, "give the password in PGPASSWORD or ~/.pgpass"),
        ErrorRow("does not exist", UNREACHABLE, "check the names in {place}, and create what is missing"),
        ErrorRow(
            "permission denied", UNWRITABLE, "GRANT the user of {place} the right to create and write tables"
        ),
        ErrorRow("read-only transaction", UNWRITABLE, "use the primary server, not a standby, in {place}"),
        ErrorRow("malformed", UNREADABLE, "restore {place} from a backup"),
        ErrorRow("lock timeout", UNWRITABLE, "another process is writing; retry"),
        ErrorRow("statement timeout", UNREACHABLE, "the server is too slow; retry"),
        ErrorRow("no answer within", UNREACHABLE, "the server does not respond; retry, or check it"),
        ErrorRow("cannot be imported", UNREACHABLE, "pip install 'psycopg[binary]'"),
        ErrorRow("", UNREACHABLE, "check that the server is running and reachable: psql {place}"),
    )

    def create_engine(self) -> Engine:
        """Make the connections."""
        # The driver is imported with it: one that is missing is told like any other failure.
        from reconciler.records.postgres import connect

        engine = create_engine(
            self.engine_url("postgresql+psycopg"),
            hide_parameters=True,
            pool_size=4,
            max_overflow=4,
            pool_timeout=BUSY_S,
            pool_pre_ping=True,
            # Statements that were prepared in one session are unknown in the next if a pooler hands it out.
            connect_args={"prepare_threshold": None},
        )

        @event.listens_for(engine, "do_connect")
        def do_connect(dialect: object, record: object, arguments: Any, options: dict[str, Any]) -> Any:
            return connect(*arguments, **options)

        return engine

    def now(self, clock: HasNow) -> ColumnElement[float]:
        """The server's time."""
        return cast(extract("epoch", func.clock_timestamp()), Double)

    @contextmanager
    def migrating(self, engine: Engine) -> Iterator[Connection]:
        """A transaction that excludes others who make or change the tables."""
        with engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection

    def message_of(self, error: BaseException) -> str:
        """The first line is the message; DETAIL, which follows, quotes rows."""
        return str(getattr(getattr(error, "diag", None), "message_primary", None) or error)
