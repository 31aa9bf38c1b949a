"""Manifests as text: data as YAML, entries put into a file, and `fmt`, the canonical layout.

Keys that the language knows stand in the order of its models, names that people chose in theirs. Nesting is
two spaces, list items too. Comments, blank lines, anchors, quotes, the spelling of values and the flow or
block style of every collection are kept. What comes out is read again and compared before it is handed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import dropwhile, pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

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


class ValueShape:
    """What a value may be, as far as it orders keys; `annotation` is that of a field."""

    def __init__(self, annotation: Any = None) -> None:
        self._model: type[BaseModel] | None = None
        self._inner: Any = None
        for kind in _alternatives(annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                self._model = kind
            elif get_origin(kind) in (list, dict, tuple):
                self._inner = get_args(kind)[-1]

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Each known key and its place; empty where people choose the names."""
        if self._model is None:
            return {}
        names = [field.alias or name for name, field in self._model.model_fields.items()]
        first = ("<<", *_FIRST.get(self._model, ()))
        return {name: rank for rank, name in enumerate(dict.fromkeys((*first, *names)))}

    def member(self, name: str) -> ValueShape:
        """What stands under a key. A list with names may be written as a mapping, name to item."""
        if self._model is None:
            return _shape(self._inner)
        for attribute, declared in self._model.model_fields.items():
            if name in (attribute, declared.alias):
                return _shape(_READ_AS.get((self._model, attribute)) or type_of(declared))
        return FREE

    @property
    def item(self) -> ValueShape:
        """What an item of the list is."""
        return _shape(self._inner)


@cache
def _shape(annotation: Any) -> ValueShape:
    return ValueShape(annotation)


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) for kind in _alternatives(one)]
    return [annotation]


FREE = ValueShape()
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
        yield from (_STEP + line if line else "" for line in lines[1:])


def _lines(value: Any, shape: ValueShape) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield from yaml_lines(value, shape)
    elif isinstance(value, list) and value:
        for item in value:
            first, *others = _lines(item, shape.item)
            yield f"- {first}"
            yield from (_STEP + line if line else "" for line in others)
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
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


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
        and lines[0] != ""
        and lines[-1] != ""
        and not any(line != line.strip() for line in (lines[0], lines[-1]))
        and not any(line != line.rstrip() or "\t" in line for line in lines)
        # Where stdout cannot show a character it is escaped, which means something in quotes only.
        and text.isascii()
        and printable_lines(text) == text
    )


_INDENT = 2
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK = re.compile(r"[ \t]*(?:#.*)?")
#: What ends a document; nothing of ours may stand behind it.
_END = re.compile(r"(?:---|\.\.\.)(?:\s|\Z)")


def insert_members(document: Document, sections: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return a manifest file with these members under its top-level keys, behind those that are there.

    Nothing that stands there is touched: comments, anchors, blank lines and the spelling of values stay.

    Raises:
        ManifestInvalid: the file is not valid, or has no place for them.
    """
    if document.problems:
        raise ManifestInvalid(*document.problems)
    text, wanted = document.text, document.tree
    newline = "\r\n" if "\r\n" in text else "\n"
    for section, members in sections.items():
        before = parse(text.encode(), document.path, document.file)
        text = _inserted(before, section, members, newline)
        wanted = {**wanted, section: {**(wanted.get(section) or {}), **members}}
    data = text.encode()
    # What is written replaces what people wrote: a defect here must not change what their jobs are.
    if parse(data, document.path, document.file).tree != wanted:
        raise ManifestInvalid(_no_place(document))
    return (b"\xef\xbb\xbf" if document.data.startswith(b"\xef\xbb\xbf") else b"") + data


def _no_place(document: Document) -> Diagnostic:
    why = "its layout leaves no place to insert an entry without changing something else"
    fix = "name a file in block style, or paste the entry that `reconciler export` prints"
    return Diagnostic("cannot be edited", why, fix, Location(document.file, 1, 1))


def _inserted(document: Document, section: str, members: Mapping[str, Any], newline: str) -> str:
    root, text = document.root, document.text
    if root is not None and root.flow_style:
        raise ManifestInvalid(_no_place(document))
    found = None if root is None else document.members(root).get(section)
    if found is None:
        return _appended(text, section, members, newline)
    key, value = found
    start = text.index(":", key.end_mark.index) + 1
    if not isinstance(value.value, list):  # `jobs:` without anything, `jobs: null`
        end = max(start, value.end_mark.index) if value.value else start
        return _in_place_of_nothing(text[:start], text[end:], key, members, newline)
    if not value.flow_style:
        return _behind_the_last(text, root, value, members, newline)
    if not value.value:
        before = text[: value.start_mark.index].rstrip(" ")
        return _in_place_of_nothing(before, text[value.end_mark.index :], key, members, newline)
    last = text[: value.end_mark.index - 1].rstrip()
    flow = ", ".join(f"{json.dumps(name)}: {json.dumps(member)}" for name, member in members.items())
    return f"{last}{' ' if last.endswith(',') else ', '}{flow}{text[len(last) :]}"


def _member_lines(members: Mapping[str, Any], section: str, indent: int, newline: str) -> str:
    """The lines of the members without their section."""
    _, *lines = yaml_lines({section: members})
    return "".join((" " * indent + line[_INDENT:] if line else "") + newline for line in lines)


def _appended(text: str, section: str, members: Mapping[str, Any], newline: str) -> str:
    lines = _LINE.findall(text)
    end = next((n for n in range(len(lines) - 1, -1, -1) if _END.match(lines[n])), None)
    is_open = end is None or lines[end].startswith("---")
    before, after = (text, "") if is_open else ("".join(lines[:end]), "".join(lines[end:]))
    if before and not before.endswith(("\n", "\r")):
        before += newline
    return f"{before}{section}:{newline}{_member_lines(members, section, _INDENT, newline)}{after}"


def _in_place_of_nothing(before: str, rest: str, key: Any, members: Mapping[str, Any], newline: str) -> str:
    # Behind the colon, and whatever stands for nothing there; a comment in that line stays.
    line, break_, after = rest.partition("\n")
    body = _member_lines(members, key.value, key.start_mark.column + _INDENT, newline)
    return f"{before}{line}{break_ or newline}{body}{after}"


def _behind_the_last(text: str, root: Any, value: Any, members: Mapping[str, Any], newline: str) -> str:
    column = value.value[0][0].start_mark.column
    following = [
        key.start_mark.index for key, _ in root.value if key.start_mark.index > value.start_mark.index
    ]
    end = min(following, default=len(text))
    lines = _LINE.findall(text[value.start_mark.index : end])
    tail: list[str] = []
    while lines and _is_no_part(lines[-1], column, is_first=len(lines) == 1):
        tail.insert(0, lines.pop())
    kept = text[: value.start_mark.index] + "".join(lines)
    if not kept.endswith(("\n", "\r")):
        kept += newline
    # A blank line divides the members that are there.
    keys = [key.start_mark.index for key, _ in value.value]
    has_gaps = any(re.search(r"\n[ \t]*\r?\n", text[one:other]) for one, other in pairwise(keys))
    gap = newline if has_gaps else ""
    return kept + gap + _member_lines(members, "jobs", column, newline) + "".join(tail) + text[end:]


def _is_no_part(line: str, column: int, *, is_first: bool) -> bool:
    """Whether a line behind the last value belongs to what follows: blank, or a comment further left."""
    bare = line.rstrip("\r\n")
    if is_first:
        return False
    if _END.match(bare):
        return True
    indent = len(bare) - len(bare.lstrip(" "))
    return _BLANK.fullmatch(bare) is not None and (not bare.strip() or indent < column)


_BLOCK_SCALAR = re.compile(r"(?:[&!]\S*\s+)*[|>]([-+0-9]*)")
_PROPERTY = r"[&!]\S*\s*"
#: What YAML takes for space; other characters that look so are part of a value.
_SPACE = " \t"


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


def _parse_nodes(text: str, name: str) -> ValueNode:
    """The values as they stand in the text; aliases stay aliases."""
    frame = ("StreamStartEvent", "DocumentStartEvent", "DocumentEndEvent", "StreamEndEvent")
    stream = (one for one in parser_events(text) if type(one).__name__ not in frame)
    return _node(stream, next(stream), text, name)


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
            key = _node(stream, event, text, name)
            if not node.is_flow and _is_explicit(text, key):
                line = text.count("\n", 0, key.start) + 1
                why, fix = "a key is written with `?`", "write it as `key: value`"
                raise ManifestInvalid(_not_supported(name, line, why, fix))
            event = next(stream)
        node.items.append(NodeItem(key, _node(stream, event, text, name)))
    if node.is_flow:
        node.end = event.end_mark.index
    elif node.items:
        # Where the items of a block stand: its first key, or its dashes.
        first = node.items[0]
        if first.key is not None:
            node.column = first.key.column
        elif node.properties:
            dash = text.rfind("-", 0, first.value.start)
            node.column = dash - (text.rfind("\n", 0, dash) + 1)
    return node


def _scalar_text(source: str) -> str:
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


def _leaves(node: ValueNode) -> Iterator[ValueNode]:
    """Every key, and every value that is no block of others, in the order of the text."""
    if not node.is_block:
        yield node
        return
    for item in node.items or ():
        if item.key is not None:
            yield item.key
        yield from _leaves(item.value)


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
    for leaf in _leaves(root):
        found += _COMMENT.findall(text[end : leaf.start])
        end = leaf.end
    return sorted(comment.rstrip() for comment in [*found, *_COMMENT.findall(text[end:])])


def _without_trailing_space(text: str) -> str:
    """The text without space at the end of its lines, and without blank lines around it."""
    lines = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n\ufeff")
    return lines + "\n" if lines else ""


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
            self._leaf(self._root)
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
            self._root.items[0].before += [line.lstrip() for line in lines[count:] if line or count]
        self._end = self._root.start
        if self._root.properties:
            self._leaf(self._root)
        return list(dropwhile(lambda line: not line, lines[:count]))

    def _collection(self, node: ValueNode) -> None:
        self._open.append(node)
        for item in node.items or ():
            start = (item.key or item.value).start
            if self._last is not None:
                item.before += self._gap(start, self._last, node.column)
            if item.key is not None:
                self._last, self._end = item.key, item.key.end
            if item.value.is_block:
                if item.key is None and self._last is not None:
                    # `- name: x`: what stands before the dash belongs to the item.
                    self._end = start
                    if item.value.properties:
                        self._leaf(item.value)
                self._collection(item.value)
            else:
                if item.key is not None:
                    item.value.before += self._gap(item.value.start, item.key, None)
                self._leaf(item.value)
        self._open.remove(node)

    def _leaf(self, node: ValueNode) -> None:
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
        found_lines: list[str] = []
        deepest = len(self._text)
        is_last_line_code = until < len(self._text)
        for number, line in enumerate(others):
            comment = _COMMENT.search(line)
            if comment is None:
                if not line.strip() and not (is_last_line_code and number == len(others) - 1):
                    found_lines.append("")
                elif line.strip() in ("...", "---"):
                    found_lines.append(line.strip())
                continue
            owner = None
            if column is not None and not line[: comment.start()].strip() and not any(found_lines):
                owner = self._ended(min(comment.start(), deepest), column)
            if owner is not None:
                deepest = owner.column  # what follows it stays behind it
                owner.foot += [*found_lines, comment[0].rstrip()]
                found_lines = []
            else:
                found_lines.append(comment[0].rstrip())
        return found_lines

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
            done = [item for item in node.items if (item.key or item.value).start < before]
            if not done:
                break
            node = done[-1].value
        return found


class Printer:
    """Writes the values in their order and layout."""

    def __init__(self, text: str, root: ValueNode, sorts: bool) -> None:
        self._text, self._root = text, root
        self._sorts = sorts and self._aliases(sorts=True) == self._aliases(sorts=False)

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
        items = self._items(node, shape, self._sorts)
        for item, before in zip(items, _spaced(items, node.items), strict=True):
            lines_of = self._member if item.key else self._entry
            lines += [space + one if one else "" for one in before]
            lines += lines_of(node, item, indent, self._inner(shape, item))
        return lines + [space + one if one else "" for one in node.foot]

    def _member(self, node: ValueNode, item: NodeItem, indent: int, shape: ValueShape) -> list[str]:
        key, value = item.key, item.value
        assert key is not None
        head = f"{' ' * indent}{self._source(key)}{' ' if key.alias else ''}:"
        if value.is_block:
            properties = f" {value.properties}" if value.properties else ""
            return [head + properties + key.trailing, *self._block(value, indent + _INDENT, shape)]
        first, *others = self._leaf(value, indent, node)
        if value.before or (key.trailing and first):
            inner = " " * (indent + _INDENT)
            before = [inner + one if one else "" for one in value.before]
            made = [head + key.trailing, *before, inner + first, *others]
            made[-1] += value.trailing
            return made
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
        inner = self._block(value, indent + _INDENT, shape)
        if value.properties:
            return [f"{space}- {value.properties}{value.trailing}", *inner]
        # Comments of what stands first now go before the dash, where they are read again.
        count = next((n for n, line in enumerate(inner) if line.strip() and line.strip()[0] != "#"), 0)
        above = [space + line.strip() if line.strip() else "" for line in inner[:count]]
        return [*above, f"{space}- {inner[count].lstrip(_SPACE)}", *inner[count + 1 :]]

    def _leaf(self, node: ValueNode, indent: int, parent: ValueNode) -> list[str]:
        """The lines of a value; the first one without its indentation."""
        first, *others = self._source(node).split("\n")
        if node.is_flow and node.items is not None:
            if not others:
                return [self._flow(node)]
            shift = indent - parent.column
            return [first.rstrip(_SPACE), *(_shifted(line, shift, indent) for line in others)]
        if block := _BLOCK_SCALAR.match(first):
            text = list(_block_scalar(others, block[1], indent, parent.column))
            return [first.rstrip(), *(text if "+" in block[1] else _without_blank_end(text))]
        inner = " " * (indent + _INDENT)
        return [first, *(inner + line.lstrip(_SPACE) if line.strip(_SPACE) else "" for line in others)]

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

    def _items(self, node: ValueNode, shape: ValueShape, sorts: bool) -> list[NodeItem]:
        items = node.items or []
        if not sorts or not node.is_mapping:
            return items
        rank = shape.ranks
        return sorted(items, key=lambda item: rank.get(self._name(item.key), len(rank))) if rank else items

    def _inner(self, shape: ValueShape, item: NodeItem) -> ValueShape:
        return shape.item if item.key is None else shape.member(self._name(item.key))

    def _name(self, key: ValueNode | None) -> str:
        return self._source(key).strip("\"'") if key is not None else ""

    def _aliases(self, *, sorts: bool) -> list[tuple[int, int]]:
        """Each alias with the anchor that it means, by where they stand in the source."""
        anchors: dict[str, int] = {}
        found: list[tuple[int, int]] = []

        def visit(node: ValueNode, shape: ValueShape) -> None:
            if node.alias is not None:
                found.append((node.start, anchors.get(node.alias, -1)))
            if node.anchor is not None:
                anchors[node.anchor] = node.start
            for item in self._items(node, shape, sorts) if node.is_block else node.items or ():
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
    content = line.lstrip(_SPACE)
    if not content:
        return ""
    return " " * max(len(line) - len(content) + shift, least) + content


def _block_scalar(lines: list[str], header: str, indent: int, parent_column: int) -> Iterator[str]:
    digits = "".join(char for char in header if char.isdigit())
    if digits:
        old, new = parent_column + int(digits), indent + int(digits)
    else:
        old, new = _indentation(lines), indent + _INDENT
    for line in lines:
        yield " " * new + line[old:] if len(line) > old else ""


def _without_blank_end(lines: list[str]) -> list[str]:
    """The lines without the blank ones at their end."""
    return list(dropwhile(lambda line: not line, reversed(lines)))[::-1]


def format_text(text: str, name: str) -> str:
    """Lay out a manifest; `name` is what messages call it.

    Raises:
        ManifestInvalid: it is no valid YAML for a manifest, or has a construct without a canonical form (an
            explicit `? key`).
    """
    lines = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
    before = _parsed(text, name)
    if not before.tree:
        return _without_trailing_space(lines)
    root = _parse_nodes(lines, name)
    comments = _comments_of(lines, root)
    header, tail = CommentAssignment(lines, root).assign()
    for sorts in (True, False):
        written = [*header, *Printer(lines, root, sorts).lines(), *_without_blank_end(tail)]
        new = "\n".join(written).lstrip("\n\ufeff")
        # A block of text at the end of a file may have no line break at its own end.
        for ended in (new + "\n", new):
            # What is written replaces what people wrote: a defect here must not change what their jobs are.
            keeps_values = _tree_of(ended, name) == before.tree
            if keeps_values and _comments_of(ended, _parse_nodes(ended, name)) == comments:
                return ended
    why = "the layout cannot be changed without changing a value or losing a comment"
    raise ManifestInvalid(_not_supported(name, 1, why, None))


def _parsed(text: str, name: str) -> Document:
    parsed = parse(text.encode("utf-8", "surrogatepass"), Path(name), name)
    if parsed.problems:
        raise ManifestInvalid(*parsed.problems)
    return parsed


def _tree_of(text: str, name: str) -> Any:
    try:
        return _parsed(text, name).tree
    except ManifestInvalid:
        return None


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
    if isinstance(tree, dict):
        beside = tree.get("name")
        for key, value in tree.items():
            # What a variable or a parameter says of its value: the name is the one above, or beside.
            is_value = key in ("default", "value")
            yield from _by_look(value, (beside if isinstance(beside, str) else name) if is_value else key)
    elif isinstance(tree, list):
        for item in tree:
            yield from _by_look(item, name)
    else:
        for text in texts_in(tree):
            yield from _literals(text, name)


def _literals(text: str, name: str) -> Iterator[str]:
    """What looks secret in a text, by the name it goes by or by itself; an expression is none."""
    parts = parts_of(text)
    is_whole = not any(isinstance(part, Reference) for part in parts)
    for part in parts:
        if isinstance(part, str) and looks_secret(name if is_whole else "", part):
            if is_whole and is_secret_name(name):
                yield part
            else:
                found = secret_parts(part)
                yield from (part[one.start : one.end] for one in found) if found else (part,)
