"""What SQLite and PostgreSQL do each in its own way; the rest of the records does not ask which one it is."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    BigInteger,
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
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import Insert

from reconciler.core.addresses import StoreUrl, parse_store_url
from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic
from reconciler.records.file import MOVE_AWAY, UNREACHABLE, UNREADABLE, UNWRITABLE, has_content
from reconciler.records.schema import LOCKS, METADATA, REVISIONS, SCOPES, Damaged

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

#: How long another process's write, or a free connection, is waited for; seconds.
BUSY_S = 5.0

#: From the row that would be new: the columns to set in the one that is there, by name.
Changes = Callable[[Any], Mapping[str, ColumnElement[Any]]]


class Dialect(ABC):
    """One database, at one URL. What is not overridden is right for a server, which keeps its own files."""

    #: A text of the database in lower case, what it means, and the fix, where `{place}` is the file or the
    #: URL. The first row whose text is in what the database says counts.
    errors: tuple[tuple[str, str, str], ...]
    #: What is called missing if the driver cannot be imported.
    title: str
    #: The file of the store, if it is one: process locks lie beside it.
    file: Path | None = None

    def __init__(self, url: StoreUrl) -> None:
        self.url, self.place = url, url.shown

    @abstractmethod
    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert in the words of the database."""

    @abstractmethod
    def create_engine(self) -> Engine:
        """Make the connections. On none of them anything is waited for without end."""

    @abstractmethod
    def now(self, clock_s: float) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement; `clock_s` is the time of this machine.

        Machines that share a server may disagree about the time, so there it is the server's.
        """

    @abstractmethod
    def migrating(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that excludes others who make or change the tables."""

    def insert_missing(self, table: Table) -> Insert:
        """An insert that leaves a row that is there already as it is."""
        return self.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, changes: Changes) -> Insert:
        """An insert that changes the row that is there already."""
        insertion = self.insert(table)
        key = [column.name for column in table.primary_key]
        return insertion.on_conflict_do_update(index_elements=key, set_=dict(changes(insertion.excluded)))

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that is on disk when it ends; rows that must hold still are locked in it."""
        return engine.begin()

    def has_store(self) -> bool:
        """Whether something is there that can be opened; what is in it, its tables tell."""
        return True

    def make_store(self) -> None:
        """Make what can be opened. A database on a server is made by whoever runs it."""
        return

    def check(self, connection: Connection, *, is_thorough: bool = False) -> None:
        """Check that a store is whole, each time that it is opened; `is_thorough` however long that takes."""
        return

    def message_of(self, error: BaseException) -> str:
        """The database's own words for what its driver raised; never what was written."""
        return str(error)


def dialect_of(url: str) -> Dialect:
    """The database that a URL means.

    Raises:
        WrongUsage: it is not the URL of a store.
    """
    parsed = parse_store_url(url)
    return Sqlite(parsed) if parsed.kind.name == "sqlite" else Postgresql(parsed)


# --- a SQLite file, for all who work on this machine


@compiles(BigInteger, "sqlite")
def _integer(*_: object, **__: object) -> str:
    """SQLite counts up a column only if it is INTEGER."""
    return "INTEGER"


class Sqlite(Dialect):
    title = "SQLite"
    errors = (
        ("readonly", UNWRITABLE, "let this user write to the file and its directory: chmod u+w {place}"),
        ("unable to open", UNREACHABLE, "check the path, and that this user may open it: ls -l {place}"),
        ("locked", UNWRITABLE, "another process is writing; retry. To see which one: fuser {place}"),
        *((said, UNREADABLE, MOVE_AWAY) for said in ("malformed", "not a database", "no such")),
        ("is full", UNWRITABLE, "free up space on the disk of {place}"),
        ("", UNREACHABLE, "check the file: ls -l {place}"),
    )

    def __init__(self, url: StoreUrl) -> None:
        super().__init__(url)
        self.file: Path = Path("/" + url.name.lstrip("/"))
        self.place = str(self.file)
        self._turn = threading.Lock()

    def insert(self, table: Table) -> sqlite.Insert:
        return sqlite.insert(table)

    def create_engine(self) -> Engine:
        engine = create_engine(
            URL.create("sqlite", database=self.place),
            connect_args={"timeout": BUSY_S},
            hide_parameters=True,
            pool_timeout=BUSY_S,
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

    def now(self, clock_s: float) -> ColumnElement[float]:
        return literal(clock_s, Double)

    @contextmanager
    def writing(self, engine: Engine) -> Iterator[Connection]:
        """A transaction beside which nobody else writes."""
        # SQLite makes those who wait for another connection poll; threads can be told.
        if not self._turn.acquire(timeout=2 * BUSY_S):
            why = f"{self.url.shown}: another thread is still using the connection"
            raise RecordsUnavailable(Diagnostic(UNWRITABLE, why))
        try:
            with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
                yield connection
        finally:
            self._turn.release()

    @contextmanager
    def migrating(self, engine: Engine) -> Iterator[Connection]:
        """A transaction beside which nobody else writes, in a file with a write-ahead log."""
        # Two processes that make the same file at once cannot both switch its journal.
        with suppress(SQLAlchemyError), engine.connect() as connection:
            connection.execution_options(begin=None)
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        with self.writing(engine) as connection:
            yield connection

    def has_store(self) -> bool:
        return has_content(self.file)

    def make_store(self) -> None:
        """Make an empty file that nobody else can read; what SQLite puts beside it is as private."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def check(self, connection: Connection, *, is_thorough: bool = False) -> None:
        """Check that every table and column is there, and that SQLite finds what decisions rest on sound."""
        for table in METADATA.sorted_tables:
            connection.execute(select(table).limit(0))
        parts = [f"('{table.name}')" for table in (SCOPES, REVISIONS, LOCKS)]
        for part in [""] if is_thorough else parts:
            found = connection.exec_driver_sql(f"PRAGMA integrity_check{part}").scalars().first()
            if found != "ok":
                raise Damaged(str(found))
        if is_thorough and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise Damaged("a row refers to another one that does not exist")


# --- a PostgreSQL server, which any number of machines may share

#: Excludes others who make or change the tables of the same database at this moment.
_MIGRATION_LOCK = 0x7265636F6E63696C
#: How long the server waits for a row that another process holds, and for a statement to end; seconds.
ROW_S, STATEMENT_S = 15.0, 20.0
#: What the network does to a server that vanished; options in the URL go before these.
_NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "reconciler",
}


class Postgresql(Dialect):
    title = "PostgreSQL"
    errors = (
        ("password", UNREACHABLE, "check the user and password of {place}, PGPASSWORD and ~/.pgpass"),
        ("does not exist", UNREACHABLE, "check the names in {place}, and create what is missing"),
        ("permission denied", UNWRITABLE, "GRANT the user of {place} the right to create and write tables"),
        ("malformed", UNREADABLE, "restore {place} from a backup"),
        ("lock timeout", UNWRITABLE, "another process is writing; retry"),
        ("cannot be imported", UNREACHABLE, "pip install 'psycopg[binary]'"),
        ("", UNREACHABLE, "check that the server is running and reachable: psql {place}"),
    )

    @property
    def engine_url(self) -> URL:
        url = self.url
        options = {name: found[0] if len(found) == 1 else found for name, found in url.options.items()}
        return URL.create("postgresql+psycopg", url.user, url.password, url.host, url.port, url.name, options)

    def insert(self, table: Table) -> postgresql.Insert:
        from sqlalchemy.dialects import postgresql  # a store in a file needs none of it

        return postgresql.insert(table)

    def create_engine(self) -> Engine:
        # The driver is imported here: one that is missing is reported like any other failure.
        import psycopg

        engine = create_engine(
            self.engine_url,
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
            connection = psycopg.connect(*arguments, **{**_NETWORK, **options})
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
