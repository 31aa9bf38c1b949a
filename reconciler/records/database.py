"""The database behind a store: its connections, transactions, failures and clock, and the scopes in it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, and_, exc, select

from reconciler.core.record import Declared, RecordsUnavailable, Scope
from reconciler.errors import Diagnostic
from reconciler.records import schema
from reconciler.records.dialects import Dialect
from reconciler.records.process_lock import ProcessLocks
from reconciler.records.schema import SCOPES, Damaged, declared_document, dump
from reconciler.secrets import show
from reconciler.text import printable

TOO_NEW = "the record store needs a newer reconciler"


class HasNow(Protocol):
    """Tells the time, in seconds since 1970."""

    def now(self) -> float: ...


def storable(text: str) -> str:
    """PostgreSQL takes no NUL, and neither database half of a surrogate pair; ids and names can hold both."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


class Database:
    """An open database. Safe to use from threads; everything that fails is a `RecordsUnavailable`.

    `redact` is asked about every text of people, of jobs and of the service before it is written.
    """

    def __init__(self, dialect: Dialect, clock: HasNow, redact: Callable[[str], str]) -> None:
        self.dialect, self.clock, self.redact = dialect, clock, redact
        self.process_locks = ProcessLocks(dialect.file)
        self._scope_ids: dict[Scope, int] = {}
        with self.translating_errors():
            self._engine = dialect.create_engine()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.translating_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write inside one transaction, which is on disk when this returns; rows that must hold still do."""
        with self.translating_errors(), self.dialect.writing(self._engine) as connection:
            yield connection

    def now(self) -> ColumnElement[float]:
        """The time by which leases go, as part of a statement."""
        return self.dialect.now(self.clock.now())

    def prepare(self, *, create: bool, migrations: Sequence[Sequence[str]] = schema.MIGRATIONS) -> bool:
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
            shown = self.dialect.url.shown
            why = f"{shown}: schema version {found} is newer than {known}, the latest supported one"
            raise RecordsUnavailable(Diagnostic(TOO_NEW, why, "pip install --upgrade reconciler"))
        if found != known:
            with self.translating_errors(), self.dialect.migrating(self._engine) as connection:
                schema.migrate(connection, migrations)
                self.dialect.check(connection)
        return True

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn any failure of the database into a `RecordsUnavailable`, which says what to do."""
        try:
            yield
        except (exc.SQLAlchemyError, ImportError) as error:
            # What interrupted a statement, where a failing rollback took its place.
            behind: BaseException | None = error
            while isinstance(behind, Exception):
                behind = behind.__context__
            raise behind or unavailable(error, self.dialect, self.redact) from None
        except (UnicodeError, OverflowError, MemoryError) as error:
            # The driver for SQLite met a text, number or length that no value can hold.
            damage = Damaged(str(error) or type(error).__name__)
            raise unavailable(damage, self.dialect, self.redact) from None

    # --- what is written

    def text(self, text: str) -> str:
        return storable(self.redact(text))

    def document(self, tree: Mapping[str, Any]) -> str:
        """Write plain data as JSON. Redaction is by value, so that the JSON stays readable."""
        text = dump(tree := show(tree))
        return text if self.redact(text) == text else dump(self._redacted(tree))

    def _redacted(self, tree: Any) -> Any:
        if isinstance(tree, Mapping):
            return {self.redact(str(key)): self._redacted(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._redacted(value) for value in tree]
        return self.redact(tree) if isinstance(tree, str) else tree

    def declared(self, declared: Declared | None) -> str | None:
        return None if declared is None else self.document(declared_document(declared))

    # --- scopes

    def find_scope(self, scope: Scope) -> int | None:
        """The number of a scope in the tables; None if nothing of it was ever written."""
        if scope not in self._scope_ids:
            # Looked at before the rows are: whoever takes the lock for the first time has written the scope.
            trace = self.process_locks.of_scope(scope)
            was_held = trace is not None and trace.exists()
            with self.reading() as connection:
                found = connection.execute(select(SCOPES.c.id).where(is_scope(scope))).scalar()
                if found is None and was_held:
                    raise Damaged(f"it has nothing of stack {scope.stack}, although its lock was held here")
            if found is None:
                return None
            self._scope_ids[scope] = found
        return self._scope_ids[scope]

    def scope_id(self, scope: Scope) -> int:
        """The number of a scope, which is written if it is new."""
        found = self.find_scope(scope)
        if found is None:
            # Inline: where another process was first SQLite has no number of a new row to return.
            insertion = self.dialect.insert_missing(SCOPES).values(scope._asdict()).inline()
            with self.writing() as connection:
                connection.execute(insertion)
            found = self.find_scope(scope)
            assert found is not None
        return found


# A statement takes longer to put together than to execute, and every plan asks this.
@lru_cache
def is_scope(scope: Scope) -> ColumnElement[bool]:
    return and_(*(SCOPES.c[name] == value for name, value in scope._asdict().items()))


def unavailable(error: Exception, dialect: Dialect, redact: Callable[[str], str]) -> RecordsUnavailable:
    """Say what a failure of SQLAlchemy, the driver or the file system means, and how to fix it."""
    # The database's own words; never the statement, nor what was written with it.
    match error:
        case exc.DBAPIError(orig=BaseException() as original):
            message = dialect.message_of(original)
        case exc.TimeoutError():
            message = "every connection is in use"
        case OSError():
            message = error.strerror or ""
        case ImportError():
            message = f"the driver for {dialect.title} cannot be imported"
        case Damaged():
            message = f"malformed: {error}"
        case exc.SQLAlchemyError():
            message = ""
        case _:
            message = str(error)
    # Before lines are joined and cleaned, which would make another text of a secret.
    url = dialect.url
    lines = url.without_secrets(redact(message)).splitlines()
    message = printable("; ".join(line.strip() for line in lines if line.strip())) or type(error).__name__
    what, fix = next((what, fix) for says, what, fix in dialect.errors if says in message.casefold())
    why = url.without_secrets(redact(f"{url.shown}: {message}"))
    return RecordsUnavailable(Diagnostic(what, why, fix.format(place=shlex.quote(dialect.place))))
