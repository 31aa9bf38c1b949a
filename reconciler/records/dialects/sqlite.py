"""Records in a SQLite file, for all who work on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Engine,
    create_engine,
    event,
    exists,
    literal,
    select,
)
from sqlalchemy.dialects import registry, sqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.compiler import compiles

from reconciler.core.addresses import StoreUrl
from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic
from reconciler.records.dialects import BUSY_S, Dialect, ErrorRow
from reconciler.records.file import MOVE_AWAY, UNREACHABLE, UNREADABLE, UNWRITABLE, has_content
from reconciler.records.schema import DRIFT, KEYS, LOCKS, METADATA, REVISIONS, SCOPES, Damaged

#: What SQLite and its driver say of a file that was changed or cut.
_DAMAGES = (
    "not a database",
    "malformed",
    "no such table",
    "no such column",
    "duplicate column",
    "already exists",
    "constraint failed",
    "mismatch",
    "encoding",
    "could not decode",
    "too big",
    "out of memory",
    "unsupported file format",
)


class _Driver(SQLiteDialect_pysqlite):
    """The driver for every store of the process: to compile a statement takes longer than to execute it.

    SQLAlchemy keeps what it compiled by the driver that it was compiled for, of which each engine has one.
    What is compiled for one SQLite file is right for all, so they are equal.
    """

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Driver)

    def __hash__(self) -> int:
        return hash(_Driver)


registry.register("sqlite.shared", __name__, _Driver.__name__)
#: The statements that were compiled for it; there are as many as this package has.
_COMPILED: dict[Any, Any] = {}


@compiles(BigInteger, "sqlite")
def _integer(*_: object, **__: object) -> str:
    """SQLite counts up a column only if it is INTEGER."""
    return "INTEGER"


class StoreDialect(Dialect):
    """SQLite, by the driver of the standard library."""

    title = "SQLite"
    insert = staticmethod(sqlite.insert)
    errors = (
        ErrorRow(
            "readonly", UNWRITABLE, "let this user write to the file and its directory: chmod u+w {place}"
        ),
        ErrorRow(
            "unable to open", UNREACHABLE, "check the path, and that this user may open it: ls -l {place}"
        ),
        ErrorRow("locked", UNWRITABLE, "another process is writing; retry. To see which one: fuser {place}"),
        *(ErrorRow(said, UNREADABLE, MOVE_AWAY) for said in _DAMAGES),
        ErrorRow("is full", UNWRITABLE, "free up space on the disk of {place}"),
        ErrorRow("disk i/o error", UNREADABLE, "check the disk of {place}"),
        ErrorRow("", UNREACHABLE, "check the file: ls -l {place}"),
    )

    def __init__(self, url: StoreUrl) -> None:
        super().__init__(url)
        self.file: Path = Path("/" + url.name.lstrip("/"))
        self._turn = threading.Lock()

    @property
    def place(self) -> str:
        return str(self.file)

    def create_engine(self) -> Engine:
        engine = create_engine(
            URL.create("sqlite+shared", database=self.place),
            connect_args={"timeout": BUSY_S},
            execution_options={"compiled_cache": _COMPILED},
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
            # A second copy of each row that decisions rest on, kept by SQLite: a byte that changes differs
            # from its copy then, and `PRAGMA integrity_check` tells.
            for table in (LOCKS, REVISIONS, KEYS, DRIFT):
                name = table.name.replace("_", "_copy_of_", 1)
                columns = ", ".join(f'"{column.name}"' for column in table.c)
                connection.exec_driver_sql(f"DROP INDEX IF EXISTS {name}")
                connection.exec_driver_sql(f"CREATE INDEX {name} ON {table.name} ({columns})")

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
        # A scope is looked for by its parts, so one that is damaged would be none, and its history empty.
        connection.execute(select(SCOPES)).all()
        # A revision of a scope that does not exist is never found. (To SQLite, NULL refers to nothing.)
        is_lost = REVISIONS.c.scope_id.is_(None) | REVISIONS.c.scope_id.not_in(select(SCOPES.c.id))
        if connection.execute(select(literal(1)).where(exists().where(is_lost))).first() is not None:
            raise Damaged("a revision belongs to no stack")
        parts = [f"('{table.name}')" for table in (SCOPES, REVISIONS, LOCKS)]
        for part in [""] if is_thorough else parts:
            found = connection.exec_driver_sql(f"PRAGMA integrity_check{part}").scalars().first()
            if found != "ok":
                raise Damaged(str(found))
        if is_thorough and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise Damaged("a row refers to another one that does not exist")
