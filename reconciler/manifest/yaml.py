"""One YAML file: its text, its plain values, and the node tree that locates them.

The values of a plain file are built from the C parser's events. A file with an anchor, a tag, a merge key or
an error is composed to nodes, which have positions, and the nodes are walked. Scalars follow YAML 1.2's core
schema: only true and false are booleans; `yes`, `on` and dates are text. Whatever cannot be read becomes a
problem with a location, never a parser exception.
"""

from __future__ import annotations

import errno
import re
from bisect import bisect_right
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from sys import intern
from typing import Any

from reconciler.core.scalar import is_boolean, spelled
from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.files import NotRegular, TooLarge, read_file

#: Deeper nesting would exhaust the stack of the C parser.
MAX_DEPTH = 100
_INVALID, _TOO_DEEP = "invalid YAML", f"nested more than {MAX_DEPTH} levels deep"
#: Limit on the keys and values of one file; each takes about 400 bytes.
MAX_NODES = 2_000_000


class InvalidNode(Exception):
    """A node without a plain value. `node` is None for the whole file; the rest is for a diagnostic."""

    def __init__(self, node: Any, what: str, why: str, fix: str | None = None) -> None:
        self.node, self.what, self.why, self.fix = node, what, why, fix
        super().__init__(why)


@cache
def parser() -> Any:
    """Return the C parser class: `parser()(text).get_single_node()`.

    The pure Python parser is six times slower, so a missing C parser is an error; there is no fallback.
    """
    from ruamel.yaml.cyaml import CParser
    from ruamel.yaml.tag import Tag

    implicit = Tag(suffix=None)

    class Parser(CParser):  # type: ignore[misc]
        """Leaves scalar types to `_Walk` and limits the depth, since the C code recurses."""

        depth = 0
        nodes = 0

        def descend_resolver(self, parent: Any, index: Any) -> None:
            self.depth += 1
            self.nodes += 1
            if self.depth > MAX_DEPTH:
                raise InvalidNode(parent, _INVALID, _TOO_DEEP)
            if self.nodes > MAX_NODES:
                raise InvalidNode(
                    None, _INVALID, f"more than {MAX_NODES:,} keys and values", "split the file"
                )

        def ascend_resolver(self) -> None:
            self.depth -= 1

        def resolve(self, kind: Any, value: Any, is_implicit: Any) -> Any:
            return implicit

    return Parser


def compose(text: str) -> Any:
    """Compose a text to its root node.

    libyaml is stricter in flow collections than YAML 1.2, and YAML is stricter than people who write
    `{data_url: obs://${var.bucket}/}`. A text that libyaml rejects is parsed again with a stand-in for each
    colon and brace that can only be text. Stand-ins are single characters, so positions stay correct.
    """
    from ruamel.yaml.error import MarkedYAMLError

    text, originals = _without_separators(text)
    try:
        root = parser()(text).get_single_node()
    except MarkedYAMLError:
        shielded = _shield(text)
        if shielded == text:
            raise
        root, originals = parser()(shielded).get_single_node(), originals | _SHIELDS
    if originals:
        for node in scalars(root):
            node.value = node.value.translate(originals)
    return root


def parser_events(text: str) -> Iterator[Any]:
    """Yield the parser events of a text that `compose` accepts. Aliases and anchors are kept."""
    from ruamel.yaml.error import MarkedYAMLError

    text, _ = _without_separators(text)
    try:
        yield from list(_events(text))
    except MarkedYAMLError:
        yield from _events(_shield(text))


def _events(text: str) -> Iterator[Any]:
    stream = parser()(text)
    while stream.check_event():
        yield stream.get_event()


_COLON, _OPEN, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_SHIELDS = {ord(_COLON): ":", ord(_OPEN): "{", ord(_CLOSE): "}"}
_EXPRESSION = r"\$\{([^{}\s\"',]*)\}"
#: A colon without a space after it is no separator, unless it follows a quoted key or a collection.
_INNER_COLON = r"(?<=[^\s\"'\[\]{},]):(?=[^\s\[\]{},])"


def _shield(text: str) -> str:
    return text if any(chr(code) in text for code in _SHIELDS) else shield(text, _COLON, _OPEN, _CLOSE)


def shield(text: str, colon: str, opening: str, closing: str) -> str:
    """Replace the colons and braces that can only be text with the given characters."""
    return re.sub(_INNER_COLON, colon, re.sub(_EXPRESSION, rf"${opening}\1{closing}", text))


#: Line breaks in YAML 1.1, and so in libyaml, but not in YAML 1.2 and editors.
SEPARATORS = "\x85\u2028\u2029"
#: Candidates for replacing the separators while a text is parsed.
_STAND_INS = tuple(map(chr, range(0xFDD3, 0xFDF0)))


def _without_separators(text: str) -> tuple[str, dict[int, str]]:
    """Replace each separator with a character that is plain text to the parser.

    Returns the text and a table for `str.translate` that undoes it.
    """
    from ruamel.yaml.error import YAMLError

    present = [char for char in SEPARATORS if char in text]
    free = [char for char in _STAND_INS if char not in text] if present else []
    if len(free) < len(present):
        raise YAMLError
    pairs = list(zip(present, free, strict=False))
    for char, stand_in in pairs:
        text = text.replace(char, stand_in)
    return text, {ord(stand_in): char for char, stand_in in pairs}


def scalars(root: Any) -> Iterator[Any]:
    """Yield each scalar node below `root` once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen or node is None:
            continue
        seen.add(id(node))
        if isinstance(node.value, str):
            yield node
        else:
            for item in node.value:
                pending.extend(item if isinstance(item, tuple) else (item,))


# A character that changes the direction of text can display a line in a different order than the parser reads
# it, and one that only some tools treat as a line break can hide a line: reviewers would miss both.

#: The marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


_HIDDEN = f"[{DIRECTION}{SEPARATORS}]"


def _quoted_spans(text: str) -> tuple[list[tuple[int, int]], int]:
    """Return the spans of quoted text in order, and the offset up to which they are complete."""
    from ruamel.yaml.error import YAMLError

    spans: list[tuple[int, int]] = []
    try:
        for event in parser_events(text):
            if getattr(event, "style", None) in ("'", '"'):
                spans.append((event.start_mark.index, event.end_mark.index))
    except YAMLError as error:
        is_open = "quoted" in str(getattr(error, "context", ""))
        mark = getattr(error, "context_mark" if is_open else "problem_mark", None)
        # An error without a mark is a forbidden character further on.
        return spans, mark.index + 1 if mark else spans[-1][1] if spans else 0
    return spans, len(text)


def _hidden_characters(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, why and fix of each hidden character that is not allowed."""
    matches = [] if text.isascii() else list(re.finditer(_HIDDEN, text))
    spans, known = _quoted_spans(text) if any(match[0] in SEPARATORS for match in matches) else ([], 0)
    for match in matches:
        index, name = match.start(), f"U+{ord(match[0]):04X}"
        fix = f'remove it, or write it as "\\u{ord(match[0]):04x}" in double quotes'
        if match[0] not in SEPARATORS:
            yield index, f"{name} changes the direction of the text around it", fix
            continue
        before = bisect_right(spans, (index, len(text))) - 1
        if index < known and not (before >= 0 and index < spans[before][1]):
            yield index, f"{name} outside quotes is a line break only to some tools", fix


# A file with the name of a manifest may be anything, e.g. a link to a credentials file or to a process's
# environment, and no line of it may be shown. A top-level key tells an invalid manifest from such a file.

#: Top-level keys of a manifest that hardly any other file has.
_KEYS = frozenset(
    {
        *("stack", "target", "targets", "variables", "limits", "prices"),
        *("policies", "drift", "notify", "records", "code_store", "defaults", "jobs"),
    }
)
_GROUP = "reconciler/"
_ANY_KEY = "|".join(sorted(_KEYS))
#: For text that cannot be parsed: `stack`, or any manifest key, at the top level of a block mapping, or of a
#: flow mapping that is the whole file, e.g. JSON.
_STACK_PATTERN = r"""(?m)^stack[ \t]*:|\A\s*\{[^{}\[\]]*?["']?\bstack["']?\s*:"""
_KEY_PATTERN = (
    rf"""(?m)^(?:{_ANY_KEY})[ \t]*:(?:\s|\Z)|^apiVersion[ \t]*:[ \t]*["']?{_GROUP}"""
    rf"""|\A\s*\{{[^{{}}\[\]]*?["']?\b(?:{_ANY_KEY})["']?\s*:"""
)
#: A policy case has none of these. The jobs of a manifest mistaken for a case would be terminated.
_NOT_IN_CASE = (_KEYS | {"apiVersion", "templates"}) - {"target"}
_PLAIN_STACK = rb"(?m)^stack:[ \t]+([a-z][a-z0-9-]*)[ \t]*(?:#[^\n]*)?\r?$"


def plain_stack_name(data: bytes) -> str | None:
    """Find `stack: NAME` on a line of its own, as in nearly all root files, without parsing the file.

    Returns None if only a parser can tell: the file is not a plain mapping, or the name is quoted or invalid.
    """
    lines = (line for line in data.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    first = next((line for line in lines if line.rstrip() != b"---"), b"")
    names = re.findall(_PLAIN_STACK, data) if re.match(rb"[A-Za-z]+:(?:[ \t]|\Z)", first) else []
    return names[0].decode() if len(names) == 1 and names[0] not in (b"true", b"false", b"null") else None


#: Parsing a file takes many times its size in memory.
MAX_FILE_BYTES = 32_000_000


def read_manifest_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, is not a regular file, or is too large; `strerror` says which.
    """
    try:
        return read_file(path, MAX_FILE_BYTES)
    except NotRegular as error:
        raise OSError(errno.EINVAL, f"not a regular file: {error.strerror}") from None
    except TooLarge:
        why = f"larger than {MAX_FILE_BYTES:,} bytes, the limit for a manifest"
        raise OSError(errno.EFBIG, why) from None


#: Limit on the nodes that the aliases of one file expand to.
MAX_ALIASED_NODES = 100_000
#: An integer with more digits is read as infinity; its spelling is kept for fields that take text.
_MAX_DIGITS = 300
#: Line breaks in YAML 1.2 and in editors.
LINE_BREAK = "\r\n|[\n\r]"
_UNREADABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
#: Byte order marks of files that an editor saved as UTF-16.
UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)

_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_CHARACTER = "character not allowed"
#: NUL is not allowed in a file, but text in double quotes can have it as an escape.
_NUL_ESCAPE = r"\\(?:0|x00|u0000|U00000000)"
_CORE = "tag:yaml.org,2002:"


@lru_cache(maxsize=65_536)
def parse_scalar(text: str) -> Any:
    """Parse an unquoted scalar by YAML 1.2's core schema. Numbers and booleans keep their spelling."""
    if text in _WORDS:
        return None if _WORDS[text] is None else spelled(_WORDS[text], text)
    if text[0] not in "+-.0123456789":
        return text
    if re.fullmatch(_INT, text):
        if len(text) > _MAX_DIGITS:
            return spelled(float("-inf" if text[0] == "-" else "inf"), text)
        return spelled(int(text, 8 if text[:2] == "0o" else 16 if text[:2] == "0x" else 10), text)
    return spelled(float(text), text) if re.fullmatch(_FLOAT, text) else text


#: 0-based line and column of each entry, by section and name.
EntryPlaces = dict[tuple[str, ...], tuple[int, int]]


@dataclass(eq=False, repr=False)
class Document:
    """A file that was read. `file` is its name in messages, `relative` its name in the stack.

    `tree` is its top-level mapping, {} if the file is empty or could not be read. `is_broken` means that the
    tree may be incomplete.
    """

    path: Path
    file: str
    data: bytes
    text: str = ""
    tree: dict[str, Any] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    is_broken: bool = False
    relative: str = ""
    entry_places: EntryPlaces = field(default_factory=dict, repr=False)
    _members: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    #: Cache of `manifest.problems`: list items by their name, for each list node.
    items_by_name: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    def set_tree(self, tree: dict[str, Any], places: EntryPlaces) -> None:
        self.tree, self.entry_places = tree, places
        self.may_show_lines = not _KEYS.isdisjoint(tree) or str(tree.get("apiVersion")).startswith(_GROUP)

    @cached_property
    def root(self) -> Any:
        """The root node, for the positions of values; None if the file is empty or broken.

        Composed on demand: nodes take ten times the memory of the values, and few positions are needed.
        """
        return None if self.is_broken else compose(self.text)

    @cached_property
    def may_show_lines(self) -> bool:
        """Whether messages may quote lines of the file: only if it looks like a manifest."""
        return re.search(_KEY_PATTERN, self.text) is not None

    def members(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """Return the key node and value node of each member of a mapping node, by key."""
        if id(node) not in self._members:
            self._members[id(node)] = {key.value: (key, value) for key, value in reversed(node.value)}
        return self._members[id(node)]

    @cached_property
    def lines(self) -> list[str]:
        return re.split(LINE_BREAK, self.text)

    @cached_property
    def may_hold_secrets(self) -> bool:
        return re.search("(?i)sensitive|notify|records|password|secret|token", self.text) is not None

    @property
    def is_root_file(self) -> bool:
        """Whether it is a root file. The text of a broken file is searched for `stack:`."""
        return "stack" in self.tree or (self.is_broken and re.search(_STACK_PATTERN, self.text) is not None)

    @property
    def is_case(self) -> bool:
        """Whether it is a policy case, which is not a manifest although it may be stored among manifests."""
        if self.is_broken:
            has_expect = re.search(r"(?m)^expect[ \t]*:", self.text) is not None
            return has_expect and re.search(_KEY_PATTERN, self.text) is None
        return self.tree.keys() >= {"job", "expect"} and self.tree.keys().isdisjoint(_NOT_IN_CASE)

    def location(self, line: int, column: int) -> Location:
        """Convert the parser's 0-based position."""
        return Location(self.file, line + 1, column + 1)

    def snippet(self, line: int, column: int, length: int) -> Snippet | None:
        """Return the line at a 0-based position, in full so that it can be searched for secrets.

        Returns None if lines of the file may not be shown.
        """
        if line >= len(self.lines) or not self.may_show_lines:
            return None
        text = self.lines[line]
        return Snippet(text, column, max(1, min(length, len(text) - column)))

    def report(
        self, at: Any, what: str, why: str, fix: str | None = None, *, path: str = "", breaks: bool = False
    ) -> None:
        """Record a problem at a node or a 0-based position; `breaks` if it makes the tree incomplete."""
        self.is_broken |= breaks
        if isinstance(at, tuple):
            (line, column), length = at, 1
        else:
            line, column, end = at.start_mark.line, at.start_mark.column, at.end_mark
            length = end.column - column if end is not None and end.line == line else 1
        # Values that could not be read are not known as secrets.
        snippet = None if self.may_hold_secrets else self.snippet(line, column, length)
        path = path if self.may_show_lines else ""
        self.problems.append(Diagnostic(what, why, fix, self.location(line, column), path, snippet))


def read(path: Path, file: str, read_bytes: Callable[[Path], bytes] = read_manifest_file) -> Document:
    """Read and parse one file. Errors are reported in `problems` of the document."""
    try:
        return parse(read_bytes(path), path, file)
    except OSError as error:
        return unreadable_document(path, file, error)


def unreadable_document(path: Path, file: str, error: OSError) -> Document:
    reason = error.strerror or type(error).__name__
    problem = Diagnostic("unreadable file", reason, location=Location(file, 1, 1))
    return Document(path, file, b"", problems=[problem], is_broken=True)


def parse(data: bytes, path: Path, file: str) -> Document:
    document = Document(path, file, data)
    try:
        document.text = text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        document.text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "replace")
        place = end_position(data[: error.start].decode("utf-8-sig", "replace"))
        why = f"byte 0x{data[error.start]:02x} is not UTF-8"
        document.report(place, _INVALID, why, "save the file as UTF-8", breaks=True)
        return document
    is_clear = text.isascii() or not re.search(_HIDDEN, text)
    if is_clear and not re.search(_NUL_ESCAPE, text) and (plain := _plain_mapping(text)) is not None:
        document.set_tree(*plain)
        return document
    root = _compose(document)
    hidden = list(_hidden_characters(text))
    for index, why, fix in hidden[:_MAX_HIDDEN_REPORTED]:
        document.report(end_position(text[:index]), _CHARACTER, why, fix)
    if (more := len(hidden) - _MAX_HIDDEN_REPORTED) > 0:
        place = end_position(text[: hidden[_MAX_HIDDEN_REPORTED][0]])
        document.report(place, _CHARACTER, f"{more:,} more like this")
    if root is None:
        return document
    walk = _Walk(document)
    try:
        tree = walk.value(root)
    except InvalidNode as error:
        walk.report(error)
    if document.is_broken:
        return document
    if isinstance(tree, dict):
        document.set_tree(tree, _entry_places(root, tree))
    elif tree is not None:
        # No snippet: this is not a manifest, so its content is not shown.
        kind = "a list" if isinstance(tree, list) else "a single value"
        location = document.location(root.start_mark.line, root.start_mark.column)
        why = f"expected {MANIFEST_MAPPING}, got {kind}"
        document.problems.append(Diagnostic("wrong type", why, location=location))
        document.is_broken = True
    return document


class _NotPlain(Exception):
    """The text needs the full parser."""


def _plain_mapping(text: str) -> tuple[dict[str, Any], EntryPlaces] | None:
    """Parse a text of plain mappings, lists and scalars to its tree and the positions of its entries.

    Returns None if the text needs the full parser: it has anchors, tags, merge keys or errors.
    """
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import (
        DocumentEndEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
        StreamEndEvent,
    )

    next_event = parser()(text).get_event
    places: EntryPlaces = {}
    count = 1  # nodes: the root, and each key, value and item

    def scalar(event: Any) -> Any:
        if event.anchor is not None or event.ctag is not None:
            raise _NotPlain
        return event.value if event.style else parse_scalar(event.value)

    def check_limits(depth: int, has_members: bool) -> None:
        if count > MAX_NODES or (has_members and depth + 1 >= MAX_DEPTH):
            raise _NotPlain

    def collection(start: Any, depth: int, section: str) -> Any:
        nonlocal count
        is_list = start.__class__ is SequenceStartEvent
        if not is_list and start.__class__ is not MappingStartEvent:
            raise _NotPlain
        if start.anchor is not None or start.ctag is not None or depth >= MAX_DEPTH:
            raise _NotPlain
        if is_list:
            items: list[Any] = []
            while (event := next_event()).__class__ is not SequenceEndEvent:
                items.append(
                    scalar(event) if event.__class__ is ScalarEvent else collection(event, depth + 1, "")
                )
            count += len(items)
            check_limits(depth, bool(items))
            return items
        result: dict[str, Any] = {}
        while (key := next_event()).__class__ is ScalarEvent:
            name = intern(key.value)  # thousands of jobs share the same keys
            if key.anchor is not None or key.ctag is not None or name in result or name == "<<":
                raise _NotPlain
            if depth == 1:
                places[section, name] = key.start_mark.line, key.start_mark.column
            event = next_event()
            if event.__class__ is ScalarEvent:
                result[name] = scalar(event)
            else:
                result[name] = collection(event, depth + 1, "" if depth else name)
        if key.__class__ is not MappingEndEvent:
            raise _NotPlain
        count += 2 * len(result)
        check_limits(depth, bool(result))
        return result

    try:
        next_event(), next_event()  # start of the stream and of its document
        tree = collection(next_event(), 0, "")
        is_whole = next_event().__class__ is DocumentEndEvent and next_event().__class__ is StreamEndEvent
    except (_NotPlain, YAMLError):
        return None
    return (tree, places) if is_whole and isinstance(tree, dict) else None


def _entry_places(root: Any, tree: dict[str, Any]) -> EntryPlaces:
    places: EntryPlaces = {}
    seen: set[str] = set()
    for section, entries in root.value:
        # Only the first of duplicate keys is in the tree; the others may be anything.
        is_read = section.value not in seen and isinstance(tree.get(section.value), dict)
        seen.add(section.value)
        for name, _ in entries.value if is_read else ():
            places.setdefault((section.value, name.value), (name.start_mark.line, name.start_mark.column))
    return places


#: Further hidden characters in a file are only counted.
_MAX_HIDDEN_REPORTED = 20


def end_position(text: str) -> tuple[int, int]:
    """Return the 0-based line and column at which a text ends."""
    lines = re.split(LINE_BREAK, text)
    return len(lines) - 1, len(lines[-1])


def _compose(document: Document) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    text = document.text
    try:
        return compose(text)
    except InvalidNode as error:
        place, why, fix = error.node or (0, 0), error.why, error.fix
    except MarkedYAMLError as error:
        lines, mark = document.lines, error.problem_mark or error.context_mark
        line, column = (0, 0) if mark is None else (mark.line, mark.column)
        if line >= len(lines):  # past the end of the file
            line, column = len(lines) - 1, len(lines[-1])
        place = line, min(column, len(lines[line]))
        problem, context = str(error.problem or "").strip(), str(error.context or "").strip()
        message = (f"{context}: {problem}" if context else problem) or "the file cannot be read"
        why, fix = _explain_parser_error(document, place, message)
    except YAMLError:
        bad, fix = re.search(_UNREADABLE, text), None
        why = f"the character U+{ord(bad.group()):04X} is not allowed" if bad else "the file cannot be read"
        place = end_position(text[: bad.start()] if bad else "")
    document.report(place, _INVALID, why, fix, breaks=True)
    return None


def _explain_parser_error(document: Document, place: tuple[int, int], message: str) -> tuple[str, str | None]:
    """Return the why and fix of a syntax error; the parser's message if there is no better one."""
    line = document.lines[place[0]]
    if "that cannot start any token" in message and "\t" in line[: place[1] + 1]:
        return "a tab where YAML allows only spaces", "replace it with spaces"
    if message.startswith("while scanning an alias"):
        return "a text that begins with * needs quotes", "put it in quotes"
    if "flow" in message or not message.endswith(_INDENTATION_ERRORS):
        return message, None
    lines = [text for text in document.lines[: place[0]] if re.match(r"\s*[^\s#]", text)]
    columns: list[int] = []  # indentation of the blocks that are open above the line
    for above in map(_indent_of, lines):
        columns = [*(column for column in columns if column < above), above]
    width, opens = _indent_of(line), bool(lines and re.search(r"[:-]\s*(?:\s#.*)?$", lines[-1]))
    if not columns or width in columns or (width > columns[-1] and opens):
        if message.startswith("mapping values") and ": " in line[: place[1]]:
            return 'a text with ": " in it needs quotes', "put it in quotes"
        return message, None
    near = " or ".join(map(str, sorted(sorted(columns, key=lambda column: abs(column - width))[:2])))
    return f"the line is indented by {width} columns, and the lines above by {near}", f"indent it by {near}"


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


#: Parser messages for a line that belongs to none of the open blocks.
_INDENTATION_ERRORS = (
    "did not find expected key",
    "did not find expected '-' indicator",
    "mapping values are not allowed in this context",
)


MANIFEST_MAPPING = "a mapping with keys such as stack, targets, defaults and jobs"


class _Walk:
    """Turns nodes into plain values. Reports duplicate keys and keeps the first."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: set[int] = set()
        self._open: set[int] = set()
        self._aliased = 0
        self._in_alias = 0
        #: The path of the current node. Not unwound if the document is invalid.
        self._steps: list[str] = []

    def path(self, *more: str) -> str:
        return "".join(map(shorten, (*self._steps, *more))).removeprefix(".")

    def _below(self, step: str, node: Any, depth: int) -> Any:
        self._steps.append(step)
        value = None
        try:
            value = self.value(node, depth)
        except InvalidNode as error:
            if error.what == _INVALID:  # going on might not terminate
                raise
            self.report(error)
        self._steps.pop()
        return value

    def report(self, error: InvalidNode) -> None:
        self._document.report(error.node, error.what, error.why, error.fix, path=self.path(), breaks=True)

    def value(self, node: Any, depth: int = 0) -> Any:
        if isinstance(node.value, str):
            return self._scalar(node)
        identity = id(node)
        if identity in self._open:
            raise InvalidNode(node, _INVALID, "an anchor contains an alias of itself")
        is_mapping = node.__class__.__name__ == "MappingNode"
        kind = "map" if is_mapping else "seq"
        if node.ctag.suffix is not None and str(node.ctag) not in (_CORE + kind, "!"):
            raise _wrong_tag(node)
        is_alias = identity in self._seen
        self._in_alias += is_alias
        if self._in_alias:
            self._count(node)
        if depth > MAX_DEPTH:
            raise InvalidNode(node, _INVALID, _TOO_DEEP)
        self._seen.add(identity)
        self._open.add(identity)
        try:
            if is_mapping:
                return self._members(node, depth + 1)
            return [self._below(f"[{n}]", item, depth + 1) for n, item in enumerate(node.value)]
        finally:
            self._in_alias -= is_alias
            self._open.discard(identity)

    def _scalar(self, node: Any) -> Any:
        if self._in_alias:
            self._count(node)
        if "\0" in node.value and not self._in_alias:
            why = "the text contains NUL (U+0000), which neither the service nor the records can store"
            self._document.report(node, _CHARACTER, why, "remove it", path=self.path(), breaks=True)
        if node.ctag.suffix is not None:
            return _tagged(node)
        return node.value if node.style else parse_scalar(node.value)

    def _members(self, node: Any, depth: int) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        result: dict[str, Any] = {}
        merged: list[Any] = []
        for key, member in node.value:
            if not isinstance(key.value, str):
                raise InvalidNode(key, _INVALID, "a key must be text, not a list or a mapping")
            if key.ctag.suffix is not None or "\0" in key.value:
                self._scalar(key)
            name = intern(key.value)  # thousands of jobs share the same keys
            if (first := keys.setdefault(name, key)) is key:
                if name == "<<" and not key.style:
                    merged.append((key, member))
                else:
                    result[name] = self._below(f".{name}", member, depth)
            elif not self._in_alias:
                place = self._document.location(first.start_mark.line, first.start_mark.column)
                why = f'"{shorten(name)}" is already defined at {place}'
                path = self.path(f".{name}")
                self._document.report(key, "duplicate key", why, "keep one of them", path=path)
        for key, member in merged:
            sources = self.value(member, depth)
            for source in sources if isinstance(sources, list) else [sources]:
                if not isinstance(source, dict):
                    raise InvalidNode(key, _INVALID, "<< takes a mapping, or a list of mappings")
                for name, value in source.items():
                    result.setdefault(name, value)  # after its own members: a matrix depends on the order
        return result

    def _count(self, node: Any) -> None:
        self._aliased += 1
        if self._aliased > MAX_ALIASED_NODES:
            why = f"aliases expand to more than {MAX_ALIASED_NODES:,} values in this file"
            raise InvalidNode(node, _INVALID, why)


def _wrong_tag(node: Any) -> InvalidNode:
    tag = shorten(str(node.ctag).replace(_CORE, "!!"))
    why = f"{tag} is not one of !!str, !!int, !!float, !!bool, !!null, !!map, !!seq"
    return InvalidNode(node, "tag not allowed", why)


def _tagged(node: Any) -> Any:
    """Return the value of a scalar with a tag of the core schema."""
    tag = str(node.ctag)
    if tag in (_CORE + "str", "!"):
        return node.value
    types: dict[str, Any] = {"int": int, "float": (int, float), "bool": int, "null": type(None)}
    kind = tag.removeprefix(_CORE)
    if not tag.startswith(_CORE) or kind not in types:
        raise _wrong_tag(node)
    value = parse_scalar(node.value)
    if not isinstance(value, types[kind]) or is_boolean(value) != (kind == "bool"):
        raise InvalidNode(node, "wrong type", f"this value is not a valid {kind}")
    return spelled(float(value), node.value) if kind == "float" else value


def shorten(text: str, max_length: int = 60) -> str:
    """Make a text quotable in a message: printable, and at most `max_length` characters."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable if len(printable) <= max_length else printable[: max_length - 1] + "…"
