"""What a database does in its own way: the rest of the records asks here, and never which database it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple

from sqlalchemy import URL, ColumnElement, Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from reconciler.core.store_url import StoreUrl, parse_store_url
from reconciler.records import HasNow
from reconciler.records.locks.process_lock import ProcessLocks

#: How long somebody else's write, or a free connection, is waited for.
BUSY_S = 5.0

#: From the row that would be new: the columns to set in the one that is there, by name.
Changes = Callable[[Any], Mapping[str, ColumnElement[Any]]]


class ErrorRow(NamedTuple):
    """A text of a database in lower case, what it means, and the fix; `{place}` is the file or the URL."""

    says: str
    what: str
    fix: str


class Dialect(ABC):
    """One database, at one URL."""

    #: The first row whose text is in what the database says counts; the last one has "".
    errors: tuple[ErrorRow, ...]
    #: What is called missing if the driver cannot be imported.
    title: str

    def __init__(self, url: StoreUrl) -> None:
        self.url = url
        self.process_locks = ProcessLocks()

    @property
    def place(self) -> str:
        """What a fix names."""
        return self.url.shown

    @abstractmethod
    def create_engine(self) -> Engine:
        """Make the connections. On none of them anything is waited for without end."""

    @abstractmethod
    def now(self, clock: HasNow) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement.

        Machines that share a server may disagree about the time, so there it is the server's, not `clock`.
        """

    @abstractmethod
    def insert_missing(self, table: Table) -> Insert:
        """An insert that leaves a row that is there already as it is."""

    @abstractmethod
    def upsert(self, table: Table, changes: Changes) -> Insert:
        """An insert that changes the row that is there already.

        The changes keep their order, in which no column stands before one that is reckoned from its old
        value: some databases set one after another.
        """

    @abstractmethod
    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that is on disk when it ends; rows that must hold still are locked in it."""

    @abstractmethod
    def migrating(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that excludes others who make or change the tables."""

    @abstractmethod
    def has_store(self) -> bool:
        """Whether something is there that can be opened; what is in it, its tables tell.

        Raises:
            RecordsUnavailable: something else is there.
        """

    @abstractmethod
    def make_store(self) -> None:
        """Make what can be opened.

        Raises:
            OSError: it cannot be made.
        """

    @abstractmethod
    def check(self, connection: Connection) -> None:
        """See, each time a store is opened, that it is whole.

        Raises:
            Damaged: it is not.
        """

    @abstractmethod
    def examine(self, connection: Connection) -> None:
        """See that it is whole however long that takes.

        Raises:
            Damaged: it is not.
        """

    def message_of(self, error: BaseException) -> str:
        """The database's own words for what its driver raised; never what was written."""
        return str(error)


class ServerDialect(Dialect):
    """A server that others share. It looks after its own files, and only its tables tell what is there."""

    def engine_url(self, driver: str) -> URL:
        """The URL as SQLAlchemy takes it; `driver` is a name like `postgresql+psycopg`."""
        url = self.url
        options = {name: found[0] if len(found) == 1 else found for name, found in url.options.items()}
        return URL.create(driver, url.user, url.password, url.host, url.port, url.name, options)

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction."""
        return engine.begin()

    def has_store(self) -> bool:
        """Something can always be opened."""
        return True

    def make_store(self) -> None:
        """A database is made by whoever runs the server."""

    def check(self, connection: Connection) -> None:
        """The server sees to that."""

    def examine(self, connection: Connection) -> None:
        """The server sees to that."""


class OnConflict:
    """The inserts of databases that know ON CONFLICT."""

    insert: Callable[[Table], sqlite.Insert | postgresql.Insert]

    def insert_missing(self, table: Table) -> Insert:
        """An insert that leaves a row that is there already as it is."""
        return self.insert(table).on_conflict_do_nothing()

    def upsert(self, table: Table, changes: Changes) -> Insert:
        """An insert that changes the row that is there already."""
        insertion = self.insert(table)
        key = [column.name for column in table.primary_key]
        return insertion.on_conflict_do_update(index_elements=key, set_=dict(changes(insertion.excluded)))


def dialect_of(url: str) -> Dialect:
    """The database that a URL means.

    Raises:
        WrongUsage: it is not the URL of a store.
    """
    parsed = parse_store_url(url)
    module = import_module(f"reconciler.records.dialects.{parsed.kind.name}")
    dialect: Dialect = module.StoreDialect(parsed)
    return dialect
