"""How text is laid out on so many columns: by the cells that characters take, and nothing is cut.

Escape sequences of ours (colours, links) take no cell. Source of what a character takes: rich.cells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from reconciler.render.style import PLAIN, Style

#: A colour, or one end of a link.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")
_UNITS = re.compile(rf"{_ESCAPE.pattern}|.", re.DOTALL)
#: A line may end before these spaces, unless the next one would read as a command of a CI service.
_SPACES = re.compile(r"( +(?!::))")
#: What stands before a column.
_COLUMN = re.compile(r"(?<=\S) {2,}(?=\S)")
_RESET = "\x1b[0m"
_LINK_END = "\x1b]8;;\x1b\\"
#: Below this everything takes one cell; looking further is slower.
_NARROW = "\u0300"
#: Where a long word is broken best: behind these.
_BREAKS = "-_/.,:;=&?"
#: What is copied as a whole stays whole, however narrow the terminal is.
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LEAST_ROOM = 12
#: Between two columns of a table.
_GAP = 2


def cell_len(text: str) -> int:
    """How many cells of a terminal a text takes; escape sequences of ours take none."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if text.isascii() or max(text) < _NARROW:
        return len(text)
    # Of what an unchanged plan shows nothing needs it.
    from rich.cells import cell_len as cells_of

    return cells_of(text)


def pad(text: str, width: int) -> str:
    """A text with spaces behind it, as many cells wide as that."""
    return text + " " * (width - cell_len(text))


def fit(text: str, style: Style, whole: Collection[str] = ()) -> str:
    """Break the lines of a text that are wider than the terminal; the words of `whole` stay whole."""
    if style.width is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in fit_line(line, style, whole))


def fit_line(line: str, style: Style, whole: Collection[str] = (), hanging: int = 0) -> list[str]:
    """Break one line as `fit` does: the rest stands below its last column, if it has columns.

    Only those in the left half count; otherwise the rest is indented by `hanging`, or a little.
    """
    width = style.width
    if width is None or cell_len(line) <= width:
        return [line]
    columns = [found.end() for found in _COLUMN.finditer(_ESCAPE.sub("", line))]
    below = max((column for column in columns if column <= width // 2), default=0)
    return wrap(line, width, whole, below or hanging or _indent_of(line) + 2)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def wrap(line: str, width: int, whole: Collection[str] = (), hanging: int = 0) -> list[str]:
    """Break one line at spaces, and words that are wider than a line; `hanging` indents the rest.

    The words of `whole` stay whole.
    """
    if cell_len(line) <= width:
        return [line]
    indent = _indent_of(line)
    lines = _BrokenLine(indent, min(hanging, max(0, width - _LEAST_ROOM)), width)
    for word, spaces in _words(line[indent:]):
        length = cell_len(word)
        stays_whole = _stays_whole(word, whole)
        if not lines.has_room(length):
            # What stays whole stands further left, if that is where it fits.
            lines.end(width - length if stays_whole else None)
        if stays_whole:
            lines.add(word)
        else:
            first, *others = _pieces(word, lines.room, width - lines.hanging)
            lines.add(first)
            for piece in others:
                lines.end()
                lines.add(piece)
        lines.gap = spaces
    return list(_closed(lines.finished))


class _BrokenLine:
    """A line that becomes several; `gap` are the spaces before the next word, if the line goes on."""

    def __init__(self, indent: int, hanging: int, width: int) -> None:
        self.hanging, self._width = hanging, width
        self._done: list[str] = []
        self._begin(indent)

    def _begin(self, indent: int) -> None:
        self._text, self._used, self._start, self.gap = " " * indent, indent, indent, ""

    @property
    def room(self) -> int:
        """How many cells are left."""
        return self._width - self._used - len(self.gap)

    def has_room(self, length: int) -> bool:
        """Whether a word goes on this line; on an empty one it has to."""
        return self._used == self._start or length <= self.room

    def add(self, text: str) -> None:
        """Go on with a text."""
        self._text += self.gap + text
        self._used += len(self.gap) + cell_len(text)
        self.gap = ""

    def end(self, most: int | None = None) -> None:
        """Begin the next line; `most` is how far it may be indented at most."""
        self._done.append(self._text)
        self._begin(self.hanging if most is None else max(0, min(self.hanging, most)))

    @property
    def finished(self) -> list[str]:
        """All lines."""
        return [*self._done, self._text]


def _words(text: str) -> Iterator[tuple[str, str]]:
    """The words of a line, each with the spaces behind it."""
    parts = [*_SPACES.split(text), ""]
    yield from zip(parts[::2], parts[1::2], strict=False)


def _stays_whole(word: str, whole: Collection[str]) -> bool:
    bare = _ESCAPE.sub("", word).strip(",;:.()")
    return bare in whole or _DIGEST.fullmatch(bare) is not None


def _pieces(word: str, first: int, others: int) -> Iterator[str]:
    """A word in pieces of so many cells."""
    room, piece, used = max(1, first), "", 0
    if word.isascii() and "\x1b" not in word:  # the same, and quicker
        while len(word) > room:
            cut = _best_cut(word[:room])
            yield word[:cut]
            word, room = word[cut:], max(1, others)
        yield word
        return
    for unit in _UNITS.findall(word):
        length = cell_len(unit)
        if used + length > room:
            cut = _best_cut(piece)
            yield piece[:cut]
            piece, room = piece[cut:], max(1, others)
            used = cell_len(piece)
        piece += unit
        used += length
    yield piece


def _best_cut(piece: str) -> int:
    """Where a piece that is full ends best: behind a mark in its second half, if there is one."""
    if "\x1b" in piece:
        return len(piece)
    cut = max(piece.rfind(mark) for mark in _BREAKS) + 1
    return cut if cut > len(piece) // 2 else len(piece)


def _closed(lines: Sequence[str]) -> Iterator[str]:
    """Let no colour and no link run over the end of a line, where a table may go on beside it."""
    colour = link = ""
    for line in lines:
        begin = link + colour
        for found in _ESCAPE.findall(line):
            if found.startswith("\x1b["):
                colour = "" if found == _RESET else found
            else:
                link = "" if found == _LINK_END else found
        text = line.lstrip(" ")
        end = (_RESET if colour else "") + (_LINK_END if link else "")
        yield line[: len(line) - len(text)] + begin + text + end


# --- tables


def table(rows: Sequence[Sequence[str]], style: Style, *, rule: bool = False) -> list[str]:
    """The lines of a table, the head of which is the first row; `rule` draws a line below it.

    Where it is too wide cells are wrapped, those of the first column (names) never; where even that is too
    wide each row becomes a few lines of prose.
    """
    head, *body = rows
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths = natural if style.width is None else _narrowed(rows, natural, style.width)
    if widths is None:
        return [line for row in body for line in _block(head, row, style)]
    below = ["  ".join("-" * width for width in widths)] if rule else []
    colour = style if not rule else PLAIN
    heads = [colour.paint(line, "bold") for line in _row_lines(head, widths)]
    return [*heads, *below, *(line for row in body for line in _row_lines(row, widths))]


def _narrowed(rows: Sequence[Sequence[str]], natural: Sequence[int], width: int) -> list[int] | None:
    """The widths of columns that fit; None if the longest words do not."""
    room = width - _GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return list(natural)
    words = [natural[0], *(max(map(_longest_word, column)) for column in [*zip(*rows, strict=True)][1:])]
    broken = [natural[0], *(min(_LEAST_ROOM, length) for length in words[1:])]
    # Words are broken only where there is no other way.
    least = next((least for least in (words, broken) if sum(least) <= room), None)
    if least is None:
        return None
    widths = list(natural)
    while (over := sum(widths) - room) > 0:
        # The widest becomes narrower, until it is no wider than the next one.
        place = max((n for n, w in enumerate(widths) if w > least[n]), key=widths.__getitem__)
        next_widest = max((w for w in widths if w < widths[place]), default=0)
        widths[place] = max(least[place], widths[place] - over, min(next_widest, widths[place] - 1))
    return widths


def _longest_word(cell: str) -> int:
    return max(map(cell_len, cell.split(" ")))


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    first, *others = zip(row, widths, strict=True)
    cells = [[first[0]], *(wrap(cell, width) for cell, width in others)]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        yield "  ".join(pad(part, width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _block(head: Sequence[str], row: Sequence[str], style: Style) -> Iterator[str]:
    """One row as its name and, below that, the other cells behind the names of their columns."""
    assert style.width is not None
    yield style.paint(row[0], "bold")
    named = (f"{name.lower()}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True))
    yield from wrap("  " + "; ".join(named), style.width, hanging=4)
