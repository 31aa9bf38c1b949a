"""The lines that texts for people are made of: jobs with their keys, changes, warnings, problems, tables.

Text from outside goes through `printable` here; what fits on a line `layout` knows.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.errors import Diagnostic, Severity, Snippet
from reconciler.render.groups import in_braces
from reconciler.render.layout import cell_len, fit_line, table
from reconciler.render.style import PLAIN, Place, Style
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.values import Change, PlanWarning, Source, TargetIdentity
    from reconciler.decide.plan import Denial

#: The indent below the line of a job.
INDENT = " " * 8
#: How wide a list of keys is where nothing says how wide the text may be.
WIDTH = 100
#: How an empty cell of a table is shown.
NOTHING = "-"
#: How many lines of keys are shown where none of them has to be read.
_MOST_LINES = 2
#: Braces are for lists that become this much shorter.
_WORTH = 3
#: How many different things that jobs start are shown.
_MOST_STARTS = 10
#: How many problems are shown to a person at a terminal, who can ask for all of them.
_MOST_PROBLEMS = 20
#: Where what goes on below a line of a problem begins: behind `why: `.
_HANGING = 7


def printable_line(ours: str, theirs: str) -> str:
    """Join text of ours, which may hold colours, and text from outside, which must not."""
    return f"{ours}{printable(theirs)}".rstrip()


def render_head(stack: str, target: TargetIdentity) -> str:
    """The line that a text about a stack begins with."""
    where = f"{target.name} ({target.kind}"
    where += f", {target.endpoint}, project {target.project_id}" if target.endpoint != target.kind else ""
    return printable(f"Stack {stack} on {where})")


def spell_place(source: Source) -> str:
    """A place in the manifest, as editors take it."""
    return printable(f"{source.file}:{source.line}:{source.column}")


# ── one job, or several that are alike ──────────────────────────────────────────────────────────────


def width_of_names(names: Iterable[str], style: Style) -> int:
    """How wide a column of names is: a third of a narrow terminal, which a longer name goes beyond."""
    widest = max(map(cell_len, names), default=0)
    return widest if style.width is None else min(widest, style.width // 3)


def name_of(keys: Sequence[str]) -> str:
    """The key, or how many there are."""
    return printable(keys[0]) if len(keys) == 1 else f"{len(keys)} jobs"


def render_entry(
    head: str,
    keys: Sequence[str],
    text: str,
    style: Style,
    width: int,
    *,
    place: Place | None = None,
    listed: Sequence[str] | None = None,
    is_cut: bool = False,
    is_sweep: bool = False,
) -> Iterator[str]:
    """A line about one job, or about several with their keys below; the name is `width` wide.

    `place` is where the manifest has the first one, `listed` are the keys as they are listed; see
    `render_keys` for the rest.
    """
    name = name_of(keys)
    padded = style.link(name, place) + " " * (width - cell_len(name))
    yield from fit_line(printable_line(f"{head} {padded}  ", text), style, keys, len(INDENT))
    if len(keys) > 1:
        yield from render_keys(listed or keys, style.width, is_cut=is_cut, is_sweep=is_sweep)


def render_keys(
    keys: Iterable[str], width: int | None = None, *, is_cut: bool = False, is_sweep: bool = False
) -> Iterator[str]:
    """The keys of several jobs, several on a line; a list that `is_cut` says how many more there are.

    On a terminal many members of one sweep are listed as a shell would write them:
    `lr-{0_1,0_2}-batch-{32,64}`. Elsewhere all keys are on one line, unabbreviated, for
    programs such as grep.
    """
    listed = [printable(key) for key in keys]
    most = width or WIDTH
    lines = _wrapped(listed, most)
    if len(lines) > _MOST_LINES and width is None and not is_cut:
        lines = [INDENT + ", ".join(listed)]
    if len(lines) > _MOST_LINES and is_sweep:
        # Broken behind commas only.
        words = [word.replace(",", ", ") for word in in_braces(listed)]
        braced = [line.replace(", ", ",") for word in words for line in _wrapped([word], most)]
        lines = braced if len(braced) * _WORTH <= len(lines) else lines
    if len(lines) > _MOST_LINES and is_cut:
        lines = _wrapped(listed, most)
        # What is cut away makes room for the words that count it.
        shown = sum(line.count(",") for line in lines[:_MOST_LINES])
        while len(lines) > _MOST_LINES:
            lines = _wrapped([*listed[:shown], f"and {len(listed) - shown} more"], most)
            shown -= 1
    yield from lines


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    return textwrap.wrap(
        ", ".join(words),
        width,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render_starts(starts: Sequence[str]) -> Iterator[str]:
    """What each of several jobs starts, if anything, and how many of them start the same."""
    counts = Counter(filter(None, starts))
    if len(starts) == 1:
        yield from (INDENT + printable(text) for text in counts)
        return
    for text, count in counts.most_common(_MOST_STARTS):
        number = "each" if count == len(starts) else f"{count} jobs" if count > 1 else "1 job"
        yield f"{INDENT}{number}: {printable(text)}"
    if len(counts) > _MOST_STARTS:
        more = sum(count for _, count in counts.most_common()[_MOST_STARTS:])
        yield f"{INDENT}and {more} more jobs, which start other things"


def render_change(change: Change) -> str:
    """One field with its value before and after."""
    before, after = (
        "(none)" if value is None else json.dumps(value, ensure_ascii=False)
        for value in (change.before, change.after)
    )
    mark = "  # forces a new job" if change.forces_new_job else ""
    note = "  # sensitive" if change.sensitive else ""
    return printable(f"{change.path}: {before} -> {after}") + mark + note


# ── warnings, denials, problems ─────────────────────────────────────────────────────────────────────


def render_warnings(warnings: Iterable[PlanWarning], style: Style) -> Iterator[str]:
    """What a person should know, and how to fix it."""
    for warning in warnings:
        about = f"{warning.key}: " if warning.key else ""
        yield printable_line(style.paint("warning: ", "yellow"), f"{about}{warning.what}: {warning.why}")
        if warning.fix:
            yield printable_line("  fix: ", warning.fix)


def render_denials(denied: Iterable[Denial], style: Style) -> Iterator[str]:
    """Each policy with its message and its place, and all keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    for reason, keys in keys_by_reason.items():
        text = printable(f"policy {reason.policy}: {reason.explanation}")
        if reason.source is not None:
            text += f" ({style.link(spell_place(reason.source), reason.source)})"
        yield f"{style.paint('denied: ', 'red')}{text}"
        yield from render_keys(keys, style.width)


def render_diagnostics(
    diagnostics: Iterable[Diagnostic], style: Style = PLAIN, *, verbose: bool = False
) -> str:
    """Problems: what, where, the line, why, and how to fix it. A terminal gets the first ones."""
    found = list(diagnostics)
    most = len(found) if verbose or style.width is None else _MOST_PROBLEMS
    lines = [line for one in found[:most] for line in _diagnostic(one, style)]
    if (more := len(found) - most) > 0:
        lines.append(f"{more:,} more; -v shows all")
    return "\n".join(lines) + "\n"


def _diagnostic(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    is_error = diagnostic.severity is Severity.ERROR
    word = style.paint(diagnostic.severity.value, "red" if is_error else "yellow")
    place = diagnostic.location
    where = [] if place is None else [style.link(printable(str(place)), place)]
    where += [printable(diagnostic.path)] if diagnostic.path else []
    yield from fit_line(printable_line(f"{word}: ", diagnostic.what), style)
    if where:
        yield from fit_line(f"  --> {'  '.join(where)}", style, hanging=_HANGING)
    if place is not None and diagnostic.snippet is not None:
        yield from _snippet(str(place.line), diagnostic.snippet, style)
    for name, text in (("why", diagnostic.why), ("fix", diagnostic.fix)):
        if text:
            yield from fit_line(printable(f"  {name}: {text}"), style, hanging=_HANGING)


def _snippet(number: str, snippet: Snippet, style: Style) -> Iterator[str]:
    """The line, as much of it as there is room for, with marks below the part in question."""
    if style.width is not None:
        snippet = _narrowed(snippet, style.width - len(number) - 3)
    before, marked = snippet.text[: snippet.start], snippet.text[snippet.start :][: snippet.length]
    marks = " " * cell_len(before) + "^" * max(1, cell_len(marked))
    yield f"{' ' * len(number)} |"
    yield f"{number} | {printable(snippet.text)}"
    yield f"{' ' * len(number)} | {marks}"


def _narrowed(snippet: Snippet, width: int) -> Snippet:
    """The marked part of a line, and as much around it as fits the width in cells; the rest shows as `…`."""
    text, start, length = snippet.text, snippet.start, snippet.length
    if cell_len(text) <= width:
        return snippet
    begin = start
    while begin > 0 and cell_len(text[begin - 1 : start]) < width // 3:
        begin -= 1
    end = start
    while end < len(text) and cell_len(text[begin : end + 1]) <= width - 2:
        end += 1
    head, tail = "…" * (begin > 0), "…" * (end < len(text))
    at = len(head) + start - begin
    return Snippet(head + text[begin:end] + tail, at, max(1, min(length, end - start)))


# ── tables, trees, logs ─────────────────────────────────────────────────────────────────────────────


def render_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], style: Style = PLAIN, *, rule: bool = False
) -> str:
    """Columns as wide as they need to be, and the terminal lets them be; "" if there are no rows."""
    body = [[printable(cell) or NOTHING for cell in row] for row in rows]
    return "\n".join(table([head, *body], style, rule=rule)) + "\n" if body else ""


def render_tree(value: Mapping[str, Any] | Sequence[Any], depth: int) -> Iterator[str]:
    """Nested data as indented lines, laid out as YAML is."""
    indent = "  " * depth
    if isinstance(value, Mapping):
        for name, member in value.items():
            if member and isinstance(member, Mapping | list):
                yield printable(f"{indent}{name}:")
                yield from render_tree(member, depth + 1)
            else:
                yield printable(f"{indent}{name}: {_leaf(member)}")
        return
    for member in value:
        if member and isinstance(member, Mapping | list):
            first, *others = render_tree(member, depth + 1)
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from others
        else:
            yield printable(f"{indent}- {_leaf(member)}")


def _leaf(value: Any) -> str:
    # A text, a number, or one of the few that YAML writes in another way.
    is_constant = value is None or isinstance(value, bool) or value == ""
    return json.dumps(value) if is_constant else str(value)


def render_lines(text: str) -> str:
    """A log, harmless for a terminal, line by line."""
    return "\n".join(printable(line.removesuffix("\r")) for line in text.split("\n"))
