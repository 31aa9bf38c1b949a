"""One YAML file: its text, its plain values, and the node tree from which places are read.

The C parser composes the nodes once and they are walked once into dicts, lists and scalars. YAML 1.2's
core schema decides what a plain scalar is: only true and false are booleans, `yes`, `on` and dates are
text. Whatever cannot be read is a problem with a place, never an exception of the parser.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from reconciler.core.scalar import is_boolean, spelled
from reconciler.errors import Diagnostic, Location, Snippet
from reconciler.manifest.composition import (
    MAX_DEPTH,
    MAX_NODES,
    TooDeep,
    TooMany,
    compose,
    deepest,
    parser,
    scalars,
)
from reconciler.manifest.file_content import read_manifest_file
from reconciler.manifest.hidden_characters import hidden_characters
from reconciler.manifest.recognition import (
    is_manifest_text,
    is_manifest_tree,
    says_sensitive,
    says_stack,
)

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
