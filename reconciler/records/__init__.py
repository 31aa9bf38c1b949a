"""What was done and seen: journal, lock with lease, and history, in one store (SQLite or PostgreSQL).

Nothing here costs time until records are opened: SQLAlchemy is imported by `open_records`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from reconciler.records.store import StoredRecords

__all__ = ["HasNow", "open_records"]


class HasNow(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...


def open_records(
    url: str, *, clock: HasNow, redact: Callable[[str], str], create: bool
) -> StoredRecords | None:
    """Open the store at `sqlite:///absolute/path` or `postgresql://user@host/database`.

    With `create` it is made where there is none; without, the answer is None where there is none, or
    nothing in it. Leases go by the clock of the PostgreSQL server, and by `clock` in a SQLite file.
    `redact` is asked about every text before it is written.

    Raises:
        WrongUsage: the URL is not one of a store.
        RecordsUnavailable: the store cannot be reached, read or written, or needs a newer reconciler.
    """
    from reconciler.records.store import open_store

    return open_store(url, clock=clock, redact=redact, create=create)
