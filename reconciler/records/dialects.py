"""What SQLite and PostgreSQL do each in its own way; the rest of the records does not ask which one it is."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from reconciler.core.addresses import StoreUrl, parse_store_url
from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic, PackageMissing
from reconciler.records.file import MOVE_AWAY, UNREACHABLE, UNREADABLE, UNWRITABLE, has_content
from reconciler.records.schema import TABLES, Damaged, row_reader

#: How long another process's write, or a free connection, is waited for; seconds.
BUSY_S = 5.0


class Transaction:
    """Statements inside one transaction. Values have names, `:name`; a list of them follows `IN`."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self.connection, self._dialect = connection, dialect

    def execute(self, sql: str, **values: Any) -> Any:
        """Execute a statement; returns the cursor of the driver."""
        for name, several in [(n, value) for n, value in values.items() if isinstance(value, list)]:
            each = {f"{name}{position}": value for position, value in enumerate(several)}
            sql = sql.replace(f"IN :{name}", f"IN ({', '.join(f':{one}' for one in each) or 'NULL'})")
            values |= each
        return self.connection.execute(self._dialect.statement(sql), values)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = self.execute(sql, **values)
        read = row_reader(tuple([column[0] for column in cursor.description]))
        return list(map(read, cursor.fetchall()))

    def row(self, sql: str, **values: Any) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        return next(iter(self.rows(sql, **values)), None)

    def value(self, sql: str, **values: Any) -> Any:
        """The first cell of the first row, if there is one."""
        return next(iter(self.row(sql, **values) or ()), None)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
        """Insert rows of the same columns; `conflict` says what to do about one that is there already."""
        if rows:
            sql = self._dialect.statement(f"{insertion(table, rows[0])} {conflict}")
            if len(rows) == 1:
                self.connection.execute(sql, rows[0])
            else:
                self.connection.cursor().executemany(sql, rows)

    def upsert(
        self, table: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]], **changes: str
    ) -> None:
        """Insert rows, or change those of the same key to the new values, unless `changes` says otherwise."""
        for one in rows[:1]:
            new = {name: f"excluded.{name}" for name in one if name not in key} | changes
            sets = ", ".join(f"{name} = {value}" for name, value in new.items())
            self.insert(table, rows, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}")


def insertion(table: str, columns: Collection[str]) -> str:
    names, values = ", ".join(columns), ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


#: Begins a transaction, with a statement of the database.
Begin = Callable[[str], AbstractContextManager[Transaction]]


class Dialect(ABC):
    """One database, at one URL. What is not overridden is right for a server, which keeps its own files."""

    #: A text of the database in lower case, what it means, and the fix, where `{place}` is the file or the
    #: URL. The first row whose text is in what the database says counts.
    errors: tuple[tuple[str, str, str], ...]
    #: What our statements say, and how the database says it.
    words: tuple[tuple[str, str], ...]
    #: The names of all tables.
    tables: str
    #: So many connections are open at most.
    most_connections: int
    #: What is raised where a statement fails; what the driver raises is known once it is imported.
    failures: tuple[type[Exception], ...] = (Damaged, PackageMissing)
    #: The file of the store, if it is one: process locks lie beside it.
    file: Path | None = None

    def __init__(self, url: StoreUrl) -> None:
        self.url, self.place = url, url.shown

    @abstractmethod
    def connect(self) -> Any:
        """Connect, for transactions that begin and end by statements. Nothing is waited for without end."""

    def statement(self, sql: str) -> str:
        """A statement of ours in the words of the database."""
        for ours, theirs in self.words:
            sql = sql.replace(ours, theirs)
        return sql

    def writing(self, begin: Begin) -> AbstractContextManager[Transaction]:
        """A transaction that is on disk when it ends; rows that must hold still are locked in it."""
        return begin("BEGIN")

    @abstractmethod
    def migrating(self, begin: Begin) -> AbstractContextManager[Transaction]:
        """A transaction that excludes others who make or change the tables."""

    @abstractmethod
    def insert_numbered(self, transaction: Transaction, table: str, row: Mapping[str, Any]) -> int:
        """Insert a row; returns the `id` that it got."""

    def is_lost(self, connection: Any) -> bool:
        """Whether a connection that failed is of no use any more; a new one may be."""
        return False

    def has_store(self) -> bool:
        """Whether something is there that can be opened; what is in it, its tables tell."""
        return True

    def make_store(self) -> None:
        """Make what can be opened. A database on a server is made by whoever runs it."""
        return

    def check(self, transaction: Transaction, *, is_thorough: bool = False) -> None:
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


class Sqlite(Dialect):
    errors = (
        ("readonly", UNWRITABLE, "let this user write to the file and its directory: chmod u+w {place}"),
        ("unable to open", UNREACHABLE, "check the path, and that this user may open it: ls -l {place}"),
        ("locked", UNWRITABLE, "another process is writing; retry. To see which one: fuser {place}"),
        *((said, UNREADABLE, MOVE_AWAY) for said in ("malformed", "not a database", "no such")),
        ("is full", UNWRITABLE, "free up space on the disk of {place}"),
        ("", UNREACHABLE, "check the file: ls -l {place}"),
    )
    # Nobody else writes beside a transaction that does, so that its rows hold still.
    words = ((" FOR UPDATE", ""), (" FOR SHARE", ""), ("clock_s()", ":clock_s"), ("BIGINT", "INTEGER"))
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
    #: A commit is on disk when it returns.
    synchronous = "FULL"
    most_connections = 15
    failures = (sqlite3.Error, *Dialect.failures)

    def __init__(self, url: StoreUrl) -> None:
        super().__init__(url)
        self.file: Path = Path("/" + url.name.lstrip("/"))
        self.place = str(self.file)
        self._turn = threading.Lock()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.place, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:  # a damaged or locked file
            connection.close()
            raise
        return connection

    @contextmanager
    def writing(self, begin: Begin) -> Iterator[Transaction]:
        """A transaction beside which nobody else writes."""
        # SQLite makes those who wait for another connection poll; threads can be told.
        if not self._turn.acquire(timeout=2 * BUSY_S):
            why = f"{self.url.shown}: another thread is still using the connection"
            raise RecordsUnavailable(Diagnostic(UNWRITABLE, why))
        try:
            with begin("BEGIN IMMEDIATE") as transaction:
                yield transaction
        finally:
            self._turn.release()

    @contextmanager
    def migrating(self, begin: Begin) -> Iterator[Transaction]:
        """A transaction beside which nobody else writes, in a file with a write-ahead log."""
        # Two processes that make the same file at once cannot both switch its journal.
        with suppress(sqlite3.Error), closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        with self.writing(begin) as transaction:
            yield transaction

    def insert_numbered(self, transaction: Transaction, table: str, row: Mapping[str, Any]) -> int:
        return int(transaction.execute(insertion(table, row), **row).lastrowid)

    def has_store(self) -> bool:
        return has_content(self.file)

    def make_store(self) -> None:
        """Make an empty file that nobody else can read; what SQLite puts beside it is as private."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def check(self, transaction: Transaction, *, is_thorough: bool = False) -> None:
        """Check that every table and column is there, and that SQLite finds what decisions rest on sound."""
        execute = transaction.connection.execute
        for table, columns in TABLES.items():
            execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 0")
        parts = [f"('reconciler_{name}')" for name in ("scopes", "revisions", "locks")]
        for part in [""] if is_thorough else parts:
            (found,) = execute(f"PRAGMA integrity_check{part}").fetchone()
            if found != "ok":
                raise Damaged(str(found))
        if is_thorough and execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise Damaged("a row refers to another one that does not exist")


# --- a PostgreSQL server, which any number of machines may share

#: Excludes others who make or change the tables of the same database at this moment.
_MIGRATION_LOCK = 0x7265636F6E63696C
#: How long the server waits for a row that another process holds, and for a statement to end; seconds.
ROW_S, STATEMENT_S = 15.0, 20.0
#: What the network does to a server that vanished; options in the URL go before these.
NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "reconciler",
}


class Postgresql(Dialect):
    errors = (
        ("password", UNREACHABLE, "check the user and password of {place}, PGPASSWORD and ~/.pgpass"),
        ("does not exist", UNREACHABLE, "check the names in {place}, and create what is missing"),
        ("permission denied", UNWRITABLE, "GRANT the user of {place} the right to create and write tables"),
        ("malformed", UNREADABLE, "restore {place} from a backup"),
        ("lock timeout", UNWRITABLE, "another process is writing; retry"),
        ("", UNREACHABLE, "check that the server is running and reachable: psql {place}"),
    )
    words = (
        ("INTEGER NOT NULL PRIMARY KEY", "BIGSERIAL NOT NULL PRIMARY KEY"),
        (" AUTOINCREMENT", ""),
        # Machines that share a server may disagree about the time.
        ("clock_s()", "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"),
    )
    tables = "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)"
    most_connections = 8

    def statement(self, sql: str) -> str:
        return re.sub(r":(\w+)", r"%(\1)s", super().statement(sql))

    @property
    def options(self) -> dict[str, Any]:
        """What the driver is told. The options behind the question mark go before the rest of the URL."""
        url = self.url
        parts = {"user": url.user, "password": url.password, "host": url.host, "port": url.port}
        given = {name: ",".join(values) for name, values in url.options.items()}
        # Several hosts are written `host=a:5432&host=b:5432`, or as the driver wants them.
        hosts = [re.fullmatch(r"([\w.-]*)(?::(\d*))?", one) for one in url.options.get("host", ())]
        if "port" not in given and hosts and all(hosts):
            given["host"] = ",".join(host[1] for host in hosts if host)
            if any(ports := [host[2] or "" for host in hosts if host]):
                given["port"] = ",".join(ports)
        named = {name: value for name, value in parts.items() if value}
        return {**NETWORK, "dbname": url.name, **named, **given}

    def connect(self) -> Any:
        # Imported here, for few stacks need it; one that is missing is reported like any other failure.
        from reconciler.extras import missing

        try:
            import psycopg
        except ImportError:  # or there is a driver without its library
            raise missing("psycopg") from None
        self.failures = (psycopg.Error, *Dialect.failures)
        # Statements that were prepared in one session are unknown in the next if a pooler hands it out.
        connection = psycopg.connect(autocommit=True, prepare_threshold=None, **self.options)
        try:
            connection.execute(f"SET statement_timeout = {STATEMENT_S * 1000:.0f}")
            connection.execute(f"SET lock_timeout = {ROW_S * 1000:.0f}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def migrating(self, begin: Begin) -> Iterator[Transaction]:
        with self.writing(begin) as transaction:
            transaction.execute("SELECT pg_advisory_xact_lock(:lock)", lock=_MIGRATION_LOCK)
            yield transaction

    def insert_numbered(self, transaction: Transaction, table: str, row: Mapping[str, Any]) -> int:
        return int(transaction.value(f"{insertion(table, row)} RETURNING id", **row))

    def is_lost(self, connection: Any) -> bool:
        return bool(connection.closed)

    def message_of(self, error: BaseException) -> str:
        """The first line is the message; DETAIL, which follows, quotes rows."""
        return str(getattr(getattr(error, "diag", None), "message_primary", None) or error)
