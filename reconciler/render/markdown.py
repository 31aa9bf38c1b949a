"""Plans, drift reports and results as Markdown for a comment on a pull request.

The first line names the stack and the target, so that a workflow finds its own comment. Untrusted text is
rendered as code unless it is plain prose, so it cannot inject Markdown, HTML, mentions or links.
Source of what is cut: docs/reference/cli.md, "Formats".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from math import inf
from typing import TYPE_CHECKING, Any

from reconciler.render import Content, View
from reconciler.render.sheet import Level, Note, Row, sheet_of
from reconciler.text import format_count, printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport

#: GitHub's limit is 65,536 characters; a workflow may add some of its own.
MOST_CHARACTERS = 60_000
#: The first line of a comment about a fleet, by which a workflow finds it.
_FLEET_MARK = "<!-- reconciler: fleet -->"
#: Reserved for the lines that count what was cut.
_ROOM_FOR_COUNTS = 600
_LONGEST_VALUE = 1_000
_FEW_KEYS = 20
_MOST_NOTES = 10
_LONGEST_NOTE = 500
_MOST_SUMS = 20
_LONGEST_KEY = 100
#: Text without special meaning in Markdown, HTML or GitHub's extensions, anywhere in a line.
_PROSE = re.compile(r"(?:[^\W_]|->|[ ,;?()/%+=×→'\"-]|(?<=[^\W_])_+(?=[^\W_])|[.:](?!/))*")
_LINK = re.compile(r"www\.|[^\W\d]:[^ ]|[0-9a-f]{7,}|GH-\d", re.IGNORECASE)
_BACKTICKS = re.compile("`+")


def render(content: Content, value: Any, view: View) -> str:
    """Render a comment. Kept keys are listed with `view.show_keep`, or if they ended badly."""
    sheet = sheet_of(content, value, view)
    by_words: dict[str, list[Row]] = {}
    for row in sheet.folded:
        if view.show_keep or not row.is_quiet:
            by_words.setdefault(row.words, []).append(row)
    stack, target, where = (_short(text, _LONGEST_NOTE) for text in (sheet.stack, sheet.target, sheet.where))
    about = (
        sheet.title
        + (f" of stack {code(stack)}" if stack else "")
        + (f" on {code(target)}" if target else "")
    )
    head = [
        f"<!-- reconciler: {_short(sheet.name.replace('>', '&gt;'))} -->",
        f"**{prose(_short(sheet.last_line))}**",
        *(prose(_short(line.strip(), _LONGEST_NOTE)) for line in sheet.sums[:_MOST_SUMS]),
        *([f"and {len(sheet.sums) - _MOST_SUMS} more lines"] if len(sheet.sums) > _MOST_SUMS else []),
        "",
        about + (f" ({prose(where)})" if where else ""),
        "",
        *_notes(sheet.notes),
    ]
    tail = [f"Digest of the plan: {code(sheet.digest)}", ""] if sheet.digest else []
    room = MOST_CHARACTERS - _ROOM_FOR_COUNTS - _size((*head, *tail))
    sections, left_out = _fit(list(by_words.values()), room)
    lines = [*head, *sections]
    if left_out:
        counts = ", ".join(f"{count} {words}" for words, count in left_out.items())
        lines += [f"**Left out because of the size limit:** {counts}.", ""]
    lines += tail
    # Collapse blank lines.
    shown = [line for before, line in zip(["", *lines], lines, strict=False) if before or line]
    return "\n".join(shown).rstrip("\n") + "\n"


def _fit(sections: Sequence[Sequence[Row]], room: int) -> tuple[list[str], dict[str, int]]:
    """Lay out sections in `room` characters, and count what is cut by its kind.

    Rows that must stay are placed first, by key only if they do not all fit. The rest is cut by whole jobs,
    beginning with those that end no job.
    """
    staying = [rows for rows in sections if rows[0].must_stay]
    others = [rows for rows in sections if not rows[0].must_stay]
    fits = sum(_size(_cut(rows, inf)[0]) for rows in staying) <= room
    blocks: dict[str, list[str]] = {}
    left_out: dict[str, int] = {}
    for rows in (*staying, *sorted(others, key=lambda rows: rows[0].is_cut_first)):
        words, cut = rows[0].words, _cut if fits or not rows[0].must_stay else _keys_only
        blocks[words], missing = cut(rows, room)
        room -= _size(blocks[words])
        if missing:
            left_out[words] = missing
    return [line for rows in (*staying, *others) for line in blocks[rows[0].words]], left_out


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _jobs(rows: Iterable[Row]) -> int:
    return sum(len(row.keys) for row in rows)


def _heading(rows: Sequence[Row]) -> list[str]:
    return [f"#### {_jobs(rows)} {rows[0].words}", ""]


def _keys_only(rows: Sequence[Row], room: float) -> tuple[list[str], int]:
    """Return the keys of a section that fit, and the number of jobs cut."""
    block = [*_heading(rows), *_fenced([key for row in rows for key in row.keys], "")]
    missing, over = 0, _size(block) - room
    while over > 0 and len(block) > 5:
        over -= len(block.pop(-3)) + 1
        missing += 1
    return ([], _jobs(rows)) if over > 0 else (block, missing)


def _cut(rows: Sequence[Row], room: float) -> tuple[list[str], int]:
    """Return the rows of a section that fit, and the number of jobs cut."""
    lines = _heading(rows)
    room -= _size(lines) + 1
    for number, row in enumerate(rows):
        block = list(_row(row))
        if _size(block) > room:
            missing = _jobs(rows[number:])
            few = list(_row(row, most_keys=_FEW_KEYS))
            if len(row.keys) > _FEW_KEYS and _size(few) <= room:
                return [*lines, *few, ""], missing - _FEW_KEYS
            return ([*lines, ""] if number else []), missing
        room -= _size(block)
        lines += block
    return [*lines, ""], 0


def _row(row: Row, most_keys: int | None = None) -> Iterator[str]:
    below = [*_below(row, most_keys)]
    name = "" if len(row.keys) > 1 else row.key
    symbol = row.symbol or row.kind
    # Findings show their place in the manifest.
    place = _short(row.place, _LONGEST_KEY) if row.is_finding and len(row.keys) == 1 else ""
    behind = [text for text in (row.starts, place) if text]
    if not below:
        line = " ".join(filter(None, (code(symbol), f"**{code(name)}**", row.revision)))
        line += f": {prose(row.text)}" if row.text else ""
        yield f"- {line}" + "".join(f" ({code(text)})" for text in behind)
        return
    about = f"<code>{escape(name)}</code>" if name else f"{len(row.keys)} jobs"
    line = f"<code>{escape(symbol)}</code> <b>{about}</b> {row.revision}".rstrip()
    if row.text:
        line += f": {_mixed(row.text, lambda part: f'<code>{escape(part)}</code>', escape)}"
    line += "".join(f" (<code>{escape(text)}</code>)" for text in behind)
    yield from ("", f"<details><summary>{line}</summary>", "")
    yield from below
    yield from ("</details>", "")


def _below(row: Row, most_keys: int | None) -> Iterator[str]:
    if len(row.keys) > 1:
        more = len(row.keys) - (most_keys or len(row.keys))
        yield from _fenced([*row.keys[:most_keys], *([f"… and {more} more"] if more else [])], "")
    lines = []
    for path, before, after, is_sensitive, forces_new_job in row.changes:
        notes = "  # forces a new job" * forces_new_job + "  # sensitive" * is_sensitive
        if before is not None:
            lines.append(f"- {path}: {_short(before)}" + (notes if after is None else ""))
        if after is not None:
            lines.append(f"+ {path}: {_short(after)}{notes}")
    if lines:
        yield from _fenced(lines, "diff")


def _short(text: str, longest: int = _LONGEST_VALUE) -> str:
    more = len(text) - longest
    return f"{text[:longest]}… ({more} more characters)" if more > 0 else text


def _notes(notes: Sequence[Note]) -> Iterator[str]:
    """Render refusals, then warnings: the first ones and a count of the rest."""
    words = {Level.ERROR: "Refused", Level.WARNING: "Warning"}
    for level, word in words.items():
        some = [note for note in notes if note.level is level]
        for note in some[:_MOST_NOTES]:
            about = f"{code(_short(note.key, _LONGEST_KEY))}: " if note.key else ""
            what = f"{note.what}: {note.why}" if note.why else note.what
            fix = f"; fix: {prose(_short(note.fix, _LONGEST_NOTE))}" if note.fix else ""
            yield f"> **{word}:** {about}{prose(_short(what, _LONGEST_NOTE))}{fix}"
            yield ""
        if len(some) > _MOST_NOTES:
            yield f"> {len(some) - _MOST_NOTES} more of these"
            yield ""


# ── a fleet ─────────────────────────────────────────────────────────────────────────────────────────


def render_fleet(report: FleetReport, view: View) -> str:
    """Render a comment about all stacks: a line for each with something to show, then these in full.

    If there is no room, whole stacks are reduced to their lines.
    """
    head = [_FLEET_MARK, f"**{prose(report.last_line)}**", ""]
    shown = sorted((one for one in report.results if not one.is_quiet), key=lambda one: not one.errors)
    listed = []
    for one in shown:
        summary = prose(_one_line(one.last_line))
        if one.errors:
            more = f", and {format_count(len(one.errors) - 1, 'more problem')}" if one.errors[1:] else ""
            message = code(_one_line(one.errors[0].message))
            summary = f"**failed** with exit code {int(one.exit_code)}: {message}{more}"
        listed.append(f"- {code(_one_line(one.root))}: {summary}")
    lines, unlisted = _fitting(listed, MOST_CHARACTERS // 2)
    room = MOST_CHARACTERS - _ROOM_FOR_COUNTS - _size((*head, *lines, ""))
    # The comment about the stack, without its first line.
    texts = {
        one.root: one.parts["markdown"].rstrip("\n").partition("\n")[2] for one in shown if not one.errors
    }
    blocks = [f"### {code(_one_line(root))}\n\n{text}\n" for root, text in texts.items()]
    sections, left_out = _fitting(blocks, room)
    counts = [f"{unlisted} stacks"] * bool(unlisted)
    counts += [f"the details of {left_out} stacks"] * bool(left_out)
    tail = [f"**Left out because of the size limit:** {', '.join(counts)}.", ""] if counts else []
    quiet = len(report.results) - len(shown)
    unchanged = [f"{quiet} with nothing to report.", ""] if quiet else []
    return "\n".join([*head, *lines, *([""] if lines else []), *unchanged, *sections, *tail]).rstrip() + "\n"


def _fitting(blocks: Sequence[str], room: int) -> tuple[list[str], int]:
    """Return the blocks that fit, and the number of those cut."""
    found: list[str] = []
    for block in blocks:
        if len(block) + 1 <= room:
            found.append(block)
            room -= len(block) + 1
    return found, len(blocks) - len(found)


def _one_line(text: str) -> str:
    """Return a sanitized and shortened text on one line."""
    return _short(" ".join(printable(text).split()), _LONGEST_NOTE)


# ── untrusted text ──────────────────────────────────────────────────────────────────────────────────


def code(text: str) -> str:
    """Render a text as a code span, delimited by more backticks than it contains."""
    if not text:
        return ""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def prose(text: str) -> str:
    """Render a text as prose. Code spans stay, and whatever has a special meaning becomes one."""
    return _mixed(text, code, str)


def _mixed(text: str, as_code: Callable[[str], str], as_prose: Callable[[str], str]) -> str:
    parts = text.split("`")
    is_prose = (_PROSE.fullmatch(part) and not _LINK.search(part) for part in parts[::2])
    if len(parts) % 2 == 0 or not all(is_prose):
        return as_code(text)
    return "".join(as_code(part) if number % 2 else as_prose(part) for number, part in enumerate(parts))


def _fenced(lines: Sequence[str], language: str) -> Iterator[str]:
    longest = max(map(len, _BACKTICKS.findall("\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence + language
    yield from lines
    yield fence
    yield ""
