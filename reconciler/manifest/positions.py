"""Where in a file something stands: from the path of a value to line and column.

Places are looked up when a problem needs one, and never before: most runs need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.manifest.yaml import LINE_BREAK, Document


class Member(NamedTuple):
    """A step into a named list, which a file may have written as a mapping of names."""

    position: int
    name: str | None


PathStep = str | int | Member
Steps = Sequence[PathStep]


class NodePosition(NamedTuple):
    """The nodes at the end of a path: `key` and `value`, or those of the last step that is in the file.

    `found` is how many steps of the path the file has.
    """

    key: Any
    value: Any
    found: int


def find(document: Document, steps: Steps) -> NodePosition:
    """Follow a path through a file as far as it goes."""
    key, node = None, document.root
    for count, step in enumerate(steps):
        if node is None:
            return NodePosition(key, node, count)
        if step == "name" and count and isinstance(steps[count - 1], Member) and key is not node:
            # In the mapping form the key is the name.
            return NodePosition(key, key, len(steps))
        if _is_scalar(node):
            # `lr: 0.1` stands for {name: lr, value: 0.1}, and `${var.x}` for whatever it holds.
            stands_for_all = "${" in node.value or (count > 0 and isinstance(steps[count - 1], Member))
            return NodePosition(key, node, len(steps) if stands_for_all else count)
        child = _child(document, node, step)
        if child is None:
            return NodePosition(key, node, count)
        # An item of a list has no key: what is missing in it is told at the item itself.
        key, node = child
    return NodePosition(key, node, len(steps))


def _is_scalar(node: Any) -> bool:
    return isinstance(node.value, str)


def _is_mapping(node: Any) -> bool:
    return bool(node.value) and isinstance(node.value[0], tuple)


def _child(document: Document, node: Any, step: PathStep) -> tuple[Any, Any] | None:
    if _is_mapping(node):
        return _member(document, node, step.name if isinstance(step, Member) else str(step))
    if isinstance(step, str):
        # Environments may be a list of variables, or of mappings of variables.
        parts = (_variable(document, item, step) for item in node.value if not _is_scalar(item))
        return next((found for found in parts if found), None)
    if isinstance(step, Member) and step.name is not None:
        item = _named(document, node).get(step.name)
        return None if item is None else (item, item)
    index = step.position if isinstance(step, Member) else step
    return (node.value[index], node.value[index]) if index < len(node.value) else None


def _variable(document: Document, item: Any, name: str) -> tuple[Any, Any] | None:
    """The nodes of a variable's name and value in an item of a list of environments."""
    named = _member(document, item, "name") if _is_mapping(item) else None
    value = _member(document, item, "value") if named else None
    if named is None or (value is None and _member(document, item, "sensitive") is None):
        return _child(document, item, name)
    is_this = _is_scalar(named[1]) and named[1].value == name
    return (named[1], item if value is None else value[1]) if is_this else None


def _member(document: Document, node: Any, name: str | None) -> tuple[Any, Any] | None:
    members = document.members(node)
    if name in members:
        return members[name]
    if "<<" not in members or _is_scalar(merged := members["<<"][1]):
        return None
    for source in [merged] if _is_mapping(merged) else merged.value:
        if not _is_scalar(source) and (found := _child(document, source, name or "")):
            return found
    return None


def _named(document: Document, node: Any) -> dict[str, Any]:
    """The items of a list by their name, the first of each."""
    if id(node) not in document.items_by_name:
        items = {
            name: item for item in reversed(node.value) if (name := _name_of(document, item)) is not None
        }
        document.items_by_name[id(node)] = items
    return document.items_by_name[id(node)]


def _name_of(document: Document, item: Any) -> str | None:
    found = _member(document, item, "name") if _is_mapping(item) else None
    return found[1].value if found and _is_scalar(found[1]) else None


def format_path(steps: Steps) -> str:
    """A path as people read it: `algorithm.parameters.lr`, `spec.volumes[0].nfs`."""
    text = ""
    for step in steps:
        if isinstance(step, Member):
            step = step.position if step.name is None else step.name
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


class Token(NamedTuple):
    """A place in a file, its path aside: 0-based, with the length of the token there."""

    line: int
    column: int
    length: int


def token_at(
    place: NodePosition, *, at_key: bool = False, text: str | None = None, document: Document
) -> Token:
    """What to point at: the key, or the value if it is one that can be seen.

    With `text`, the first place in the value that says just that.
    """
    node = place.value
    if text is not None and node is not None and node.end_mark is not None:
        offset = document.text.find(text, node.start_mark.index, node.end_mark.index)
        if offset >= 0:
            return _at_offset(document, node, offset, len(text))
    if place.key is not None and (at_key or node is None or not _is_scalar(node) or not _is_visible(node)):
        node = place.key
    return Token(0, 0, 1) if node is None else _token_of(node, document)


def _token_of(node: Any, document: Document) -> Token:
    start, end = node.start_mark, node.end_mark
    if not _is_scalar(node):
        return Token(start.line, start.column, 1)
    same_line = end is not None and end.line == start.line
    length = end.column - start.column if same_line else len(document.lines[start.line]) - start.column
    return Token(start.line, start.column, length)


def _is_visible(node: Any) -> bool:
    return bool(node.value) or bool(node.style)


def _at_offset(document: Document, node: Any, offset: int, length: int) -> Token:
    between = LINE_BREAK.split(document.text[node.start_mark.index : offset])
    if len(between) == 1:
        return Token(node.start_mark.line, node.start_mark.column + len(between[0]), length)
    return Token(node.start_mark.line + len(between) - 1, len(between[-1]), length)


def diagnose(
    document: Document,
    steps: Steps,
    what: str,
    why: str = "",
    fix: str | None = None,
    *,
    at_key: bool = False,
    text: str | None = None,
    show_line: bool = True,
) -> Diagnostic:
    """A problem with what stands at a path; where the file lacks it, at the nearest thing above."""
    place = find(document, steps)
    is_there = place.found == len(steps)
    line, column, length = token_at(place, at_key=at_key or not is_there, text=text, document=document)
    snippet: Snippet | None = document.snippet(line, column, length) if show_line else None
    location = document.location(line, column)
    return Diagnostic(what, why, fix, location, format_path(steps), snippet)


def location_of_key(document: Document, steps: Steps) -> Location:
    """Where a key stands."""
    line, column, _ = token_at(find(document, steps), at_key=True, document=document)
    return document.location(line, column)


def diagnose_inside(
    document: Document, steps: Steps, place: tuple[int, int], what: str, why: str, fix: str | None = None
) -> Diagnostic:
    """A problem with a place inside of a text: its line and column there, from 1.

    However the file spells the text, on one line or folded over several, the same characters stand there.
    """
    node = find(document, steps).value
    line, column, length = _token_of(node, document)
    if node.start_mark.index < node.end_mark.index:
        line, column, length = _at_offset(document, node, _offset_inside(document, node, place), 1)
    snippet = document.snippet(line, column, length)
    return Diagnostic(what, why, fix, document.location(line, column), format_path(steps), snippet)


def _offset_inside(document: Document, node: Any, place: tuple[int, int]) -> int:
    """Where in the file a place of a scalar's value stands: folding changes blanks, and nothing else."""
    lines = node.value.split("\n")
    line, column = place
    seen = "".join([*lines[: line - 1], "".join(lines[line - 1 : line])[: column - 1]])
    left = sum(not char.isspace() for char in seen)
    start, end = node.start_mark.index, node.end_mark.index
    source = document.text[start:end]
    offset = 0
    if node.style in ("|", ">"):
        header = LINE_BREAK.search(source)
        offset = header.end() if header else len(source)
    elif node.style in ("'", '"'):
        offset, source = 1, source[:-1]
        if node.style == '"' and "\\" in source:
            return int(start)  # an escape stands for characters that the file does not have
    last = offset
    while offset < len(source):
        width = 2 if node.style == "'" and source.startswith("''", offset) else 1
        if not source[offset].isspace():
            if left == 0:
                return int(start + offset)
            left, last = left - 1, offset + width
        offset += width
    return int(start + last)
