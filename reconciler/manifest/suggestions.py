"""The valid name that a misspelt one may have meant, and a list of valid names that a person can read.

A manifest may hold names by the thousand, misspelt ones too, and comparing each with each would take
minutes. Of many names only those are compared that begin or end like the misspelt one: a slip of one letter
leaves either its beginning or its end as it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import islice

#: Up to so many names are compared all; of more, so many neighbours on each side.
_FEW, _NEIGHBOURS = 60, 5
#: How many of the valid names a message lists.
MOST_LISTED = 20
#: Longer than any name; a longer text is no slip of one.
_LONGEST = 100


class Names:
    """Valid names, to be compared with many misspelt ones. Case does not matter."""

    def __init__(self, known: Iterable[str]) -> None:
        self.known = tuple(known)
        self._by_lower = {name.lower(): name for name in reversed(self.known)}
        self._forward = sorted(self._by_lower) if len(self._by_lower) > _FEW else []
        self._backward = sorted(name[::-1] for name in self._forward)

    def did_you_mean(self, name: str, spelled: str = "{}", but_not: tuple[str, ...] = ()) -> str | None:
        """A question that offers the nearest of the names, or None if none is near.

        `but_not` are never offered: the names of whoever asks.
        """
        import difflib

        if len(name) > _LONGEST:
            return None
        own = {one.lower() for one in but_not}
        candidates = [one for one in self._candidates(name.lower()) if one not in own]
        near = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
        return f'did you mean "{spelled.format(self._by_lower[near[0]])}"?' if near else None

    def _candidates(self, name: str) -> list[str]:
        if not self._forward:
            return list(self._by_lower)
        beginning = _around(self._forward, name)
        ending = (other[::-1] for other in _around(self._backward, name[::-1]))
        return list(dict.fromkeys((*beginning, *ending)))


def did_you_mean(
    name: str, known: Iterable[str], spelled: str = "{}", but_not: tuple[str, ...] = ()
) -> str | None:
    """The same for one misspelt name."""
    return _names(tuple(known)).did_you_mean(name, spelled, but_not)


def listed(names: Collection[str]) -> str:
    """The names one after the other; of many the first ones, and how many more there are."""
    more = len(names) - MOST_LISTED
    shown = ", ".join(islice(names, MOST_LISTED))
    return shown if more <= 0 else f"{shown} and {more} more"


_names = lru_cache(maxsize=64)(Names)


def _around(ordered: list[str], name: str) -> list[str]:
    at = bisect_left(ordered, name)
    return ordered[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
