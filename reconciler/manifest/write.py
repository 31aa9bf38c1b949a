"""Plain data as YAML text in the canonical layout: `format.format_text` changes nothing of it.

A text that YAML, or an older version of it, would read as something else is quoted, and so is what would
steer a terminal or a CI service that shows the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.core.fields.algorithm import Algorithm, EnvironmentItem
from reconciler.core.fields.tasks import TaskAlgorithm
from reconciler.core.stack import JobEntry, Manifest, TargetEntry
from reconciler.errors import Diagnostic, Location, ManifestInvalid
from reconciler.manifest.yaml import Document, parse, parse_scalar
from reconciler.text import COMMAND_MARK, INVISIBLE, printable_lines

#: Keys that people look for first; all others follow in the order of their model.
_FIRST: Mapping[type[BaseModel], tuple[str, ...]] = {
    JobEntry: (
        "extends",
        "matrix",
        "name",
        "state",
        "kind",
        "description",
        "annotations",
        "formerly",
        "needs",
    ),
    Algorithm: (
        *("id", "name", "subscription_id", "item_version_id"),
        *("code_dir", "boot_file", "command", "engine", "parameters", "inputs", "outputs", "environments"),
    ),
}
_MERGE = "<<"
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
        first = (_MERGE, *_FIRST.get(self._model, ()))
        return {name: rank for rank, name in enumerate(dict.fromkeys((*first, *names)))}

    def member(self, name: str) -> ValueShape:
        """What stands under a key. A list with names may be written as a mapping, name to item."""
        if self._model is None:
            return _shape(self._inner)
        for attribute, field in self._model.model_fields.items():
            if name in (attribute, field.alias):
                return _shape(_READ_AS.get((self._model, attribute), field.annotation))
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


def yaml_text(tree: Mapping[str, Any], shape: ValueShape = MANIFEST) -> str:
    """A mapping as text, keys in the order of `fmt`. Its values are mappings, lists, and plain values."""
    return "".join(f"{line}\n" for line in yaml_lines(tree, shape))


def yaml_lines(tree: Mapping[str, Any], shape: ValueShape = MANIFEST) -> Iterator[str]:
    """The lines of a mapping, the first level without indentation."""
    ranks = shape.ranks
    for name in sorted(tree, key=lambda name: ranks.get(name, len(ranks))):
        yield from _headed(f"{scalar_text(name)}:", tree[name], shape.member(name))


def _headed(head: str, value: Any, shape: ValueShape) -> Iterator[str]:
    """A value behind its key."""
    if isinstance(value, Mapping | list) and value:
        yield head
        yield from (_STEP + line if line else "" for line in _lines(value, shape))
        return
    first, *others = _leaf(value)
    yield f"{head} {first}"
    yield from (_STEP + line if line else "" for line in others)


def _lines(value: Any, shape: ValueShape) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from yaml_lines(value, shape)
        return
    for item in value:
        is_block = isinstance(item, Mapping | list) and item
        first, *others = _lines(item, shape.item) if is_block else _leaf(item)
        yield f"- {first}"
        yield from (_STEP + line if line else "" for line in others)


def _leaf(value: Any) -> list[str]:
    if isinstance(value, Mapping | list):
        return ["{}" if isinstance(value, Mapping) else "[]"]
    if isinstance(value, str) and _is_block_of_text(value):
        text = value.removesuffix("\n")
        return ["|" if text != value else "|-", *text.split("\n")]
    return [scalar_text(value)]


def scalar_text(value: Any) -> str:
    """One plain value, or a key, on one line."""
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
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


def _quoted(text: str) -> str:
    escaped = _ESCAPED.sub(lambda found: _escape(found[0]), text)
    return f'"{COMMAND_MARK.sub(lambda _: _escape("#"), escaped)}"'


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
        raise ManifestInvalid(_no_place(document, 1))
    return (b"\xef\xbb\xbf" if document.data.startswith(b"\xef\xbb\xbf") else b"") + data


def _no_place(document: Document, line: int) -> Diagnostic:
    why = "its layout leaves no place to insert an entry without changing something else"
    fix = "name a file in block style, or paste the entry that `reconciler export` prints"
    return Diagnostic("cannot be edited", why, fix, Location(document.file, line, 1))


def _inserted(document: Document, section: str, members: Mapping[str, Any], newline: str) -> str:
    root, text = document.root, document.text
    if root is None:
        return _appended(text, section, members, newline)
    if root.flow_style:
        raise ManifestInvalid(_no_place(document, 1))
    found = document.members(root).get(section)
    if found is None:
        return _appended(text, section, members, newline)
    key, value = found
    if not isinstance(value.value, list):  # `jobs:` without anything, `jobs: null`
        return _in_place_of_nothing(text, key, value, members, newline)
    if value.flow_style:
        return _in_braces(text, value, members, newline, key.start_mark.column)
    return _behind_the_last(text, root, value, members, newline)


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


def _in_place_of_nothing(text: str, key: Any, value: Any, members: Mapping[str, Any], newline: str) -> str:
    # Behind the colon, and whatever stands for nothing there; a comment in that line stays.
    start = text.index(":", key.end_mark.index) + 1
    end = max(start, value.end_mark.index) if value.value else start
    rest = text[end:]
    line, break_, after = rest.partition("\n")
    body = _member_lines(members, key.value, key.start_mark.column + _INDENT, newline)
    return f"{text[:start]}{line}{break_ or newline}{body}{after}"


def _in_braces(text: str, value: Any, members: Mapping[str, Any], newline: str, column: int) -> str:
    close = value.end_mark.index - 1
    if not value.value:
        rest, break_, after = text[value.end_mark.index :].partition("\n")
        body = _member_lines(members, "jobs", column + _INDENT, newline)
        return f"{text[: value.start_mark.index].rstrip(' ')}{rest}{break_ or newline}{body}{after}"
    last = text[:close].rstrip()
    comma = " " if last.endswith(",") else ", "
    flow = ", ".join(f"{json.dumps(name)}: {json.dumps(member)}" for name, member in members.items())
    return f"{last}{comma}{flow}{text[len(last) :]}"


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
    gap = newline if _has_gaps(text, value) else ""
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


def _has_gaps(text: str, value: Any) -> bool:
    """Whether a blank line divides the members that are there."""
    keys = [key.start_mark.index for key, _ in value.value]
    return any(re.search(r"\n[ \t]*\r?\n", text[one:other]) for one, other in pairwise(keys))
