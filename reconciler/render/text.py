"""The building blocks of the text format.

Untrusted text goes through `printable` here. Tables and lists of keys fit the width of the terminal, with
wide characters counted by rich.cells; other lines are not wrapped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.errors import FOLD_FROM, Diagnostic, Severity
from reconciler.render import PLAIN, Content, Style, View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.values import Change, Denial, PlanWarning, Source, TargetIdentity
    from reconciler.decide.fleet import FleetReport, StackResult


_Item = TypeVar("_Item")
#: The parts of names between hyphens, each with its alternatives.
_Word = tuple[tuple[str, ...], ...]


def cell_len(text: str) -> int:
    """Return the width of a text in terminal cells, without our own escape sequences."""
    if "\x1b" in text:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # A fast path: every character below the combining marks is one cell wide.
    if text.isascii() or max(text) < "\u0300":
        return len(text)
    # An unchanged plan does not need it.
    from rich.cells import cell_len as cells_of

    return cells_of(text)


def pad(text: str, width: int) -> str:
    """Pad a text with spaces to a width in cells."""
    return text + " " * (width - cell_len(text))


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────


def table(
    rows: Sequence[Sequence[str]],
    style: Style,
    order: Sequence[str] = (),
    *,
    stay: int = 2,
    rule: bool = False,
    wraps: bool = True,
) -> list[str]:
    """Lay out a table. The first row is its head; `rule` draws a line below it.

    A table that is too wide for the terminal loses its least important columns, and its head then ends with
    `…`. `order` lists the heads by importance (default: from left to right); the first `stay` columns are
    never dropped. If `wraps`, wide cells are then broken at spaces. After a single word wider than two fifths
    of the terminal, such as a long name, the row continues on the next line.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    by_worth, ellipsis = [rows[0].index(head) for head in order or rows[0]], ""
    name = by_worth[0]
    if style.width is not None and sum(widths) + 2 * (len(widths) - 1) > style.width:
        least = list(widths)
        if wraps:
            widths[name] = least[name] = min(widths[name], style.width * 2 // 5)
            for place in {*by_worth} - {name}:
                head, *cells = columns[place]
                if place in by_worth[:stay]:
                    words, needed = head.split(), min(widths[place], _NARROW)
                else:  # drop the column rather than break many cells or overrun the width
                    words = " ".join(columns[place]).split()
                    needed = sorted(map(cell_len, cells or [head]))[-1 - len(cells) // 4]
                least[place] = max(needed, *map(cell_len, words))
        room = style.width + 2
        while len(by_worth) > stay and sum(least[place] + 2 for place in by_worth) > room:
            by_worth.pop()
            room, ellipsis = style.width + 2 - cell_len("  …"), "  …"
        excess = sum(widths[place] + 2 for place in by_worth) - room
        while excess > 0 and (broken := [place for place in by_worth if widths[place] > least[place]]):
            widths[max(broken, key=widths.__getitem__)] -= 1
            excess -= 1
    shown, lines = sorted(by_worth), list[list[str]]()
    for row in rows:
        cells, below = list[list[str]](), 0
        for text, width in ((row[place], widths[place]) for place in shown):
            fits = cell_len(text) <= width
            cell = [text] if fits else _broken(re.split("(?= )", style.redact(text)), width)
            cells.append([""] * below + cell)
            below = len(cells[-1]) if max(map(cell_len, cell)) > width else below
        across = zip_longest(*cells, fillvalue="")
        padded = (map(pad, line, (widths[place] for place in shown)) for line in across)
        lines.append(["  ".join(line).rstrip() for line in padded])
    heads, *body = lines
    heads[0] += ellipsis
    ruled = ["  ".join("-" * widths[place] for place in shown)]
    heads = [*heads, *ruled] if rule else [style.paint(head, "bold") for head in heads]
    return [*heads, *chain.from_iterable(body)]


def _broken(parts: Iterable[str], width: int, indent: str = "") -> list[str]:
    """Wrap the parts of a text at a width, only between parts."""
    lines = [indent]
    for part in parts:
        if lines[-1] != indent and cell_len(lines[-1] + part) > width:
            lines.append(indent)
        lines[-1] += part if lines[-1] != indent else part.lstrip()
    return lines


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────

#: Indent of the lines below that of a job.
INDENT = " " * 8
#: Minimum width of a wrapped column.
_NARROW = 20
#: Width of a list of keys if the output has none.
WIDTH = 100
#: How an empty cell of a table is shown.
NOTHING = "-"
#: Maximum number of lines of keys that need no attention.
_MOST_LINES = 2
#: Marks a change that an active job cannot take.
FORCES_NEW_JOB = "  # forces a new job"
#: Maximum number of different starts shown.
_MOST_STARTS = 10
#: Maximum number of problems on a terminal without `-v`.
_MOST_PROBLEMS = 20


def printable_line(ours: str, theirs: str) -> str:
    """Join trusted text, which may hold colours, and untrusted text."""
    return f"{ours}{printable(theirs)}".rstrip()


def render_head(stack: str, target: TargetIdentity) -> str:
    """The first line of a text about a stack."""
    return printable(f"Stack {stack} on {target.name} ({target.about})")


def spell_place(source: Source) -> str:
    """A place in the manifest, as `FILE:LINE:COLUMN`."""
    return printable(f"{source.file}:{source.line}:{source.column}")


# ── folding ─────────────────────────────────────────────────────────────────────────────────────────
#
# Five or more items that look the same are shown as one group, unless `-v` is given.
# Source: docs/reference/cli.md, "Text output".


def group_by(
    items: Iterable[_Item],
    look: Callable[[_Item], Hashable],
    place: Callable[[_Item], int] = lambda _: 0,
    *,
    is_folded: bool = True,
) -> list[tuple[_Item, ...]]:
    """Group items of equal `look` if there are many. A group has the position of its first item.

    Within a group items are sorted by `place`.
    """
    items = list(items)
    looks = [look(item) if is_folded else None for item in items]
    many = {one for one, count in Counter(looks).items() if is_folded and count >= FOLD_FROM}
    found: dict[object, list[_Item]] = {}
    for number, (item, one) in enumerate(zip(items, looks, strict=True)):
        found.setdefault(one if one in many else number, []).append(item)
    return [tuple(sorted(members, key=place)) for members in found.values()]


def place_in(keys: Iterable[str]) -> Callable[[Any], int]:
    """Return a sort key: the position of an item's key among `keys`, unknown ones last."""
    places = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return lambda item: places.get(item.key, len(places))


def without_name(text: str, key: str, instead: str = "the job") -> str:
    """Replace the names of a key's jobs in a text, so that texts about other keys compare equal."""
    if key not in text:  # a pattern for each of many keys is slow to compile
        return text
    return re.sub(rf"(?<![\w-]){re.escape(key)}(?:-r\d+)?(?![\w-])", instead, text)


def brace_expansion(names: Iterable[str]) -> list[str]:
    """Compress names by brace expansion, as in a shell.

    The words expand to exactly the given names, each once.
    """
    words: list[_Word] = [tuple((part,) for part in name.split("-")) for name in dict.fromkeys(names)]
    for place in reversed(range(max(map(len, words), default=0))):
        alike: dict[object, list[_Word]] = {}
        for word in words:
            rest = (len(word), word[:place], word[place + 1 :]) if len(word) > 1 else word
            alike.setdefault(rest, []).append(word)
        words = [
            (*word[:place], tuple(part for other in same for part in other[place]), *word[place + 1 :])
            if len(same) > 1
            else word
            for same in alike.values()
            for word in same[:1]
        ]
    return [
        "-".join(parts[0] if len(parts) == 1 else "{" + ",".join(parts) + "}" for parts in word)
        for word in words
    ]


def grouping_key_of_changes(changes: Iterable[Change]) -> str:
    """The parts of changes that are shown."""
    return json.dumps([change.model_dump(mode="json") for change in changes])


# ── one job, or a group ─────────────────────────────────────────────────────────────────────────────


def width_of_names(names: Iterable[str], style: Style) -> int:
    """Return the width of a column of names: at most a third of the terminal. Longer names overrun it."""
    widest = max(map(cell_len, names), default=0)
    return widest if style.width is None else min(widest, style.width // 3)


def name_of(keys: Sequence[str]) -> str:
    """The key, or the number of keys."""
    return printable(keys[0]) if len(keys) == 1 else f"{len(keys)} jobs"


def render_entry(
    head: str,
    keys: Sequence[str],
    text: str,
    style: Style,
    width: int,
    *,
    listed: Sequence[str] | None = None,
    is_cut: bool = False,
    is_braced: bool = True,
) -> Iterator[str]:
    """Render a line about one job, or about a group with its keys below. The name is `width` wide.

    `listed` are the texts listed for the keys; see `render_keys` for the rest.
    """
    yield printable_line(f"{head} {pad(name_of(keys), width)}  ", text)
    if len(keys) > 1:
        yield from render_keys(listed or keys, style.width, is_cut=is_cut, is_braced=is_braced)


def render_keys(
    keys: Iterable[str], width: int | None = None, *, is_cut: bool = False, is_braced: bool = True
) -> Iterator[str]:
    """Render the keys of several jobs: `sweep-batch-{32,64}-lr-{0_1,0_01}`.

    They are wrapped after commas on a terminal, and one line elsewhere. If `is_cut`, a long list ends with
    the number of keys left out.
    """

    def spelled(names: list[str]) -> list[str]:
        words = brace_expansion(names) if is_braced else names
        return ["{" + ",".join(names) + "}"] if is_braced and len(words) == len(names) > 1 else words

    listed = [printable(key) for key in keys]
    shown, words = len(listed), spelled(listed)
    lines = _broken_behind_commas(words, width or WIDTH)
    while is_cut and len(lines) > _MOST_LINES:
        shown = shown * 9 // 10
        words = [*spelled(listed[:shown]), f"and {len(listed) - shown} more"]
        lines = _broken_behind_commas(words, width or WIDTH)
    yield from [INDENT + ", ".join(words)] if width is None else lines


def _broken_behind_commas(words: Sequence[str], width: int) -> list[str]:
    """Wrap words, breaking after commas only words that are longer than a line."""
    parts = list[str]()
    for word in [*(f" {word}," for word in words[:-1]), *(f" {word}" for word in words[-1:])]:
        is_whole = cell_len(INDENT + word) - 1 <= width
        parts += [word] if is_whole else re.split("(?<=,)(?=.)", word)
    return _broken(parts, width, INDENT)


def render_starts(starts: Sequence[str]) -> Iterator[str]:
    """Render what a group of jobs starts, with the number of jobs for each."""
    counts = Counter(filter(None, starts))
    for text, count in counts.most_common(_MOST_STARTS):
        number = "each" if count == len(starts) else f"{count} jobs" if count > 1 else "1 job"
        yield INDENT + (f"{number}: " if len(starts) > 1 else "") + printable(text)
    if len(counts) > _MOST_STARTS:
        more = sum(count for _, count in counts.most_common()[_MOST_STARTS:])
        yield f"{INDENT}and {more} more jobs with other settings"


def render_change(change: Change) -> str:
    """One field with its value before and after."""
    before, after = (
        "(none)" if value is None else json.dumps(value, ensure_ascii=False)
        for value in (change.before, change.after)
    )
    mark = FORCES_NEW_JOB if change.forces_new_job else ""
    note = "  # sensitive" if change.sensitive else ""
    return printable(f"{change.path}: {before} -> {after}") + mark + note


# ── warnings, denials, diagnostics ──────────────────────────────────────────────────────────────────


def merge_equal_warnings(
    warnings: Iterable[PlanWarning], declared: Iterable[str] = ()
) -> Iterator[PlanWarning]:
    """Merge equal warnings about several keys, named in the order of the manifest."""
    keys_by_warning: dict[PlanWarning, list[PlanWarning]] = {}
    for one in warnings:
        keys_by_warning.setdefault(one.model_copy(update={"key": None}), []).append(one)
    for warning, alike in keys_by_warning.items():
        keys = [one.key for one in sorted(alike, key=place_in(declared)) if one.key]
        yield warning.model_copy(update={"key": ", ".join(brace_expansion(keys)) or None})


def render_warnings(
    warnings: Iterable[PlanWarning], style: Style, declared: Iterable[str] = ()
) -> Iterator[str]:
    """Render warnings with their fixes. Equal ones about several keys are merged."""
    for warning in merge_equal_warnings(warnings, declared):
        about = f"{warning.key}: " if warning.key else ""
        yield printable_line(style.paint("warning: ", "yellow"), f"{about}{warning.what}: {warning.why}")
        if warning.fix:
            yield printable_line("  fix: ", warning.fix)


def render_denials(denied: Iterable[Denial], style: Style) -> Iterator[str]:
    """Render each policy with its message, its place and the keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    for reason, keys in keys_by_reason.items():
        text = printable(f"policy {reason.policy}: {reason.explanation}")
        if reason.source is not None:
            text += f" ({spell_place(reason.source)})"
        yield f"{style.paint('denied: ', 'red')}{text}"
        yield from render_keys(keys, style.width)


def render_diagnostics(
    diagnostics: Iterable[Diagnostic], style: Style = PLAIN, *, verbose: bool = False
) -> str:
    """Render problems: what, where, the source line, why, and the fix. A terminal gets the first ones."""
    found = list(diagnostics)
    most = len(found) if verbose or style.width is None else _MOST_PROBLEMS
    lines: list[str] = []
    for one in found[:most]:
        word = style.paint(one.severity.value, "red" if one.severity is Severity.ERROR else "yellow")
        where = [] if one.location is None else [printable(str(one.location))]
        where += [printable(one.path)] if one.path else []
        lines.append(printable_line(f"{word}: ", one.what))
        if where:
            lines.append(f"  --> {'  '.join(where)}")
        if one.location is not None and (snippet := one.snippet) is not None:
            number = str(one.location.line)
            if style.width is not None and cell_len(snippet.text) > (room := style.width - len(number) - 3):
                snippet = snippet.cut(room - 2)
            before, marked = snippet.text[: snippet.start], snippet.text[snippet.start :][: snippet.length]
            marks = " " * cell_len(before) + "^" * max(1, cell_len(marked))
            margin = " " * len(number)
            lines += (f"{margin} |", f"{number} | {printable(snippet.text)}", f"{margin} | {marks}")
        for name, text in (("why", one.why), ("fix", one.fix)):
            if text:
                lines.append(printable(f"  {name}: {text}"))
    if (more := len(found) - most) > 0:
        lines.append(f"{more:,} more; -v shows all")
    return "\n".join(lines) + "\n"


# ── tables, trees, logs ─────────────────────────────────────────────────────────────────────────────


def render_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], style: Style = PLAIN, order: Sequence[str] = ()
) -> str:
    """Render a table of untrusted text. "" if there are no rows. `order` as for `table`."""
    body = [[printable(cell) or NOTHING for cell in row] for row in rows]
    return "\n".join(table([head, *body], style, order)) + "\n" if body else ""


def render_tree(value: Mapping[str, Any] | Sequence[Any], depth: int) -> Iterator[str]:
    """Render nested data as indented lines, like YAML."""
    indent = "  " * depth
    for name, member in value.items() if isinstance(value, Mapping) else (("-", member) for member in value):
        head = indent + ("-" if name == "-" and not isinstance(value, Mapping) else f"{name}:")
        if member and isinstance(member, Mapping | list):
            below = render_tree(member, depth + 1)
            if isinstance(value, Mapping):
                yield printable(head)
            else:
                yield f"{head} {next(below).removeprefix(indent + '  ')}"
            yield from below
        else:
            is_constant = member is None or isinstance(member, bool) or member == ""
            yield printable(f"{head} {json.dumps(member) if is_constant else member}")


def render_lines(text: str) -> str:
    """Sanitize the lines of a log."""
    return "\n".join(printable(line.removesuffix("\r")) for line in text.split("\n"))


# ── a content, and a fleet ────────────────────────────────────────────────────────────────────────────


def render(content: Content, value: Any, view: View) -> str:
    """Render a plan, a drift report…. The last line is a summary."""
    file = content.value if content in (Content.PLAN, Content.HISTORY) else "reports"
    return str(getattr(import_module(f"reconciler.render.{file}"), f"{content.value}_text")(value, view))


def render_fleet(report: FleetReport, view: View) -> str:
    """Render each stack, sorted by root and in one line if it has no changes; then the failed ones."""
    style, lines = view.style, list[str]()
    width = max((len(printable(one.root)) for one in report.results if not one.errors), default=0)
    # Stacks with the same error are grouped.
    alike: dict[tuple[tuple[Diagnostic, ...], int], list[StackResult]] = {}
    for one in report.results:
        root = printable(one.root)
        if one.errors:
            alike.setdefault((one.errors, int(one.exit_code)), []).append(one)
        elif one.is_quiet:
            lines.append(style.paint(f"= {root:<{width}}  {printable(one.last_line)}", "dim"))
        else:
            text = one.parts["text"].rstrip("\n")
            # The text was rendered for a terminal, and may also go to a file.
            text = text if style.colour else re.sub(r"\x1b\[[0-9;]*m", "", text)
            lines += (style.paint(f"{root}:", "bold"), *text.split("\n"), "")
    if lines and lines[-1] and alike:
        lines.append("")
    for (errors, exit_code), group in alike.items():
        name = printable(group[0].root) if len(group) == 1 else f"{len(group)} stacks"
        lines.append(style.paint(f"{name}: failed with exit code {exit_code}", "red"))
        if len(group) > 1:
            lines += render_keys([one.root for one in group], style.width, is_braced=False)
        lines += (*render_diagnostics(errors, style).rstrip("\n").split("\n"), "")
    if lines and lines[-1]:
        lines.append("")
    return "\n".join([*lines, printable(report.last_line)]) + "\n"
