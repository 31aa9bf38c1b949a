"""Sweeps: an entry with a `matrix` is one job for each combination of its axes.

Members are named by their values, never by an index, so that adding a value adds jobs and renames none.
`exclude` takes combinations away; `include` then adds values to those that have the values it names, or is a
combination of its own where none has, as in the matrices of CI services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any, NamedTuple

from reconciler.core.identity import key_problem
from reconciler.core.scalar import AXIS_NAME, is_boolean, plain, scalar_text
from reconciler.errors import Diagnostic
from reconciler.manifest.expressions import LINK, MEMBER, Expander, problems_in
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.problems import NoValue, PathStep, did_you_mean, found
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText


def value_text(value: Any) -> str:
    """A value as it stands in the key of a member: numbers in their shortest decimal form."""
    number = plain(value)
    text = str(scalar_text(number))
    if isinstance(number, int | float) and not is_boolean(value):
        try:
            text = format(Decimal(repr(number)), "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
        except (ArithmeticError, ValueError):  # infinite, or none at all
            text = repr(number)
    return re.sub(r"[^A-Za-z0-9]", "_", text)


def value_texts(combination: Mapping[str, Any]) -> dict[str, str]:
    """The same for each value of a combination."""
    return {axis: value_text(value) for axis, value in combination.items()}


def with_member_keys(
    entry: MergedEntry, value: dict[str, Any], expander: Expander, known: Collection[str]
) -> dict[str, Any]:
    """What a member says, `value`, with the keys in it that its own values stand in.

    `needs: train-lr-${matrix.lr}` means the job of that name if it is `known`, else the member whose key has
    the values as keys spell them: `train-lr-0_01`. A former key cannot be looked up, so it may be either.
    """
    for name in ("needs", "formerly"):
        written = entry.value.get(name)
        if entry.matrix and "${matrix." in str(written):
            texts = {**entry.matrix, **value_texts(entry.matrix)}
            try:
                spelled = expander.for_job(entry.name, texts).tree(written)
            except NoValue:
                continue  # as in `value`, where that has been told
            choose = _needed if name == "needs" else _former
            value = {**value, name: choose(value[name], spelled, known)}
    return value


def member_key(literal: str, spelled: str, known: Collection[str]) -> str:
    """The key that is meant where values stand in one: as they are, or as keys spell them."""
    return spelled if literal not in known and spelled in known else literal


def _needed(literal: Any, spelled: Any, known: Collection[str]) -> Any:
    if isinstance(literal, list):
        return [_needed(one, other, known) for one, other in zip(literal, spelled, strict=True)]
    are_texts = isinstance(literal, str) and isinstance(spelled, str)
    return member_key(literal, spelled, known) if are_texts else literal


def _former(literal: Any, spelled: Any, _: Collection[str]) -> Any:
    one, other = (value if isinstance(value, list) else [value] for value in (literal, spelled))
    if one == other:
        return literal
    possible = [key for key in one if not isinstance(key, str) or key_problem(key) is None]
    return [*possible, *(key for key in other if key not in possible)]


#: What an entry says of its members, and no job does.
MATRIX, NAME = "matrix", "name"
INCLUDE, EXCLUDE = "include", "exclude"
#: More jobs than this are no sweep that anybody means.
MAX_MEMBERS = 10_000
#: The value of an axis stands in the names of jobs.
_LONGEST_VALUE = 1000
_INVALID = "invalid matrix"
_Combination = Mapping[str, Any]


@dataclass
class Sweeps:
    """Expands the entries of one stack. `members` are the keys of each entry that has a matrix."""

    expander: Expander
    problems: list[Diagnostic] = field(default_factory=list)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def expand(self, entries: Mapping[str, MergedEntry]) -> dict[str, MergedEntry]:
        """The entries with every sweep replaced by its members; one with a problem has none."""
        expanded = {
            name: entry for name, entry in entries.items() if not _is_sweep(entry) and self._is_plain(entry)
        }
        taken = {name.lower(): entry for name, entry in entries.items() if not _is_sweep(entry)}
        for entry in filter(_is_sweep, entries.values()):
            members = self._members(entry, taken)
            self.members[entry.name] = tuple(members)
            expanded |= members
        return expanded

    def _is_plain(self, entry: MergedEntry) -> bool:
        if isinstance(entry.value, dict) and NAME in entry.value:
            why = "name spells the keys of an entry with a matrix; any other job is named by its key"
            self._report(entry, (NAME,), "name without matrix", why, "rename the entry")
            return False
        return True

    def _members(self, entry: MergedEntry, taken: dict[str, MergedEntry]) -> dict[str, MergedEntry]:
        before = len(self.problems)
        tree: Any = {}
        try:
            tree = self.expander.tree(entry.value[MATRIX])
        except NoValue:
            for steps, problem in problems_in(entry.value[MATRIX], self.expander, (MATRIX,)):
                self._report(entry, steps, *problem)
        combinations = list(self._combinations(entry, tree)) if len(self.problems) == before else []
        value = {name: member for name, member in entry.value.items() if name not in (MATRIX, NAME)}
        members: dict[str, MergedEntry] = {}
        combination_of: dict[str, _Combination] = {}
        axes = tree.keys() - {INCLUDE, EXCLUDE} if combinations else ()
        for named_by, combination in combinations:
            # What an include adds is no axis, unless there are no others.
            key = self._key(entry, named_by, axes or named_by)
            if key is None:
                break
            if why := key_problem(key):
                fix = 'shorten it with name: "…${matrix.AXIS}…", which spells the keys'
                why = f'{_shown(named_by)} gives "{shorten(key)}": {why}'
                self._report(entry, (MATRIX,), "invalid key", why, fix)
            elif (first := taken.get(key.lower())) is not None:
                self._report_clash(entry, key, named_by, first, combination_of.get(key.lower()))
            else:
                taken[key.lower()] = entry
                combination_of[key.lower()] = named_by
                members[key] = entry._replace(name=key, value=value, entry=entry.name, matrix=combination)
        return members if len(self.problems) == before else {}

    def _combinations(self, entry: MergedEntry, tree: Any) -> list[tuple[_Combination, _Combination]]:
        """Each combination: the values that name it, and all of its values."""
        if not isinstance(tree, dict) or not tree:
            why = f"expected a mapping of axes to lists of values, got {found(tree) if tree else 'nothing'}"
            self._report(entry, (MATRIX,), _INVALID, why, "e.g. {lr: [0.1, 0.01]}")
            return []
        axes = {name: values for name, values in tree.items() if name not in (INCLUDE, EXCLUDE)}
        matrix = Matrix(axes, self._listed(entry, tree, INCLUDE), self._listed(entry, tree, EXCLUDE))
        if not self._is_valid(entry, matrix):
            return []
        count = prod(map(len, axes.values())) + len(matrix.includes)
        if count > MAX_MEMBERS:
            why = f"{count:,} combinations; at most {MAX_MEMBERS:,} are allowed"
            self._report(entry, (MATRIX,), _INVALID, why, "split it into entries of their own")
            return []
        budget = self.expander.budget
        if not budget.allows(count * (MEMBER + LINK * len(matrix.includes))):
            self._report(entry, (MATRIX,), *budget.problem()._replace(fix="split the stack"))
            return []
        combinations = matrix.combinations()
        if not combinations:
            self._report(entry, (MATRIX, EXCLUDE), _INVALID, "exclude leaves no combination")
        return combinations

    def _listed(self, entry: MergedEntry, tree: _Combination, name: str) -> list[dict[str, Any]]:
        value = tree.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) and one for one in value):
            why = f"expected a list of mappings of axes to values, got {found(value)}"
            self._report(entry, (MATRIX, name), _INVALID, why, f"e.g. {name}: [{{lr: 0.1, batch: 64}}]")
            return []
        return value

    def _is_valid(self, entry: MergedEntry, matrix: Matrix) -> bool:
        before = len(self.problems)
        for name, values in matrix.axes.items():
            self._check_axis(entry, name, values)
        for section, combinations in ((INCLUDE, matrix.includes), (EXCLUDE, matrix.excludes)):
            for number, combination in enumerate(combinations):
                for name, value in combination.items():
                    self._check_value(entry, (MATRIX, section, number, name), value)
        for number, combination in enumerate(matrix.includes):
            for name in combination:
                self._check_name(entry, (MATRIX, INCLUDE, number, name), name)
        for number, combination in enumerate(matrix.excludes):
            for name in combination.keys() - matrix.axes.keys():
                why = f'"{shorten(name)}" is not an axis of this matrix'
                fix = did_you_mean(name, list(matrix.axes))
                self._report(entry, (MATRIX, EXCLUDE, number, name), "unknown axis", why, fix)
        return len(self.problems) == before

    def _check_axis(self, entry: MergedEntry, name: str, values: Any) -> None:
        steps = (MATRIX, name)
        self._check_name(entry, steps, name)
        if not isinstance(values, list):
            why = f"expected a list of values, got {found(values)}"
            self._report(entry, steps, _INVALID, why, f"e.g. {shorten(name)}: [0.1, 0.01]")
        elif not values:
            self._report(entry, steps, _INVALID, "an axis needs at least one value")
        else:
            for number, value in enumerate(values):
                self._check_value(entry, (*steps, number), value)
                if isinstance(value, str) and len(value) > _LONGEST_VALUE:
                    why = f"a value of {len(value):,} characters cannot name a job"
                    self._report(entry, (*steps, number), "value too long", why)

    def _check_name(self, entry: MergedEntry, steps: tuple[PathStep, ...], name: str) -> None:
        if not re.fullmatch(AXIS_NAME, name):
            why = "an axis must consist of letters, digits, _ and -, and start with a letter"
            self._report(entry, steps, "invalid key", f'"{shorten(name)}": {why}')

    def _check_value(self, entry: MergedEntry, steps: tuple[PathStep, ...], value: Any) -> None:
        if isinstance(value, SecretText):
            why = f"{value.reference} is sensitive, but the values of a matrix name jobs"
            self._report(entry, steps, "secret not allowed here", why)
        elif isinstance(value, dict | list | None):
            why = f"expected text, a number, true or false, got {found(value)}"
            self._report(entry, steps, "wrong type", why)

    def _key(self, entry: MergedEntry, named_by: _Combination, axes: Collection[str]) -> str | None:
        template = entry.value.get(NAME)
        texts = value_texts(named_by)
        if template is None:
            return "-".join((entry.name, *(f"{axis}-{texts[axis]}" for axis in sorted(texts))))
        if not isinstance(template, str):
            self._report(entry, (NAME,), "wrong type", f"expected text, got {found(template)}")
            return None
        missing = [axis for axis in sorted(axes) if f"${{matrix.{axis}}}" not in template]
        if missing:
            wanted = ", ".join(f"${{matrix.{axis}}}" for axis in missing)
            why = f"{_shown(named_by)}: every axis must stand in it, {wanted} does not"
            self._report(entry, (NAME,), "invalid name", why)
            return None
        try:
            key = self.expander.for_job(entry.name, texts).text(template)
        except NoValue as error:
            what, why, fix, _ = error.problem
            self._report(entry, (NAME,), what, f"{_shown(named_by)}: {why}", fix)
            return None
        if isinstance(key, SecretText):
            why = f"{key.reference} is sensitive, but everybody sees the names of jobs"
            self._report(entry, (NAME,), "secret not allowed here", why)
            return None
        return str(key)

    def _report_clash(
        self,
        entry: MergedEntry,
        key: str,
        named_by: _Combination,
        first: MergedEntry,
        earlier: _Combination | None,
    ) -> None:
        fix = 'remove one of them, or set name: "…${matrix.AXIS}…", which spells the keys'
        other = f"the entry at {first.location}"
        if first is entry and earlier is not None:
            other = _shown(earlier)
            # Case is nothing to the service.
            texts = [
                {axis: text.lower() for axis, text in value_texts(one).items()} for one in (named_by, earlier)
            ]
            if texts[0] == texts[1]:
                fix = (
                    "keys spell these values alike: remove one of them, or let another axis name the jobs "
                    "and give each its value with include"
                )
        why = f'{_shown(named_by)} and {other} are both "{shorten(key)}" to the service'
        self._report(entry, (MATRIX,), "duplicate key", why, fix)

    def _report(self, entry: MergedEntry, steps: tuple[PathStep, ...], what: str, *words: Any) -> None:
        self.problems.append(entry.diagnose(steps, what, *words))


class Matrix(NamedTuple):
    """What a matrix says, its expressions replaced."""

    axes: Mapping[str, list[Any]]
    includes: Sequence[Mapping[str, Any]]
    excludes: Sequence[Mapping[str, Any]]

    def combinations(self) -> list[tuple[_Combination, _Combination]]:
        """Each combination: the values that name it, and all of its values."""
        combined = product(*self.axes.values()) if self.axes else ()
        whole_product = [dict(zip(self.axes, values, strict=True)) for values in combined]
        excluding = _lookup(whole_product)
        out = {number for one in self.excludes for number in excluding(one)}
        kept = [one for number, one in enumerate(whole_product) if number not in out]
        matching = _lookup(kept)
        whole = [dict(one) for one in kept]
        alone: list[_Combination] = []
        for include in self.includes:
            numbers = matching({name: value for name, value in include.items() if name in self.axes})
            for number in numbers:
                whole[number] |= {**include, **kept[number]}
            if not numbers:
                alone.append(include)
        return [*zip(kept, whole, strict=True), *((one, one) for one in alone)]


def _is_sweep(entry: MergedEntry) -> bool:
    return isinstance(entry.value, dict) and MATRIX in entry.value


def _lookup(combinations: Sequence[_Combination]) -> Callable[[_Combination], Sequence[int]]:
    """Find combinations, all of which have the same axes, by some of their values: gives their numbers."""
    by_axes: dict[tuple[str, ...], dict[Any, list[int]]] = {}

    def identity(combination: _Combination, axes: Sequence[str]) -> tuple[Any, ...]:
        # To Python true is 1.
        return tuple((is_boolean(combination[axis]), plain(combination[axis])) for axis in axes)

    def matching(values: _Combination) -> Sequence[int]:
        axes = tuple(sorted(values))
        if axes not in by_axes:
            numbers = by_axes[axes] = {}
            for number, one in enumerate(combinations):
                numbers.setdefault(identity(one, axes), []).append(number)
        return by_axes[axes].get(identity(values, axes), ())

    return matching


def _shown(combination: _Combination) -> str:
    pairs = (f"{name}: {found(value)}" for name, value in combination.items())
    return "{" + ", ".join(pairs) + "}"
