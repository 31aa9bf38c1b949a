"""The clock that the emulated service lives by. All times are milliseconds since 1970."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class EmulatorClock(Protocol):
    """Where a store asks for the time; `advance` moves the time forward at once."""

    def now_ms(self) -> int:
        """Return the emulated time."""
        ...

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let emulated time pass without waiting for it."""
        ...


def milliseconds(*, hours: float = 0, minutes: float = 0, seconds: float = 0) -> int:
    """Return a span of time in milliseconds.

    Raises:
        ValueError: the span is negative or not a number; emulated time never runs backwards.
    """
    total = hours * 3_600_000 + minutes * 60_000 + seconds * 1000
    if not 0 <= total < 1e14:
        raise ValueError(f"time can be advanced by zero or more, not by {total} ms")
    return round(total)


class ManualClock:
    """A clock that stands still until it is advanced, for tests."""

    def __init__(self, start_ms: int = 1_786_000_000_000) -> None:
        self._now_ms = start_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return the emulated time."""
        return self._now_ms

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock forward."""
        with self._lock:
            self._now_ms += milliseconds(hours=hours, minutes=minutes, seconds=seconds)


def wall_ms() -> int:
    """Return the real time."""
    return time.time_ns() // 1_000_000
