"""The node tree of one YAML text, by the C parser, bounded in depth and number."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

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
