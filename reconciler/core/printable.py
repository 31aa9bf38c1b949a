"""Text that came from the service or a manifest, made harmless for a terminal or a log."""

from __future__ import annotations

import re

# C0 and C1 controls (escape sequences begin with them), and the marks that reorder what is shown.
_HARMFUL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return one line of text in which nothing steers a terminal; what is taken out shows as `\\x1b`."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(printable(line) for line in text.split("\n"))
