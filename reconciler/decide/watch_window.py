"""Windows of the week in which changes may be applied: `Mon-Fri 07:00-19:00 Europe/Berlin`.

Times are local times of the time zone. A window over midnight belongs to the day on which it opens. When
clocks go back, a time that occurs twice opens at the first and closes at the second; when they go forward, a
skipped time is off by that hour. Source: docs/operations/watch.md, "Windows".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches

from reconciler.core.lifecycle import UTC_NAME, time_zone, time_zones

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FORM = "Mon-Fri 07:00-19:00 Europe/Berlin"
_PATTERN = re.compile(
    r"(?:(?P<days>[A-Za-z]+(?:[-,][A-Za-z]+)*)\s+)?"
    r"(?P<opens>\d\d?:\d\d)-(?P<closes>\d\d?:\d\d)"
    r"(?:\s+(?P<zone>\S+))?",
    re.ASCII,
)
_DAY_MINUTES = 24 * 60
#: How far ahead adjacent windows are joined.
_AHEAD_S = 7 * 86400.0


class InvalidWindow(ValueError):
    """The text is not a valid window; the message says why."""


@dataclass(frozen=True)
class Window:
    """Days of the week (0 is Monday) and times in minutes after midnight; `closes` may exceed a day."""

    text: str
    days: frozenset[int]
    opens: int
    closes: int
    zone_name: str

    @property
    def zone(self) -> tzinfo:
        return time_zone(self.zone_name)

    @classmethod
    def parse(cls, text: str) -> Window:
        """Parse `[DAYS] HH:MM-HH:MM [ZONE]`; the defaults are every day and UTC.

        Raises:
            InvalidWindow: the text is not a valid window.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise InvalidWindow(f'"{text}" is not a valid window; write {_FORM}')
        opens, closes = _minutes(match["opens"]), _minutes(match["closes"])
        if opens == _DAY_MINUTES:
            raise InvalidWindow("a window cannot open at 24:00; write 00:00")
        if opens == closes:
            raise InvalidWindow(f'"{text}" never opens; for a whole day write 00:00-24:00')
        if closes < opens:
            closes += _DAY_MINUTES
        days, name = _days(match["days"]), match["zone"] or UTC_NAME
        try:
            time_zone(name)
        except LookupError:
            near = get_close_matches(name, time_zones(), n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise InvalidWindow(f'"{name}" is not a time zone{hint}') from None
        return cls(text.strip(), days, opens, closes, name)

    def closes_s(self, at_s: float) -> float | None:
        """Return when the window closes, in seconds since 1970; None if it is not open at `at_s`."""
        today = datetime.fromtimestamp(at_s, self.zone).date()
        for day in (today - timedelta(days=1), today):
            midnight = datetime(day.year, day.month, day.day, tzinfo=self.zone)
            opens_at, closes_at = (
                midnight + timedelta(minutes=minutes) for minutes in (self.opens, self.closes)
            )
            end_s = closes_at.replace(fold=1).timestamp()
            if day.weekday() in self.days and opens_at.timestamp() <= at_s < end_s:
                return end_s
        return None


def closes_at(windows: Sequence[Window], at_s: float) -> float | None:
    """Return until when changes may be applied that start now; None if no window is open."""
    end_s: float | None = None
    now_s = at_s
    while now_s < at_s + _AHEAD_S and (ends := [end for one in windows if (end := one.closes_s(now_s))]):
        now_s = end_s = max(ends)
    return end_s


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > _DAY_MINUTES:
        raise InvalidWindow(f'"{text}" is not a time of the day; write 07:00')
    return total


def _days(text: str | None) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(",") if text else ("mon-sun",):
        first, dash, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if dash else begin
        days.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(days)


def _day(text: str) -> int:
    if text.lower() in _DAYS:
        return _DAYS.index(text.lower())
    raise InvalidWindow(f'"{text}" is not a day of the week; write Mon, Tue, Wed, Thu, Fri, Sat or Sun')
