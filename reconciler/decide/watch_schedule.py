"""When the next check is due: on a fixed grid of intervals, later by chance, less often after failures.

Times are seconds of whatever clock the caller has; chance is handed in.
Source: docs/watch.md, "Schedule".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: After failures in a row the next check comes at most so many intervals later.
MOST_INTERVALS = 4
#: A service that has not been compared for so many intervals is not being watched.
HEALTHY_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class CheckInterval:
    """A check each `every_s` seconds, by chance up to the share `jitter` of that later (0.1: a tenth)."""

    every_s: float
    jitter: float = 0.0


class Due(NamedTuple):
    """The next check: the interval of the grid that it belongs to, and when it begins."""

    interval: int
    at_s: float


def first_check(now_s: float) -> Due:
    """The first check is due at once; the grid begins with it."""
    return Due(0, now_s)


def next_check(
    schedule: CheckInterval, started_s: float, last: Due, now_s: float, *, failures: int, chance: float
) -> Due:
    """Return when the check after `last` is due, now that `last` has ended.

    The grid begins at `started_s`, so that neither jitter nor the length of a check adds up. An interval
    that has begun by now is left out. `failures` is how many checks in a row have failed: after one the next
    check comes in the next interval, after two in the second one, after more in the fourth. `chance` is from
    0 to 1.
    """
    interval = last.interval + intervals_after(failures)
    missed = int((now_s - started_s) // schedule.every_s) + 1
    interval = max(interval, missed)
    at_s = started_s + interval * schedule.every_s + chance * schedule.jitter * schedule.every_s
    return Due(interval, at_s)


def intervals_after(failures: int) -> int:
    """How many intervals after a check the next one comes, when so many have failed in a row."""
    return min(MOST_INTERVALS, 1 << min(max(0, failures - 1), MOST_INTERVALS))


def is_recent(compared_s: float | None, now_s: float, every_s: float) -> bool:
    """Whether the last check that could compare is younger than three intervals; None: there was none."""
    return compared_s is not None and now_s - compared_s < HEALTHY_INTERVALS * every_s
