"""Plain data as YAML text in the canonical layout: `formatting.format_text` changes nothing of it.

A text that YAML, or an older version of it, would read as something else is quoted, and so is what would
steer a terminal or a CI service that shows the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.manifest.key_order import MANIFEST, ValueShape
from reconciler.manifest.yaml import parse_scalar
from reconciler.text import COMMAND_MARK, INVISIBLE, printable_lines

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
