"""The database behind a store: its connections, its transactions, its failures and its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection
from sqlalchemy.exc import SQLAlchemyError

from reconciler.core.record import RecordsUnavailable
from reconciler.records import HasNow, schema
from reconciler.records.cells import damaged
from reconciler.records.dialect import Dialect
from reconciler.records.errors import too_new, unavailable


class Database:
    """An open database. Safe to use from threads; everything that fails is a `RecordsUnavailable`."""

    def __init__(self, dialect: Dialect, clock: HasNow, redact: Callable[[str], str]) -> None:
        self.dialect, self.clock = dialect, clock
        self._redact = redact
        with self.translating_errors():
            self._engine = dialect.create_engine()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read inside one transaction."""
        with self.translating_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write inside one transaction, which is on disk when this returns; rows that must hold still do."""
        with self.translating_errors(), self.dialect.writing(self._engine) as connection:
            yield connection

    def now(self) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement."""
        return self.dialect.now(self.clock)

    def prepare(
        self, *, create: bool, migrations: Sequence[Sequence[str | schema.Statement]] = schema.MIGRATIONS
    ) -> bool:
        """Bring the tables to the latest version; False if there are none and none are to be made.

        Raises:
            RecordsUnavailable: the tables are of a version that this program does not know yet, or damaged.
        """
        known = schema.latest(migrations)
        with self.reading() as connection:
            found = schema.stored_version(connection)
            if found == known:
                self.dialect.check(connection)
        if found is None and not create:
            return False
        if found is not None and found > known:
            raise too_new(self.dialect, found, known)
        if found != known:
            with self.translating_errors(), self.dialect.migrating(self._engine) as connection:
                schema.migrate(connection, migrations)
                self.dialect.check(connection)
        return True

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn any failure of the database into a `RecordsUnavailable`, which says what to do."""
        try:
            yield
        except (SQLAlchemyError, ImportError) as error:
            if (interrupt := _interrupt_behind(error)) is not None:
                raise interrupt from None
            raise self.unavailable(error) from None
        except (UnicodeError, OverflowError, MemoryError) as error:
            # The driver for SQLite met a text, number or length that no value can hold.
            raise self.unavailable(damaged(str(error) or type(error).__name__)) from None

    def unavailable(self, error: Exception) -> RecordsUnavailable:
        """Say what a failure means."""
        return unavailable(error, self.dialect, self._redact)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _interrupt_behind(error: BaseException) -> BaseException | None:
    """What interrupted a statement, where a failing rollback took its place."""
    found: BaseException | None = error
    while found is not None and isinstance(found, Exception):
        found = found.__context__
    return found
