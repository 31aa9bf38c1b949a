"""How many inputs a test tries: a few in each run, very many with `FUZZ=100000`; and what it counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
#: What the person who runs the tests asks for; 0 if nothing was said.
FUZZ = int(os.environ.get("FUZZ", "0"))


def size(few: int, share: float = 0.1) -> int:
    """Return `few`, or this share of what was asked for if that is more."""
    return max(few, int(FUZZ * share))


def some(things: Sequence[_T], few: int, share: float = 0.1) -> list[_T]:
    """Return so many of the things, spread evenly over them."""
    count = min(len(things), size(few, share))
    return [things[index * len(things) // count] for index in range(count)]


RecordProperty = Callable[[str, object], None]
_PAGE = Path(__file__).parents[2] / "docs/operations/security.md"


def count_tried(record_property: RecordProperty, row: str, count: int) -> None:
    """Let the run print how many inputs were tried; the table of docs/operations/security.md names them."""
    assert f"\n| {row} |" in _PAGE.read_text(encoding="utf-8"), (
        f"docs/operations/security.md has no row: {row}"
    )
    record_property("figure", [f"tried: {row}", count])
