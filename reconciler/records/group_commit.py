"""Group commit: what many threads hand in at the same time is written in one transaction."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic, ReconcilerError


class PendingWrite:
    """Something to be written. `refusal` is set by whoever writes it."""

    def __init__(self) -> None:
        self.is_settled = False
        self.refusal: ReconcilerError | None = None


E = TypeVar("E", bound=PendingWrite)


class GroupCommit(Generic[E]):
    """Writes the entries of all threads, those that came together in one transaction.

    Whoever hands one in takes a turn at writing. While one thread writes, the entries of the others
    gather; the next in turn writes all of them at once, and the rest find theirs settled.
    """

    def __init__(self, write: Callable[[Sequence[E]], None]) -> None:
        self._write_entries = write
        self._waiting: deque[E] = deque()
        self._turn = threading.Lock()

    def commit(self, entry: E) -> None:
        """Return when the entry is written.

        Raises:
            ReconcilerError: why it was not.
        """
        self._waiting.append(entry)
        with self._turn:
            if not entry.is_settled:
                self._write_all()
        if entry.refusal is not None:
            raise type(entry.refusal)(*entry.refusal.diagnostics)

    def _write_all(self) -> None:
        entries = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._write_entries(entries)
        except ReconcilerError as failure:
            _refuse(entries, failure)
        except BaseException:
            # Ctrl-C met us: the others must not take their lines for written.
            _refuse(
                entries, RecordsUnavailable(Diagnostic("the record store was not written", "interrupted"))
            )
            raise
        finally:
            for entry in entries:
                entry.is_settled = True


def _refuse(entries: Sequence[PendingWrite], why: ReconcilerError) -> None:
    for entry in entries:
        entry.refusal = entry.refusal or why
