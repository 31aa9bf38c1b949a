"""Manifests as text: data as YAML, and `fmt`, the canonical layout.

The layout is that of ruamel.yaml's round-trip loader, with two spaces of indentation, also for list items.
The order of keys, comments, blank lines, anchors, quotes and the spelling of values are kept. The output is
parsed and compared with the input before it is returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.resolver import VersionedResolver

from reconciler.errors import Diagnostic, Location, ManifestInvalid
from reconciler.manifest.yaml import SEPARATORS, Document, parse, parse_scalar, parser_events, shield
from reconciler.text import COMMAND_MARK, INVISIBLE, printable_lines

#: Text that needs no quotes: no indicator at the beginning, and no `: `, ` #` or space at the end.
_PLAIN = re.compile(r"(?:[\w/.+$-]|(?<=.)[@%=~^(){}\[\],;&*!?|<>'\"`# :\\])+", re.ASCII)
_INNER_MARK = re.compile(r": |:\Z| #| \Z")
#: Numbers, times, dates and booleans of YAML 1.1 that are text in 1.2.
_OLD_TYPES = re.compile(r"[-+.0-9][-+.:_0-9eE]*|(?:y|n|yes|no|on|off)", re.IGNORECASE)
_ESCAPED = re.compile(f'["\\\\\x00-\x1f\ufdd0-\ufdef\ufffe\uffff{INVISIBLE}]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Format a mapping of mappings, lists and plain values, in the layout of `fmt`."""
    return "".join(f"{line}\n" for line in yaml_lines(tree))


def yaml_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a mapping, without indentation at the top level."""
    for name, value in tree.items():
        head, lines = f"{scalar_text(name)}:", list(_lines(value))
        if isinstance(value, Mapping | list) and value:
            lines.insert(0, "")
        yield f"{head} {lines[0]}" if lines[0] else head
        yield from indented(lines[1:])


def indented(lines: Iterable[str], width: int = 2) -> list[str]:
    return [" " * width + line if line else "" for line in lines]


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield from yaml_lines(value)
    elif isinstance(value, list) and value:
        for item in value:
            first, *others = _lines(item)
            width = 4 if isinstance(item, list) and item else 2
            yield "-".ljust(width) + first
            yield from indented(others, width)
    elif isinstance(value, Mapping | list):
        yield "{}" if isinstance(value, Mapping) else "[]"
    elif isinstance(value, str) and _can_be_block(value):
        text = value.removesuffix("\n")
        yield "|" if text != value else "|-"
        yield from text.split("\n")
    else:
        yield scalar_text(value)


def scalar_text(value: Any) -> str:
    """Format a plain value, or a key, on one line."""
    if isinstance(value, str):
        if _is_plain(value):
            return value
        escaped = _ESCAPED.sub(lambda match: _escape(match[0]), value)
        return f'"{re.sub(COMMAND_MARK, lambda _: _escape("#"), escaped)}"'
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def _is_plain(text: str) -> bool:
    return (
        _PLAIN.fullmatch(text) is not None
        and not _INNER_MARK.search(text)
        and not text.startswith(("- ", "---", "..."))
        and text != "-"
        and not _OLD_TYPES.fullmatch(text)
        and not re.search(COMMAND_MARK, text)
        and isinstance(parse_scalar(text), str)
    )


def _escape(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _can_be_block(text: str) -> bool:
    """Whether a text has several lines and can be a block: no leading or trailing space is significant."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all((lines[0], lines[-1]))
        and lines[0] == lines[0].strip()
        and all(line == line.rstrip() and "\t" not in line for line in lines)
        and lines[-1] == lines[-1].strip()
        # A character that stdout cannot show is escaped, which works only in quotes.
        and text.isascii()
        and printable_lines(text) == text
    )


#: Characters that the round-trip loader would change: colons and braces that can only be text, escapes in
#: quotes, and the line breaks of YAML 1.1.
_HIDDEN = ':{}\\"\x85\u2028\u2029'
#: Candidates to stand in for them, and to enclose the number of a collection that is kept.
_PRIVATE = "".join(map(chr, range(0xE000, 0xF900)))
#: A text that is not stable by then has no canonical layout.
_MAX_PASSES = 4


def format_text(text: str, name: str) -> str:
    """Return a manifest in canonical layout. `name` is its name in messages.

    Raises:
        ManifestInvalid: it is not valid, or the layout would change a value or lose a comment.
    """
    before = _parsed(text, name)
    if before.problems:
        raise ManifestInvalid(*before.problems)
    new = re.sub("\r\n?", "\n", text.removeprefix("\ufeff"))
    if not before.tree:
        return "".join(f"{line.rstrip()}\n" for line in new.strip("\n").split("\n") if new.strip())
    comments, written = _comments_of(new), new
    for keeps_flow in (False, True):
        new = written
        for _ in range(_MAX_PASSES):
            old, new = new, _round_tripped(new, keeps_flow=keeps_flow)
            if new == old:
                return new
            # The output replaces the user's file, so a defect here must not change their jobs.
            after = _parsed(new, name)
            if after.problems or after.tree != before.tree or _comments_of(new) != comments:
                break
    why = "the layout cannot be changed without changing a value or losing a comment"
    fix = "move comments to their own lines, and write collections with comments in block style"
    raise ManifestInvalid(Diagnostic("cannot be formatted", why, fix, Location(name, 1, 1)))


def _parsed(text: str, name: str) -> Document:
    return parse(text.encode("utf-8", "surrogatepass"), Path(name), name)


def _comments_of(text: str) -> list[str]:
    text += "\n"  # the end of the file may be the first line of a block
    spans = [
        # The text of a block begins below its first line, which may have a comment.
        (text.index("\n", start) if event.style in ("|", ">") else start, event.end_mark.index)
        for event in parser_events(text)
        if type(event).__name__ == "ScalarEvent"
        for start in [event.start_mark.index]
    ]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    between = (text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True))
    return sorted(text.rstrip() for gap in between for text in re.findall("(?m)(?:^|[ \t])(#.*)", gap))


class _Resolver(VersionedResolver):  # type: ignore[misc]
    """Treats every plain scalar as text, to keep its spelling."""

    @property
    def versioned_resolver(self) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
        return {
            "": [("tag:yaml.org,2002:null", re.compile(r"\Z"))],
            "<": [("tag:yaml.org,2002:merge", re.compile(r"<<\Z"))],
        }


def _commented_flow(text: str) -> list[tuple[int, int]]:
    """Return the spans of outermost flow collections that contain comments."""
    spans, open_at = [], list[int | None]()
    for event in parser_events(text):
        kind = type(event).__name__
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            open_at.append(event.start_mark.index if event.flow_style else None)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            start, end = open_at.pop(), event.end_mark.index
            is_outermost = all(position is None for position in open_at)
            if start is not None and is_outermost and _comments_of(text[start:end]):
                # Without its anchor.
                spans.append((start + len(re.split(r"[\[{]", text[start:end])[0]), end))
    return spans


def _round_tripped(text: str, *, keeps_flow: bool = False) -> str:
    """Return the text as the round-trip loader writes it; "" if it cannot read it.

    The loader loses comments in flow mappings. With `keeps_flow`, flow collections with comments are kept.
    """
    mark, *stand_ins = islice((char for char in _PRIVATE if char not in text), len(_HIDDEN) + 1)
    hide = str.maketrans(dict(zip(_HIDDEN[3:], stand_ins[3:], strict=True)))
    kept = []
    for start, end in reversed(_commented_flow(text)) if keeps_flow else ():
        kept.append((_indent_at(text, start), text[start:end]))
        text = f"{text[:start]}{mark}{len(kept) - 1}{mark}{text[end:]}"
    yaml, out = YAML(), StringIO()
    yaml.Resolver = _Resolver
    yaml.preserve_quotes = yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 2 * len(text)
    # The loader loses everything before the start of the document.
    before = re.match(r"(?:[ \t]*(?:#.*)?\n)*---[ \t]*\n", text)
    head = before[0] if before else ""
    body = text[len(head) :]
    try:
        # A backslash is an escape only in double quotes: the keys `a\nb` and `"a\nb"` differ.
        quoted = {
            index
            for event in (parser_events(body) if "\\" in body else ())
            if getattr(event, "style", None) == '"'
            for index in range(event.start_mark.index, event.end_mark.index)
        }
        hidden = re.sub(
            rf'\\(?!\n)[\\"]?|[{SEPARATORS}]',
            lambda char: char[0].translate(hide) if char[0][0] != "\\" or char.start() in quoted else char[0],
            body,
        )
        tree = yaml.load(shield(hidden, *stand_ins[:3]))
        _Comments().move(tree)
        yaml.dump(tree, out)
    except Exception:  # the loader raises exceptions of any type for a layout that it does not support
        return ""
    new = head + out.getvalue().translate(dict(zip(map(ord, stand_ins), _HIDDEN, strict=True)))

    def put_back(match: re.Match[str]) -> str:
        old, flow = kept[int(match[1])]
        deeper = _indent_at(new, match.start()) - old
        return re.sub(rf"\n {{0,{max(0, -deeper)}}}(?=.)", "\n" + " " * deeper, flow)

    return re.sub(f"{mark}(\\d+){mark}", put_back, new) if kept else new


def _indent_at(text: str, offset: int) -> int:
    """Return the indentation of the line at an offset."""
    return len(re.match(" *", text[text.rfind("\n", 0, offset) + 1 :])[0])  # type: ignore[index]


class _Comments:
    """Moves the comments in a tree of the round-trip loader along with their nodes."""

    def __init__(self) -> None:
        #: Old and new columns of the open collections, outermost first.
        self._columns = [(0, 0)]
        self._seen: set[int] = set()

    def move(self, node: Any, column: int = 0, beside: Sequence[Any] = ()) -> None:
        """Move the comments of a node whose new column is `column`; `beside` are the comments of its key."""
        if not hasattr(node, "lc") or id(node) in self._seen:
            self._move(beside)
            return
        self._seen.add(id(node))
        is_list = isinstance(node, list)
        node.anchor.always_dump = bool(node.anchor.value)
        places, is_flow = node.lc.data or {}, bool(node.fa.flow_style())
        if not places or (is_flow and all(line == node.lc.line for line, *_ in places.values())):
            self._columns.append(self._columns[-1])
        else:
            if is_flow:
                self._open(node, places)
            _, old, *_ = next(iter(places.values()))
            if is_list:
                old = old - 2 if is_flow or node.anchor.value else node.lc.col
            self._columns.append((old, column))
        self._move([*beside, *(node.ca.comment or ())])
        for key in places:
            value = node[key] if is_list else node.get(key)
            deeper = 4 if is_list and isinstance(value, list) else 2
            self.move(value, column + deeper, node.ca.items.get(key) or ())
        self._columns.pop()

    def _open(self, node: Any, places: Mapping[Any, Any]) -> None:
        """Turn a flow collection of several lines into a block: the loader would write it on one line."""
        node.fa.set_block_style()
        for before, after in pairwise(places):
            above = (node.ca.items.get(after) or (None, None))[1]
            if above and above[0].start_mark.line == places[before][0]:
                beside_value = 0 if isinstance(node, list) else 2
                node.ca.items.setdefault(before, [None] * 4)[beside_value] = above.pop(0)

    def _move(self, comments: Sequence[Any]) -> None:
        for comment in comments:
            for token in comment if isinstance(comment, list) else [comment]:
                # The comment beside `|` or `>` is text, and stays there.
                if token is None or isinstance(token, str) or id(token) in self._seen:
                    continue
                self._seen.add(id(token))
                token.value = re.sub(
                    "(?m)^[ \t]+(?=#)", lambda match: self._indent(len(match[0])), token.value
                )
                old, new = self._columns[-1]
                before = token.start_mark.column
                # A comment after a value keeps its distance.
                token.column = len(self._indent(before)) if isinstance(comment, list) else before + new - old

    def _indent(self, old: int) -> str:
        """Return the indentation of a comment on its own line: that of the deepest collection around it."""
        return " " * max(new for column, new in self._columns if column <= old)
