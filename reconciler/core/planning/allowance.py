"""Guards, and which of them a person lets pass: `--allow GUARD` (docs/semantics.md, "Guards")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Guard(StrEnum):
    """What refuses a plan unless somebody allows it by this name."""

    LOST_WORK = "lost-work"
    TERMINATIONS = "terminations"
    RERUNS = "reruns"
    FOUND_NOTHING = "found-nothing"
    EMPTY = "empty"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Allowances:
    """What was allowed: whole guards, and keys whose running work may be lost (`lost-work=KEY`)."""

    guards: frozenset[Guard] = frozenset()
    lost_work_keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, words: Iterable[str] = (), *, force: bool = False, allow_empty: bool = False) -> Allowances:
        """Read the words of `--allow`; `force` is all guards, `allow_empty` the other spelling of `empty`.

        Raises:
            ValueError: a word names no guard; the message says which ones there are.
        """
        guards = set(Guard) if force else set()
        if allow_empty:
            guards.add(Guard.EMPTY)
        keys = set()
        for word in words:
            name, equals, key = word.partition("=")
            guard = _guard(name, word)
            if not equals:
                guards.add(guard)
            elif guard is Guard.LOST_WORK and key:
                keys.add(key)
            else:
                raise ValueError(
                    f'"{word}" takes no value; write the guard alone, or {Guard.LOST_WORK.value}=KEY'
                )
        return cls(frozenset(guards), frozenset(keys))

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of `--allow`, sorted."""
        keys = (f"{Guard.LOST_WORK.value}={key}" for key in self.lost_work_keys)
        return tuple(sorted([*(guard.value for guard in self.guards), *keys]))

    def permits(self, guard: Guard) -> bool:
        """Whether a whole guard is allowed to pass."""
        return guard in self.guards

    def permits_loss(self, key: str) -> bool:
        """Whether the running work of a key may be lost."""
        return self.permits(Guard.LOST_WORK) or key in self.lost_work_keys


def _guard(name: str, word: str) -> Guard:
    names = [guard.value for guard in Guard]
    if name in names:
        return Guard(name)
    near = get_close_matches(name, names, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise ValueError(f'"{word}" is not one of {", ".join(names)}{hint}')


NO_ALLOWANCES = Allowances()
EVERY_GUARD = Allowances(frozenset(Guard))
