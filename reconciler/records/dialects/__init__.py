"""What each database does in its own way; the rest of the records does not ask which database it is.

A database needs a row in `core.addresses.STORES`, and a module of the same name with a `StoreDialect`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, ColumnElement, Connection, Engine, Table
from sqlalchemy.dialects.postgresql import Insert as PostgresqlInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.sql.dml import Insert

from reconciler.core.addresses import StoreUrl, parse_store_url

#: How long another process's write, or a free connection, is waited for; seconds.
BUSY_S = 5.0

#: From the row that would be new: the columns to set in the one that is there, by name.
Changes = Callable[[Any], Mapping[str, ColumnElement[Any]]]


class ErrorRow(NamedTuple):
    """A text of a database in lower case, what it means, and the fix; `{place}` is the file or the URL."""

    says: str
    what: str
    fix: str


class Dialect(ABC):
    """One database, at one URL. What is not overridden is right for a server, which keeps its own files."""

    #: The first row whose text is in what the database says counts; the last one has "".
    errors: tuple[ErrorRow, ...]
    #: What is called missing if the driver cannot be imported.
    title: str
    #: The insert of a database that knows ON CONFLICT; another one overrides the two methods that use it.
    insert: Callable[[Table], SqliteInsert | PostgresqlInsert]
    #: The file of the store, if it is one: process locks lie beside it.
    file: Path | None = None

    def __init__(self, url: StoreUrl) -> None:
        self.url = url

    @property
    def place(self) -> str:
        """What a fix names."""
        return self.url.shown

    @abstractmethod
    def create_engine(self) -> Engine:
        """Make the connections. On none of them anything is waited for without end."""

    def engine_url(self, driver: str) -> URL:
        """The URL of a server as SQLAlchemy takes it; `driver` is a name like `postgresql+psycopg`."""
        url = self.url
        options = {name: found[0] if len(found) == 1 else found for name, found in url.options.items()}
        return URL.create(driver, url.user, url.password, url.host, url.port, url.name, options)

    @abstractmethod
    def now(self, clock_s: float) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement; `clock_s` is the time of this machine.

        Machines that share a server may disagree about the time, so there it is the server's.
        """

    def insert_missing(self, table: Table) -> Insert:
        """An insert that leaves a row that is there already as it is."""
        return self.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, changes: Changes) -> Insert:
        """An insert that changes the row that is there already.

        The changes keep their order, in which no column stands before one that is computed from its old
        value: some databases set one after another.
        """
        insertion = self.insert(table)
        key = [column.name for column in table.primary_key]
        return insertion.on_conflict_do_update(index_elements=key, set_=dict(changes(insertion.excluded)))

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that is on disk when it ends; rows that must hold still are locked in it."""
        return engine.begin()

    @abstractmethod
    def migrating(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that excludes others who make or change the tables."""

    def has_store(self) -> bool:
        """Whether something is there that can be opened; what is in it, its tables tell.

        Raises:
            RecordsUnavailable: something else is there.
        """
        return True

    def make_store(self) -> None:
        """Make what can be opened. A database on a server is made by whoever runs it.

        Raises:
            OSError: it cannot be made.
        """
        return

    def check(self, connection: Connection, *, is_thorough: bool = False) -> None:
        """Check that a store is whole, each time that it is opened; `is_thorough` however long that takes.

        Raises:
            Damaged: it is not. Other failures of the database say the same.
        """
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
    module = import_module(f"reconciler.records.dialects.{parsed.kind.name}")
    dialect: Dialect = module.StoreDialect(parsed)
    return dialect
