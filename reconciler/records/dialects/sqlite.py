"""Records in a SQLite file, for all who work on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Connection, Double, Engine, create_engine, event, literal
from sqlalchemy.dialects import registry, sqlite
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.compiler import compiles

from reconciler.core.record import RecordsUnavailable
from reconciler.core.store_url import StoreUrl
from reconciler.errors import Diagnostic
from reconciler.records import HasNow
from reconciler.records.cells import IdCell
from reconciler.records.dialect import BUSY_S, Dialect, ErrorRow, OnConflict
from reconciler.records.errors import UNREACHABLE, UNREADABLE, UNWRITABLE
from reconciler.records.locks.process_lock import FileProcessLocks, remove_if_dead
from reconciler.records.sqlite.integrity import check_file, examine_file
from reconciler.records.sqlite.store_file import has_content

_MOVE_AWAY = "move it away; the next apply creates a new one: mv {place} {place}.broken"
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


@compiles(IdCell, "sqlite")
def _integer(*_: object, **__: object) -> str:
    """SQLite counts up a column only if it is INTEGER."""
    return "INTEGER"


class StoreDialect(OnConflict, Dialect):
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
        *(ErrorRow(said, UNREADABLE, _MOVE_AWAY) for said in _DAMAGES),
        ErrorRow("is full", UNWRITABLE, "free up space on the disk of {place}"),
        ErrorRow("disk i/o error", UNREADABLE, "check the disk of {place}"),
        ErrorRow("", UNREACHABLE, "check the file: ls -l {place}"),
    )

    def __init__(self, url: StoreUrl) -> None:
        super().__init__(url)
        self.path = Path("/" + url.name.lstrip("/"))
        self.process_locks = FileProcessLocks(self.path)
        self._turn = threading.Lock()

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def create_engine(self) -> Engine:
        """Make the connections."""
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

    def now(self, clock: HasNow) -> ColumnElement[float]:
        """This machine's time."""
        return literal(clock.now(), Double)

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
        """A transaction beside which nobody else writes, in a file whose journal is one of writes ahead."""
        # Two processes that make the same file at once cannot both switch its journal.
        with suppress(SQLAlchemyError), engine.connect() as connection:
            connection.execution_options(begin=None)
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        with self.writing(engine) as connection:
            yield connection

    def has_store(self) -> bool:
        """Whether there is a file with something in it."""
        return has_content(self.path)

    def make_store(self) -> None:
        """Make an empty file that nobody else can read; what SQLite puts beside it is as private."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The locks of a store that was moved away: beside an empty file they would mean that it was cut.
        for left in self.path.parent.glob(f"{escape(self.path.name)}.lock-*"):
            remove_if_dead(left)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def check(self, connection: Connection) -> None:
        """See that every table and column is there, and that what decisions rest on is unchanged."""
        check_file(connection)

    def examine(self, connection: Connection) -> None:
        """See that the whole file is sound."""
        examine_file(connection)
