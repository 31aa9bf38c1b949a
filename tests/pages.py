"""The documentation as tests read it: headings, sections, tables, code blocks. Paths start at the root."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
_HEADING = re.compile(r"^(#+) (.+)$", re.M)


class Heading(NamedTuple):
    """A heading; `begin` and `end` are the offsets of its line."""

    level: int
    title: str
    begin: int
    end: int


@cache
def text_of(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def headings(page: str) -> tuple[Heading, ...]:
    """Return the headings of a page, in order, without comments in code blocks."""
    prose = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text_of(page))
    return tuple(Heading(len(m[1]), m[2], m.start(), m.end()) for m in _HEADING.finditer(prose))


def section(page: str, title: str) -> str:
    """Return the text of the section with that heading, including subsections."""
    [own] = (heading for heading in headings(page) if heading.title == title)
    ends = (h.begin for h in headings(page) if h.begin > own.begin and h.level <= own.level)
    return text_of(page)[own.end : next(ends, None)]


def table(page: str, title: str, first: str) -> list[list[str]]:
    """Return the rows of the table in a section whose first column is titled `first`."""
    lines = section(page, title).splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    rows = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        # A bar in a cell is escaped.
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def names(rows: list[list[str]]) -> list[str]:
    """Return the code in the first cells of these rows."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def fenced(page: str, title: str, language: str) -> str:
    """Return the first code block in that language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```$", section(page, title), re.M | re.S)
    assert found is not None
    return found[1]
