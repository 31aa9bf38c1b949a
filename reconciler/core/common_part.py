"""What several entries have in common, as `defaults` under them: merged, each is what it was before."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

Tree = dict[str, Any]

#: What is one job's own, though another may say the same.
_OWN = frozenset({"description", "raw"})
#: Data of which the order means something: where it lies in the container follows from it.
_WHOLE = frozenset({"inputs", "outputs"})
#: Mappings of names that people chose: what stands under a name is said in one place.
_NAMED = frozenset({"parameters", "environments", "annotations"})


class CommonPart(NamedTuple):
    """What all entries say, and what each says beyond it, by key."""

    shared: Tree
    rest: dict[str, Tree]


def common_part(entries: Mapping[str, Tree]) -> CommonPart:
    """Split entries, two at least, into what all of them say and what is left of each."""
    if len(entries) < 2:
        return CommonPart({}, dict(entries))
    bare = ({name: value for name, value in tree.items() if name not in _OWN} for tree in entries.values())
    shared: Tree = reduce(lambda one, other: _shared(one, other), bare)
    return CommonPart(shared, {key: _without(tree, shared) for key, tree in entries.items()})


def _shared(one: Tree, other: Tree, *, is_named: bool = False) -> Tree:
    result: Tree = {}
    for name in one.keys() & other.keys():
        mine, theirs = one[name], other[name]
        is_divided = isinstance(mine, dict) and isinstance(theirs, dict) and name not in _WHOLE
        if is_divided and not is_named:
            if below := _shared(mine, theirs, is_named=name in _NAMED):
                result[name] = below
        elif _is_same(mine, theirs):
            result[name] = mine
    return {name: result[name] for name in one if name in result}


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _without(tree: Tree, shared: Tree) -> Tree:
    rest: Tree = {}
    for name, value in tree.items():
        if name not in shared:
            rest[name] = value
        elif isinstance(value, dict) and (left := _without(value, shared[name])):
            rest[name] = left
    return rest
