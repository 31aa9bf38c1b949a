"""The clock of this machine."""

from __future__ import annotations

import threading
import time

#: A wait is cut into pieces of so many seconds, so that a stop is noticed in time. Nobody waits on the event
#: itself: a signal handler sets it, which must never need a lock that the interrupted code holds.
_PIECE_S = 0.2


class SystemClock:
    """Real time; what `core.ports.Clock` asks for. Once `stop` is set nobody sleeps any more."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, at most until the program is to stop."""
        if self._stop is None:
            time.sleep(max(0.0, seconds))
            return
        until_s = time.monotonic() + seconds
        while not self._stop.is_set() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _PIECE_S))
