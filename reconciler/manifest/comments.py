"""The comments and blank lines of a manifest, and the value that each belongs to."""

from __future__ import annotations

import re
from itertools import dropwhile

from reconciler.manifest.nodes import ValueNode, leaves

#: A comment, and the space before it; between two values a `#` after a space is nothing else.
_COMMENT = re.compile(r"(?:^|(?<=[ \t\ufeff]))#.*$", re.MULTILINE)
_TRAILING = re.compile(r"[ \t]*(?:^|(?<=[ \t\ufeff]))#.*$")
#: A directive, the start of the document, or a modeline.
_HEAD = re.compile(r"%|---|#\s*yaml-language-server\s*:")


def comments_of(text: str, root: ValueNode) -> list[str]:
    """Every comment between the values, sorted."""
    found: list[str] = []
    end = 0
    for leaf in leaves(root):
        found += _COMMENT.findall(text[end : leaf.start])
        end = leaf.end
    return sorted(comment.rstrip() for comment in [*found, *_COMMENT.findall(text[end:])])


def without_trailing_space(text: str) -> str:
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
        header: list[str] = []
        if self._root.is_block:
            header = self._header()
            self._collection(self._root)
        else:
            header = without_trailing_space(self._text[: self._root.start]).split("\n")[:-1]
            self._leaf(self._root)
        if self._last is not None:
            tail = self._gap(len(self._text), self._last, 0)
            return header, [line for line in tail if line not in ("...", "---")]
        return header, []

    def _header(self) -> list[str]:
        """Directives, the start of the document, modelines, and a comment with a blank line behind it."""
        lines = self._lines_at_head()
        starts = [n for n, line in enumerate(lines) if _HEAD.match(line)]
        blanks = [n for n, line in enumerate(lines) if not line and any(lines[:n])]
        count = max([n + 1 for n in (*starts, *blanks)], default=0)
        if self._root.items:
            self._root.items[0].before += [line.lstrip() for line in lines[count:] if line or count]
        self._end = self._root.start
        if self._root.properties:
            self._leaf(self._root)
        return list(dropwhile(lambda line: not line, lines[:count]))

    def _lines_at_head(self) -> list[str]:
        *lines, beside = [line.rstrip() for line in self._text[: self._root.start].split("\n")]
        return [*lines, beside] if beside else lines

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
            done = [item for item in node.items if (item.key or item.value).start < self._before]
            if not done:
                break
            node = done[-1].value
        return found

    @property
    def _before(self) -> int:
        return self._end if self._last is None else self._last.end + 1
