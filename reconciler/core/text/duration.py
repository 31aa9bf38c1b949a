"""A span of time as people write it: 90s, 2m, 1h30m, 2d."""

from __future__ import annotations

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: Far beyond what anybody waits for, and within what dates can be reckoned with.
_MOST_S = 1000 * 366 * 86_400
_PATTERN = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?", re.ASCII)


def parse_duration(text: str) -> float:
    """Read `1h30m` as seconds.

    Raises:
        ValueError: the text is no duration; the message says what one looks like.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None or not match.group():
        raise ValueError(f'"{text}" is not a valid duration; write 90s, 2m, 1h30m or 2d')
    seconds = sum(float(match[unit] or 0) * size for unit, size in _UNITS.items())
    if seconds > _MOST_S:
        raise ValueError(f'"{text}" is more than 1000 years')
    return seconds


def format_duration(seconds: float) -> str:
    """Say a span of time in one unit, for people: `45 s`, `12 min`, `30 h`, `4 d`."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 72)):
        if seconds < size * most:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds / 86_400)} d"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
