"""Guards, and which of them a person lets pass: `--allow GUARD` (docs/semantics.md, "Guards")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple


class Guard(StrEnum):
    """What refuses a plan, or blocks keys of it, unless somebody allows it by this name."""

    LOST_WORK = "lost-work"
    TERMINATIONS = "terminations"
    RERUNS = "reruns"
    FOUND_NOTHING = "found-nothing"
    EMPTY = "empty"
    BUDGET = "budget"


#: The guards that count keys, of which single ones can be allowed: `lost-work=KEY`.
_BY_KEY = (Guard.LOST_WORK, Guard.RERUNS)


class AllowedKey(NamedTuple):
    """One key that a guard does not count."""

    guard: Guard
    key: str


@dataclass(frozen=True, slots=True)
class Allowances:
    """What was allowed: whole guards, and keys that a guard does not count (`lost-work=KEY`)."""

    guards: frozenset[Guard] = frozenset()
    keys: frozenset[AllowedKey] = frozenset()

    @classmethod
    def of(cls, words: Iterable[str] = (), *, force: bool = False) -> Allowances:
        """Read the words of `--allow`; `force` is all guards.

        Raises:
            ValueError: a word names no guard; the message says which ones there are.
        """
        guards = set(Guard) if force else set()
        keys = set()
        for word in words:
            name, equals, key = word.partition("=")
            guard = _guard(name, word)
            if not equals:
                guards.add(guard)
            elif guard in _BY_KEY and key:
                keys.add(AllowedKey(guard, key))
            else:
                forms = " or ".join(f"{one.value}=KEY" for one in _BY_KEY)
                raise ValueError(f'"{word}" takes no value; write the guard alone, or {forms}')
        return cls(frozenset(guards), frozenset(keys))

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of `--allow`, sorted."""
        keys = (f"{guard.value}={key}" for guard, key in self.keys)
        return tuple(sorted([*(guard.value for guard in self.guards), *keys]))

    @property
    def named_keys(self) -> frozenset[str]:
        """The keys that were allowed by name."""
        return frozenset(one.key for one in self.keys)

    def permits(self, guard: Guard) -> bool:
        """Whether a whole guard is allowed to pass."""
        return guard in self.guards

    def permits_key(self, guard: Guard, key: str) -> bool:
        """Whether a guard does not count a key."""
        return self.permits(guard) or AllowedKey(guard, key) in self.keys


def _guard(name: str, word: str) -> Guard:
    names = [guard.value for guard in Guard]
    if name in names:
        return Guard(name)
    near = get_close_matches(name, names, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise ValueError(f'"{word}" is not one of {", ".join(names)}{hint}')


NO_ALLOWANCES = Allowances()
EVERY_GUARD = Allowances(frozenset(Guard))
