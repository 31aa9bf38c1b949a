"""Text that came from the service or a manifest, made harmless for a terminal and for the log of a CI job."""

from __future__ import annotations

import re

#: What is not seen, or reorders what is, as the inside of a character class: C1 controls, marks of direction,
#: characters without width (fillers, joiners, selectors, tags), and halves of a pair, which nobody can write.
INVISIBLE = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Escape sequences begin with the controls of C0.
_HARMFUL = re.compile(f"[\x00-\x08\x0a-\x1f{INVISIBLE}]")
# What a CI service obeys in a log: GitHub `::error::` where a line begins; GitHub and Azure `##[error]`,
# Azure `##vso[…]` and TeamCity `##teamcity[…]` anywhere.
_COMMAND = re.compile(r"^(\s*):(?=:.*::)")
COMMAND_MARK = re.compile(r"#(?=#(?:vso|teamcity)?\[)", re.IGNORECASE)


# What no text of ours holds: of C0 the line feed and the tab, and colours, are.
_STRAY = re.compile(f"[\x00-\x08\x0b-\x1a\x1c-\x1f{INVISIBLE}]|\x1b(?!\\[[0-9;]*m)")


#: The end of a link, which is harmless, and, behind `%s`, the beginning of one with an id (OSC 8).
_LINK = r"(\x1b\]8;id=%s;[!-~]*\x1b\\|\x1b\]8;;\x1b\\)"


def visible(text: str, link_id: str = "") -> str:
    """Return a finished text, colours and lines as they are, in which everything is seen or shown as `\\x1b`.

    Links stay if they have the id of this run, which nobody outside of it knows. What stands in the text from
    elsewhere has gone through `printable`; this is for what was forgotten.
    """
    if not link_id:
        return _STRAY.sub(_escaped, text)
    parts = re.split(_LINK % re.escape(link_id), text)
    return "".join(part if number % 2 else _STRAY.sub(_escaped, part) for number, part in enumerate(parts))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Return one line of text that steers neither a terminal nor a CI service.

    What is taken out shows as `\\x1b`.
    """
    text = _HARMFUL.sub(_escaped, text)
    if "::" in text:
        text = _COMMAND.sub(r"\1\\x3a", text)
    return COMMAND_MARK.sub(r"\\x23", text) if "##" in text else text


def printable_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
