"""Putting entries into a manifest file: text goes in, and nothing that stands there is touched.

So comments, anchors, blank lines and the spelling of values stay. What comes out is read again and compared
before it is handed on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from reconciler.errors import Diagnostic, Location, ManifestInvalid
from reconciler.manifest.write import yaml_lines
from reconciler.manifest.yaml import Document, parse

_STEP = 2
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLANK = re.compile(r"[ \t]*(?:#.*)?")
#: What ends a document; nothing of ours may stand behind it.
_END = re.compile(r"(?:---|\.\.\.)(?:\s|\Z)")


def insert_members(document: Document, sections: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return a manifest file with these members under its top-level keys, behind those that are there.

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


def _lines(members: Mapping[str, Any], section: str, indent: int, newline: str) -> str:
    """The lines of the members without their section."""
    _, *lines = yaml_lines({section: members})
    return "".join((" " * indent + line[_STEP:] if line else "") + newline for line in lines)


def _appended(text: str, section: str, members: Mapping[str, Any], newline: str) -> str:
    lines = _LINE.findall(text)
    end = next((n for n in range(len(lines) - 1, -1, -1) if _END.match(lines[n])), None)
    is_open = end is None or lines[end].startswith("---")
    before, after = (text, "") if is_open else ("".join(lines[:end]), "".join(lines[end:]))
    if before and not before.endswith(("\n", "\r")):
        before += newline
    return f"{before}{section}:{newline}{_lines(members, section, _STEP, newline)}{after}"


def _in_place_of_nothing(text: str, key: Any, value: Any, members: Mapping[str, Any], newline: str) -> str:
    # Behind the colon, and whatever stands for nothing there; a comment in that line stays.
    start = text.index(":", key.end_mark.index) + 1
    end = max(start, value.end_mark.index) if value.value else start
    rest = text[end:]
    line, break_, after = rest.partition("\n")
    body = _lines(members, key.value, key.start_mark.column + _STEP, newline)
    return f"{text[:start]}{line}{break_ or newline}{body}{after}"


def _in_braces(text: str, value: Any, members: Mapping[str, Any], newline: str, column: int) -> str:
    close = value.end_mark.index - 1
    if not value.value:
        rest, break_, after = text[value.end_mark.index :].partition("\n")
        body = _lines(members, "jobs", column + _STEP, newline)
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
    return kept + gap + _lines(members, "jobs", column, newline) + "".join(tail) + text[end:]


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
