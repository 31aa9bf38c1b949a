"""Text for people: counts, spans of time, and what steers neither a terminal nor the log of a CI job."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What is not seen, or reorders what is, as the inside of a character class: C1 controls, marks of direction,
#: characters without width (fillers, joiners, selectors, tags), and halves of a pair, which nobody can write.
INVISIBLE = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Escape sequences begin with the controls of C0.
_HARMFUL = f"[\x00-\x08\x0a-\x1f{INVISIBLE}]"
# What a CI service obeys in a log: GitHub `::error::` where a line begins; GitHub and Azure `##[error]`,
# Azure `##vso[…]` and TeamCity `##teamcity[…]` anywhere.
_COMMAND = r"^(\s*):(?=:.*::)"
COMMAND_MARK = r"(?i)#(?=#(?:vso|teamcity)?\[)"


# What no text of ours holds: of C0 the line feed and the tab, and colours, are.
_STRAY = f"[\x00-\x08\x0b-\x1a\x1c-\x1f{INVISIBLE}]|\x1b(?!\\[[0-9;]*m)"


def visible(text: str) -> str:
    """Return a finished text, colours and lines as they are, in which everything is seen or shown as `\\x1b`.

    What stands in the text from elsewhere has gone through `printable`; this is for what was forgotten.
    """
    return re.sub(_STRAY, _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Return one line of text that steers neither a terminal nor a CI service.

    What is taken out shows as `\\x1b`.
    """
    text = re.sub(_HARMFUL, _escaped, text)
    if "::" in text:
        text = re.sub(_COMMAND, r"\1\\x3a", text)
    return re.sub(COMMAND_MARK, r"\\x23", text) if "##" in text else text


def printable_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def format_count(number: int, noun: str) -> str:
    """Say how many there are of what a noun names; its plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
#: Far beyond what anybody waits for, and within what dates can be reckoned with.
_MOST_S = 1000 * 366 * 86_400
_PATTERN = r"(?a)(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"


def parse_duration(text: str) -> float:
    """Read `1h30m` as seconds.

    Raises:
        ValueError: the text is no duration; the message says what one looks like.
    """
    match = re.fullmatch(_PATTERN, text.strip())
    if match is None or not match.group():
        raise ValueError(f'"{text}" is not a valid duration; write 90s, 2m, 1h30m or 2d')
    seconds = sum(float(match[unit] or 0) * size for unit, size in _UNITS.items())
    if seconds > _MOST_S:
        raise ValueError(f'"{text}" is more than 1000 years')
    return seconds


def format_duration(seconds: float) -> str:
    """Say a span of time in one unit, for people: `45 s`, `12 min`, `9.5 h`, `4 d`."""
    seconds = round(seconds, 1) if seconds < 10 else round(seconds)
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 72)):
        if seconds < size * most:
            return f"{short_number(seconds / size)} {unit}"
    return f"{short_number(seconds / 86_400)} d"


def short_number(number: float) -> str:
    """Round a number for people: one decimal below 10, none above and none that is zero."""
    text = f"{number:.1f}"
    return text.removesuffix(".0") if float(text) < 10 else f"{number:.0f}"


def few(names: Sequence[str], most: int = 3) -> str:
    """Name the first of several, and say how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def format_size(size: int) -> str:
    """Write a size for people, in powers of ten: `41 kB`, `1.2 MB`."""
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 1000 or unit == "GB":
            break
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"
