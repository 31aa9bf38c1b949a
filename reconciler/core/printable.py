"""Text that came from the service or a manifest, made harmless for a terminal and for the log of a CI job."""

from __future__ import annotations

import re

# C0 and C1 controls (escape sequences begin with them), and the marks that reorder what is shown.
_HARMFUL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
# What a CI service obeys in a log: GitHub `::error::` where a line begins; GitHub and Azure `##[error]`,
# Azure `##vso[…]` and TeamCity `##teamcity[…]` anywhere.
_COMMAND = re.compile(r"^(\s*):(?=:.*::)")
COMMAND_MARK = re.compile(r"#(?=#(?:vso|teamcity)?\[)", re.IGNORECASE)


def printable(text: str) -> str:
    """Return one line of text that steers neither a terminal nor a CI service.

    What is taken out shows as `\\x1b`.
    """
    text = _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    if "::" in text:
        text = _COMMAND.sub(r"\1\\x3a", text)
    return COMMAND_MARK.sub(r"\\x23", text) if "##" in text else text


def printable_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
