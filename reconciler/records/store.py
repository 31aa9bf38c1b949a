"""An open record store: journal, lock, history and drift checks in one database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select

from reconciler.records.database import HasNow, unavailable
from reconciler.records.dialects import dialect_of
from reconciler.records.drift import DriftChecks, read_standing
from reconciler.records.history import read_past
from reconciler.records.process_lock import ProcessLocks
from reconciler.records.schema import METADATA


class Records(DriftChecks):
    """A store as it is used. Any method may raise `RecordsUnavailable`."""

    def check(self) -> None:
        """Read the whole store, of all stacks: `RecordsUnavailable` says what in it is damaged."""
        with self.reading() as connection:
            self.dialect.check(connection, is_thorough=True)
            read_past(connection)
            read_standing(connection)
            for table in METADATA.sorted_tables:
                for _ in connection.execute(select(table)):
                    pass


def open_records(url: str, *, clock: HasNow, redact: Callable[[str], str], create: bool) -> Records | None:
    """Open the store at `sqlite:///absolute/path` or `postgresql://user@host/database`.

    With `create` it is made where there is none; without, the answer is None where there is none, or
    nothing in it. Leases go by the clock of the PostgreSQL server, and by `clock` in a SQLite file.
    `redact` is asked about every text before it is written.

    Raises:
        WrongUsage: the URL is not one of a store.
        RecordsUnavailable: the store cannot be reached, read or written, or needs a newer reconciler.
    """
    dialect = dialect_of(url)
    if not dialect.has_store():
        if not create:
            return None
        # The locks of a store that was moved away: beside an empty file they would mean that it was cut.
        ProcessLocks(dialect.file).remove_dead("lock")
        try:
            dialect.make_store()
        except OSError as error:
            raise unavailable(error, dialect, redact) from None
    store = Records(dialect, clock, redact)
    try:
        if store.prepare(create=create):
            return store
    except BaseException:
        store.close()
        raise
    store.close()
    return None
