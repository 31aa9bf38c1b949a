"""Lays text out on the columns of a terminal, by the cells that characters take; nothing is cut.

Escape sequences of ours (colours, links) take no cell. Source of what a character takes: rich.cells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from reconciler.render.style import Style

#: A colour, or one end of a link.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")
_UNITS = re.compile(rf"{_ESCAPE.pattern}|.", re.DOTALL)
#: A line may end before these spaces, unless the next one would read as a command of a CI service.
_SPACES = re.compile(r"( +(?!::))")
#: Spaces before a column.
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
    """Break one line as `fit` does: the rest goes below its last column, if it has columns.

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

    The words of `whole` stay whole, and digests.
    """
    if cell_len(line) <= width:
        return [line]
    start = _indent_of(line)
    hanging = min(hanging, max(0, width - _LEAST_ROOM))
    parts = [*_SPACES.split(line[start:]), ""]
    lines, text, gap = [], " " * start, ""
    for word, spaces in zip(parts[::2], parts[1::2], strict=True):
        length, used = cell_len(word), cell_len(text)
        bare = _ESCAPE.sub("", word).strip(",;:.()")
        stays_whole = bare in whole or _DIGEST.fullmatch(bare) is not None
        if used > start and used + len(gap) + length > width:
            lines.append(text)
            # What stays whole begins further left, if that is where it fits.
            start = max(0, min(hanging, width - length)) if stays_whole else hanging
            text, gap = " " * start, ""
        text += gap
        while not stays_whole and cell_len(text) + cell_len(word) > width:
            cut = _cut(word, width - cell_len(text))
            lines.append(text + word[:cut])
            start, text, word = hanging, " " * hanging, word[cut:]
        text, gap = text + word, spaces
    return list(_closed([*lines, text]))


def _cut(word: str, room: int) -> int:
    """How much of a long word goes on a line: all that fits, or up to a mark in the second half of that."""
    used = end = 0
    for unit in _UNITS.finditer(word):
        used += cell_len(unit[0])
        if used > room and end:
            break
        end = unit.end()
    cut = max(word.rfind(mark, 0, end) for mark in _BREAKS) + 1
    return cut if cut > end // 2 and "\x1b" not in word[:end] else end


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


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────


def table(rows: Sequence[Sequence[str]], style: Style, *, rule: bool = False) -> list[str]:
    """The lines of a table, the head of which is the first row; `rule` draws a line below it.

    Where it is too wide cells are wrapped, those of the first column (names) never; where even that is too
    wide each row becomes a few lines of prose.
    """
    head, *body = rows
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths = natural if style.width is None else _narrowed(rows, natural, style.width - 2 * (len(head) - 1))
    if style.width is not None and widths is None:
        lines = []
        for row in body:
            named = (f"{name.lower()}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True))
            lines += [style.paint(row[0], "bold"), *wrap("  " + "; ".join(named), style.width, hanging=4)]
        return lines
    assert widths is not None
    heads = list(_row_lines(head, widths))
    heads = (
        [*heads, "  ".join("-" * width for width in widths)]
        if rule
        else [style.paint(line, "bold") for line in heads]
    )
    return [*heads, *(line for row in body for line in _row_lines(row, widths))]


def _narrowed(rows: Sequence[Sequence[str]], natural: Sequence[int], room: int) -> list[int] | None:
    """The widths of columns that fit; None if the longest words do not."""
    widths = list(natural)
    words = [
        max(cell_len(word) for cell in column for word in cell.split(" "))
        for column in zip(*rows, strict=True)
    ]
    words[0] = natural[0]
    broken = [natural[0], *(min(_LEAST_ROOM, length) for length in words[1:])]
    # Words are broken only where there is no other way.
    least = next((least for least in (words, broken) if sum(least) <= room), None)
    while least is not None and (over := sum(widths) - room) > 0:
        # The widest becomes narrower, until it is no wider than the next one.
        place = max((n for n, w in enumerate(widths) if w > least[n]), key=widths.__getitem__)
        next_widest = max((w for w in widths if w < widths[place]), default=0)
        widths[place] = max(least[place], widths[place] - over, min(next_widest, widths[place] - 1))
    return widths if sum(widths) <= room else None


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [[row[0]], *(wrap(cell, width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    for parts in zip_longest(*cells, fillvalue=""):
        yield "  ".join(pad(part, width) for part, width in zip(parts, widths, strict=True)).rstrip()
