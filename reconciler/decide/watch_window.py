"""Windows of the week in which changes may be applied: `Mon-Fri 07:00-19:00 Europe/Berlin`.

A window is what the clock on the wall of its time zone shows. One over midnight belongs to the day on which
it opens. Where clocks are put back, a time that comes twice opens with the first and closes with the second.
Source: docs/watch.md, "Windows".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches

from reconciler.core.lifecycle import UTC_NAME, UnknownTimeZone, time_zone, time_zones

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WHOLE_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_FORM = "Mon-Fri 07:00-19:00 Europe/Berlin"
_PATTERN = re.compile(
    r"(?:(?P<days>[A-Za-z]+(?:[-,][A-Za-z]+)*)\s+)?"
    r"(?P<opens>\d\d?:\d\d)-(?P<closes>\d\d?:\d\d)"
    r"(?:\s+(?P<zone>\S+))?",
    re.ASCII,
)
_DAY_MINUTES = 24 * 60
#: A window that opens once a week may be skipped once, where clocks are put forward.
_DAYS_AHEAD = 15
#: Windows that follow each other without a gap; those that never close end a search after so many.
_MOST_IN_A_ROW = 64


class InvalidWindow(ValueError):
    """The text is no window; the message says why."""


@dataclass(frozen=True)
class Window:
    """Times of some days of the week (0 is Monday), in minutes after midnight; over midnight `closes` is more
    than a day.
    """

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
        """Read `[DAYS] HH:MM-HH:MM [ZONE]`; without days it is every day, without a zone UTC.

        Raises:
            InvalidWindow: it is none.
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
        except UnknownTimeZone:
            near = get_close_matches(name, time_zones(), n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise InvalidWindow(f'"{name}" is not a time zone{hint}') from None
        return cls(text.strip(), days, opens, closes, name)

    def spans(self, at_s: float) -> Iterator[tuple[float, float]]:
        """Yield when it opens and closes around a moment and after it, in seconds since 1970, in order."""
        today = datetime.fromtimestamp(at_s, self.zone).date()
        for offset in range(-2, _DAYS_AHEAD):
            day = today + timedelta(days=offset)
            if day.weekday() in self.days:
                opens_s = _moment(day, self.opens, self.zone, fold=0)
                closes_s = _moment(day, self.closes, self.zone, fold=1)
                if opens_s < closes_s:  # both may lie in an hour that is left out
                    yield opens_s, closes_s


def closes_at(windows: Sequence[Window], at_s: float) -> float | None:
    """Until when changes may be applied that begin now; None where no window is open."""
    end_s: float | None = None
    for _ in range(_MOST_IN_A_ROW):
        now_s = at_s if end_s is None else end_s
        ends = [end for window in windows for begin, end in window.spans(now_s) if begin <= now_s < end]
        if not ends:
            break
        end_s = max(ends)
    return end_s


def opens_at(windows: Sequence[Window], at_s: float) -> float:
    """When the next window opens, of which none is open now."""
    return min(begin for window in windows for begin, _ in window.spans(at_s) if begin > at_s)


def local_text(windows: Sequence[Window], at_s: float) -> str:
    """A moment for people, in the time zone of the first window: `Mon 2026-11-23 07:00 Europe/Berlin`."""
    return f"{datetime.fromtimestamp(at_s, windows[0].zone):%a %Y-%m-%d %H:%M} {windows[0].zone_name}"


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > _DAY_MINUTES:
        raise InvalidWindow(f'"{text}" is not a time of the day; write 07:00')
    return total


def _days(text: str | None) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(",") if text else ("mon-sun",):
        first, dash, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if dash else begin
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(found)


def _day(text: str) -> int:
    name = text.lower()
    for names in (_DAYS, _WHOLE_NAMES):
        if name in names:
            return names.index(name)
    raise InvalidWindow(f'"{text}" is not a day of the week; write Mon, Tue, Wed, Thu, Fri, Sat or Sun')


def _moment(day: date, minutes: int, zone: tzinfo, *, fold: int) -> float:
    """When the clock on the wall shows a time; one that is left out is the moment of the jump."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    wall = (midnight + timedelta(minutes=minutes)).replace(fold=fold)
    moment = wall.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return moment.timestamp()
    before, after = sorted(wall.replace(fold=other).astimezone(UTC) for other in (0, 1))
    offset = before.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return float(round(after.timestamp()))
