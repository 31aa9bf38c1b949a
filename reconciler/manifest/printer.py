"""Writing the values of a manifest in their order and layout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile

from reconciler.manifest.key_order import FREE, MANIFEST, ValueShape
from reconciler.manifest.nodes import BLOCK_SCALAR, SPACE, NodeItem, ValueNode, indentation

_STEP = 2


class Printer:
    """Writes the values in their order and layout."""

    def __init__(self, text: str, root: ValueNode, sorts: bool) -> None:
        self._text, self._root = text, root
        self._sorts = sorts
        self._sorts = sorts and self._aliases() == self._aliases_as_written()

    def lines(self) -> list[str]:
        """The whole text, without the lines at the head and the end of the file."""
        if self._root.is_block:
            properties = [self._root.properties + self._root.trailing] if self._root.properties else []
            lines = [*properties, *self._block(self._root, 0, MANIFEST)]
        else:
            lines = self._leaf(self._root, 0, self._root)
            lines[-1] += self._root.trailing
        while lines and not lines[0]:
            del lines[0]
        return lines

    def _block(self, node: ValueNode, indent: int, shape: ValueShape) -> list[str]:
        lines: list[str] = []
        space = " " * indent
        items = self._items(node, shape)
        for item, before in zip(items, _spaced(items, node.items), strict=True):
            inner = self._inner(shape, item)
            made = (
                self._member(node, item, indent, inner)
                if item.key
                else self._entry(node, item, indent, inner)
            )
            lines += [space + one if one else "" for one in before] + made
        return lines + [space + one if one else "" for one in node.foot]

    def _member(self, node: ValueNode, item: NodeItem, indent: int, shape: ValueShape) -> list[str]:
        key, value = item.key, item.value
        assert key is not None
        head = f"{' ' * indent}{self._source(key)}{' ' if key.alias else ''}:"
        if value.is_block:
            properties = f" {value.properties}" if value.properties else ""
            return [head + properties + key.trailing, *self._block(value, indent + _STEP, shape)]
        first, *others = self._leaf(value, indent, node)
        if value.before or (key.trailing and first):
            inner = " " * (indent + _STEP)
            return [
                head + key.trailing,
                *(inner + one if one else "" for one in value.before),
                *[inner + first, *others][:-1],
                [inner + first, *others][-1] + value.trailing,
            ]
        made = [f"{head} {first}" if first else head, *others]
        made[-1] += key.trailing + value.trailing
        return made

    def _entry(self, node: ValueNode, item: NodeItem, indent: int, shape: ValueShape) -> list[str]:
        space, value = " " * indent, item.value
        if not value.is_block:
            first, *others = self._leaf(value, indent, node)
            made = [f"{space}- {first}" if first else f"{space}-", *others]
            made[-1] += value.trailing
            return made
        inner = self._block(value, indent + _STEP, shape)
        if value.properties:
            return [f"{space}- {value.properties}{value.trailing}", *inner]
        # Comments of what stands first now go before the dash, where they are read again.
        count = next((n for n, line in enumerate(inner) if line.strip() and line.strip()[0] != "#"), 0)
        above = [space + line.strip() if line.strip() else "" for line in inner[:count]]
        return [*above, f"{space}- {inner[count].lstrip(SPACE)}", *inner[count + 1 :]]

    def _leaf(self, node: ValueNode, indent: int, parent: ValueNode) -> list[str]:
        """The lines of a value; the first one without its indentation."""
        first, *others = self._source(node).split("\n")
        if node.is_flow and node.items is not None:
            if not others:
                return [self._flow(node)]
            shift = indent - parent.column
            return [first.rstrip(SPACE), *(_shifted(line, shift, indent) for line in others)]
        if block := BLOCK_SCALAR.match(first):
            text = list(_block_scalar(others, block[1], indent, parent.column))
            return [first.rstrip(), *(text if "+" in block[1] else without_blank_end(text))]
        inner = " " * (indent + _STEP)
        return [first, *(inner + line.lstrip(SPACE) if line.strip(SPACE) else "" for line in others)]

    def _flow(self, node: ValueNode) -> str:
        """A collection in one line: a space behind each comma and colon, none inside the brackets."""
        if node.items is None or not node.is_flow:
            return self._source(node)
        text = self._source(node)
        parts = []
        for item in node.items:
            value = self._flow(item.value)
            if item.key is None:
                parts.append(value)
            elif not value and ":" not in self._text[item.key.end : node.end].partition(",")[0]:
                parts.append(self._flow(item.key))
            else:
                parts.append(f"{self._flow(item.key)}{' ' if item.key.alias else ''}: {value}")
        inside = ", ".join(parts)
        if "?" in text or text.rstrip("]}").rstrip().endswith(","):
            return text
        opened = text[len(node.properties) :].lstrip()[:1] if node.properties else text[:1]
        if opened not in "{[":
            return inside  # one pair in a list: [a: b]
        closed = {"{": "}", "[": "]"}[opened]
        return f"{node.properties} {opened}{inside}{closed}".lstrip()

    def _source(self, node: ValueNode) -> str:
        return self._text[node.start : node.end]

    def _items(self, node: ValueNode, shape: ValueShape) -> list[NodeItem]:
        items = node.items or []
        if not self._sorts or not node.is_mapping:
            return items
        rank = shape.ranks
        return sorted(items, key=lambda item: rank.get(self._name(item.key), len(rank))) if rank else items

    def _inner(self, shape: ValueShape, item: NodeItem) -> ValueShape:
        return shape.item if item.key is None else shape.member(self._name(item.key))

    def _name(self, key: ValueNode | None) -> str:
        return self._source(key).strip("\"'") if key is not None else ""

    def _aliases_as_written(self) -> list[tuple[int, int]]:
        self._sorts, sorts = False, self._sorts
        try:
            return self._aliases()
        finally:
            self._sorts = sorts

    def _aliases(self) -> list[tuple[int, int]]:
        """Each alias with the anchor that it means, by where they stand in the source."""
        anchors: dict[str, int] = {}
        found: list[tuple[int, int]] = []

        def visit(node: ValueNode, shape: ValueShape) -> None:
            if node.alias is not None:
                found.append((node.start, anchors.get(node.alias, -1)))
            if node.anchor is not None:
                anchors[node.anchor] = node.start
            for item in self._items(node, shape) if node.is_block else node.items or ():
                if item.key is not None:
                    visit(item.key, FREE)
                visit(item.value, self._inner(shape, item))

        visit(self._root, MANIFEST)
        return sorted(found)


def _spaced(items: list[NodeItem], as_written: list[NodeItem] | None) -> Iterator[list[str]]:
    """What stands before each item. The first one needs no blank line; another gets it that was the first."""
    has_blank = any("" in item.before for item in items)
    was_first = as_written[0] if as_written else None
    for number, item in enumerate(items):
        if number and has_blank and item is was_first and "" not in item.before:
            yield ["", *item.before]
        elif not number and item is not was_first:
            yield list(dropwhile(lambda line: not line, item.before))
        else:
            yield item.before


def _shifted(line: str, shift: int, least: int) -> str:
    content = line.lstrip(SPACE)
    if not content:
        return ""
    return " " * max(len(line) - len(content) + shift, least) + content


def _block_scalar(lines: list[str], header: str, indent: int, parent_column: int) -> Iterator[str]:
    digits = "".join(char for char in header if char.isdigit())
    if digits:
        old, new = parent_column + int(digits), indent + int(digits)
    else:
        old, new = indentation(lines), indent + _STEP
    for line in lines:
        yield " " * new + line[old:] if len(line) > old else ""


def without_blank_end(lines: list[str]) -> list[str]:
    """The lines without the blank ones at their end."""
    return list(dropwhile(lambda line: not line, reversed(lines)))[::-1]
