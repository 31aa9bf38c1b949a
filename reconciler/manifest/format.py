"""Manifests as text: data as YAML, and `fmt`, the canonical layout.

Keys that the language knows stand in the order of its models, names that people chose in theirs. Nesting is
two spaces, list items too. Comments, blank lines, anchors, quotes, the spelling of values and the flow or
block style of every collection are kept: more than ruamel.yaml's round-trip loader keeps. What comes out is
read again and compared before it is handed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import dropwhile
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.core.addresses import looks_like_passwords
from reconciler.core.fields.field_types import type_of
from reconciler.core.fields.job import Algorithm, EnvironmentItem
from reconciler.core.fields.rare import TaskAlgorithm
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.settings import Manifest
from reconciler.core.stack import JobEntry, TargetEntry
from reconciler.errors import Diagnostic, Location, ManifestInvalid
from reconciler.manifest.settings import misplaced_urls
from reconciler.manifest.variables import declared_sensitive, marked_texts, texts_in
from reconciler.manifest.yaml import Document, parse, parse_scalar, parser_events
from reconciler.secrets import is_secret_name, looks_secret, secret_parts
from reconciler.text import COMMAND_MARK, INVISIBLE, printable_lines

#: Keys that people look for first; all others follow in the order of their model.
_FIRST: Mapping[type[BaseModel], tuple[str, ...]] = {
    JobEntry: (
        *("extends", "matrix", "name", "state", "kind", "description", "annotations", "formerly", "needs"),
    ),
    Algorithm: (
        *("id", "name", "subscription_id", "item_version_id"),
        *("code_dir", "boot_file", "command", "engine", "parameters", "inputs", "outputs", "environments"),
    ),
}
#: Mappings that are read as something else later.
_READ_AS: Mapping[tuple[type[BaseModel], str], Any] = {
    (Manifest, "defaults"): JobEntry,
    (Manifest, "templates"): dict[str, JobEntry],
    (TargetEntry, "defaults"): JobEntry,
    (Algorithm, "environments"): dict[str, EnvironmentItem],
    (TaskAlgorithm, "environments"): dict[str, EnvironmentItem],
}


class ValueShape(NamedTuple):
    """What a value may be, as far as it orders keys: a model, or a collection with members of a type."""

    model: type[BaseModel] | None = None
    inner: Any = None

    @property
    def ranks(self) -> Mapping[str, int]:
        """Each known key and its place; empty where people choose the names."""
        return {} if self.model is None else _ranks(self.model)

    def member(self, name: str | None) -> ValueShape:
        """What stands under a key, or is an item. A list with names may be a mapping, name to item."""
        if self.model is None or name is None:
            return _shape(self.inner)
        for attribute, declared in self.model.model_fields.items():
            if name in (attribute, declared.alias):
                return _shape(_READ_AS.get((self.model, attribute)) or type_of(declared))
        return ValueShape()


@cache
def _ranks(model: type[BaseModel]) -> Mapping[str, int]:
    names = [field.alias or name for name, field in model.model_fields.items()]
    first = ("<<", *_FIRST.get(model, ()))
    return {name: rank for rank, name in enumerate(dict.fromkeys((*first, *names)))}


@cache
def _shape(annotation: Any) -> ValueShape:
    """That of a field with this annotation."""
    if get_origin(annotation) is Annotated:
        return _shape(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        shapes = [_shape(one) for one in get_args(annotation)]
        models = [one.model for one in shapes if one.model is not None]
        inner = [one.inner for one in shapes if one.inner is not None]
        return ValueShape(models[-1] if models else None, inner[-1] if inner else None)
    if get_origin(annotation) in (list, dict, tuple):
        return ValueShape(None, get_args(annotation)[-1])
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return ValueShape(annotation if is_model else None)


MANIFEST = ValueShape(Manifest)

_STEP = "  "
#: A text without quotes: no indicator at its beginning, and no `: `, ` #` or space at an end.
_PLAIN = re.compile(r"(?:[\w/.+$-]|(?<=.)[@%=~^(){}\[\],;&*!?|<>'\"`# :\\])+", re.ASCII)
_INNER_MARK = re.compile(r": |:\Z| #| \Z")
#: What YAML 1.1 takes for numbers, times, dates and booleans, beside what 1.2 does.
_OLD_TYPES = re.compile(r"[-+.0-9][-+.:_0-9eE]*|(?:y|n|yes|no|on|off)", re.IGNORECASE)
_ESCAPED = re.compile(f'["\\\\\x00-\x1f\ufdd0-\ufdef\ufffe\uffff{INVISIBLE}]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(tree: Mapping[str, Any]) -> str:
    """A mapping as text, keys in the order of `fmt`. Its values are mappings, lists, and plain values."""
    return "".join(f"{line}\n" for line in yaml_lines(tree))


def yaml_lines(tree: Mapping[str, Any], shape: ValueShape = MANIFEST) -> Iterator[str]:
    """The lines of a mapping, the first level without indentation."""
    ranks = shape.ranks
    for name in sorted(tree, key=lambda name: ranks.get(name, len(ranks))):
        head, lines = f"{scalar_text(name)}:", list(_lines(tree[name], shape.member(name)))
        if isinstance(tree[name], Mapping | list) and tree[name]:
            lines.insert(0, "")
        yield f"{head} {lines[0]}" if lines[0] else head
        yield from _indented(lines[1:], _STEP)


def _indented(lines: Iterable[str], space: str) -> list[str]:
    return [space + line if line else "" for line in lines]


def _lines(value: Any, shape: ValueShape) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield from yaml_lines(value, shape)
    elif isinstance(value, list) and value:
        for item in value:
            first, *others = _lines(item, shape.member(None))
            yield f"- {first}"
            yield from _indented(others, _STEP)
    elif isinstance(value, Mapping | list):
        yield "{}" if isinstance(value, Mapping) else "[]"
    elif isinstance(value, str) and _is_block_of_text(value):
        text = value.removesuffix("\n")
        yield "|" if text != value else "|-"
        yield from text.split("\n")
    else:
        yield scalar_text(value)


def scalar_text(value: Any) -> str:
    """One plain value, or a key, on one line."""
    if isinstance(value, str):
        if _is_plain(value):
            return value
        escaped = _ESCAPED.sub(lambda found: _escape(found[0]), value)
        return f'"{COMMAND_MARK.sub(lambda _: _escape("#"), escaped)}"'
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def _is_plain(text: str) -> bool:
    return (
        _PLAIN.fullmatch(text) is not None
        and not _INNER_MARK.search(text)
        and not text.startswith(("- ", "---", "..."))
        and text != "-"
        and not _OLD_TYPES.fullmatch(text)
        and not COMMAND_MARK.search(text)
        and isinstance(parse_scalar(text), str)
    )


def _escape(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _is_block_of_text(text: str) -> bool:
    """Whether a text of several lines reads the same as a block: no line says anything by its space."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all((lines[0], lines[-1]))
        and lines[0] == lines[0].strip()
        and all(line == line.rstrip() and "\t" not in line for line in lines)
        and lines[-1] == lines[-1].strip()
        # Where stdout cannot show a character it is escaped, which means something in quotes only.
        and text.isascii()
        and printable_lines(text) == text
    )


_BLOCK_SCALAR = re.compile(r"(?:[&!]\S*\s+)*[|>]([-+0-9]*)")
_PROPERTY = r"[&!]\S*\s*"
#: What YAML takes for space; other characters that look so are part of a value.
_SPACE = " \t"


@dataclass(eq=False)
class ValueNode:
    """A key or a value: where it stands, and the comments that go with it.

    A leaf (`items` is None) is a scalar, an alias, or a collection in braces or brackets. `items` are the
    members of a collection, those of a list without a key. `properties` are its anchor and tag.
    """

    start: int
    end: int
    column: int
    is_alias: bool = False
    is_flow: bool = False
    properties: str = ""
    items: list[tuple[ValueNode | None, ValueNode]] | None = None
    #: A comment in the last line; on a key, behind the colon.
    trailing: str = ""
    #: The comments before it: of an item without a key before its dash, of another value behind its key.
    before: list[str] = field(default_factory=list)
    #: Comments at the end of a collection, deeper than what follows it.
    foot: list[str] = field(default_factory=list)

    @property
    def is_block(self) -> bool:
        return self.items is not None and not self.is_flow

    def leaves(self) -> Iterator[ValueNode]:
        """Every key, and every value that is no block of others, in the order of the text."""
        if not self.is_block:
            yield self
        for key, value in (self.items or ()) if self.is_block else ():
            yield from (key,) if key is not None else ()
            yield from value.leaves()


def _parse_nodes(text: str, name: str) -> ValueNode:
    """The values as they stand in the text; aliases stay aliases."""
    frame = ("StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent")
    stream = (one for one in parser_events(text) if type(one).__name__ not in frame)
    return _node(stream, next(stream), text, name)


def _node(stream: Iterator[Any], event: Any, text: str, name: str) -> ValueNode:
    kind, mark = type(event).__name__, event.start_mark
    node = ValueNode(mark.index, event.end_mark.index, mark.column, is_alias=kind == "AliasEvent")
    if node.is_alias:
        return node
    if kind == "ScalarEvent":
        node.end = node.start + len(_scalar_source(text[node.start : node.end]))
        return node
    is_mapping, node.is_flow, node.items = kind == "MappingStartEvent", bool(event.flow_style), []
    if count := (event.anchor is not None) + (not event.implicit):
        found = re.compile(f"(?:{_PROPERTY}){{{count}}}").match(text, node.start)
        node.properties = " ".join(found[0].split()) if found else ""
        node.end = node.start + len(found[0].rstrip()) if found else node.start
    while not type(event := next(stream)).__name__.endswith("EndEvent"):
        key = None
        if is_mapping:
            key = _node(stream, event, text, name)
            if not node.is_flow and _is_explicit(text, key):
                line = text.count("\n", 0, key.start) + 1
                why, fix = "a key is written with `?`", "write it as `key: value`"
                raise ManifestInvalid(_not_supported(name, line, why, fix))
            event = next(stream)
        node.items.append((key, _node(stream, event, text, name)))
    if node.is_flow:
        node.end = event.end_mark.index
    elif node.items:
        # Where the items of a block stand: its first key, or its dashes.
        key, value = node.items[0]
        if key is not None:
            node.column = key.column
        elif node.properties:
            dash = text.rfind("-", 0, value.start)
            node.column = dash - (text.rfind("\n", 0, dash) + 1)
    return node


def _scalar_source(source: str) -> str:
    """A scalar without the blank lines behind it, which the parser counts to a block of text."""
    block = _BLOCK_SCALAR.match(source)
    if not block:
        return source.rstrip(_SPACE + "\n")
    header, *lines = source.removesuffix("\n").split("\n")
    if "+" not in block[1]:
        # A line of spaces that reaches beyond the indentation is part of the text.
        most = 0 if re.search(r"\d", block[1]) else _indentation(lines)
        while lines and len(lines[-1]) <= most and not lines[-1].strip(" "):
            del lines[-1]
    return "\n".join([header, *lines])


def _indentation(lines: list[str]) -> int:
    """That of a block of text: of its first line that is not blank."""
    longest = max(map(len, lines), default=0)
    return next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), longest)


def _is_explicit(text: str, key: ValueNode) -> bool:
    line = text.rfind("\n", 0, key.start) + 1
    if "\n" in text[key.start : key.end] or not re.compile(r"[ \t]*:").match(text, key.end):
        return True
    return text[line : key.start].lstrip(" -").startswith("?")


def _not_supported(name: str, line: int, why: str, fix: str | None) -> Diagnostic:
    """Say that a file stays as it is."""
    return Diagnostic("cannot be formatted", why, fix, Location(name, line, 1))


#: A comment, and the space before it; between two values a `#` after a space is nothing else.
_COMMENT = re.compile(r"(?:^|(?<=[ \t\ufeff]))#.*$", re.MULTILINE)
_TRAILING = re.compile(r"[ \t]*(?:^|(?<=[ \t\ufeff]))#.*$")
#: A directive, the start of the document, or a modeline.
_HEAD = re.compile(r"%|---|#\s*yaml-language-server\s*:")


def _comments_of(text: str, root: ValueNode) -> list[str]:
    """Every comment between the values, sorted."""
    found: list[str] = []
    end = 0
    for leaf in root.leaves():
        found += _COMMENT.findall(text[end : leaf.start])
        end = leaf.end
    return sorted(comment.rstrip() for comment in [*found, *_COMMENT.findall(text[end:])])


def _without_trailing_space(text: str) -> str:
    """The text without space at the end of its lines, and without blank lines around it."""
    lines = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n\ufeff")
    return lines + "\n" if lines else ""


def _from_content(lines: Iterable[str]) -> list[str]:
    """The lines without the blank ones at their beginning."""
    return list(dropwhile(lambda line: not line, lines))


class CommentAssignment:
    """Gives each comment and blank line to the value that it stands at."""

    def __init__(self, text: str, root: ValueNode) -> None:
        self._text, self._root = text, root
        self._end = 0
        self._last: ValueNode | None = None
        #: The block collections that are open where we are, outermost first.
        self._open: list[ValueNode] = []

    def assign(self) -> tuple[list[str], list[str]]:
        """Returns the lines at the head of the file, and those at its end."""
        if self._root.is_block:
            header = self._header()
            self._collection(self._root)
        else:
            header = _without_trailing_space(self._text[: self._root.start]).split("\n")[:-1]
            self._pass(self._root)
        tail = [] if self._last is None else self._gap(len(self._text), self._last, 0)
        return header, [line for line in tail if line not in ("...", "---")]

    def _header(self) -> list[str]:
        """Directives, the start of the document, modelines, and a comment with a blank line behind it."""
        *lines, beside = [line.rstrip() for line in self._text[: self._root.start].split("\n")]
        lines += [beside] if beside else []
        starts = [n for n, line in enumerate(lines) if _HEAD.match(line)]
        blanks = [n for n, line in enumerate(lines) if not line and any(lines[:n])]
        count = max([n + 1 for n in (*starts, *blanks)], default=0)
        if self._root.items:
            first = self._root.items[0][0] or self._root.items[0][1]
            first.before += [line.lstrip() for line in lines[count:] if line or count]
        self._end = self._root.start
        if self._root.properties:
            self._pass(self._root)
        return _from_content(lines[:count])

    def _collection(self, node: ValueNode) -> None:
        self._open.append(node)
        for key, value in node.items or ():
            start = (key or value).start
            if self._last is not None:
                (key or value).before += self._gap(start, self._last, node.column)
            if key is not None:
                self._pass(key)
            if value.is_block:
                if key is None and self._last is not None:
                    # `- name: x`: what stands before the dash belongs to the item.
                    self._end = start
                    if value.properties:
                        self._pass(value)
                self._collection(value)
            else:
                if key is not None:
                    value.before += self._gap(value.start, key, None)
                self._pass(value)
        self._open.remove(node)

    def _pass(self, node: ValueNode) -> None:
        self._last, self._end = node, node.end

    def _gap(self, until: int, last: ValueNode, column: int | None) -> list[str]:
        """The comments and blank lines up to the next value.

        What stands in the line of the `last` value is given to it, what is deeper than the `column` of the
        next one to the collection that ended there (None: none did).
        """
        first, *others = self._text[self._end : until].split("\n")
        self._end = max(until, self._end)
        if found := _TRAILING.search(first):
            last.trailing = found[0].rstrip() if found[0][0] in " \t" else " " + found[0].rstrip()
        if until < len(self._text) and others and not others[-1].strip():
            del others[-1]  # the space before the next value
        lines: list[str] = []
        deepest = len(self._text)
        for line in others:
            comment = _COMMENT.search(line)
            if comment is None:
                lines += [line.strip()] if line.strip() in ("", "...", "---") else []
                continue
            owner = None
            if column is not None and not line[: comment.start()].strip() and not any(lines):
                owner = self._ended(min(comment.start(), deepest), column)
            if owner is not None:
                deepest = owner.column  # what follows it stays behind it
                owner.foot += [*lines, comment[0].rstrip()]
                lines = []
            else:
                lines.append(comment[0].rstrip())
        return lines

    def _ended(self, column: int, next_column: int) -> ValueNode | None:
        """The deepest collection that ended before the next value and reaches to a column."""
        if column <= next_column:
            return None
        found: ValueNode | None = None
        node = self._open[-1] if self._open else self._root
        while node.is_block and node.items:
            # A list may stand in the column of the key that it is the value of.
            if node not in self._open and next_column <= node.column <= column:
                found = node
            before = self._end if self._last is None else self._last.end + 1
            done = [value for key, value in node.items if (key or value).start < before]
            if not done:
                break
            node = done[-1]
        return found


class Printer:
    """Writes the values in their order and layout."""

    def __init__(self, text: str, root: ValueNode, sorts: bool) -> None:
        self._text, self._root, self._sorts = text, root, sorts

    def lines(self) -> list[str]:
        """The whole text, without the lines at the head and the end of the file."""
        if self._root.is_block:
            properties = [self._root.properties + self._root.trailing] if self._root.properties else []
            lines = [*properties, *self._block(self._root, 0, MANIFEST)]
        else:
            lines = self._leaf(self._root, 0, self._root)
            lines[-1] += self._root.trailing
        return _from_content(lines)

    def _block(self, node: ValueNode, indent: int, shape: ValueShape) -> list[str]:
        lines: list[str] = []
        items, ranks = list(node.items or ()), shape.ranks if self._sorts else {}
        heads = [key or value for key, value in items]
        has_blank = any("" in head.before for head in heads)
        if ranks and items and items[0][0] is not None:
            items.sort(key=lambda item: ranks.get(self._name(item[0]) or "", len(ranks)))
        for number, (key, value) in enumerate(items):
            head = key or value
            before = head.before
            # The first one needs no blank line; another gets it that was the first.
            if number and has_blank and head is heads[0] and "" not in before:
                before = ["", *before]
            elif not number and head is not heads[0]:
                before = _from_content(before)
            lines += _indented(before, " " * indent)
            inner = shape.member(self._name(key))
            if key is None:
                lines += self._entry(node, value, indent, inner)
            else:
                lines += self._member(node, key, value, indent, inner)
        return lines + _indented(node.foot, " " * indent)

    def _member(
        self, node: ValueNode, key: ValueNode, value: ValueNode, indent: int, shape: ValueShape
    ) -> list[str]:
        head = f"{' ' * indent}{self._source(key)}{' ' if key.is_alias else ''}:"
        if value.is_block:
            properties = f" {value.properties}" if value.properties else ""
            return [head + properties + key.trailing, *self._block(value, indent + 2, shape)]
        first, *others = self._leaf(value, indent, node)
        if value.before or (key.trailing and first):
            inner = " " * (indent + 2)
            made = [head + key.trailing, *_indented(value.before, inner), inner + first, *others]
            made[-1] += value.trailing
        else:
            made = [f"{head} {first}" if first else head, *others]
            made[-1] += key.trailing + value.trailing
        return made

    def _entry(self, node: ValueNode, value: ValueNode, indent: int, shape: ValueShape) -> list[str]:
        space = " " * indent
        if not value.is_block:
            first, *others = self._leaf(value, indent, node)
            made = [f"{space}- {first}" if first else f"{space}-", *others]
            made[-1] += value.trailing
            return made
        inner = self._block(value, indent + 2, shape)
        if value.properties:
            return [f"{space}- {value.properties}{value.trailing}", *inner]
        # Comments of what stands first now go before the dash, where they are read again.
        count = next((n for n, line in enumerate(inner) if line.strip() and line.strip()[0] != "#"), 0)
        above = _indented((line.strip() for line in inner[:count]), space)
        return [*above, f"{space}- {inner[count].lstrip(_SPACE)}", *inner[count + 1 :]]

    def _leaf(self, node: ValueNode, indent: int, parent: ValueNode) -> list[str]:
        """The lines of a value; the first one without its indentation."""
        first, *others = self._source(node).split("\n")
        if node.items is not None:
            if not others:
                return [self._flow(node)]
            shift = indent - parent.column
            return [first.rstrip(_SPACE), *(_shifted(line, shift, indent) for line in others)]
        if block := _BLOCK_SCALAR.match(first):
            digits = "".join(char for char in block[1] if char.isdigit())
            old = parent.column + int(digits) if digits else _indentation(others)
            text = [line[old:] for line in others]
            if "+" not in block[1]:
                text = _from_content(reversed(text))[::-1]
            return [first.rstrip(), *_indented(text, " " * (indent + int(digits or 2)))]
        return [first, *_indented((line.lstrip(_SPACE) for line in others), " " * (indent + 2))]

    def _flow(self, node: ValueNode) -> str:
        """A collection in one line: a space behind each comma and colon, none inside the brackets."""
        text = self._source(node)
        if node.items is None or "?" in text or text.rstrip("]}").rstrip().endswith(","):
            return text
        parts = []
        for key, item in node.items:
            value = self._flow(item)
            if key is None:
                parts.append(value)
            elif not value and ":" not in self._text[key.end : node.end].partition(",")[0]:
                parts.append(self._flow(key))
            else:
                parts.append(f"{self._flow(key)}{' ' if key.is_alias else ''}: {value}")
        inside = ", ".join(parts)
        opened = text[len(node.properties) :].lstrip()[:1] if node.properties else text[:1]
        if opened not in "{[":
            return inside  # one pair in a list: [a: b]
        return f"{node.properties} {opened}{inside}{'}' if opened == '{' else ']'}".lstrip()

    def _source(self, node: ValueNode) -> str:
        return self._text[node.start : node.end]

    def _name(self, key: ValueNode | None) -> str | None:
        return None if key is None else self._source(key).strip("\"'")


def _shifted(line: str, shift: int, least: int) -> str:
    content = line.lstrip(_SPACE)
    return " " * max(len(line) - len(content) + shift, least) + content if content else ""


def format_text(text: str, name: str) -> str:
    """Lay out a manifest; `name` is what messages call it.

    Raises:
        ManifestInvalid: it is no valid YAML for a manifest, or has a construct without a canonical form (an
            explicit `? key`).
    """
    lines = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
    before = _parsed(text, name)
    if before.problems:
        raise ManifestInvalid(*before.problems)
    if not before.tree:
        return _without_trailing_space(lines)
    root = _parse_nodes(lines, name)
    comments = _comments_of(lines, root)
    header, tail = CommentAssignment(lines, root).assign()
    end = _from_content(reversed(tail))[::-1]
    # Sorted, an alias may stand before its anchor.
    for sorts in (True, False):
        new = "\n".join([*header, *Printer(lines, root, sorts).lines(), *end]).lstrip("\n\ufeff")
        # A block of text at the end of a file may have no line break at its own end.
        for ended in (new + "\n", new):
            # What is written replaces what people wrote: a defect here must not change what their jobs are.
            after = _parsed(ended, name)
            keeps_values = not after.problems and after.tree == before.tree
            if keeps_values and _comments_of(ended, _parse_nodes(ended, name)) == comments:
                return ended
    why = "the layout cannot be changed without changing a value or losing a comment"
    raise ManifestInvalid(_not_supported(name, 1, why, None))


def _parsed(text: str, name: str) -> Document:
    return parse(text.encode("utf-8", "surrogatepass"), Path(name), name)


def written_secrets(document: Document, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in a file that can be parsed, those in comments too.

    `fmt` reads files one by one and puts nothing together, so it goes by marks, names and looks.
    """
    yield from marked_texts(document.tree)
    yield from misplaced_urls([document])
    yield from looks_like_passwords(document.text)
    yield from _by_look(document.tree, "")
    for comment in _comments_of(document.text, _parse_nodes(document.text, document.file)):
        yield from (comment[part.start : part.end] for part in secret_parts(comment))
    for _, entry in declared_sensitive([document]):
        env = entry.get("env")
        if isinstance(env, str) and (value := environ.get(env)):
            yield value


def _by_look(tree: Any, name: str) -> Iterator[str]:
    """What looks secret in the texts of a tree, by the name that it goes by or by itself."""
    if isinstance(tree, dict):
        beside = tree.get("name")
        for key, value in tree.items():
            # What a variable or a parameter says of its value: the name is the one above, or beside.
            is_value = key in ("default", "value")
            yield from _by_look(value, (beside if isinstance(beside, str) else name) if is_value else key)
        return
    if isinstance(tree, list):
        for item in tree:
            yield from _by_look(item, name)
        return
    for text in texts_in(tree):
        parts = parts_of(text)  # an expression is no secret
        own_name = "" if any(isinstance(part, Reference) for part in parts) else name
        for part in parts:
            if isinstance(part, str) and looks_secret(own_name, part):
                found = [] if is_secret_name(own_name) else secret_parts(part)
                yield from (part[one.start : one.end] for one in found) if found else (part,)
