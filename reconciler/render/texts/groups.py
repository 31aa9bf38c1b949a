"""Groups of jobs as text: what is said of all of them, their keys, and what they start."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from reconciler.core.values import Change
from reconciler.decide.groups import in_braces
from reconciler.render.layout import cell_len, fit_line
from reconciler.render.style import Place, Style
from reconciler.text import printable

#: What stands below the line of a group.
INDENT = " " * 8
#: So wide is a list of keys where nothing says how wide the text may be.
WIDTH = 100
#: So many lines of keys are shown where none of them has to be read.
_MOST_LINES = 2
#: Braces are for lists that become this much shorter.
_WORTH = 3
#: So many different things that jobs start are shown.
_MOST_STARTS = 10
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


class GroupText(NamedTuple):
    """What is shown of one group. `names` are its keys; `revisions` one for each, or none at all.

    `starts` says for each job what it starts, if anything. `is_cut` lets a long list of keys end early.
    `place` is where the manifest has the first key, and `is_sweep` whether it has all of them there.
    """

    symbol: str
    word: str
    colour: str
    names: Sequence[str]
    explanation: str
    revisions: Sequence[str] = ()
    starts: Sequence[str] = ()
    changes: Sequence[Change] = ()
    is_cut: bool = False
    place: Place | None = None
    is_sweep: bool = False

    @property
    def name(self) -> str:
        """The key, or how many there are."""
        return f"{len(self.names)} jobs" if len(self.names) > 1 else printable(self.names[0])

    @property
    def revision(self) -> str:
        """The revision that all of them have."""
        return self.revisions[0] if len(set(self.revisions)) == 1 else ""

    @property
    def has_bare_keys(self) -> bool:
        """Whether no revision stands beside the keys."""
        return bool(self.revision) or not self.revisions

    @property
    def keys(self) -> list[str]:
        """The keys of several, with revisions where these differ."""
        if self.has_bare_keys:
            return list(self.names)
        return [
            f"{key} {revision}".rstrip() for key, revision in zip(self.names, self.revisions, strict=True)
        ]


def width_of_names(names: Iterable[str], style: Style) -> int:
    """How wide a column of names is: a third of a narrow terminal, which a longer name goes beyond."""
    widest = max(map(cell_len, names), default=0)
    return widest if style.width is None else min(widest, style.width // 3)


def render_group(group: GroupText, style: Style, width: int) -> Iterator[str]:
    """The lines of one group; its name is `width` wide."""
    word = style.paint(f"{group.symbol:>3} {group.word:<9}", group.colour)
    revision = f"{group.revision:<4} " if group.revisions else ""
    name = style.link(group.name, group.place) + " " * (width - cell_len(group.name))
    line = printable_line(f"{word} {name}  {revision}", group.explanation)
    yield from fit_line(line, style, group.names, len(INDENT))
    if len(group.names) > 1:
        yield from render_keys(
            group.keys, KeyList(group.is_cut, group.is_sweep and group.has_bare_keys, style.width)
        )
    yield from _starts(group.starts, is_folded=len(group.names) > 1)
    for change in group.changes:
        yield INDENT + render_change(change)


def _starts(starts: Sequence[str], *, is_folded: bool) -> Iterator[str]:
    counts = Counter(filter(None, starts))
    if not is_folded:
        yield from (INDENT + printable(text) for text in counts)
        return
    for text, count in counts.most_common(_MOST_STARTS):
        number = "each" if count == len(starts) else f"{count} jobs" if count > 1 else "1 job"
        yield f"{INDENT}{number}: {printable(text)}"
    if len(counts) > _MOST_STARTS:
        more = sum(count for _, count in counts.most_common()[_MOST_STARTS:])
        yield f"{INDENT}and {more} more jobs, which start other things"


class KeyList(NamedTuple):
    """How the keys of a group are listed: whether a long list ends early, and whether it is one sweep."""

    is_cut: bool = False
    is_sweep: bool = False
    width: int | None = None


def render_keys(keys: Iterable[str], how: KeyList) -> Iterator[str]:
    """The keys of a group, several on a line; a list that is cut says how many more there are.

    On a terminal many members of one sweep are listed as a shell would write them:
    `lr-{0_1,0_2}-batch-{32,64}`. Elsewhere each key stands as it is, on one line, for
    programs such as grep.
    """
    listed = [printable(key) for key in keys]
    width = how.width or WIDTH
    lines = _wrapped(listed, width)
    if len(lines) <= _MOST_LINES:
        yield from lines
        return
    if how.width is None and not how.is_cut:
        yield INDENT + ", ".join(listed)
        return
    if how.is_sweep:
        braced = _braced_lines(listed, width)
        lines = braced if len(braced) * _WORTH <= len(lines) else lines
    if not how.is_cut or len(lines) <= _MOST_LINES:
        yield from lines
        return
    lines = _wrapped(listed, width)
    # What is cut away makes room for the words that count it.
    shown = sum(line.count(",") for line in lines[:_MOST_LINES])
    while len(lines := _wrapped([*listed[:shown], f"and {len(listed) - shown} more"], width)) > _MOST_LINES:
        shown -= 1
    yield from lines


def _braced_lines(keys: Iterable[str], width: int) -> list[str]:
    """The keys in braces, broken behind commas only."""
    words = [word.replace(",", ", ") for word in in_braces(keys)]
    return [line.replace(", ", ",") for word in words for line in _wrapped([word], width)]


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    text = ", ".join(words)
    return textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT, **_WHOLE_WORDS)


def printable_line(ours: str, theirs: str) -> str:
    """Join text of ours, which may hold colours, and text from outside, which must not."""
    return f"{ours}{printable(theirs)}".rstrip()


def render_change(change: Change) -> str:
    """One field with its value before and after."""
    mark = "  # forces a new job" if change.forces_new_job else ""
    note = "  # sensitive" if change.sensitive else ""
    return printable(f"{change.path}: {_value(change.before)} -> {_value(change.after)}") + mark + note


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)
