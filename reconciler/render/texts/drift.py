"""Drift reports as text for people, and the words that every format uses of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.values import timestamp
from reconciler.decide.drift_entry import Drift, DriftClass, IgnoredBy, IgnoredDrift, Pending
from reconciler.decide.drift_remedies import REMEDIES
from reconciler.decide.groups import (
    fold_alike,
    is_one_sweep,
    look_of_changes,
    spell_work,
    without_name,
)
from reconciler.render.layout import cell_len, fit, fit_line
from reconciler.render.style import Place, Style, View
from reconciler.render.texts.groups import INDENT, KeyList, printable_line, render_keys, width_of_names
from reconciler.render.texts.head import render_head
from reconciler.render.texts.warnings import render_warnings
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.drift_report import DriftReport

#: What became of drift since the last check, as a mark on its row.
NEW, CHANGED, GONE = "new", "changed", "gone"


class DriftSection(NamedTuple):
    """Drift of which the same is said: `mark` is new, changed or gone, or "" for any other."""

    title: str
    entries: tuple[Drift, ...]
    mark: str = ""


def sections_of(report: DriftReport) -> list[DriftSection]:
    """The drift of a report in the order for people: new first, then what lasts, then what is gone."""
    comparison = report.comparison
    if not report.since_last or comparison is None:
        return [DriftSection("", report.drift)]
    if comparison.problem is not None:
        return [
            DriftSection("The last check could not be read; whether this is new is unknown:", report.drift)
        ]
    at_s = comparison.compared_with_s
    since = "" if at_s is None else f" since {timestamp(at_s)}"
    unread = tuple(entry for entry in report.drift if entry.class_ is DriftClass.UNKNOWN)
    sections = [
        DriftSection(f"New{since or '; no earlier check is recorded'}:", comparison.new, NEW),
        DriftSection(f"Changed{since}:", comparison.changed, CHANGED),
        DriftSection("Could not be read:", unread),
        DriftSection("Lasting:", comparison.lasting),
        DriftSection(f"Gone{since}:", comparison.gone, GONE),
    ]
    return [section for section in sections if section.entries]


def drift_text(report: DriftReport, view: View) -> str:
    """Show a drift report; the last line counts."""
    style = view.style
    width = _width(report, view)
    sections = [list(_section(section, view, width)) for section in sections_of(report)]
    sections += [list(_pending(report, view, width)), list(_ignored(report, view, width))]
    lines = [style.paint(render_head(report.stack, report.target), "bold")]
    for section in filter(None, sections):
        lines += ["", *section]
    lines += ["", *render_warnings(report.warnings, style), last_line(report)]
    keys = {*_keys((*report.drift, *report.ignored, *report.gone)), *_keys(report.pending)}
    return fit("\n".join(lines) + "\n", style, keys)


def last_line(report: DriftReport) -> str:
    """How much was found of what."""
    found = ", ".join(f"{count} {name.value}" for name, count in report.summary.items() if count)
    parts = [found or "none"]
    comparison = report.comparison
    if report.since_last and comparison is not None and comparison.problem is None:
        counts = {NEW: comparison.new, CHANGED: comparison.changed, GONE: comparison.gone}
        parts.append(", ".join(f"{len(entries)} {word}" for word, entries in counts.items()))
    ignored = f"{len(report.ignored)} ignored, " if report.ignored else ""
    parts.append(f"{ignored}{len(report.pending)} pending, {report.compared} compared")
    return f"Drift: {'; '.join(parts)}."


def _width(report: DriftReport, view: View) -> int:
    """How wide the keys are, over all sections."""
    gone = report.gone if report.since_last else ()
    names = [
        _name(_keys(group))
        for entries in ((*report.drift, *gone), report.ignored)
        for group in _folded(entries, view)
    ]
    names += [_name(_keys(group)) for group in _folded_pending(report, view)]
    return width_of_names(map(printable, names), view.style)


def _keys(group: Iterable[Drift | Pending]) -> list[str]:
    return [one.key for one in group]


def _folded_pending(report: DriftReport, view: View) -> list[Sequence[Pending]]:
    return list(fold_alike(report.pending, _look_of_pending, is_folded=not view.verbose))


def _folded(entries: Sequence[Drift], view: View) -> list[Sequence[Drift]]:
    return list(fold_alike(entries, _look_of_drift, is_folded=not view.verbose))


def _section(section: DriftSection, view: View, width: int) -> Iterator[str]:
    if section.title:
        yield section.title
    colour = "green" if section.mark == GONE else "red"
    for group in _folded(section.entries, view):
        first = group[0]
        word = view.style.paint(f"  {first.class_.value:<10}", colour)
        is_sweep = is_one_sweep(item.source for item in group)
        more = _more_of(group)
        yield from _lines_of(
            _KeyedText(f"{word} ", _keys(group), first.detail, more, first.source, is_sweep=is_sweep),
            view.style,
            width,
        )
        if section.mark != GONE and (fix := _fix_of(group)):
            yield from fit_line(
                printable_line(f"{INDENT}fix: ", fix), view.style, _keys(group), len(INDENT) + 5
            )


def _more_of(group: Sequence[Drift]) -> str:
    """Since when it is so, and what it has cost."""
    times = {
        "at": sorted({one.began_at for one in group if one.began_at}),
        "seen since": sorted({one.since for one in group if one.since}),
    }
    said = ", ".join(
        f"{'' if len(found) == 1 else 'the first '}{words} {found[0]}"
        for words, found in times.items()
        if found
    )
    work = sum(one.node_hours or 0.0 for one in group)
    return (f" ({said})" if said else "") + (f"; cost {spell_work(work)}" if work else "")


def since_and_cost(entry: Drift) -> str:
    """Since when it is so, and what it has cost, for people."""
    return _more_of([entry])


def _fix_of(group: Sequence[Drift]) -> str:
    return group[0].fix or "" if len(group) == 1 else REMEDIES[group[0].class_]


def why_ignored(entry: IgnoredDrift) -> str:
    """Who or what says that it is known, and why."""
    if entry.by is IgnoredBy.RULE:
        place = f" {entry.rule.file}:{entry.rule.line}" if entry.rule else ""
        until = f" until {entry.until}" if entry.until else ""
        said = f"ignored by rule{place}{until}"
    else:
        by = f" by {entry.who}" if entry.who else ""
        said = f"accepted{by} {entry.accepted_at}"
    return f"{said}: {entry.reason}" if entry.reason else said


def _pending(report: DriftReport, view: View, width: int) -> Iterator[str]:
    if report.pending:
        yield "Pending changes (not drift; run apply):"
    for group in _folded_pending(report, view):
        shown = _KeyedText(f"  {'pending':<10} ", _keys(group), group[0].detail, is_cut=True)
        yield from _lines_of(shown, view.style, width)


def _ignored(report: DriftReport, view: View, width: int) -> Iterator[str]:
    """A line for each drift that is known: nothing is ignored unseen."""
    if report.ignored:
        yield "Ignored:"
    for one in report.ignored:
        word = view.style.paint(f"  {one.class_.value:<10}", "dim")
        detail = f"{one.detail}; {why_ignored(one)}"
        yield from _lines_of(_KeyedText(f"{word} ", [one.key], detail, place=one.source), view.style, width)


def _look_of_pending(item: Pending) -> str:
    return without_name(item.detail, item.key)


def _look_of_drift(item: Drift) -> tuple[str, ...]:
    return item.class_, without_name(item.detail, item.key), look_of_changes(item.changes)


class _KeyedText(NamedTuple):
    """What is said of one job, or of several."""

    word: str
    keys: Sequence[str]
    detail: str
    more: str = ""
    place: Place | None = None
    is_cut: bool = False
    is_sweep: bool = False


def _lines_of(shown: _KeyedText, style: Style, width: int) -> Iterator[str]:
    """What is said of one job, or of several with their keys below."""
    keys = shown.keys
    said = shown.detail if len(keys) == 1 else without_name(shown.detail, keys[0])
    name = printable(_name(keys))
    name = style.link(name, shown.place) + " " * (width - cell_len(name))
    line = printable_line(f"{shown.word}{name}  ", f"{said}{shown.more}")
    yield from fit_line(line, style, keys, len(INDENT))
    if len(keys) > 1:
        yield from render_keys(keys, KeyList(shown.is_cut, shown.is_sweep, style.width))


def _name(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{len(keys)} jobs"
