"""Text for people: counts, durations and sizes, and escaping that protects terminals and CI logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Invisible and text-reordering characters, as the inside of a character class: C1 controls, bidi marks,
#: zero-width characters (fillers, joiners, selectors, tags) and lone surrogates.
INVISIBLE = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Escape sequences begin with a C0 control.
_HARMFUL = f"[\x00-\x08\x0a-\x1f{INVISIBLE}]"
# Log commands of CI services: GitHub `::error::` at the beginning of a line; GitHub and Azure `##[error]`,
# Azure `##vso[…]` and TeamCity `##teamcity[…]` anywhere.
_LINE_COMMAND = r"^(\s*):(?=:.*::)"
COMMAND_MARK = r"(?i)#(?=#(?:vso|teamcity)?\[)"


# Our own output has no other C0 controls than line feeds, tabs and the escapes that set colours.
_STRAY = f"[\x00-\x08\x0b-\x1a\x1c-\x1f{INVISIBLE}]|\x1b(?!\\[[0-9;]*m)"


def visible(text: str) -> str:
    """Escape invisible characters in a finished text as `\\x1b`; colours and line breaks stay.

    A safety net: values from elsewhere must have passed through `printable` already.
    """
    return re.sub(_STRAY, _escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Escape one line so that it can steer neither a terminal nor a CI service.

    Escaped characters look like `\\x1b`.
    """
    text = re.sub(_HARMFUL, _escape, text)
    if "::" in text:
        text = re.sub(_LINE_COMMAND, r"\1\\x3a", text)
    return re.sub(COMMAND_MARK, r"\\x23", text) if "##" in text else text


def printable_lines(text: str) -> str:
    """Escape each line with `printable`."""
    return "\n".join(printable(line) for line in text.split("\n"))


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun; the plural is formed with s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: Longer than any wait, and within the range of dates.
_MAX_S = 1000 * 366 * 86_400
_DURATION = r"(?a)0|(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"


def parse_duration(text: str) -> float:
    """Parse a duration such as `1h30m` into seconds.

    Raises:
        ValueError: the text is not a duration; the message shows the format.
    """
    match = re.fullmatch(_DURATION, text.strip())
    if match is None or not match.group():
        raise ValueError(f'"{text}" is not a valid duration; write 90s, 2m, 1h30m or 2d')
    seconds = sum(float(match[unit] or 0) * size for unit, size in _UNITS.items())
    if seconds > _MAX_S:
        raise ValueError(f'"{text}" is more than 1000 years')
    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration in one unit: `45 s`, `12 min`, `9.5 h`, `4 d`."""
    seconds = round(seconds, 1) if seconds < 10 else round(seconds)
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 72)):
        if seconds < size * limit:
            return f"{short_number(seconds / size)} {unit}"
    return f"{short_number(seconds / 86_400)} d"


def short_number(number: float) -> str:
    """Round a number: one decimal below 10 unless it is zero, else none."""
    text = f"{number:.1f}"
    return text.removesuffix(".0") if float(text) < 10 else f"{number:.0f}"


def few(names: Sequence[str], limit: int = 3) -> str:
    """Join the first names, followed by how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def format_size(size: int) -> str:
    """Format a size in powers of ten: `41 kB`, `1.2 MB`."""
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 1000 or unit == "GB":
            break
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"
