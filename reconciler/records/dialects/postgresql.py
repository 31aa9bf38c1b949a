"""Records on a PostgreSQL server, which any number of machines may share."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
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

from reconciler.records.dialects import BUSY_S, Dialect, ErrorRow
from reconciler.records.file import UNREACHABLE, UNREADABLE, UNWRITABLE

#: Excludes others who make or change the tables of the same database at this moment.
_MIGRATION_LOCK = 0x7265636F6E63696C
#: How long the server waits for a row that another process holds and for a statement to end, and we wait for
#: a server that does not even say that it did not; seconds.
ROW_S, STATEMENT_S, ANSWER_S = 5.0, 10.0, 15.0
#: What the network does to a server that vanished; options in the URL go before these.
_NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "application_name": "reconciler",
}


class StoreDialect(Dialect):
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
        # The driver is imported here: one that is missing is reported like any other failure.
        import psycopg

        class TimedConnection(psycopg.Connection[Any]):
            """Gives up on a server that took a statement and does not answer: it hangs, or is cut off."""

            def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
                return super().wait(self._until(gen, time.monotonic() + ANSWER_S), *args, **options)

            def _until(self, gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
                # The driver polls ten times a second, also if nothing has come (before 3.3 it did not).
                try:
                    wanted = next(gen)
                    while True:
                        ready = yield wanted
                        if not ready and time.monotonic() > deadline:
                            self.pgconn.finish()
                            raise psycopg.OperationalError(f"no answer within {ANSWER_S:g} s")
                        wanted = gen.send(ready)
                except StopIteration as end:
                    return end.value

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
            connection = TimedConnection.connect(*arguments, **{**_NETWORK, **options})
            with connection.cursor() as cursor:
                cursor.execute(f"SET statement_timeout = {STATEMENT_S * 1000:.0f}")
                cursor.execute(f"SET lock_timeout = {ROW_S * 1000:.0f}")
            connection.commit()
            return connection

        return engine

    def now(self, clock_s: float) -> ColumnElement[float]:
        return cast(extract("epoch", func.clock_timestamp()), Double)

    @contextmanager
    def migrating(self, engine: Engine) -> Iterator[Connection]:
        with engine.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            yield connection

    def message_of(self, error: BaseException) -> str:
        """The first line is the message; DETAIL, which follows, quotes rows."""
        return str(getattr(getattr(error, "diag", None), "message_primary", None) or error)
