"""How large the terminal is that a stream writes to."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO

#: Narrower ones are treated as this wide: the terminal breaks the lines then.
LEAST_COLUMNS = 20


def columns(stream: TextIO) -> int | None:
    """How many columns there are: COLUMNS, or what the terminal says; None if nobody knows."""
    found = _of_environment("COLUMNS") or _size(stream)[0]
    return max(LEAST_COLUMNS, found) if found else None


def rows(stream: TextIO) -> int | None:
    """How many lines there are: LINES, or what the terminal says; None if nobody knows."""
    return _of_environment("LINES") or _size(stream)[1] or None


def _of_environment(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0


def _size(stream: TextIO) -> tuple[int, int]:
    with suppress(OSError, ValueError, AttributeError):
        found = os.get_terminal_size(stream.fileno())
        return found.columns, found.lines
    return 0, 0
