"""The number of inputs of a test: a few by default, many with `FUZZ=100000`; and its count."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
#: The requested number of inputs; 0 if unset.
FUZZ = int(os.environ.get("FUZZ", "0"))


def size(few: int, share: float = 0.1) -> int:
    """Return `few`, or this share of the requested number if greater."""
    return max(few, int(FUZZ * share))


def some(things: Sequence[_T], few: int, share: float = 0.1) -> list[_T]:
    """Return an evenly spread sample of the items."""
    count = min(len(things), size(few, share))
    return [things[index * len(things) // count] for index in range(count)]


RecordProperty = Callable[[str, object], None]
_PAGE = Path(__file__).parents[2] / "docs/operations/security.md"


def count_tried(record_property: RecordProperty, row: str, count: int) -> None:
    """Report how many inputs were tried, for the table in docs/operations/security.md."""
    assert f"\n| {row} |" in _PAGE.read_text(encoding="utf-8"), (
        f"docs/operations/security.md has no row: {row}"
    )
    record_property("figure", [f"tried: {row}", count])
