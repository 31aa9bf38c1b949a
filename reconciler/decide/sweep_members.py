"""Members of sweeps whose keys come and go: which entry a key was a member of, and which one it is now.

A member is named by its values, so an edit of the axes leaves jobs behind whose keys the entry no longer
produces. Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from typing import NamedTuple

from reconciler.core.expression import AXIS_NAME
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.plan import few

#: What a hint at a renaming says first, of a review as of a plan.
MAY_BE_RENAME = "may be a rename"
_AXIS = re.compile(AXIS_NAME)
_VALUE = re.compile(r"[A-Za-z0-9_]*")
#: So many ways to write an expression are tried, with so many constants in one place of it.
_MOST_WAYS, _MOST_CONSTANTS = 1_000, 8


class SweepEntries:
    """The entries of a stack that have a matrix, with their members."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    @cached_property
    def members(self) -> Mapping[str, list[DesiredJob]]:
        """The members of each entry."""
        found: defaultdict[str, list[DesiredJob]] = defaultdict(list)
        for job in (self._stack.whole or self._stack.jobs).values():
            if job.sweep is not None and not job.is_absent:
                found[job.sweep].append(job)
        return found

    def former_entry(self, key: str, recorded: Mapping[str, str]) -> DesiredJob | None:
        """A job of the entry that no longer produces a key, if it was a member of one and the entry is there.

        The history says which entry that is: `recorded` has the one of each key that was ever applied, or "".
        Of other keys the name says it, if it is spelled as the entry spells those of its members.
        """
        if self._stack.find(key) is not None:
            return None
        entry = recorded.get(key)
        if entry is None:
            # Of `lr` and `lr-sweep` the longer name says more.
            entry = max((name for name in self.members if self._is_named_by(key, name)), key=len, default="")
        if not entry:
            return None
        alone = self._stack.find(entry)
        return next(iter(self.members.get(entry, ())), None if alone and alone.is_absent else alone)

    def _is_named_by(self, key: str, entry: str) -> bool:
        if not key.startswith(f"{entry}-"):
            return False
        axes = axes_of(self.members[entry])
        return not axes.isdisjoint(values_in(key, entry, axes) or ())


def values_in(key: str, entry: str, axes: Collection[str]) -> Mapping[str, str] | None:
    """The values in a generated key of an entry, by axis: `-axis-value` in alphabetical order.

    None if it is no such key. An axis may hold hyphens; one that is none of `axes` is taken for a word.
    """
    if not key.startswith(f"{entry}-"):
        return None
    words = key.removeprefix(f"{entry}-").split("-")
    found: dict[str, str] = {}
    while words:
        axis = next((one for one in sorted(axes, key=len, reverse=True) if _begins(words, one)), words[0])
        count = axis.count("-") + 1
        value, words = words[count : count + 1], words[count + 1 :]
        if not value or axis in found or not _AXIS.fullmatch(axis) or not _VALUE.fullmatch(value[0]):
            return None
        found[axis] = value[0]
    return found if list(found) == sorted(found) else None


def _begins(words: Sequence[str], axis: str) -> bool:
    return words[: axis.count("-") + 1] == axis.split("-")


class Renaming(NamedTuple):
    """An expression that names the former key of each new member of a sweep; `pairs` are new and old keys."""

    expression: str
    pairs: Mapping[str, str]

    def fix(self, entry: str) -> str:
        """What to add to the entry."""
        return f'add `formerly: "{self.expression}"` to {entry} to keep its jobs'

    def hint(self, entry: str, key: str) -> PlanWarning:
        """A hint at it, shown with the first new member."""
        old = sorted(self.pairs.values())
        count = "1 member" if len(old) == 1 else f"{len(old)} members"
        why = f"{count} of {entry} would start, and as many are no longer produced: {few(old)}"
        return PlanWarning(what=MAY_BE_RENAME, why=why, fix=self.fix(entry), key=key)


def find_renaming(
    members: Sequence[DesiredJob],
    came: Collection[str],
    gone: Mapping[str, str],
    entry: str,
    declared: Collection[str],
) -> Renaming | None:
    """Find what `formerly` has to say for the new members of a sweep to keep the jobs that are gone.

    `came` are the keys of the new members, `gone` the digests of the keys that are gone, by key; these begin
    with `entry`. None if no expression has a key that is gone for each of them, and for no other member. Of
    several the one is meant that gives most of them the declaration that their job had.
    """
    new = [member for member in members if member.key in came]
    best: tuple[int, Renaming] | None = None
    for axes, rows in _by_axes(gone, entry, axes_of(members)).items():
        columns = zip(axes, zip(*rows, strict=True), strict=True)
        for way in islice(product(*(list(_ways(axis, texts, new)) for axis, texts in columns)), _MOST_WAYS):
            if _spelled(entry, axes, way, new[0]) not in gone:
                continue
            pairs = {member.key: _spelled(entry, axes, way, member) for member in new}
            if not gone.keys() >= {*pairs.values()}:
                continue
            former = [_spelled(entry, axes, way, member) for member in members]
            others = {*former} - {*pairs.values()}
            if len({*former}) < len(former) or not others.isdisjoint({*gone, *declared}):
                continue
            alike = sum(member.is_declared_by(gone[pairs[member.key]]) for member in new)
            if best is None or alike > best[0]:
                parts = (f"-{axis}-{text}" for axis, text in zip(axes, way, strict=True))
                best = alike, Renaming("".join((entry, *parts)), pairs)
    return None if best is None else best[1]


def _by_axes(
    gone: Collection[str], entry: str, axes: Collection[str]
) -> Mapping[tuple[str, ...], list[tuple[str, ...]]]:
    """The values in the keys that are gone, by the axes that they name."""
    found: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for key in sorted(gone):
        if (values := values_in(key, entry, axes)) is not None:
            found[tuple(values)].append(tuple(values.values()))
    return found


def _ways(axis: str, column: Sequence[str], new: Sequence[DesiredJob]) -> Iterator[str]:
    """What may stand for a value: that of the axis of that name, a constant, or that of another axis."""
    axes = sorted(new[0].matrix, key=lambda name: name != axis)
    texts = set(column)
    fitting = [f"${{matrix.{name}}}" for name in axes if all(job.matrix.get(name) in texts for job in new)]
    same = f"${{matrix.{axis}}}"
    yield from (one for one in fitting if one == same)
    yield from texts if len(texts) == 1 else ()
    yield from (one for one in fitting if one != same)
    yield from sorted(texts)[:_MOST_CONSTANTS] if len(texts) > 1 else ()


def _spelled(entry: str, axes: Sequence[str], way: Sequence[str], member: DesiredJob) -> str:
    texts = {f"${{matrix.{name}}}": text for name, text in member.matrix.items()}
    return "".join((entry, *(f"-{axis}-{texts.get(one, one)}" for axis, one in zip(axes, way, strict=True))))


def axes_of(members: Sequence[DesiredJob]) -> frozenset[str]:
    """The axes of a sweep."""
    return frozenset(axis for member in members for axis in member.matrix)
