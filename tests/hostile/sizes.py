"""How many inputs a test tries: a few in each run, very many with `FUZZ=100000`."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
