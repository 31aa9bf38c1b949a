"""The clock of this machine, and by it when a request is sent again.

Source: docs/modelarts.md, "Rate limits".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from reconciler.errors import ServerError, ServiceError, Throttled, Unanswered, Unreachable

#: A wait is cut into pieces of so many seconds, so that a stop is noticed in time. Nobody waits on the event
#: itself: a signal handler sets it, which must never need a lock that the interrupted code holds.
_PIECE_S = 0.2


class SystemClock:
    """Real time, as a `core.ports.Clock`. Once `stop` is set, sleeping ends."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, at most until the program is to stop."""
        if self._stop is None:
            time.sleep(max(0.0, seconds))
            return
        until_s = time.monotonic() + seconds
        while not self._stop.is_set() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _PIECE_S))


class RetryPolicy(Enum):
    """When a request may be sent again by itself."""

    NEVER = "create: a second call could start the work twice"
    WITHOUT_EFFECT = "only after a response or a failure which shows that nothing happened"
    SAFE = "idempotent"


#: Broken for a moment, perhaps; any other 5xx stays what it is.
_PASSING = frozenset({408, 500, 502, 503, 504})


#: A service that asks for a longer wait is reported instead.
LONGEST_RETRY_AFTER_S = 60.0


class Backoff(NamedTuple):
    """How often and how long to wait, in seconds; the wait doubles each time, and half of it is chance.

    The urllib3 `Retry` would do the same with a clock and a chance of its own, below the place that
    signs requests, and so for sockets only.
    """

    attempts: int = 5
    attempts_unreachable: int = 3
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0
    longest_retry_after_s: float = LONGEST_RETRY_AFTER_S

    def wait_s(
        self, failure: ServiceError, attempt: int, repeat: RetryPolicy, chance: Callable[[], float]
    ) -> float | None:
        """Return how long to wait before attempt number `attempt` + 1, or None to give up."""
        may_repeat = repeat is not RetryPolicy.NEVER and (
            isinstance(failure, Throttled | Unreachable)
            or (repeat is RetryPolicy.SAFE and isinstance(failure, Unanswered))
            or (
                repeat is RetryPolicy.SAFE and isinstance(failure, ServerError) and failure.status in _PASSING
            )
        )
        most = self.attempts_unreachable if isinstance(failure, Unreachable) else self.attempts
        if not may_repeat or attempt >= most:
            return None
        wanted = failure.retry_after_s or 0.0
        if wanted > self.longest_retry_after_s:
            return None
        step = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (attempt - 1))
        return max(wanted, step * (0.5 + 0.5 * chance()))
