"""One YAML file: its text, its plain values, and the node tree from which places are read.

The C parser composes the nodes once and they are walked once into dicts, lists and scalars. YAML 1.2's
core schema decides what a plain scalar is: only true and false are booleans, `yes`, `on` and dates are
text. Whatever cannot be read is a problem with a place, never an exception of the parser.
"""

from __future__ import annotations

import errno
import re
import threading
from bisect import bisect_right
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.core.scalar import is_boolean, spelled
from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.files import NotRegular, TooLarge, read_file

#: Nesting beyond this is no manifest, and would exhaust the stack of the C parser.
MAX_DEPTH = 100
#: How many keys and values one file may have; each takes some 400 bytes.
MAX_NODES = 2_000_000
_BEING_MADE = threading.Lock()


class TooDeep(Exception):
    """A text is nested deeper than `MAX_DEPTH`."""


class TooMany(Exception):
    """A text has more than `MAX_NODES` nodes."""


def parser() -> Any:
    """The C parser, as a class: `parser()(text).get_single_node()`.

    It is one class for all threads: what it says of a scalar is told by identity.
    """
    with _BEING_MADE:
        return _made_parser()


@cache
def _made_parser() -> Any:
    """Make the class. The pure parser is six times slower, so its absence is an error and not a fallback."""
    from ruamel.yaml.cyaml import CParser
    from ruamel.yaml.tag import Tag

    implicit = Tag(suffix=None)

    class Parser(CParser):  # type: ignore[misc]
        """Leaves the types of scalars to `_Walk`, and stops at a depth that the C stack bears."""

        IMPLICIT = implicit
        depth = 0
        nodes = 0

        def descend_resolver(self, parent: Any, index: Any) -> None:
            self.depth += 1
            self.nodes += 1
            if self.depth > MAX_DEPTH:
                raise TooDeep
            if self.nodes > MAX_NODES:
                raise TooMany

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
_EXPRESSION = re.compile(r"\$\{([^{}\s\"',]*)\}")
#: A colon with no space behind it separates nothing, unless a quoted key or a collection stands before it.
_INNER_COLON = re.compile(r"(?<=[^\s\"'\[\]{},]):(?=[^\s\[\]{},])")


def _shield(text: str) -> str:
    if any(chr(shield) in text for shield in _SHIELDS):
        return text
    return _INNER_COLON.sub(_COLON, _EXPRESSION.sub(rf"${_OPEN}\1{_CLOSE}", text))


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


def quoted_spans(text: str, root: Any) -> tuple[list[tuple[int, int]], int]:
    """Where quoted text stands, and up to where that is known: all of it, if `root` is what it says."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if root is not None:
        return [_span(node) for node in scalars(root) if node.style in _QUOTES], len(text)
    spans: list[tuple[int, int]] = []
    try:
        for event in _events(_shield(_without_separators(text)[0])):
            if type(event).__name__ == "ScalarEvent" and event.style in _QUOTES:
                spans.append(_span(event))
    except MarkedYAMLError as error:
        if "quoted" in str(error.context) and error.context_mark is not None:
            return spans, error.context_mark.index
        if error.problem_mark is not None:
            return spans, error.problem_mark.index + 1
    except YAMLError:
        return spans, spans[-1][1] if spans else 0  # a character that YAML forbids, somewhere behind
    return spans, len(text)


_QUOTES = ("'", '"')


def _span(node: Any) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


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


def deepest(text: str) -> tuple[int, int]:
    """Where the nesting got too deep: the composer cannot say, so the parser's events are counted."""
    from ruamel.yaml.error import YAMLError

    events = parser()(_shield(_without_separators(text)[0]))
    depth = line = column = 0
    try:
        while depth < MAX_DEPTH:
            event = events.get_event()
            name = type(event).__name__
            depth += name in ("MappingStartEvent", "SequenceStartEvent")
            depth -= name in ("MappingEndEvent", "SequenceEndEvent")
            line, column = event.start_mark.line, event.start_mark.column
    except YAMLError:
        pass  # The last place that could be read will do.
    return line, column


# A character that changes the direction of text may show a line in another order than it is read, and one
# that only some readers take for a line break hides a line: a reviewer would not see what the parser reads.

#: The marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN = re.compile(f"[{DIRECTION}{SEPARATORS}]")


class HiddenCharacter(NamedTuple):
    """One such character: where it stands in the text, and the words of a problem."""

    at: int
    why: str
    fix: str


def hidden_characters(text: str, root: Any) -> Iterator[HiddenCharacter]:
    """Yield those that no file may hold; `root` are the nodes of the text, None if it cannot be parsed."""
    if text.isascii() or (found := list(_HIDDEN.finditer(text))) == []:
        return
    has_separators = any(one[0] in SEPARATORS for one in found)
    spans, known = quoted_spans(text, root) if has_separators else ([], 0)
    starts, ends = [start for start, _ in sorted(spans)], [end for _, end in sorted(spans)]
    for one in found:
        index, name = one.start(), f"U+{ord(one[0]):04X}"
        fix = f'remove it, or write it as "\\u{ord(one[0]):04x}" in double quotes'
        if one[0] not in SEPARATORS:
            yield HiddenCharacter(index, f"{name} changes the direction of the text around it", fix)
            continue
        before = bisect_right(starts, index) - 1
        if index < known and not (before >= 0 and index < ends[before]):
            yield HiddenCharacter(index, f"{name} outside quotes is a line break to some readers only", fix)


# A file that is named like a manifest may be anything: a credentials file behind a link, the environment of a
# process. No line of such a file is shown. A manifest with a mistake is known by a key of its first level.

#: What a manifest says on its first level, and hardly any other file.
_KEYS = frozenset(
    {
        *("stack", "target", "targets", "variables", "limits", "prices"),
        *("policies", "drift", "notify", "records", "defaults", "jobs"),
    }
)
_OURS = "reconciler/"
_ANY_KEY = "|".join(sorted(_KEYS))
#: On the first level of a block, or of a flow mapping that is the whole file, as JSON is.
_SAYS_STACK = re.compile(r"""^stack[ \t]*:|\A\s*\{[^{}\[\]]*?["']?\bstack["']?\s*:""", re.MULTILINE)
_PLAIN_KEY = re.compile(rb"[A-Za-z]+:(?:[ \t]|\Z)")
_PLAIN_STACK = re.compile(rb"^stack:[ \t]+([a-z][a-z0-9-]*)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_NO_NAMES = frozenset((b"true", b"false", b"null"))
_SAYS_KEY = re.compile(
    rf"""^(?:{_ANY_KEY})[ \t]*:(?:\s|\Z)|^apiVersion[ \t]*:[ \t]*["']?{_OURS}"""
    rf"""|\A\s*\{{[^{{}}\[\]]*?["']?\b(?:{_ANY_KEY})["']?\s*:""",
    re.MULTILINE,
)
_SAYS_SENSITIVE = re.compile(r"\bsensitive\b")


#: What a case for policies says on its first level, see `manifest.settings`.
_CASE_KEYS = frozenset(("job", "expect"))
#: What it does not say: jobs that are left out of the stack would count as absent.
_NOT_IN_CASE = (_KEYS | {"apiVersion", "templates"}) - {"target"}
_SAYS_EXPECT = re.compile(r"^expect[ \t]*:", re.MULTILINE)


def says_stack(text: str) -> bool:
    """Whether a text that cannot be parsed is a root file, as far as it looks."""
    return _SAYS_STACK.search(text) is not None


def plain_stack_name(data: bytes) -> str | None:
    """The name in a file that says `stack: NAME` on a line of its own, as nearly all root files do.

    None where only a parser can tell: the file is no plain mapping, or the name is quoted or no name.
    """
    lines = (line for line in data.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    first = next((line for line in lines if line.rstrip() != b"---"), b"")
    names = _PLAIN_STACK.findall(data) if _PLAIN_KEY.match(first) else []
    return names[0].decode() if len(names) == 1 and names[0] not in _NO_NAMES else None


def says_sensitive(text: str) -> bool:
    """Whether a text that cannot be parsed may hold the value of something sensitive."""
    return _SAYS_SENSITIVE.search(text) is not None


def is_manifest_text(text: str) -> bool:
    """Whether a text that cannot be parsed is a manifest, as far as it looks."""
    return _SAYS_KEY.search(text) is not None


def is_manifest_tree(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping is a manifest: one of its keys is."""
    return not _KEYS.isdisjoint(tree) or str(tree.get("apiVersion")).startswith(_OURS)


def is_case_tree(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping is a case for policies, which is no manifest although it may lie among them."""
    return tree.keys() >= _CASE_KEYS and tree.keys().isdisjoint(_NOT_IN_CASE)


def is_case_text(text: str) -> bool:
    """Whether a text that cannot be parsed is a case for policies, as far as it looks."""
    return _SAYS_EXPECT.search(text) is not None and not is_manifest_text(text)


#: A file beyond this is no manifest; what the parser makes of it takes many times as much.
MAX_FILE_BYTES = 32_000_000


def read_manifest_file(path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large; `strerror` says which.
    """
    try:
        return read_file(path, MAX_FILE_BYTES).data
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
LINE_BREAK = re.compile("\r\n|[\n\r]")
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: How a file begins that an editor saved as UTF-16.
UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)
#: How a file begins whose content Git LFS keeps elsewhere.
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
CHARACTER = "character not allowed"
#: NUL cannot stand in a file, but a text in double quotes can say it.
_WRITES_NUL = re.compile(r"\\(?:0|x00|u0000|U00000000)")
_CORE = "tag:yaml.org,2002:"


@lru_cache(maxsize=65_536)
def parse_scalar(text: str) -> Any:
    """The value of an unquoted scalar, by YAML 1.2's core schema; a number or boolean with its spelling."""
    if text in _WORDS:
        return None if _WORDS[text] is None else spelled(_WORDS[text], text)
    if text[0] not in "+-.0123456789":
        return text
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            return spelled(float("-inf" if text[0] == "-" else "inf"), text)
        return spelled(int(text, 8 if text[:2] == "0o" else 16 if text[:2] == "0x" else 10), text)
    return spelled(float(text), text) if _FLOAT.fullmatch(text) else text


class InvalidNode(Exception):
    """A node that has no plain value; `node` is where, the rest is told as a diagnostic."""

    def __init__(self, node: Any, what: str, why: str, fix: str | None = None) -> None:
        self.node, self.what, self.why, self.fix = node, what, why, fix
        super().__init__(why)


@dataclass
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
    _nodes: Any = None
    _members: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    #: What `positions` has found out about the nodes of lists.
    items_by_name: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> Any:
        """The node of the first level, or None if that is no mapping; parsed again if it was forgotten."""
        if self._nodes is None and self.tree:
            self._nodes = compose(self.text)
        return self._nodes

    def keep(self, root: Any, tree: dict[str, Any]) -> None:
        """Take over what the file was found to say."""
        self._nodes, self.tree = root, tree
        self.shows_lines = is_manifest_tree(tree)

    @cached_property
    def shows_lines(self) -> bool:
        """Whether its lines may be shown: those of a file that is no manifest are nobody's business."""
        return is_manifest_text(self.text)

    def forget(self) -> None:
        """Let go of nodes and values, ten times the file; who needs a place again parses again."""
        self._nodes = None
        self._members = {}
        self.items_by_name = {}
        self.tree = dict.fromkeys(self.tree)

    def again(self) -> Document:
        """The same file, parsed again from the bytes that were read."""
        document = parse(self.data, self.path, self.file)
        document.relative = self.relative
        return document

    def members(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """The members of a mapping node by their key, each a key node and a value node."""
        if id(node) not in self._members:
            self._members[id(node)] = {key.value: (key, value) for key, value in reversed(node.value)}
        return self._members[id(node)]

    @cached_property
    def lines(self) -> list[str]:
        """The text, line by line, as the parser counts them."""
        return LINE_BREAK.split(self.text)

    @property
    def says_stack(self) -> bool:
        """Whether it is a root file. One that cannot be read is believed by its look."""
        return "stack" in self.tree or (self.is_broken and says_stack(self.text))

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

    def diagnostic(
        self, line: int, column: int, what: str, why: str, *, fix: str | None = None, length: int = 1
    ) -> Diagnostic:
        """A problem at a 0-based place."""
        return Diagnostic(
            what, why, fix, self.location(line, column), snippet=self.snippet(line, column, length)
        )


def read(path: Path, file: str) -> Document:
    """Read and parse one file. What is wrong with it stands in `problems`."""
    try:
        return parse(read_manifest_file(path), path, file)
    except OSError as error:
        return unreadable_document(path, file, error)


def unreadable_document(path: Path, file: str, error: OSError) -> Document:
    """The document of a file that cannot be read."""
    document = Document(path, file, b"", is_broken=True)
    reason = error.strerror or type(error).__name__
    document.problems.append(Diagnostic("unreadable file", reason, location=Location(file, 1, 1)))
    return document


def parse(data: bytes, path: Path, file: str) -> Document:
    """Parse the bytes of one file."""
    document = Document(path, file, data)
    try:
        document.text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        document.text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "replace")
        before = LINE_BREAK.split(data[: error.start].decode("utf-8-sig", "replace"))
        why = f"byte 0x{data[error.start]:02x} is not UTF-8"
        return _broken(document, len(before) - 1, len(before[-1]), why, "save the file as UTF-8")
    root = _compose(document)
    _report_hidden_characters(document, root)
    if root is not None:
        _walk(document, root)
    return document


def _broken(document: Document, line: int, column: int, why: str, fix: str | None = None) -> Document:
    problem = document.diagnostic(line, column, "invalid YAML", why, fix=fix)
    if says_sensitive(document.text):
        # Nobody knows which line holds the value, so none is shown.
        problem = problem._replace(snippet=None)
    document.problems.append(problem)
    document.is_broken = True
    return document


#: So many characters of one file are shown, the others counted.
_MOST_HIDDEN = 20


def _report_hidden_characters(document: Document, root: Any) -> None:
    found = list(hidden_characters(document.text, root))
    for one in found[:_MOST_HIDDEN]:
        _report_character(document, one.at, one.why, one.fix)
    if (more := len(found) - _MOST_HIDDEN) > 0:
        _report_character(document, found[_MOST_HIDDEN].at, f"{more:,} more like this", None)


def _report_character(document: Document, index: int, why: str, fix: str | None) -> None:
    before = LINE_BREAK.split(document.text[:index])
    problem = document.diagnostic(len(before) - 1, len(before[-1]), CHARACTER, why, fix=fix)
    if document.is_broken and says_sensitive(document.text):
        problem = problem._replace(snippet=None)
    document.problems.append(problem)


def _compose(document: Document) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return compose(document.text)
    except TooDeep:
        line, column = deepest(document.text)
        _broken(document, line, column, f"nested more than {MAX_DEPTH} levels deep")
    except TooMany:
        _broken(document, 0, 0, f"more than {MAX_NODES:,} keys and values", "split the file")
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _broken(document, *_inside(document, mark), *_syntax_words(document, error, mark))
    except YAMLError:
        bad = _UNREADABLE.search(document.text)
        before = LINE_BREAK.split(document.text[: bad.start()] if bad else "")
        why = f"the character U+{ord(bad.group()):04X} is not allowed" if bad else "the file cannot be read"
        _broken(document, len(before) - 1, len(before[-1]), why)
    return None


def _inside(document: Document, mark: Any) -> tuple[int, int]:
    """The place of a mark; one behind the end of the file is moved to its last line."""
    lines = document.lines
    if mark is None:
        return 0, 0
    if mark.line < len(lines):
        return mark.line, min(mark.column, len(lines[mark.line]))
    return len(lines) - 1, len(lines[-1])


def _syntax_words(document: Document, error: Any, mark: Any) -> tuple[str, str | None]:
    problem = str(error.problem or "").strip()
    if problem == "but found another document":
        return (
            "a manifest file must contain a single document; a second one starts here",
            "split the file at ---",
        )
    if mark is not None and mark.line < len(document.lines):
        rest = document.lines[mark.line][mark.column :]
        if rest.startswith("\t"):
            return "the line is indented with a tab", "indent with spaces"
        if problem == "found character that cannot start any token" and rest[:1] in "@`%":
            return f"text cannot start with {rest[:1]}", "quote it"
    context = str(error.context or "").strip()
    return (f"{context}: {problem}" if context else problem) or "the file cannot be read", None


def _walk(document: Document, root: Any) -> None:
    if _WRITES_NUL.search(document.text) and (
        places := [node for node in scalars(root) if "\0" in node.value]
    ):
        for node in places:
            why = "the text contains NUL (U+0000), which neither the service nor the records can store"
            _report(document, InvalidNode(node, CHARACTER, why, "remove it"))
        document.is_broken = True
        return
    walk = _Walk(document)
    try:
        tree = walk.value(root, 0)
    except InvalidNode as error:
        _report(document, error)
        document.is_broken = True
        return
    if isinstance(tree, dict):
        document.keep(root, tree)
    elif tree is not None:
        # What it says is nobody's business.
        document.problems.append(_no_mapping(document, root, tree))
        document.is_broken = True


#: What a manifest file is, in the words of a problem.
MANIFEST_MAPPING = "a mapping with keys such as stack, targets, defaults and jobs"


def _no_mapping(document: Document, root: Any, tree: Any) -> Diagnostic:
    place = document.location(root.start_mark.line, root.start_mark.column)
    if document.data.startswith(_LFS_POINTER):
        why = "Git LFS keeps the content of this file elsewhere"
        fix = "keep manifests out of Git LFS, or run git lfs pull where they are checked out"
        return Diagnostic("Git LFS pointer", why, fix, place)
    kind = "a list" if isinstance(tree, list) else "a single value"
    why = f"expected {MANIFEST_MAPPING}, got {kind}"
    return Diagnostic("wrong type", why, location=place)


def _report(document: Document, error: InvalidNode) -> None:
    start, end = error.node.start_mark, error.node.end_mark
    length = end.column - start.column if end is not None and end.line == start.line else 1
    document.problems.append(
        document.diagnostic(start.line, start.column, error.what, error.why, fix=error.fix, length=length)
    )


class _Walk:
    """Turns nodes into plain values. A key that is there twice is reported, and the first one stands."""

    def __init__(self, document: Document) -> None:
        from ruamel.yaml.nodes import MappingNode, ScalarNode

        self._document = document
        self._mapping, self._scalar = MappingNode, ScalarNode
        self._implicit = parser().IMPLICIT
        # Without an alias no node is met twice, and nothing has to be counted.
        self._counts = "*" in document.text and "&" in document.text
        self._met: set[int] = set()
        self._open: set[int] = set()
        self._aliased = 0
        self._in_alias = 0

    def value(self, node: Any, depth: int) -> Any:
        cls = node.__class__
        if cls is self._scalar:
            if self._in_alias:
                self._count(node)
            if node.ctag is self._implicit:
                return node.value if node.style else parse_scalar(node.value)
            return _tagged(node)
        if node.ctag is not self._implicit:
            _check_tag(node, "map" if cls is self._mapping else "seq")
        if self._counts:
            return self._counted(node, depth)
        return self._collection(node, depth + 1)

    def _collection(self, node: Any, depth: int) -> Any:
        value = self.value
        if node.__class__ is not self._mapping:
            return [value(item, depth) for item in node.value]
        scalar, implicit = self._scalar, self._implicit
        result: dict[str, Any] = {}
        merged: list[Any] = []
        for key, member in node.value:
            if key.__class__ is not scalar or key.ctag is not implicit:
                _check_key(key, scalar)
            name = key.value
            if name == "<<" and not key.style:
                merged.append((key, member))
                continue
            if name in result:
                self._duplicate(node, key)
                continue
            if member.__class__ is scalar and member.ctag is implicit and not self._in_alias:
                result[name] = member.value if member.style else parse_scalar(member.value)
            else:
                result[name] = value(member, depth)
        self._merge(result, merged, depth)
        return result

    def _merge(self, result: dict[str, Any], merged: list[Any], depth: int) -> None:
        for key, member in merged:
            sources = self.value(member, depth)
            for source in sources if isinstance(sources, list) else [sources]:
                if not isinstance(source, dict):
                    raise InvalidNode(key, "invalid YAML", "<< takes a mapping, or a list of mappings")
                for name, value in source.items():
                    result.setdefault(name, value)

    def _duplicate(self, node: Any, second: Any) -> None:
        first = next(key for key, _ in node.value if key.value == second.value)
        place = self._document.location(first.start_mark.line, first.start_mark.column)
        why = f'"{shorten(second.value)}" is already defined at {place}'
        diagnostic = InvalidNode(second, "duplicate key", why, "keep one of them")
        if not self._in_alias:
            _report(self._document, diagnostic)

    def _counted(self, node: Any, depth: int) -> Any:
        identity = id(node)
        if identity in self._open:
            raise InvalidNode(node, "invalid YAML", "an anchor contains an alias of itself")
        if depth > MAX_DEPTH:
            raise InvalidNode(node, "invalid YAML", f"nested more than {MAX_DEPTH} levels deep")
        is_alias = identity in self._met
        self._met.add(identity)
        self._open.add(identity)
        self._in_alias += is_alias
        if self._in_alias:
            self._count(node)
        value = self._collection(node, depth + 1)
        self._in_alias -= is_alias
        self._open.discard(identity)
        return value

    def _count(self, node: Any) -> None:
        self._aliased += 1
        if self._aliased > MAX_ALIASED_NODES:
            raise InvalidNode(
                node, "invalid YAML", f"aliases expand to more than {MAX_ALIASED_NODES:,} values in this file"
            )


def _check_tag(node: Any, kind: str) -> None:
    if str(node.ctag) not in (_CORE + kind, "!"):
        raise _wrong_tag(node)


def _wrong_tag(node: Any) -> InvalidNode:
    tag = shorten(str(node.ctag).replace(_CORE, "!!"))
    return InvalidNode(
        node, "tag not allowed", f"{tag} is not one of !!str, !!int, !!float, !!bool, !!null, !!map, !!seq"
    )


def _check_key(key: Any, scalar: type) -> None:
    if key.__class__ is not scalar:
        raise InvalidNode(key, "invalid YAML", "a key must be text, not a list or a mapping")
    _tagged(key)


def _tagged(node: Any) -> Any:
    """The value of a scalar with a tag of the core schema."""
    tag = str(node.ctag)
    if tag in (_CORE + "str", "!"):
        return node.value
    if not tag.startswith(_CORE) or tag.removeprefix(_CORE) not in ("int", "float", "bool", "null"):
        raise _wrong_tag(node)
    kind = tag.removeprefix(_CORE)
    value = parse_scalar(node.value)
    types: dict[str, Any] = {"int": int, "float": (int, float), "bool": int, "null": type(None)}
    if not isinstance(value, types[kind]) or is_boolean(value) != (kind == "bool"):
        raise InvalidNode(node, "wrong type", f"this value is not a valid {kind}")
    return spelled(float(value), node.value) if kind == "float" else value


def shorten(text: str, most: int = 60) -> str:
    """A text that a message can quote."""
    harmless = "".join(char if char.isprintable() else " " for char in text)
    return harmless if len(harmless) <= most else harmless[: most - 1] + "…"
