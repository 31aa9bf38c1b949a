"""The values of a manifest as they stand in its text, for what lays it out anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import Diagnostic, Location, ManifestInvalid
from reconciler.manifest.composition import parser_events

BLOCK_SCALAR = re.compile(r"(?:[&!]\S*\s+)*[|>]([-+0-9]*)")
_PROPERTY = r"[&!]\S*\s*"
_COLON = re.compile(r"[ \t]*:")
#: What YAML takes for space; other characters that look so are part of a value.
SPACE = " \t"


@dataclass(eq=False)
class ValueNode:
    """A value: where it stands, and the comments that go with it.

    A leaf (`items` is None) is a scalar, an alias, or a collection in braces or brackets. `properties` are
    anchor and tag of a collection. `trailing` is a comment in its last line; on a key, behind the colon.
    """

    start: int
    end: int
    column: int
    anchor: str | None = None
    alias: str | None = None
    properties: str = ""
    is_mapping: bool = False
    is_flow: bool = False
    items: list[NodeItem] | None = None
    trailing: str = ""
    before: list[str] = field(default_factory=list)
    #: Comments at the end of a collection, deeper than what follows it.
    foot: list[str] = field(default_factory=list)

    @property
    def is_block(self) -> bool:
        return self.items is not None and not self.is_flow


@dataclass(eq=False)
class NodeItem:
    """A member of a mapping, or an item of a list (`key` is None), with the comments before it."""

    key: ValueNode | None
    value: ValueNode
    before: list[str] = field(default_factory=list)


def parse_nodes(text: str, name: str) -> ValueNode:
    """The values as they stand in the text; aliases stay aliases."""
    stream = (one for one in parser_events(text) if type(one).__name__ not in _FRAME)
    return _node(stream, next(stream), text, name)


_FRAME = {"StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent"}


def _node(stream: Iterator[Any], event: Any, text: str, name: str) -> ValueNode:
    kind, mark = type(event).__name__, event.start_mark
    node = ValueNode(mark.index, event.end_mark.index, mark.column)
    if kind == "AliasEvent":
        node.alias = event.anchor
        return node
    node.anchor = event.anchor
    if kind == "ScalarEvent":
        node.end = node.start + len(_scalar_text(text[node.start : node.end]))
        return node
    node.is_mapping, node.is_flow, node.items = kind == "MappingStartEvent", bool(event.flow_style), []
    if count := (event.anchor is not None) + (not event.implicit):
        found = re.compile(f"(?:{_PROPERTY}){{{count}}}").match(text, node.start)
        node.properties = " ".join(found[0].split()) if found else ""
        node.end = node.start + len(found[0].rstrip()) if found else node.start
    while not type(event := next(stream)).__name__.endswith("EndEvent"):
        key = None
        if node.is_mapping:
            key, event = _key(stream, event, text, name, node), next(stream)
        node.items.append(NodeItem(key, _node(stream, event, text, name)))
    if node.is_flow:
        node.end = event.end_mark.index
    elif node.items:
        node.column = _column(text, node, node.items[0])
    return node


def _key(stream: Iterator[Any], event: Any, text: str, name: str, mapping: ValueNode) -> ValueNode:
    key = _node(stream, event, text, name)
    if not mapping.is_flow and _is_explicit(text, key):
        line = text.count("\n", 0, key.start) + 1
        raise ManifestInvalid(
            not_supported(name, line, "a key is written with `?`", "write it as `key: value`")
        )
    return key


def _column(text: str, node: ValueNode, first: NodeItem) -> int:
    """Where the items of a block stand: its first key, or its dashes."""
    if first.key is not None:
        return first.key.column
    return _dash_column(text, first.value.start) if node.properties else node.column


def _scalar_text(source: str) -> str:
    """A scalar without the blank lines behind it, which the parser counts to a block of text."""
    block = BLOCK_SCALAR.match(source)
    if not block:
        return source.rstrip(SPACE + "\n")
    header, *lines = source.removesuffix("\n").split("\n")
    if "+" not in block[1]:
        # A line of spaces that reaches beyond the indentation is part of the text.
        most = 0 if re.search(r"\d", block[1]) else indentation(lines)
        while lines and len(lines[-1]) <= most and not lines[-1].strip(" "):
            del lines[-1]
    return "\n".join([header, *lines])


def indentation(lines: list[str]) -> int:
    """That of a block of text: of its first line that is not blank."""
    longest = max(map(len, lines), default=0)
    return next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), longest)


def _is_explicit(text: str, key: ValueNode) -> bool:
    line = text.rfind("\n", 0, key.start) + 1
    if "\n" in text[key.start : key.end] or not _COLON.match(text, key.end):
        return True
    return text[line : key.start].lstrip(" -").startswith("?")


def _dash_column(text: str, before: int) -> int:
    dash = text.rfind("-", 0, before)
    return dash - (text.rfind("\n", 0, dash) + 1)


def leaves(node: ValueNode) -> Iterator[ValueNode]:
    """Every key, and every value that is no block of others, in the order of the text."""
    if not node.is_block:
        yield node
        return
    for item in node.items or ():
        if item.key is not None:
            yield item.key
        yield from leaves(item.value)


def not_supported(name: str, line: int, why: str, fix: str | None) -> Diagnostic:
    """Say that a file stays as it is."""
    return Diagnostic("cannot be formatted", why, fix, Location(name, line, 1))
