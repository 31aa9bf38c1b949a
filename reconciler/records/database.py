"""The database behind a store: its connections, its transactions, its failures and its clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Engine,
    Table,
    cast,
    create_engine,
    event,
    extract,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from reconciler.core.diagnostic import Diagnostic
from reconciler.core.record import RecordsUnavailable
from reconciler.records import HasNow, schema
from reconciler.records.cells import damaged
from reconciler.records.errors import UNWRITABLE, away, too_new
from reconciler.records.sqlite.integrity import check_file
from reconciler.records.url import Address

#: How long somebody else's write is waited for.
_BUSY_S = 5.0
#: Excludes others who make or change the tables of the same PostgreSQL database at this moment.
_MIGRATION_LOCK = 0x7265636F6E63696C


class Database:
    """An open database. Safe to use from threads; everything that fails is a `RecordsUnavailable`."""

    def __init__(self, address: Address, clock: HasNow, redact: Callable[[str], str]) -> None:
        self.address, self.clock = address, clock
        self._redact = redact
        self._turn = threading.Lock()
        with self.told():
            self._engine = _sqlite(address) if address.path else _postgresql(address)
            self._immediate = self._engine.execution_options(begin="BEGIN IMMEDIATE")

    @property
    def path(self) -> Path | None:
        """The SQLite file."""
        return self.address.path

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read inside one transaction."""
        with self.told(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write inside one transaction, which is on disk when this returns.

        On SQLite nobody else writes meanwhile; on PostgreSQL rows that must hold still are locked.
        """
        if self.path is None:
            with self.told(), self._engine.begin() as connection:
                yield connection
            return
        # SQLite makes those who wait for another connection poll; threads can be told.
        if not self._turn.acquire(timeout=2 * _BUSY_S):
            raise RecordsUnavailable(
                Diagnostic(UNWRITABLE, f"{self.address.shown}: another thread is still using the connection")
            )
        try:
            with self.told(), self._immediate.begin() as connection:
                yield connection
        finally:
            self._turn.release()

    def now(self) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement.

        Machines that share a PostgreSQL server may disagree about the time, so it is the server's.
        """
        if self.path is not None:
            return literal(self.clock.now(), Double)
        return cast(extract("epoch", func.clock_timestamp()), Double)

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert that can say what is to happen if the row is there."""
        return sqlite.insert(table) if self.path is not None else postgresql.insert(table)

    def prepare(self, *, create: bool, migrations: Sequence[Sequence[str]] = schema.MIGRATIONS) -> bool:
        """Bring the tables to the latest version; False if there are none and none are to be made.

        Raises:
            RecordsUnavailable: the tables are of a version that this program does not know yet, or damaged.
        """
        with self.reading() as connection:
            found = schema.stored_version(connection)
        known = schema.latest(migrations)
        if found is None and not create:
            return False
        if found is not None and found > known:
            raise too_new(self.address, found, known)
        if found != known:
            self._migrate(migrations)
        if self.path is not None:
            with self.reading() as connection:
                check_file(connection)
        return True

    def _migrate(self, migrations: Sequence[Sequence[str]]) -> None:
        if self.path is not None:
            # Two processes that make the same file at once cannot both switch its journal.
            with suppress(SQLAlchemyError), self._engine.connect() as connection:
                connection.execution_options(begin=None)
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        with self.writing() as connection:
            if self.path is None:
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            schema.migrate(connection, migrations)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn what goes wrong with what is in the store into a `RecordsUnavailable`, which says it."""
        try:
            yield
        except (SQLAlchemyError, ImportError) as error:
            raise self.away(error) from None
        except (UnicodeError, OverflowError, MemoryError) as error:
            # The driver for SQLite met a text, number or length that no value can hold.
            raise self.away(damaged(str(error) or type(error).__name__)) from None

    def away(self, error: Exception) -> RecordsUnavailable:
        """Say what a failure means."""
        return away(error, self.address, self._redact)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _sqlite(address: Address) -> Engine:
    engine = create_engine(
        address.url, connect_args={"timeout": _BUSY_S}, hide_parameters=True, pool_timeout=_BUSY_S
    )

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:
        # Transactions begin when `begin` below says so, and not when the driver thinks best.
        connection.isolation_level = None
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            # A damaged or locked file. Not every SQLAlchemy 2.0 closes what its listeners refused.
            connection.close()
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if statement := connection.get_execution_options().get("begin", "BEGIN"):
            connection.exec_driver_sql(statement)

    return engine


def _postgresql(address: Address) -> Engine:
    from reconciler.records.postgres import connect

    engine = create_engine(
        address.url,
        hide_parameters=True,
        pool_size=4,
        max_overflow=4,
        pool_timeout=_BUSY_S,
        pool_pre_ping=True,
        # Statements that were prepared in one session are unknown in the next if a pooler hands it out.
        connect_args={"prepare_threshold": None},
    )

    @event.listens_for(engine, "do_connect")
    def do_connect(dialect: object, record: object, arguments: Any, options: dict[str, Any]) -> Any:
        return connect(*arguments, **options)

    return engine
