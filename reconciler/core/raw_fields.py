"""Fields of a job that the models refuse, under `raw`: newer than the models, or never checked.

Source: docs/cli.md, "Manifest": `raw` is merged into the create body last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from reconciler.core.body import HOISTED, merge
from reconciler.core.stack import JobEntry
from reconciler.errors import Diagnostic, ReconcilerError

Tree = dict[str, Any]
_Path = tuple[str | int, ...]

_NAMED_LISTS = frozenset({"parameters", "inputs", "outputs"})
#: Each time something is moved, other rules may speak up; a job has not more levels than this.
_MOST_MOVES = 12


class NotDeclarable(ReconcilerError):
    """No entry of a manifest can declare a job; `why` says what it has, or lacks."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(Diagnostic("the job cannot be declared", why))


def with_raw(tree: Tree) -> Tree:
    """Return an entry, its named lists as lists, with the fields that the models refuse under `raw`.

    Raises:
        NotDeclarable: what remains breaks a rule, whatever is moved.
    """
    raw: Tree = {}
    errors = first = _errors(tree)
    for _ in range(_MOST_MOVES):
        if not errors:
            return {**tree, "raw": raw} if raw else tree
        place = _single_member(tree, _place(tree, errors[0][0]), len(errors))
        if not place:
            break
        tree, value = _taken(tree, place)
        raw = merge(raw, _nested(place, value))
        errors = _errors(tree)
    raise NotDeclarable("; ".join(dict.fromkeys(why for _, why in first)))


def _single_member(tree: Tree, place: _Path, errors: int) -> _Path:
    """The one member of an object without which there are fewer errors, else the object itself."""
    value: Any = tree
    for step in place:
        value = value[step]
    if place and isinstance(place[-1], str) and isinstance(value, Mapping):
        for name in value:
            if len(_errors(_taken(tree, (*place, name))[0])) < errors:
                return (*place, name)
    return place


def _errors(tree: Tree) -> list[tuple[_Path, str]]:
    try:
        JobEntry.model_validate(tree)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False, include_context=False)
        return [(error["loc"], _words(error["loc"], error["msg"])) for error in errors]
    return []


def _words(path: _Path, message: str) -> str:
    return f"{'.'.join(map(str, path))}: {message}" if path else message


def _place(tree: Tree, path: _Path) -> _Path:
    """What of the path can be moved: up to a list, whose items have no names, or what is there at all."""
    place: _Path = ()
    value: Any = tree
    for step in path:
        if isinstance(value, Mapping) and step in value:
            place, value = (*place, step), value[step]
        elif isinstance(value, list) and isinstance(step, int) and _has_name(place, value, step):
            return (*place, step)
        else:
            break
    return place


def _has_name(place: _Path, items: list[Any], index: int) -> bool:
    item = items[index] if index < len(items) else None
    return place[-1] in _NAMED_LISTS and isinstance(item, Mapping) and isinstance(item.get("name"), str)


def _taken(tree: Any, place: _Path) -> tuple[Any, Any]:
    """The tree without what stands at a place, and that."""
    step, *below = place
    if not below:
        if isinstance(tree, list):
            return [item for index, item in enumerate(tree) if index != step], tree[int(step)]
        return {name: value for name, value in tree.items() if name != step}, tree[step]
    inner, taken = _taken(tree[step], tuple(below))
    return {**tree, step: inner}, taken


def _nested(place: _Path, value: Any) -> Tree:
    """What `raw` says to have a value there: it has the names of the create body."""
    names = [step for step in place if isinstance(step, str)]
    if len(names) < len(place):
        value = [value]  # an item of a list, which is merged into it by its name
    for name in reversed(["metadata", *names] if names[0] in HOISTED else names):
        value = {name: value}
    nested: Tree = value
    return nested


def names_in(tree: Any) -> Iterator[str]:
    """Every name of a member in plain data."""
    for value in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from names_in(value)
    if isinstance(tree, Mapping):
        yield from map(str, tree)
