"""The clock of this machine, and by it when a request is sent again.

Source: docs/reference/modelarts.md, "Rate limits".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

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

#: So often is a request sent at most, and a service asked that cannot be reached.
MAX_ATTEMPTS, _MAX_UNREACHABLE = 5, 3
#: The wait before the second attempt; it doubles each time, half of it is chance, and it is never longer.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 20.0
#: A service that asks for a longer wait is reported instead.
_LONGEST_RETRY_AFTER_S = 60.0


def retry_wait_s(
    failure: ServiceError, attempt: int, repeat: RetryPolicy, chance: Callable[[], float]
) -> float | None:
    """Return how long to wait before attempt number `attempt` + 1, or None to give up.

    The urllib3 `Retry` would do the same with a clock and a chance of its own, below the place that
    signs requests, and so for sockets only.
    """
    is_passing = isinstance(failure, ServerError) and failure.status in _PASSING
    may_repeat = (
        isinstance(failure, Throttled | Unreachable)
        if repeat is RetryPolicy.WITHOUT_EFFECT
        else repeat is RetryPolicy.SAFE and (isinstance(failure, Throttled | Unanswered) or is_passing)
    )
    most = _MAX_UNREACHABLE if isinstance(failure, Unreachable) else MAX_ATTEMPTS
    wanted_s = failure.retry_after_s or 0.0
    if not may_repeat or attempt >= most or wanted_s > _LONGEST_RETRY_AFTER_S:
        return None
    step_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (attempt - 1))
    return max(wanted_s, step_s * (0.5 + 0.5 * chance()))
