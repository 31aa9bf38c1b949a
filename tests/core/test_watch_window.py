"""Days, times and zones; past midnight; daylight saving changes.

Source: docs/operations/watch.md, "Windows".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.decide.watch_window import InvalidWindow, Window, closes_at

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE = "Mon-Fri 07:00-19:00 Europe/Berlin"


def at(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> float:
    """A local time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("window", "moment", "closes"),
    [
        (OFFICE, "2026-11-23 07:00", "2026-11-23 19:00"),
        (OFFICE, "2026-11-23 18:59:59", "2026-11-23 19:00"),
        (OFFICE, "2026-11-23 19:00", None),
        (OFFICE, "2026-11-23 06:59:59", None),
        (OFFICE, "2026-11-22 12:00", None),
        ("mon-fri 7:00-19:00 Europe/Berlin", "2026-11-23 07:00", "2026-11-23 19:00"),
        ("Mon,Wed 10:00-11:00 Europe/Berlin", "2026-11-25 10:30", "2026-11-25 11:00"),
        ("Mon,Wed 10:00-11:00 Europe/Berlin", "2026-11-24 10:30", None),
        ("Sat-Mon 10:00-11:00 Europe/Berlin", "2026-11-23 10:30", "2026-11-23 11:00"),
        ("Sat-Mon 10:00-11:00 Europe/Berlin", "2026-11-24 10:30", None),
        # Past midnight it belongs to the day it opens.
        ("Fri 22:00-06:00 Europe/Berlin", "2026-11-28 05:59", "2026-11-28 06:00"),
        ("Fri 22:00-06:00 Europe/Berlin", "2026-11-27 05:59", None),
        ("Fri 00:00-24:00 Europe/Berlin", "2026-11-27 23:59:59", "2026-11-28 00:00"),
        # Clocks go back at 03:00: open from the first 02:30 to the second.
        ("Sun 02:00-02:30 Europe/Berlin", "2026-10-25 02:45", "2026-10-25 02:30 fold"),
        # Clocks go forward from 02:00 to 03:00.
        ("Sun 02:30-04:00 Europe/Berlin", "2026-03-29 03:30", "2026-03-29 04:00"),
        ("Sun 01:00-02:30 Europe/Berlin", "2026-03-29 03:00", None),
        ("Sun 02:10-02:50 Europe/Berlin", "2026-03-29 03:30", None),
    ],
)
def test_window_opens_and_closes_on_time(window: str, moment: str, closes: str | None) -> None:
    expected = closes and at(closes.removesuffix(" fold"), fold=closes.endswith("fold"))
    assert closes_at([Window.parse(window)], at(moment)) == expected


def test_window_defaults_to_every_day_in_utc() -> None:
    window = Window.parse("07:00-19:00")
    for day in range(7):
        noon = datetime(2026, 11, 23 + day, 12, tzinfo=UTC).timestamp()
        assert closes_at([window], noon) == noon + 7 * 3600


def test_adjoining_windows_are_merged() -> None:
    windows = [Window.parse(f"Mon {hours}") for hours in ("07:00-12:00", "11:00-15:00", "20:00-21:00")]
    monday = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
    assert closes_at(windows, monday + 8 * 3600) == monday + 15 * 3600
    assert closes_at(windows, monday + 16 * 3600) is None


def test_permanent_window_still_has_an_end() -> None:
    assert closes_at([Window.parse("00:00-24:00")], at("2026-11-23 07:00")) is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a valid window"),
        ("Mon-Fri", "is not a valid window"),
        ("Mon-Fri 07:00", "is not a valid window"),
        ("Mon-Fri 07:00-19:00 Europe/Berlin now", "is not a valid window"),
        ("Monday 07:00-19:00", '"Monday" is not a day of the week'),
        ("Mom 07:00-19:00", '"Mom" is not a day of the week'),
        ("Mon 07:00-25:00", '"25:00" is not a time of the day'),
        ("Mon 07:61-08:00", '"07:61" is not a time of the day'),
        ("Mon 24:00-08:00", "cannot open at 24:00"),
        ("Mon 08:00-08:00", "never opens"),
        ("Mon 07:00-08:00 Europe/Berlim", 'did you mean "Europe/Berlin"?'),
        ("Mon 07:00-08:00 ../etc/passwd", "is not a time zone"),
        ("Mon 07:00-08:00 Europe", "is not a time zone"),
        ("Mon 07:00-08:00 localtime", "is not a time zone"),
        ("Mon 07:00-08:00 right/Europe/Berlin", "is not a time zone"),
    ],
)
def test_invalid_window_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidWindow, match=why.replace("?", r"\?")):
        Window.parse(text)


@given(
    minute=st.integers(0, 4 * 24 * 60),
    opens=st.integers(0, 95),
    length=st.integers(1, 95),
    start=st.sampled_from(["2026-10-23", "2026-06-05"]),
)
def test_window_is_open_by_local_time(minute: int, opens: int, length: int, start: str) -> None:
    begin, end = opens * 15, opens * 15 + length * 15
    spelled = f"{begin // 60:02}:{begin % 60:02}-{end // 60 % 24:02}:{end % 60:02} Europe/Berlin"
    window = Window.parse(spelled)
    moment = datetime.fromisoformat(start).replace(tzinfo=UTC) + timedelta(minutes=minute)
    wall = moment.astimezone(BERLIN)
    of_day = wall.hour * 60 + wall.minute
    is_inside = begin <= of_day < end or begin <= of_day + 24 * 60 < end
    is_repeated = wall.replace(fold=0).utcoffset() != wall.replace(fold=1).utcoffset()
    if not is_repeated:
        assert (closes_at([window], moment.timestamp()) is not None) == is_inside
    if (closes := closes_at([window], moment.timestamp())) is not None:
        assert closes > moment.timestamp()
