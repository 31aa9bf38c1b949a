"""The system clock, and the delays of retries.

Source: docs/reference/modelarts.md, "Rate limits".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

from reconciler.errors import ServerError, ServiceError, Throttled, Unanswered, Unreachable

#: Longest single sleep, so that a stop is noticed in time. Waiting on the event itself could deadlock: a
#: signal handler sets it, and would need the lock that the interrupted wait holds.
_PIECE_S = 0.2


class SystemClock:
    """The system clock, as a `core.ports.Clock`. Setting `stop` ends a sleep."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Sleep, at most until a stop is requested."""
        if self._stop is None:
            time.sleep(max(0.0, seconds))
            return
        until_s = time.monotonic() + seconds
        while not self._stop.is_set() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _PIECE_S))


class RetryPolicy(Enum):
    """After which failures a request may be retried."""

    NEVER = "create: a second call could start the work twice"
    WITHOUT_EFFECT = "only after a response or a failure which shows that nothing happened"
    SAFE = "idempotent"


#: Statuses that may be transient. Other 5xx are permanent.
_PASSING = frozenset({408, 500, 502, 503, 504})

#: Maximum number of attempts, in general and for an unreachable service.
MAX_ATTEMPTS, _MAX_UNREACHABLE = 5, 3
#: Delay before the second attempt, which doubles each time, and its maximum. Half of it is jitter.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 20.0
#: A longer Retry-After is reported as an error instead.
_LONGEST_RETRY_AFTER_S = 60.0


def retry_wait_s(
    failure: ServiceError, attempt: int, repeat: RetryPolicy, chance: Callable[[], float]
) -> float | None:
    """Return the delay before attempt number `attempt` + 1, or None to give up.

    urllib3's `Retry` is not used: it works below the layer that signs requests, and with its own clock.
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
