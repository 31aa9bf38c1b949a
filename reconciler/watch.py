"""The loop on a schedule: wait, check, report, again; until somebody wants the end of it.

It keeps of the past what the next check and the metrics need, and nothing that grows. Clock, chance and the
wait are handed in; a check is a function, so that nothing here knows how it is done.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.decide.watch_check import CheckReport, CheckResult
from reconciler.decide.watch_schedule import CheckInterval, Due, first_check, next_check
from reconciler.decide.watch_state import WatchState
from reconciler.errors import ExitCode

#: A wait is cut into pieces of so many seconds, so that a signal is noticed in time.
PIECE_S = 0.25
#: What ends the loop where the first check finds it: it was called in a wrong way, or nothing can be read.
_WRONG_FROM_THE_START = frozenset({ExitCode.WRONG_USAGE, ExitCode.INVALID})


class WatchClock(Protocol):
    """Two clocks: one that tells the time, and one that nobody sets."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def elapsed(self) -> float:
        """Seconds since some moment; it never jumps."""
        ...


class SystemWatchClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds since the machine was started."""
        return time.monotonic()


class Sleeper:
    """Waits, and does nothing meanwhile; see `checks.process.Waiter`."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Return when the time is over, when there is something to be read, or a little earlier."""
        with suppress(OSError, ValueError):
            select.select([] if descriptor is None else [descriptor], [], [], max(0.0, min(seconds, PIECE_S)))

    def release(self) -> None:
        """There is nothing to let go of."""


@dataclass
class Watch:
    """Checks, one after the other, as the schedule has them.

    `check` is told its number, from 1, and returns what it found; None means that it was ended because all is
    to stop. `wait` waits for so many seconds, or for less; `is_to_stop` says whether to go on. `report` is
    told of each check, `state` is what is known after it.
    """

    schedule: CheckInterval
    check: Callable[[int], CheckResult | None]
    report: Callable[[CheckReport, WatchState], None]
    wait: Callable[[float], None]
    is_to_stop: Callable[[], bool]
    clock: WatchClock = field(default_factory=SystemWatchClock)
    chance: Callable[[], float] = lambda: 0.0
    state: WatchState = field(default_factory=WatchState)

    def run(self) -> ExitCode | None:
        """Check until the end is wanted, and return None; or why there is nothing to be watched."""
        started_s = self.clock.elapsed()
        due = first_check(started_s)
        while self._wait_for(due):
            report = self._check()
            if report is None:
                break
            self.state = self.state.after(report, self.clock.elapsed())
            self.report(report, self.state)
            if report.number == 1 and report.result.exit_code in _WRONG_FROM_THE_START:
                return ExitCode(report.result.exit_code)
            due = next_check(
                self.schedule,
                started_s,
                due,
                self.clock.elapsed(),
                failures=self.state.failures,
                chance=self.chance(),
            )
        return None

    def _wait_for(self, due: Due) -> bool:
        while not self.is_to_stop():
            left_s = due.at_s - self.clock.elapsed()
            if left_s <= 0:
                return True
            self.wait(left_s)
        return False

    def _check(self) -> CheckReport | None:
        number, began_s = self.state.checks + 1, self.clock.elapsed()
        result = self.check(number)
        if result is None:
            return None
        duration_s = self.clock.elapsed() - began_s
        return CheckReport(number=number, ended_at_s=self.clock.now(), duration_s=duration_s, result=result)
