"""What one job says of others: the keys that it needs, and those that it had before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

from reconciler.core.identity import key_problem
from reconciler.errors import Diagnostic
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.positions import PathStep, location_of_key
from reconciler.manifest.problems import Origin, Unexpanded
from reconciler.manifest.suggestions import Names
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText

UNKNOWN = "unknown key"


class Link(NamedTuple):
    """A key that a job names under `needs` or `formerly`, or in the expression `text`, and where.

    `owner` is the key of the job; it is empty for a part of an entry that no job has.
    """

    owner: str
    key: str
    origin: Origin
    steps: tuple[PathStep, ...]
    text: str | None = None

    def diagnose(self, what: str, why: str, fix: str | None = None) -> Diagnostic:
        """A problem with what is named."""
        return self.origin.diagnose(self.steps, what, why, fix, text=self.text)

    @property
    def place(self) -> str:
        """Where it stands, for the words of another problem."""
        return str(self.diagnose("", "").location)


def keys_in(value: Any) -> tuple[str, ...]:
    """The keys that a text or a list names, each once, as far as it does."""
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(str(item) for item in items if isinstance(item, str)))


@dataclass
class Links:
    """What the jobs of one stack say of each other; `entries` are all that its files declare, by key.

    `members` are the keys of each entry with a matrix: to need the entry is to need all of them.
    """

    entries: Mapping[str, MergedEntry]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: list[Link] = field(default_factory=list)
    formerly: list[Link] = field(default_factory=list)
    _members_of: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def known(self) -> frozenset[str]:
        """The keys of all jobs, and those of the entries with a matrix."""
        return frozenset((*self.entries, *self.members))

    def take(self, entry: MergedEntry, value: Mapping[str, Any], references: Iterable[Link] = ()) -> None:
        """Take note of what an entry says, its expressions replaced, and of the jobs that these refer to."""
        self.needs += (*_links(entry, "needs", value.get("needs")), *references)
        self.formerly += _links(entry, "formerly", value.get("formerly"))

    def members_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """The keys, with the members of a sweep in the place of its entry."""
        keys = tuple(keys)
        if keys not in self._members_of:
            # Each member of a sweep that needs another one needs the same: thousands may share the tuple.
            found = dict.fromkeys(one for key in keys for one in self.members.get(key, (key,)))
            self._members_of[keys] = tuple(found)
        return self._members_of[keys]

    def problems(self) -> Iterator[Diagnostic]:
        """Yield what is wrong with them."""
        if self.formerly:
            yield from self._former_problems()
        if self.needs:
            yield from self._need_problems()

    def _need_problems(self) -> Iterator[Diagnostic]:
        owner_of = {link.key: link.owner for link in self.formerly}
        nearest = cache(Names((*self.entries, *self.members)).did_you_mean)
        by_key: dict[str, dict[str, Link]] = {}
        for link in self.needs:
            if link.key in self.known:
                by_key.setdefault(link.owner, {}).setdefault(link.key, link)
                continue
            why = f'"{shorten(link.key)}" is not declared in any file of the stack'
            if link.key in owner_of:
                yield link.diagnose(
                    UNKNOWN, why, f'write "{owner_of[link.key]}", which was "{link.key}" before'
                )
            else:
                owner = self.entries.get(link.owner)
                own = owner.names if owner else (link.owner,)
                yield link.diagnose(UNKNOWN, why, nearest(link.key, but_not=own))
        yield from self._cycle_problems(by_key)

    def _cycle_problems(self, by_key: Mapping[str, Mapping[str, Link]]) -> Iterator[Diagnostic]:
        """Yield each cycle as it is written: through the entries of sweeps there is one, not one a member."""
        graph = {**self.members, **{key: tuple(links) for key, links in by_key.items()}}
        told: set[tuple[object, ...]] = set()
        for cycle in cycles(graph, (*self.entries, *self.members)):
            links = [
                by_key[key][below]
                for key, below in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
                if key in by_key
            ]
            why = " needs ".join(shorten(link.key) for link in (links[-1], *links))
            if (where := (why, self.entries[cycle[0]].steps, links[0].steps)) not in told:
                told.add(where)
                fix = "remove one of them" if len(links) > 1 else "remove it"
                yield links[0].diagnose("dependency cycle", why, fix)

    def _former_problems(self) -> Iterator[Diagnostic]:
        names = {name.lower(): name for name in self.entries}
        claims: dict[str, Link] = {}
        for link in self.formerly:
            if why := key_problem(link.key):
                yield link.diagnose("invalid key", why)
            elif (name := names.get(link.key.lower())) is not None:
                yield self._is_declared(link, name)
            elif (first := claims.setdefault(link.key.lower(), link)) is not link:
                yield _claimed_twice(link, first)

    def _is_declared(self, link: Link, name: str) -> Diagnostic:
        if name != link.key:
            there = self.entries[name]
            why = (
                f'"{link.key}" and "{name}" at {location_of_key(there.document, there.steps)} '
                "would be the same job to the service"
            )
            return link.diagnose("keys differ only in case", why)
        if name == link.owner:
            return link.diagnose("former key still declared", f'"{name}" is the job\'s own key', "remove it")
        there = self.entries[name]
        why = f'"{name}" is declared at {location_of_key(there.document, there.steps)}'
        return link.diagnose("former key still declared", why, f"remove that entry, or this {name}")


def _links(entry: MergedEntry, name: str, value: Any) -> Iterator[Link]:
    origin = Origin(((entry.document, entry.steps),))
    if _is_key(value):
        yield Link(entry.name, value, origin, (name,))
    elif isinstance(value, list):
        met: set[str] = set()
        for index, item in enumerate(value):
            if _is_key(item) and item not in met:
                met.add(item)
                yield Link(entry.name, item, origin, (name, index))


def _is_key(value: Any) -> bool:
    """Whether it is text of which something can be said: a secret, or what has no value, was refused."""
    return isinstance(value, str) and not isinstance(value, SecretText | Unexpanded)


def _claimed_twice(link: Link, first: Link) -> Diagnostic:
    if link.key != first.key:
        why = f'"{link.key}" and "{first.key}" at {first.place} were the same job to the service'
        return link.diagnose("keys differ only in case", why)
    why = f'"{first.owner}" also lists "{link.key}" at {first.place}'
    return link.diagnose("former key claimed twice", why, "keep one of them")


def cycles(needs: Mapping[str, tuple[str, ...]], order: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield cycles, each once and from its first key on, such that without them none would be left.

    All there are could be more than anybody can read.
    """
    rank = {key: number for number, key in enumerate(order)}
    done: set[str] = set()
    for start in order:
        if start in done or start not in needs:
            continue
        path: dict[str, Iterator[str]] = {start: iter(needs[start])}
        while path:
            key = next(reversed(path))
            below = next(path[key], None)
            if below is None:
                done.add(key)
                del path[key]
            elif below in path:
                cycle = list(path)[list(path).index(below) :]
                first = cycle.index(min(cycle, key=rank.__getitem__))
                yield tuple(cycle[first:] + cycle[:first])
            elif below not in done and below in needs:
                path[below] = iter(needs[below])
