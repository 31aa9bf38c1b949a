"""Sweeps: an entry with a `matrix` is one job for each combination of its axes.

Members are named by their values, not by an index, so that adding a value renames no job. `exclude` removes
combinations; `include` then extends the combinations that match it, or adds one if none does, as in the
matrices of CI services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any

from reconciler.core.identity import MAX_KEY, key_problem
from reconciler.core.scalar import AXIS_NAME, RevisionText, is_boolean, plain, scalar_text
from reconciler.errors import Diagnostic
from reconciler.manifest.expressions import LINK, MEMBER, Expander, problems_in
from reconciler.manifest.merge import MergedEntry
from reconciler.manifest.problems import NoValue, PathStep, describe, did_you_mean
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText


def value_text(value: Any) -> str:
    """Format a value for the key of a member. Numbers have their shortest decimal form."""
    number = plain(value)
    text = str(scalar_text(number))
    if isinstance(number, int | float) and not is_boolean(value):
        try:
            text = format(Decimal(repr(number)), "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
        except (ArithmeticError, ValueError):  # infinite, or not a number
            text = repr(number)
    return re.sub(r"[^A-Za-z0-9]", "_", text)


def value_texts(combination: Mapping[str, Any]) -> dict[str, str]:
    return {axis: value_text(value) for axis, value in combination.items()}


def with_member_keys(
    entry: MergedEntry, value: dict[str, Any], expander: Expander, known: Collection[str]
) -> dict[str, Any]:
    """Resolve the keys in `needs` and `formerly` of a member that use its matrix values.

    `needs: train-lr-${matrix.lr}` is the job of that name if it is `known`, else the member with the values
    as spelled in keys: `train-lr-0_01`. A former key cannot be looked up, so it may be either.
    """
    for name in ("needs", "formerly"):
        written = entry.value.get(name)
        if entry.matrix and "${matrix." in str(written):
            texts = {**entry.matrix, **value_texts(entry.matrix)}
            try:
                spelled = expander.for_job(entry.name, texts).tree(written)
            except NoValue:
                continue  # reported when `value` was expanded
            choose = _needed if name == "needs" else _former
            value = {**value, name: choose(value[name], spelled, known)}
    return value


def member_key(literal: str, spelled: str, known: Collection[str]) -> str:
    """Return the literal key, unless only the one with values as spelled in keys is known."""
    return spelled if literal not in known and spelled in known else literal


def _needed(literal: Any, spelled: Any, known: Collection[str]) -> Any:
    if isinstance(literal, list):
        return [_needed(item, other, known) for item, other in zip(literal, spelled, strict=True)]
    are_texts = isinstance(literal, str) and isinstance(spelled, str)
    return member_key(literal, spelled, known) if are_texts else literal


def _former(literal: Any, spelled: Any, _: Collection[str]) -> Any:
    literals, others = (value if isinstance(value, list) else [value] for value in (literal, spelled))
    if literals == others:
        return literal
    possible = [key for key in literals if not isinstance(key, str) or key_problem(key) is None]
    return [*possible, *(key for key in others if key not in possible)]


#: Fields of a sweep that its members do not have.
MATRIX, NAME = "matrix", "name"
INCLUDE, EXCLUDE = "include", "exclude"
#: Fields that only a sweep may have, with why and fix.
_SWEEP_FIELDS = {
    NAME: (
        "name is the key pattern of an entry with a matrix; any other job is named by its key",
        "rename the entry",
    ),
    "max_parallel": (
        "max_parallel limits the members of an entry with a matrix; any other entry has a single job",
        "remove it",
    ),
}
MAX_MEMBERS = 10_000
#: Values become part of job names.
_MAX_VALUE_LENGTH = 1000
_INVALID = "invalid matrix"
_SENSITIVE = "secret not allowed here"
_Combination = Mapping[str, Any]
#: The path of a problem in an entry, with what, why and fix.
_Problem = tuple[tuple[PathStep, ...], str, str, str | None]


@dataclass(eq=False, repr=False)
class Sweeps:
    """Expands the entries of one stack. `members` are the keys of each sweep."""

    expander: Expander
    problems: list[Diagnostic] = field(default_factory=list)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def expand(self, entries: Mapping[str, MergedEntry]) -> dict[str, MergedEntry]:
        """Replace each sweep with its members, keeping the order. A sweep with a problem has none."""
        expanded: dict[str, MergedEntry] = {}
        taken: dict[str, MergedEntry] = {}
        for name, entry in entries.items():
            if not _is_sweep(entry):
                taken[name.lower()] = entry
                own = entry.value if isinstance(entry.value, dict) else {}
                misplaced = [extra for extra in _SWEEP_FIELDS if extra in own]
                for extra in misplaced:
                    self._report(entry, (extra,), f"{extra} without matrix", *_SWEEP_FIELDS[extra])
                if not misplaced:
                    expanded[name] = entry
        for entry in filter(_is_sweep, entries.values()):
            members = self._members(entry, taken)
            self.members[entry.name] = tuple(members)
            expanded |= members
        keys = (key for name in entries for key in self.members.get(name, (name,)))
        return {key: expanded[key] for key in keys if key in expanded}

    def _members(self, entry: MergedEntry, taken: dict[str, MergedEntry]) -> dict[str, MergedEntry]:
        before = len(self.problems)
        tree: Any = {}
        try:
            tree = self.expander.tree(entry.value[MATRIX])
        except NoValue:
            for steps, problem in problems_in(entry.value[MATRIX], self.expander, (MATRIX,)):
                self._report(entry, steps, *problem)
        expanded = self._combinations(entry, tree) if len(self.problems) == before else []
        value = {name: member for name, member in entry.value.items() if name not in (MATRIX, NAME)}
        members: dict[str, MergedEntry] = {}
        combination_of: dict[str, _Combination] = {}
        axes = tree.keys() - {INCLUDE, EXCLUDE} if expanded else ()
        for named_by, combination in expanded:
            try:
                # The names in an include are axes only if there are no others.
                key = self._key(entry, named_by, axes or named_by)
            except NoValue as error:
                self._report(entry, (NAME,), *error.problem[:3])
                break
            if why := key_problem(key):
                is_long = len(key) > MAX_KEY
                fix = 'shorten it with name: "…${matrix.AXIS}…", the key pattern' if is_long else None
                why = f'{_format(named_by)} gives "{shorten(key)}": {why}'
                self._report(entry, (NAME if NAME in entry.value else MATRIX,), "invalid key", why, fix)
            elif (first := taken.get(key.lower())) is not None:
                earlier = combination_of.get(key.lower())
                other = f"the entry at {first.location}" if earlier is None else _format(earlier)
                why = f'{_format(named_by)} and {other} are both "{shorten(key)}" to the service'
                fix = 'remove one of them, or set name: "…${matrix.AXIS}…", the key pattern'
                if earlier is not None and NAME not in entry.value:
                    fix = "remove one of them, or change its value; name: would spell both alike"
                self._report(entry, (MATRIX,), "duplicate key", why, fix)
            else:
                taken[key.lower()] = entry
                combination_of[key.lower()] = named_by
                members[key] = entry._replace(name=key, value=value, entry=entry.name, matrix=combination)
        return members if len(self.problems) == before else {}

    def _combinations(self, entry: MergedEntry, tree: Any) -> list[tuple[_Combination, _Combination]]:
        problems = list(_problems(tree))
        for problem in problems:
            self._report(entry, *problem)
        # An `include` or `exclude` that is not a list is ignored, to find problems of the keys.
        misshapen = {steps[-1] for steps, *_ in problems if steps in ((MATRIX, INCLUDE), (MATRIX, EXCLUDE))}
        if len(problems) > len(misshapen):
            return []
        tree = {name: values for name, values in tree.items() if name not in misshapen}
        axes = {name: values for name, values in tree.items() if name not in (INCLUDE, EXCLUDE)}
        includes = tree.get(INCLUDE, [])
        count = prod(map(len, axes.values())) + len(includes)
        budget = self.expander.budget
        if count > MAX_MEMBERS:
            why = f"{count:,} combinations; at most {MAX_MEMBERS:,} are allowed"
            self._report(entry, (MATRIX,), _INVALID, why, "split it into several entries")
        elif not budget.allows(count * (MEMBER + LINK * len(includes))):
            self._report(entry, (MATRIX,), *budget.problem()._replace(fix="split the stack"))
        elif expanded := combinations(axes, includes, tree.get(EXCLUDE, [])):
            return expanded
        elif not axes:
            why, fix = "it has neither an axis nor a combination to include", "e.g. {lr: [0.1, 0.01]}"
            self._report(entry, (MATRIX,), _INVALID, why, fix)
        else:
            self._report(entry, (MATRIX, EXCLUDE), _INVALID, "exclude leaves no combination")
        return []

    def _key(self, entry: MergedEntry, named_by: _Combination, axes: Collection[str]) -> str:
        """Return the key of a member.

        Raises:
            NoValue: `name` is not a template that gives each member a key.
        """
        template = entry.value.get(NAME)
        texts = value_texts(named_by)
        if template is None:
            return "-".join((entry.name, *(f"{axis}-{texts[axis]}" for axis in sorted(texts))))
        if not isinstance(template, str):
            raise NoValue("wrong type", f"expected text, got {describe(template)}")
        required = (f"${{matrix.{axis}}}" for axis in sorted(axes))
        if missing := ", ".join(text for text in required if text not in template):
            why = f"{_format(named_by)}: the name must contain every axis; {missing} is missing"
            raise NoValue("invalid name", why)
        try:
            key = self.expander.for_job(entry.name, texts).text(template)
        except NoValue as error:
            what, why, fix, _ = error.problem
            raise NoValue(what, f"{_format(named_by)}: {why}", fix) from None
        if isinstance(key, SecretText):
            raise NoValue(_SENSITIVE, f"{key.reference} is sensitive, but job names are public")
        if isinstance(key, RevisionText):
            raise NoValue("expression not allowed here", "every revision of a job has the same key")
        return str(key)

    def _report(self, entry: MergedEntry, steps: tuple[PathStep, ...], what: str, *details: Any) -> None:
        self.problems.append(entry.diagnose(steps, what, *details))


def _problems(tree: Any) -> Iterator[_Problem]:
    if not isinstance(tree, dict) or not tree:
        why = f"expected a mapping of axes to lists of values, got {describe(tree) if tree else 'nothing'}"
        yield (MATRIX,), _INVALID, why, "e.g. {lr: [0.1, 0.01]}"
        return
    axes = [name for name in tree if name not in (INCLUDE, EXCLUDE)]
    for name in (INCLUDE, EXCLUDE):
        value = tree.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) and item for item in value):
            why = f"expected a list of mappings of axes to values, got {describe(value)}"
            yield (MATRIX, name), _INVALID, why, f"e.g. {name}: [{{lr: 0.1, batch: 64}}]"
            continue
        for number, combination in enumerate(value):
            for axis, member in combination.items():
                steps = (MATRIX, name, number, axis)
                yield from _value_problems(steps, member)
                if name == INCLUDE:
                    yield from _name_problems(steps, axis)
                elif axis not in axes:
                    why = f'"{shorten(axis)}" is not an axis of this matrix'
                    yield steps, "unknown axis", why, did_you_mean(axis, axes)
    for name in axes:
        axis_steps, values = (MATRIX, name), tree[name]
        yield from _name_problems(axis_steps, name)
        if not isinstance(values, list):
            why = f"expected a list of values, got {describe(values)}"
            yield axis_steps, _INVALID, why, f"e.g. {shorten(name)}: [0.1, 0.01]"
            continue
        if not values:
            yield axis_steps, _INVALID, "an axis needs at least one value", None
        for number, value in enumerate(values):
            yield from _value_problems((*axis_steps, number), value)
            if isinstance(value, str) and len(value) > _MAX_VALUE_LENGTH:
                why = f"a value of {len(value):,} characters is too long to name a job"
                yield (*axis_steps, number), "value too long", why, None


def _name_problems(steps: tuple[PathStep, ...], name: str) -> Iterator[_Problem]:
    if not re.fullmatch(AXIS_NAME, name):
        why = "an axis must consist of letters, digits, _ and -, and start with a letter"
        yield steps, "invalid key", f'"{shorten(name)}": {why}', None


def _value_problems(steps: tuple[PathStep, ...], value: Any) -> Iterator[_Problem]:
    if isinstance(value, SecretText):
        yield steps, _SENSITIVE, f"{value.reference} is sensitive, but the values of a matrix name jobs", None
    elif isinstance(value, dict | list | None):
        yield steps, "wrong type", f"expected text, a number, true or false, got {describe(value)}", None


def combinations(
    axes: Mapping[str, list[Any]], includes: Sequence[_Combination], excludes: Sequence[_Combination]
) -> list[tuple[_Combination, _Combination]]:
    """Return the combinations of a matrix, each as the values that name it and all of its values."""
    combined = product(*axes.values()) if axes else ()
    candidates = [dict(zip(axes, values, strict=True)) for values in combined]
    excluding = _lookup(candidates)
    excluded = {number for exclude in excludes for number in excluding(exclude)}
    kept = [candidate for number, candidate in enumerate(candidates) if number not in excluded]
    matching = _lookup(kept)
    whole = [dict(combination) for combination in kept]
    added: list[_Combination] = []
    for include in includes:
        numbers = matching({name: value for name, value in include.items() if name in axes})
        for number in numbers:
            whole[number] |= {**include, **kept[number]}
        if not numbers:
            added.append(include)
    return [*zip(kept, whole, strict=True), *((include, include) for include in added)]


def _is_sweep(entry: MergedEntry) -> bool:
    return isinstance(entry.value, dict) and MATRIX in entry.value


def _lookup(combinations: Sequence[_Combination]) -> Callable[[_Combination], Sequence[int]]:
    """Return a function that finds the indices of combinations, all with the same axes, by some values."""
    by_axes: dict[tuple[str, ...], dict[Any, list[int]]] = {}

    def identity(combination: _Combination, axes: Sequence[str]) -> tuple[Any, ...]:
        # In Python, True == 1.
        return tuple((is_boolean(combination[axis]), plain(combination[axis])) for axis in axes)

    def matching(values: _Combination) -> Sequence[int]:
        axes = tuple(sorted(values))
        if axes not in by_axes:
            numbers = by_axes[axes] = {}
            for number, combination in enumerate(combinations):
                numbers.setdefault(identity(combination, axes), []).append(number)
        return by_axes[axes].get(identity(values, axes), ())

    return matching


def _format(combination: _Combination) -> str:
    pairs = (f"{name}: {describe(value)}" for name, value in combination.items())
    return "{" + ", ".join(pairs) + "}"
