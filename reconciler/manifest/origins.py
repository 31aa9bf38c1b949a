"""Where each value of a job comes from: `reconciler explain origin`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.core.expression import Reference, parts_of
from reconciler.errors import Location
from reconciler.manifest.links import Link
from reconciler.manifest.positions import format_path
from reconciler.manifest.problems import Origin, steps_of


class ValueOrigin(NamedTuple):
    """One value of a job, the place of the text that gave it, and that text where it is an expression.

    `sources` are the expressions in the text, each with what gave it its value, as far as that is known.
    """

    path: str
    value: Any
    location: Location | None
    expression: str | None
    sources: tuple[tuple[str, str], ...] = ()


def origins_of(
    merged: Mapping[str, Any], origin: Origin, source_of: Callable[[Reference], str | None]
) -> tuple[ValueOrigin, ...]:
    """Every value of a merged entry; `origin` knows the files that it was merged from."""
    found = []
    for path in _leaves(merged, ()):
        steps = steps_of(path, merged)
        value: Any = merged
        for step in path:
            value = value[step]
        place = origin.diagnose(steps, "")
        text = origin.expression(steps)
        sources = tuple(_sources(text or "", source_of))
        found.append(ValueOrigin(format_path(steps), value, place.location, text, sources))
    return tuple(found)


def _sources(text: str, source_of: Callable[[Reference], str | None]) -> Iterator[tuple[str, str]]:
    for part in dict.fromkeys(parts_of(text)):
        if isinstance(part, Reference) and (source := source_of(part)):
            yield part.inner, source


def implied_needs(references: Iterable[Link]) -> Iterator[ValueOrigin]:
    """The jobs that expressions refer to: each is needed, and the expression says so."""
    for link in references:
        yield ValueOrigin("needs", link.key, link.diagnose("", "").location, link.text)


def _leaves(tree: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values but the names in lists that are mappings to people."""
    if isinstance(tree, Mapping) and tree:
        for name, member in tree.items():
            if not (name == "name" and path and isinstance(path[-1], int)):
                yield from _leaves(member, (*path, name))
    elif isinstance(tree, list) and tree:
        for number, member in enumerate(tree):
            yield from _leaves(member, (*path, number))
    else:
        yield path
