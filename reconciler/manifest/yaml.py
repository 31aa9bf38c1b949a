"""One YAML file: its text, its plain values, and the node tree from which places are read.

The values of a plain file are put together from the C parser's events. One with an anchor, a tag, a merge key
or anything wrong is composed to nodes, which know their places, and these are walked. YAML 1.2's core schema
decides what a plain scalar is: only true and false are booleans, `yes`, `on` and dates are text. Whatever
cannot be read is a problem with a place, never an exception of the parser.
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

#: Nesting beyond this is no manifest, and would exhaust the stack of the C parser.
MAX_DEPTH = 100
_INVALID, _TOO_DEEP = "invalid YAML", f"nested more than {MAX_DEPTH} levels deep"
#: How many keys and values one file may have; each takes some 400 bytes.
MAX_NODES = 2_000_000


class InvalidNode(Exception):
    """A node that has no plain value; `node` is where (None: the file), the rest is told as a diagnostic."""

    def __init__(self, node: Any, what: str, why: str, fix: str | None = None) -> None:
        self.node, self.what, self.why, self.fix = node, what, why, fix
        super().__init__(why)


@cache
def parser() -> Any:
    """The C parser, as a class: `parser()(text).get_single_node()`.

    The pure parser is six times slower, so the absence of this one is an error and not a fallback.
    """
    from ruamel.yaml.cyaml import CParser
    from ruamel.yaml.tag import Tag

    implicit = Tag(suffix=None)

    class Parser(CParser):  # type: ignore[misc]
        """Leaves the types of scalars to `_Walk`, and stops at a depth that the C stack bears."""

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
    """Compose the nodes of a text.

    libyaml is stricter in flow collections than YAML 1.2, and YAML stricter than people who write
    `{data_url: obs://${var.bucket}/}`. A text that it refuses is tried again with the colons and braces
    that can only be meant as text out of its sight; each stands for one character, so places stay true.
    """
    from ruamel.yaml.error import MarkedYAMLError

    text, meant = _without_separators(text)
    try:
        root = parser()(text).get_single_node()
    except MarkedYAMLError:
        shielded = _shield(text)
        if shielded == text:
            raise
        root, meant = parser()(shielded).get_single_node(), meant | _SHIELDS
    if meant:
        for node in scalars(root):
            node.value = node.value.translate(meant)
    return root


def parser_events(text: str) -> Iterator[Any]:
    """Yield the parser's events of a text that `compose` accepts; aliases and anchors are still there."""
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
#: A colon with no space behind it separates nothing, unless a quoted key or a collection stands before it.
_INNER_COLON = r"(?<=[^\s\"'\[\]{},]):(?=[^\s\[\]{},])"


def _shield(text: str) -> str:
    return text if any(chr(one) in text for one in _SHIELDS) else shield(text, _COLON, _OPEN, _CLOSE)


def shield(text: str, colon: str, opening: str, closing: str) -> str:
    """The text with other characters for the colons and braces that can only be meant as text."""
    return re.sub(_INNER_COLON, colon, re.sub(_EXPRESSION, rf"${opening}\1{closing}", text))


#: YAML 1.1, and so libyaml, takes them for line breaks; YAML 1.2, editors and people do not.
SEPARATORS = "\x85\u2028\u2029"
#: Of these that the text does not hold, three stand for the separators while it is parsed.
_STAND_INS = tuple(map(chr, range(0xFDD3, 0xFDF0)))


def _without_separators(text: str) -> tuple[str, dict[int, str]]:
    """The text with something in place of each separator that the parser takes for text, and the way back."""
    from ruamel.yaml.error import YAMLError

    found = [char for char in SEPARATORS if char in text]
    free = [char for char in _STAND_INS if char not in text] if found else []
    if len(free) < len(found):
        raise YAMLError
    pairs = list(zip(found, free, strict=False))
    for char, stand_in in pairs:
        text = text.replace(char, stand_in)
    return text, {ord(stand_in): char for char, stand_in in pairs}


def scalars(root: Any) -> Iterator[Any]:
    """Yield every node of text below a node, each once."""
    met: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in met or node is None:
            continue
        met.add(id(node))
        if isinstance(node.value, str):
            yield node
        else:
            for item in node.value:
                waiting.extend(item if isinstance(item, tuple) else (item,))


# A character that changes the direction of text may show a line in another order than it is read, and one
# that only some readers take for a line break hides a line: a reviewer would not see what the parser reads.

#: The marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


_HIDDEN = f"[{DIRECTION}{SEPARATORS}]"


def _quoted_spans(text: str) -> tuple[list[tuple[int, int]], int]:
    """Where quoted text stands, in order, and up to where that is known: all of it, if it can be parsed."""
    from ruamel.yaml.error import YAMLError

    spans: list[tuple[int, int]] = []
    try:
        for one in parser_events(text):
            if getattr(one, "style", None) in ("'", '"'):
                spans.append((one.start_mark.index, one.end_mark.index))
    except YAMLError as error:
        is_open = "quoted" in str(getattr(error, "context", ""))
        mark = getattr(error, "context_mark" if is_open else "problem_mark", None)
        # Without a mark it is a character that YAML forbids, somewhere behind.
        return spans, mark.index + 1 if mark else spans[-1][1] if spans else 0
    return spans, len(text)


def _hidden_characters(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each one that no file may hold, and why and what to do."""
    found = [] if text.isascii() else list(re.finditer(_HIDDEN, text))
    spans, known = _quoted_spans(text) if any(one[0] in SEPARATORS for one in found) else ([], 0)
    for one in found:
        index, name = one.start(), f"U+{ord(one[0]):04X}"
        fix = f'remove it, or write it as "\\u{ord(one[0]):04x}" in double quotes'
        if one[0] not in SEPARATORS:
            yield index, f"{name} changes the direction of the text around it", fix
            continue
        before = bisect_right(spans, (index, len(text))) - 1
        if index < known and not (before >= 0 and index < spans[before][1]):
            yield index, f"{name} outside quotes is a line break to some readers only", fix


# A file that is named like a manifest may be anything: a credentials file behind a link, the environment of a
# process. No line of such a file is shown. A manifest with a mistake is known by a key of its first level.

#: What a manifest says on its first level, and hardly any other file.
_KEYS = frozenset(
    {
        *("stack", "target", "targets", "variables", "limits", "prices"),
        *("policies", "drift", "notify", "records", "code_store", "defaults", "jobs"),
    }
)
_OURS = "reconciler/"
_ANY_KEY = "|".join(sorted(_KEYS))
#: How a text looks that cannot be parsed: on the first level of a block, or of a flow mapping that is the
#: whole file, as JSON is, it says `stack`, or any key of a manifest.
_SAYS_STACK = r"""(?m)^stack[ \t]*:|\A\s*\{[^{}\[\]]*?["']?\bstack["']?\s*:"""
_SAYS_KEY = (
    rf"""(?m)^(?:{_ANY_KEY})[ \t]*:(?:\s|\Z)|^apiVersion[ \t]*:[ \t]*["']?{_OURS}"""
    rf"""|\A\s*\{{[^{{}}\[\]]*?["']?\b(?:{_ANY_KEY})["']?\s*:"""
)
#: What a case for policies does not say: jobs that are left out of the stack would count as absent.
_NOT_IN_CASE = (_KEYS | {"apiVersion", "templates"}) - {"target"}
_PLAIN_STACK = rb"(?m)^stack:[ \t]+([a-z][a-z0-9-]*)[ \t]*(?:#[^\n]*)?\r?$"


def plain_stack_name(data: bytes) -> str | None:
    """The name in a file that says `stack: NAME` on a line of its own, as nearly all root files do.

    None where only a parser can tell: the file is no plain mapping, or the name is quoted or no name.
    """
    lines = (line for line in data.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    first = next((line for line in lines if line.rstrip() != b"---"), b"")
    names = re.findall(_PLAIN_STACK, data) if re.match(rb"[A-Za-z]+:(?:[ \t]|\Z)", first) else []
    return names[0].decode() if len(names) == 1 and names[0] not in (b"true", b"false", b"null") else None


#: A file beyond this is no manifest; what the parser makes of it takes many times as much.
MAX_FILE_BYTES = 32_000_000


def read_manifest_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large; `strerror` says which.
    """
    try:
        return read_file(path, MAX_FILE_BYTES)
    except NotRegular as error:
        raise OSError(errno.EINVAL, f"not a regular file: {error.strerror}") from None
    except TooLarge:
        why = f"larger than {MAX_FILE_BYTES:,} bytes, the limit for a manifest"
        raise OSError(errno.EFBIG, why) from None


#: How many nodes aliases may stand for in one file.
MAX_ALIASED_NODES = 100_000
#: A whole number of more digits is as good as infinite; where text is wanted it stays what it is.
_MAX_DIGITS = 300
#: What ends a line, to YAML 1.2 and to editors.
LINE_BREAK = "\r\n|[\n\r]"
_UNREADABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
#: How a file begins that an editor saved as UTF-16.
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
#: NUL cannot stand in a file, but a text in double quotes can say it.
_WRITES_NUL = r"\\(?:0|x00|u0000|U00000000)"
_CORE = "tag:yaml.org,2002:"


@lru_cache(maxsize=65_536)
def parse_scalar(text: str) -> Any:
    """The value of an unquoted scalar, by YAML 1.2's core schema; a number or boolean with its spelling."""
    if text in _WORDS:
        return None if _WORDS[text] is None else spelled(_WORDS[text], text)
    if text[0] not in "+-.0123456789":
        return text
    if re.fullmatch(_INT, text):
        if len(text) > _MAX_DIGITS:
            return spelled(float("-inf" if text[0] == "-" else "inf"), text)
        return spelled(int(text, 8 if text[:2] == "0o" else 16 if text[:2] == "0x" else 10), text)
    return spelled(float(text), text) if re.fullmatch(_FLOAT, text) else text


#: Where the names in the sections of a file stand, by section and name: line and column, 0-based.
EntryPlaces = dict[tuple[str, ...], tuple[int, int]]


@dataclass(eq=False, repr=False)
class Document:
    """A file as it was read. `file` is its name in messages, `relative` its name in the stack.

    `tree` is what it says on the first level ({} where it says nothing, or could not be read).
    `is_broken` says that the tree lacks what the file may say.
    """

    path: Path
    file: str
    data: bytes
    text: str = ""
    tree: dict[str, Any] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    is_broken: bool = False
    relative: str = ""
    #: Kept, since those of all jobs are asked for.
    entry_places: EntryPlaces = field(default_factory=dict, repr=False)
    _members: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    #: What `problems` has found out about the nodes of lists.
    items_by_name: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    def keep(self, tree: dict[str, Any], places: EntryPlaces) -> None:
        """Take over what the file was found to say."""
        self.tree, self.entry_places = tree, places
        self.shows_lines = not _KEYS.isdisjoint(tree) or str(tree.get("apiVersion")).startswith(_OURS)

    @cached_property
    def root(self) -> Any:
        """The node of all that the file says, which knows the places of values; None if it says nothing.

        Nodes are ten times as large as the values, and few places are asked for: they are composed again.
        """
        return None if self.is_broken else compose(self.text)

    @cached_property
    def shows_lines(self) -> bool:
        """Whether its lines may be shown: those of a file that is no manifest are nobody's business."""
        return re.search(_SAYS_KEY, self.text) is not None

    def members(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """The members of a mapping node by their key, each a key node and a value node."""
        if id(node) not in self._members:
            self._members[id(node)] = {key.value: (key, value) for key, value in reversed(node.value)}
        return self._members[id(node)]

    @cached_property
    def lines(self) -> list[str]:
        return re.split(LINE_BREAK, self.text)

    @property
    def says_stack(self) -> bool:
        """Whether it is a root file. One that cannot be read is believed by its look."""
        return "stack" in self.tree or (self.is_broken and re.search(_SAYS_STACK, self.text) is not None)

    @property
    def is_case(self) -> bool:
        """Whether it is a case for policies, which is no manifest although it may lie among them.

        One that cannot be read is believed by its look.
        """
        if self.is_broken:
            says_expect = re.search(r"(?m)^expect[ \t]*:", self.text) is not None
            return says_expect and re.search(_SAYS_KEY, self.text) is None
        return self.tree.keys() >= {"job", "expect"} and self.tree.keys().isdisjoint(_NOT_IN_CASE)

    def location(self, line: int, column: int) -> Location:
        """A place, from the 0-based one that the parser knows."""
        return Location(self.file, line + 1, column + 1)

    def snippet(self, line: int, column: int, length: int) -> Snippet | None:
        """The line at a 0-based place, as it is: secrets are taken out before it is cut to be shown.

        None if the file may not be shown.
        """
        if line >= len(self.lines) or not self.shows_lines:
            return None
        text = self.lines[line]
        return Snippet(text, column, max(1, min(length, len(text) - column)))

    def report(self, at: Any, what: str, why: str, fix: str | None = None, *, breaks: bool = False) -> None:
        """Take note of a problem at a node, or at a 0-based place.

        One that `breaks` the file hides what else it says.
        """
        self.is_broken |= breaks
        if isinstance(at, tuple):
            (line, column), length = at, 1
        else:
            line, column, end = at.start_mark.line, at.start_mark.column, at.end_mark
            length = end.column - column if end is not None and end.line == line else 1
        snippet = self.snippet(line, column, length)
        if self.is_broken and re.search(r"\bsensitive\b", self.text):
            snippet = None  # Nobody knows which line holds the value, so none is shown.
        self.problems.append(Diagnostic(what, why, fix, self.location(line, column), snippet=snippet))


def read(path: Path, file: str, read_bytes: Callable[[Path], bytes] = read_manifest_file) -> Document:
    """Read and parse one file. What is wrong with it stands in `problems`."""
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
        place = place_behind(data[: error.start].decode("utf-8-sig", "replace"))
        why = f"byte 0x{data[error.start]:02x} is not UTF-8"
        document.report(place, _INVALID, why, "save the file as UTF-8", breaks=True)
        return document
    is_clear = text.isascii() or not re.search(_HIDDEN, text)
    if is_clear and not re.search(_WRITES_NUL, text) and (plain := _plain_mapping(text)) is not None:
        document.keep(*plain)
        return document
    root = _compose(document)
    hidden = list(_hidden_characters(text))
    for index, why, fix in hidden[:_MOST_HIDDEN]:
        document.report(place_behind(text[:index]), _CHARACTER, why, fix)
    if (more := len(hidden) - _MOST_HIDDEN) > 0:
        place = place_behind(text[: hidden[_MOST_HIDDEN][0]])
        document.report(place, _CHARACTER, f"{more:,} more like this")
    if root is None:
        return document
    try:
        tree = _Walk(document).value(root)
    except InvalidNode as error:
        document.report(error.node, error.what, error.why, error.fix)
        document.is_broken = True
    if document.is_broken:
        return document
    if isinstance(tree, dict):
        document.keep(tree, _entry_places(root, tree))
    elif tree is not None:
        # What it says is nobody's business.
        kind = "a list" if isinstance(tree, list) else "a single value"
        location = document.location(root.start_mark.line, root.start_mark.column)
        why = f"expected {MANIFEST_MAPPING}, got {kind}"
        document.problems.append(Diagnostic("wrong type", why, location=location))
        document.is_broken = True
    return document


class _NotPlain(Exception):
    """Something stands in a file for which its nodes are needed."""


def _plain_mapping(text: str) -> tuple[dict[str, Any], EntryPlaces] | None:
    """The mapping that a text is, and where the entries of its sections stand.

    None if it is anything but mappings, lists and scalars without anchors, tags, merge keys and mistakes.
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
    count = 1  # the root; a key, a value and an item are one each

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
            name = intern(key.value)  # thousands of jobs have the same ones
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
        next_event(), next_event()  # the stream begins, and its document
        tree = collection(next_event(), 0, "")
        is_whole = next_event().__class__ is DocumentEndEvent and next_event().__class__ is StreamEndEvent
    except (_NotPlain, YAMLError):
        return None
    return (tree, places) if is_whole and isinstance(tree, dict) else None


def _entry_places(root: Any, tree: dict[str, Any]) -> EntryPlaces:
    places: EntryPlaces = {}
    met: set[str] = set()
    for section, entries in root.value:
        # Of a key that is there twice the second one is not read, and may be anything.
        is_read = section.value not in met and isinstance(tree.get(section.value), dict)
        met.add(section.value)
        for name, _ in entries.value if is_read else ():
            places.setdefault((section.value, name.value), (name.start_mark.line, name.start_mark.column))
    return places


#: So many hidden characters of one file are shown, the others counted.
_MOST_HIDDEN = 20


def place_behind(text: str) -> tuple[int, int]:
    """The 0-based place at which a text ends."""
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
        if line >= len(lines):  # behind the end of the file
            line, column = len(lines) - 1, len(lines[-1])
        place = line, min(column, len(lines[line]))
        problem, context = str(error.problem or "").strip(), str(error.context or "").strip()
        said = (f"{context}: {problem}" if context else problem) or "the file cannot be read"
        why, fix = _in_words(document, place, said)
    except YAMLError:
        bad, fix = re.search(_UNREADABLE, text), None
        why = f"the character U+{ord(bad.group()):04X} is not allowed" if bad else "the file cannot be read"
        place = place_behind(text[: bad.start()] if bad else "")
    document.report(place, _INVALID, why, fix, breaks=True)
    return None


def _in_words(document: Document, place: tuple[int, int], said: str) -> tuple[str, str | None]:
    """Why a text cannot be parsed, and what to do; in the parser's words where there are no better ones."""
    line = document.lines[place[0]]
    if "that cannot start any token" in said and "\t" in line[: place[1] + 1]:
        return "a tab stands where YAML allows spaces only", "replace it by spaces"
    if said.startswith("while scanning an alias"):
        return "a text that begins with * needs quotes", "put it in quotes"
    if "flow" in said or not said.endswith(_OF_INDENTATION):
        return said, None
    lines = [one for one in document.lines[: place[0]] if re.match(r"\s*[^\s#]", one)]
    columns: list[int] = []  # of the blocks that are open above the line
    for above in map(_indent_of, lines):
        columns = [*(column for column in columns if column < above), above]
    width, opens = _indent_of(line), bool(lines and re.search(r"[:-]\s*(?:\s#.*)?$", lines[-1]))
    if not columns or width in columns or (width > columns[-1] and opens):
        if said.startswith("mapping values") and ": " in line[: place[1]]:
            return 'a text with ": " in it needs quotes', "put it in quotes"
        return said, None
    near = " or ".join(map(str, sorted(sorted(columns, key=lambda column: abs(column - width))[:2])))
    return f"the line is indented by {width} columns, and the lines above by {near}", f"indent it by {near}"


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


#: What the parser says where a line stands in no block that is open.
_OF_INDENTATION = (
    "did not find expected key",
    "did not find expected '-' indicator",
    "mapping values are not allowed in this context",
)


#: What a manifest file is, in the words of a problem.
MANIFEST_MAPPING = "a mapping with keys such as stack, targets, defaults and jobs"


class _Walk:
    """Turns nodes into plain values. A key that is there twice is reported, and the first one stands."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._met: set[int] = set()
        self._open: set[int] = set()
        self._aliased = 0
        self._in_alias = 0

    def value(self, node: Any, depth: int = 0) -> Any:
        if isinstance(node.value, str):
            return self._scalar(node)
        identity = id(node)
        if identity in self._open:
            raise InvalidNode(node, _INVALID, "an anchor contains an alias of itself")
        is_alias = identity in self._met
        self._in_alias += is_alias
        if self._in_alias:
            self._count(node)
        if depth > MAX_DEPTH:
            raise InvalidNode(node, _INVALID, _TOO_DEEP)
        is_mapping = node.__class__.__name__ == "MappingNode"
        kind = "map" if is_mapping else "seq"
        if node.ctag.suffix is not None and str(node.ctag) not in (_CORE + kind, "!"):
            raise _wrong_tag(node)
        self._met.add(identity)
        self._open.add(identity)
        if is_mapping:
            value: Any = self._members(node, depth + 1)
        else:
            value = [self.value(item, depth + 1) for item in node.value]
        self._in_alias -= is_alias
        self._open.discard(identity)
        return value

    def _scalar(self, node: Any) -> Any:
        if self._in_alias:
            self._count(node)
        if "\0" in node.value and not self._in_alias:
            why = "the text contains NUL (U+0000), which neither the service nor the records can store"
            self._document.report(node, _CHARACTER, why, "remove it")
            self._document.is_broken = True
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
            name = intern(key.value)  # thousands of jobs have the same ones
            if name == "<<" and not key.style:
                merged.append((key, member))
            elif (first := keys.setdefault(name, key)) is key:
                is_text = isinstance(member.value, str)
                result[name] = self._scalar(member) if is_text else self.value(member, depth)
            elif not self._in_alias:
                place = self._document.location(first.start_mark.line, first.start_mark.column)
                why = f'"{shorten(name)}" is already defined at {place}'
                self._document.report(key, "duplicate key", why, "keep one of them")
        for key, member in merged:
            sources = self.value(member, depth)
            for source in sources if isinstance(sources, list) else [sources]:
                if not isinstance(source, dict):
                    raise InvalidNode(key, _INVALID, "<< takes a mapping, or a list of mappings")
                for name, one in source.items():
                    result.setdefault(name, one)  # behind its own: the order of a matrix is told by it
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
    """The value of a scalar with a tag of the core schema."""
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


def shorten(text: str, most: int = 60) -> str:
    """A text that a message can quote."""
    harmless = "".join(char if char.isprintable() else " " for char in text)
    return harmless if len(harmless) <= most else harmless[: most - 1] + "…"
