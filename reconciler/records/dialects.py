"""The differences between SQLite and PostgreSQL. No other module depends on the database."""

from __future__ import annotations

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
from reconciler.files import private_file
from reconciler.records.file import (
    MOVE_AWAY,
    UNREACHABLE,
    UNREADABLE,
    UNWRITABLE,
    has_content,
    is_on_read_only_mount,
)
from reconciler.records.schema import TABLES, Damaged, row_reader

#: Timeout for another process's write and for a free connection, in seconds.
BUSY_S = 5.0


class Transaction:
    """Executes statements in one transaction. Parameters are written `:name`; a list follows `IN`."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self.connection, self._dialect = connection, dialect

    def execute(self, sql: str, **values: Any) -> Any:
        """Execute a statement, and return the driver's cursor."""
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
        """The first row, or None."""
        return next(iter(self.rows(sql, **values)), None)

    def value(self, sql: str, **values: Any) -> Any:
        """The first cell of the first row, or None."""
        return next(iter(self.row(sql, **values) or ()), None)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
        """Insert rows with the same columns. `conflict` is the ON CONFLICT clause."""
        if rows:
            sql = self._dialect.statement(f"{insertion(table, rows[0])} {conflict}")
            if len(rows) == 1:
                self.connection.execute(sql, rows[0])
            else:
                self.connection.cursor().executemany(sql, rows)

    def upsert(
        self, table: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]], **changes: str
    ) -> None:
        """Insert rows, or update those with the same key; `changes` overrides the update of columns."""
        for one in rows[:1]:
            new = {name: f"excluded.{name}" for name in one if name not in key} | changes
            sets = ", ".join(f"{name} = {value}" for name, value in new.items())
            self.insert(table, rows, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}")


def insertion(table: str, columns: Collection[str]) -> str:
    names, values = ", ".join(columns), ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


#: Begins a transaction with a statement.
Begin = Callable[[str], AbstractContextManager[Transaction]]


class Dialect(ABC):
    """A database at a URL. The defaults are those of a server."""

    #: A substring of the lower-case error message, what it means, and the fix, in which `{place}` is the file
    #: or the URL. The first match counts.
    errors: tuple[tuple[str, str, str], ...]
    #: Replacements in statements.
    words: tuple[tuple[str, str], ...]
    #: The query for the names of all tables.
    tables: str
    #: Maximum number of open connections.
    most_connections: int
    #: Exceptions of failed statements; those of the driver are added when it is imported.
    failures: tuple[type[Exception], ...] = (Damaged, PackageMissing)
    #: The file of the store, if any. Process locks are beside it.
    file: Path | None = None

    def __init__(self, url: StoreUrl) -> None:
        self.url, self.place = url, url.shown

    @abstractmethod
    def connect(self) -> Any:
        """Connect in autocommit mode, with timeouts."""

    def statement(self, sql: str) -> str:
        """Translate a statement."""
        for ours, theirs in self.words:
            sql = sql.replace(ours, theirs)
        return sql

    def writing(self, begin: Begin) -> AbstractContextManager[Transaction]:
        """A write transaction, which is on disk when the block ends."""
        return begin("BEGIN")

    @abstractmethod
    def migrating(self, begin: Begin) -> AbstractContextManager[Transaction]:
        """A transaction that excludes other migrations."""

    @abstractmethod
    def insert_numbered(self, transaction: Transaction, table: str, row: Mapping[str, Any]) -> int:
        """Insert a row, and return its `id`."""

    def is_lost(self, connection: Any) -> bool:
        """Whether a failed connection has to be replaced."""
        return False

    def has_store(self) -> bool:
        """Whether there is a database to open, which may be empty."""
        return True

    def make_store(self) -> None:
        """Create the database. On a server its administrator does that."""
        return

    def check(self, transaction: Transaction, *, is_thorough: bool = False) -> None:
        """Check the integrity of a store when it is opened; `is_thorough` may take long."""
        return

    def message_of(self, error: BaseException) -> str:
        """The message of the database, without values that were written."""
        return str(error)


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a URL.

    Raises:
        WrongUsage: it is not the URL of a store.
    """
    parsed = parse_store_url(url)
    return Sqlite(parsed) if parsed.kind.name == "sqlite" else Postgresql(parsed)


# --- SQLite


class Sqlite(Dialect):
    errors = (
        ("readonly", UNWRITABLE, "let this user write to the file and its directory: chmod u+w {place}"),
        ("unable to open", UNREACHABLE, "check the path, and that this user may open it: ls -l {place}"),
        ("locked", UNWRITABLE, "another process is writing; retry. To see which one: fuser {place}"),
        *((message, UNREADABLE, MOVE_AWAY) for message in ("malformed", "not a database", "no such")),
        ("is full", UNWRITABLE, "free up space on the disk of {place}"),
        ("", UNREACHABLE, "check the file: ls -l {place}"),
    )
    # Write transactions are exclusive, so rows need no locks.
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
        # SQLite's own files beside a store that can be written have no place on a read-only mount.
        is_fixed = is_on_read_only_mount(self.file) and not Path(f"{self.file}-wal").exists()
        connection = sqlite3.connect(
            f"{self.file.as_uri()}?immutable=1" if is_fixed else self.place,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
            uri=is_fixed,
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
        """An exclusive write transaction."""
        # Threads queue here, because waiting connections of SQLite poll.
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
        """An exclusive write transaction, after switching to a write-ahead log."""
        # Switching fails if another process does it at the same time.
        with suppress(sqlite3.Error), closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        with self.writing(begin) as transaction:
            yield transaction

    def insert_numbered(self, transaction: Transaction, table: str, row: Mapping[str, Any]) -> int:
        return int(transaction.execute(insertion(table, row), **row).lastrowid)

    def has_store(self) -> bool:
        return has_content(self.file)

    def make_store(self) -> None:
        """Create an empty private file. SQLite's other files get the same mode."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_file(self.file)

    def check(self, transaction: Transaction, *, is_thorough: bool = False) -> None:
        """Check that all tables and columns exist, and the integrity of the tables that decisions rest on."""
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


# --- PostgreSQL

#: The advisory lock that excludes other migrations.
_MIGRATION_LOCK = 0x7265636F6E63696C
#: Timeouts for a row lock and for a statement, in seconds.
ROW_S, STATEMENT_S = 15.0, 20.0
#: Network timeouts. Options in the URL take precedence.
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
        # The server's time, because the clocks of its clients may differ.
        ("clock_s()", "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"),
    )
    tables = "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)"
    most_connections = 8

    def statement(self, sql: str) -> str:
        return re.sub(r":(\w+)", r"%(\1)s", super().statement(sql))

    @property
    def options(self) -> dict[str, Any]:
        """The options of the driver. Those in the query of the URL take precedence."""
        url = self.url
        parts = {"user": url.user, "password": url.password, "host": url.host, "port": url.port}
        given = {name: ",".join(values) for name, values in url.options.items()}
        named = {name: value for name, value in parts.items() if value}
        return {**NETWORK, "dbname": url.name, **named, **given}

    def connect(self) -> Any:
        # Imported here, because few stacks need it.
        from reconciler.extras import missing

        try:
            import psycopg
        except ImportError:  # also if the driver lacks its library
            raise missing("psycopg") from None
        self.failures = (psycopg.Error, *Dialect.failures)
        # No prepared statements, because a connection pooler may switch sessions.
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
        """The first line: DETAIL, which follows, quotes rows."""
        return str(getattr(getattr(error, "diag", None), "message_primary", None) or error)
