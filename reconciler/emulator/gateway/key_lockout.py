"""The lockout of an access key: more than five wrong signatures in a row, and it is locked for five minutes.

Source: the gateway's error page (APIGW.0301). The time is the one that signatures are checked by.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from reconciler.emulator.gateway.signature import BadSignature, WrongSignature

MAX_FAILURES = 5
LOCKED_FOR = timedelta(minutes=5)


class KeyLockout:
    """Counts the wrong signatures of one access key. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._until: datetime | None = None

    @contextmanager
    def counting(self, now: datetime) -> Iterator[None]:
        """Check a signature inside: a wrong one counts, a right one ends the row.

        Raises:
            BadSignature: the key is locked; nothing inside is done.
        """
        with self._lock:
            if self._until is not None and now < self._until:
                raise BadSignature(
                    "verify aksk signature fail, AK access failed to reach the limit, forbidden"
                )
            if self._until is not None:
                self._failures, self._until = 0, None
            try:
                yield
            except WrongSignature:
                self._failures += 1
                if self._failures > MAX_FAILURES:
                    self._until = now + LOCKED_FOR
                raise
            self._failures = 0
