"""The database of a store: connections, transactions, errors, clock, and scopes."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any, Protocol, Self

from reconciler.core.record import Declared, RecordedRevision, RecordsUnavailable, RevisionId, Scope
from reconciler.errors import Diagnostic, PackageMissing
from reconciler.records import dialects
from reconciler.records.dialects import Dialect, Transaction, dialect_of
from reconciler.records.file import ProcessLocks
from reconciler.records.schema import MIGRATIONS, SCHEMA, TABLES, Damaged, declared_document, dump, latest
from reconciler.secrets import show
from reconciler.text import printable

TOO_NEW = "the record store needs a newer reconciler"
#: Matches the row `scope` of the given scope.
IS_SCOPE = " AND ".join(f"scope.{name} = :{name}" for name in Scope._fields)


class HasNow(Protocol):
    """A clock, in seconds since 1970."""

    def now(self) -> float: ...


def storable(text: str) -> str:
    """Replace characters that a database cannot store: NUL and lone surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


class Database:
    """An open database. Thread-safe; every error is a `RecordsUnavailable`.

    All texts from people, jobs and the service are redacted by `redact` before they are written.
    """

    def __init__(self, dialect: Dialect, clock: HasNow, redact: Callable[[str], str]) -> None:
        self.dialect, self.clock, self.redact = dialect, clock, redact
        self.process_locks = ProcessLocks(dialect.file)
        self._scope_ids: dict[Scope, int] = {}
        self._idle: list[Any] = []
        self._free = threading.Semaphore(dialect.most_connections)

    @classmethod
    def connect(cls, url: str, *, clock: HasNow, redact: Callable[[str], str], create: bool) -> Self | None:
        """Open the store at `sqlite:///absolute/path` or `postgresql://user@host/database`.

        If there is no store, or an empty one, it is created if `create`; otherwise None is returned. Leases
        use the clock of the PostgreSQL server, or `clock` for a SQLite file.

        Raises:
            WrongUsage: the URL is not one of a store.
            RecordsUnavailable: the store cannot be reached, read or written, or needs a newer reconciler.
        """
        dialect = dialect_of(url)
        if not dialect.has_store():
            if not create:
                return None
            # Locks of a store that was moved away: beside an empty file they would look like truncation.
            ProcessLocks(dialect.file).remove_dead()
            try:
                dialect.make_store()
            except OSError as error:
                raise unavailable(error, dialect, redact) from None
        with ExitStack() as unless_open:
            store = cls(dialect, clock, redact)
            unless_open.callback(store.close)
            if not store.prepare(create=create):
                return None
            unless_open.pop_all()
        return store

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self.translating_errors(), self._begin("BEGIN") as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A write transaction, which is on disk when the block ends."""
        with self.translating_errors(), self.dialect.writing(self._begin) as transaction:
            yield transaction

    @contextmanager
    def _begin(self, statement: str) -> Iterator[Transaction]:
        if not self._free.acquire(timeout=dialects.BUSY_S):
            busy = TimeoutError("every connection is in use")
            raise unavailable(busy, self.dialect, self.redact)
        connection = None
        try:
            with suppress(IndexError):
                connection = self._idle.pop()
                try:
                    connection.execute(statement)
                except self.dialect.failures:
                    if not self.dialect.is_lost(connection):
                        raise
                    connection.close()
                    connection = None
            if connection is None:
                connection = self.dialect.connect()
                connection.execute(statement)
            yield Transaction(connection, self.dialect)
            connection.execute("COMMIT")
        except BaseException:
            if connection is not None:
                connection.close()  # rolls back
            raise
        else:
            self._idle.append(connection)
        finally:
            self._free.release()

    def prepare(self, *, create: bool, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> bool:
        """Migrate the tables to the latest version. False if there are none and `create` is not set.

        Raises:
            RecordsUnavailable: the tables are damaged, or of a newer version than this program knows.
        """
        known = latest(migrations)
        with self.reading() as transaction:
            found = self.stored_version(transaction)
            if found == known:
                self.dialect.check(transaction)
        if found is None and not create:
            return False
        if found is not None and found > known:
            shown = self.dialect.url.shown
            why = f"{shown}: schema version {found} is newer than {known}, the latest supported one"
            raise RecordsUnavailable(Diagnostic(TOO_NEW, why, "pip install --upgrade reconciler"))
        if found != known:
            with self.translating_errors(), self.dialect.migrating(self._begin) as transaction:
                # Another process may have created them in the meantime.
                if (found := self.stored_version(transaction)) is None:
                    for statement in SCHEMA:
                        transaction.execute(statement)
                    transaction.insert("reconciler_version", [{"version": known}])
                elif found < known:
                    for statement in chain.from_iterable(migrations[found - 1 :]):
                        transaction.execute(statement)
                    transaction.execute("UPDATE reconciler_version SET version = :known", known=known)
                self.dialect.check(transaction)
        return True

    def stored_version(self, transaction: Transaction) -> int | None:
        """The version of the tables. None if there are none.

        Raises:
            Damaged: the tables have no unique version.
        """
        # Read in one query, because another process may be creating the tables.
        there = {name for (name,) in transaction.rows(self.dialect.tables)} & TABLES.keys()
        if not there:
            return None
        if "reconciler_version" in there:
            with suppress(Damaged):
                match transaction.rows("SELECT version FROM reconciler_version"):
                    case [(int(version),)] if version > 0:
                        return version
        raise Damaged("the version of its tables is missing")

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn any error of the database into a `RecordsUnavailable` with a fix."""
        try:
            yield
        except self.dialect.failures as error:
            # The original error, if a failing rollback replaced it.
            behind: BaseException | None = error
            while isinstance(behind, Exception):
                behind = behind.__context__
            raise behind or unavailable(error, self.dialect, self.redact) from None
        except (UnicodeError, OverflowError, MemoryError) as error:
            # The SQLite driver met a text, number or length that it cannot represent.
            damage = Damaged(str(error) or type(error).__name__)
            raise unavailable(damage, self.dialect, self.redact) from None

    # --- writing

    def text(self, text: str) -> str:
        return storable(self.redact(text))

    def document(self, tree: Mapping[str, Any]) -> str:
        """Serialize plain data as JSON. Values are redacted one by one, so that the JSON stays valid."""
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
        """The id of a scope in the tables. None if nothing was ever written about it."""
        if scope not in self._scope_ids:
            # Checked before the rows are read: whoever first takes the lock has written the scope.
            trace = self.process_locks.of_scope(scope)
            was_held = trace is not None and trace.exists()
            look = f"SELECT id FROM reconciler_scopes AS scope WHERE {IS_SCOPE}"
            with self.reading() as transaction:
                found = transaction.value(look, **scope._asdict())
                if found is None and was_held:
                    raise Damaged(f"it has nothing of stack {scope.stack}, although its lock was held here")
            if found is None:
                return None
            self._scope_ids[scope] = found
        return self._scope_ids[scope]

    def scope_id(self, scope: Scope) -> int:
        """The id of a scope, which is inserted if it is new."""
        found = self.find_scope(scope)
        if found is None:
            with self.writing() as transaction:
                transaction.insert("reconciler_scopes", [scope._asdict()], "ON CONFLICT DO NOTHING")
            found = self.find_scope(scope)
            assert found is not None
        return found

    # --- reads of an unchanged plan

    def recorded_revisions(self, scope: Scope) -> Mapping[RevisionId, RecordedRevision]:
        """The last recorded observation of each revision, by which new ones are recognized."""
        scope_id = self.find_scope(scope)
        look = (
            "SELECT key, number, job, digest, phase, stopped, schedule, released_at_s"
            " FROM reconciler_revisions WHERE scope_id = :scope_id"
        )
        with self.reading() as transaction:
            return {
                RevisionId(key, number): RecordedRevision._make((*of_job, released_at_s is not None))
                for key, number, *of_job, released_at_s in transaction.rows(look, scope_id=scope_id)
            }


def unavailable(error: Exception, dialect: Dialect, redact: Callable[[str], str]) -> RecordsUnavailable:
    """Explain an error of the driver or the file system, with a fix."""
    # The database's own message, never the statement or its values.
    match error:
        case OSError():
            message = error.strerror or str(error)
        case PackageMissing():
            return RecordsUnavailable(*error.diagnostics)
        case Damaged():
            message = f"malformed: {error}"
        case _:
            message = dialect.message_of(error)
    # Redact before lines are joined and sanitized, which would change secrets.
    url = dialect.url
    lines = url.without_secrets(redact(message)).splitlines()
    message = printable("; ".join(line.strip() for line in lines if line.strip())) or type(error).__name__
    what, fix = next((what, fix) for says, what, fix in dialect.errors if says in message.casefold())
    why = url.without_secrets(redact(f"{url.shown}: {message}"))
    return RecordsUnavailable(Diagnostic(what, why, fix.format(place=shlex.quote(dialect.place))))
