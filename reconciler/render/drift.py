"""A drift report: its text and its sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.values import timestamp
from reconciler.decide.drift_check import REMEDIES, Drift, DriftClass, IgnoredBy, IgnoredDrift, Pending
from reconciler.decide.plan import spell_work
from reconciler.render import Content
from reconciler.render.groups import fold_alike, is_one_sweep, look_of_changes, without_name
from reconciler.render.layout import fit, fit_line
from reconciler.render.lines import (
    INDENT,
    name_of,
    printable_line,
    render_entry,
    render_head,
    render_warnings,
    width_of_names,
)
from reconciler.render.sheet import (
    Clean,
    Level,
    Row,
    Sheet,
    field_of,
    folded,
    head_of,
    place_of,
    warning_notes,
)
from reconciler.render.style import Style, View

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport

#: What became of drift since the last check, as a mark on its row.
_NEW, _CHANGED, _GONE = "new", "changed", "gone"
#: For people, what is no drift comes after all drift.
_AFTER_DRIFT = 10


class _Section(NamedTuple):
    """Drift below one title: `mark` is new, changed or gone, or "" for any other."""

    title: str
    entries: Sequence[Drift]
    mark: str = ""


def _sections(report: DriftReport) -> list[_Section]:
    """The drift of a report in the order for people: new first, then what lasts, then what is gone."""
    comparison = report.comparison
    if not report.since_last or comparison is None:
        return [_Section("", report.drift)]
    if comparison.problem is not None:
        return [_Section("The last check could not be read; whether this is new is unknown:", report.drift)]
    at_s = comparison.compared_with_s
    since = "" if at_s is None else f" since {timestamp(at_s)}"
    unread = tuple(entry for entry in report.drift if entry.class_ is DriftClass.UNKNOWN)
    sections = [
        _Section(f"New{since or '; no earlier check is recorded'}:", comparison.new, _NEW),
        _Section(f"Changed{since}:", comparison.changed, _CHANGED),
        _Section("Could not be read:", unread),
        _Section("Lasting:", comparison.lasting),
        _Section(f"Gone{since}:", comparison.gone, _GONE),
    ]
    return [section for section in sections if section.entries]


def text(report: DriftReport, view: View) -> str:
    """Text for people; the last line counts."""
    style = view.style
    sections = _sections(report)
    groups = [_folded(section.entries, view) for section in sections]
    pending = list(fold_alike(report.pending, _look_of_pending, is_folded=not view.verbose))
    found: list[Sequence[Drift | Pending]] = [group for some in groups for group in some]
    found += (*pending, *((one,) for one in report.ignored))
    width = width_of_names((name_of(_keys(group)) for group in found), style)
    blocks = [
        list(_section(section, some, style, width)) for section, some in zip(sections, groups, strict=True)
    ]
    if pending:
        blocks.append(["Pending changes (not drift; run apply):"])
        for group in pending:
            words, keys = _words(group), _keys(group)
            blocks[-1] += render_entry(f"  {'pending':<10}", keys, words, style, width, is_cut=True)
    if report.ignored:
        # One by one: nothing is ignored unseen.
        blocks.append(["Ignored:"])
        for one in report.ignored:
            head = style.paint(f"  {one.class_.value:<10}", "dim")
            words = f"{one.detail}; {_why_ignored(one)}"
            blocks[-1] += render_entry(head, [one.key], words, style, width, place=one.source)
    lines = [style.paint(render_head(report.stack, report.target), "bold")]
    for block in filter(None, blocks):
        lines += ["", *block]
    lines += ["", *render_warnings(report.warnings, style), _last_line(report)]
    keys = _keys((*report.drift, *report.ignored, *report.gone, *report.pending))
    return fit("\n".join(lines) + "\n", style, set(keys))


def _last_line(report: DriftReport) -> str:
    """How much was found of what."""
    found = ", ".join(f"{count} {name.value}" for name, count in report.summary.items() if count)
    parts = [found or "none"]
    comparison = report.comparison
    if report.since_last and comparison is not None and comparison.problem is None:
        counts = {_NEW: comparison.new, _CHANGED: comparison.changed, _GONE: comparison.gone}
        parts.append(", ".join(f"{len(entries)} {word}" for word, entries in counts.items()))
    ignored = f"{len(report.ignored)} ignored, " if report.ignored else ""
    parts.append(f"{ignored}{len(report.pending)} pending, {report.compared} compared")
    return f"Drift: {'; '.join(parts)}."


def _keys(group: Sequence[Drift | Pending]) -> list[str]:
    return [one.key for one in group]


def _folded(entries: Sequence[Drift], view: View) -> list[tuple[Drift, ...]]:
    return fold_alike(entries, _look_of_drift, is_folded=not view.verbose)


def _look_of_drift(item: Drift) -> tuple[str, ...]:
    return item.class_, without_name(item.detail, item.key), look_of_changes(item.changes)


def _look_of_pending(item: Pending) -> str:
    return without_name(item.detail, item.key)


def _words(group: Sequence[Drift | Pending]) -> str:
    first = group[0]
    return first.detail if len(group) == 1 else without_name(first.detail, first.key)


def _section(section: _Section, groups: Sequence[Sequence[Drift]], style: Style, width: int) -> Iterator[str]:
    if section.title:
        yield section.title
    for group in groups:
        first, keys = group[0], _keys(group)
        yield from render_entry(
            style.paint(f"  {first.class_.value:<10}", "green" if section.mark == _GONE else "red"),
            keys,
            _words(group) + since_and_cost(*group),
            style,
            width,
            place=first.source,
            is_sweep=is_one_sweep(item.source for item in group),
        )
        fix = (first.fix or "") if len(group) == 1 else REMEDIES[first.class_]
        if section.mark != _GONE and fix:
            yield from fit_line(printable_line(f"{INDENT}fix: ", fix), style, keys, len(INDENT) + 5)


def since_and_cost(*group: Drift) -> str:
    """Since when it is so, and what it has cost, for people."""
    times = {
        "at": sorted({one.began_at for one in group if one.began_at}),
        "seen since": sorted({one.since for one in group if one.since}),
    }
    since = ", ".join(
        f"{'' if len(found) == 1 else 'the first '}{words} {found[0]}"
        for words, found in times.items()
        if found
    )
    work = sum(one.node_hours or 0.0 for one in group)
    return (f" ({since})" if since else "") + (f"; cost {spell_work(work)}" if work else "")


def _why_ignored(entry: IgnoredDrift) -> str:
    """Who or what says that it is known, and why."""
    if entry.by is IgnoredBy.RULE:
        place = f" {entry.rule.file}:{entry.rule.line}" if entry.rule else ""
        until = f" until {entry.until}" if entry.until else ""
        words = f"ignored by rule{place}{until}"
    else:
        by = f" by {entry.who}" if entry.who else ""
        words = f"accepted{by} {entry.accepted_at}"
    return f"{words}: {entry.reason}" if entry.reason else words


# ── the sheet ───────────────────────────────────────────────────────────────────────────────────────


def sheet(report: DriftReport, view: View, clean: Clean) -> Sheet:
    """A row per drift; what is pending, gone or ignored comes after it, and is no finding."""
    rows = [
        _row(entry, section.mark, clean, rank)
        for rank, section in enumerate(_sections(report))
        for entry in section.entries
        if section.mark != _GONE
    ]
    rows.sort(key=lambda row: row.key)
    rows += (_other(entry, "pending", ">", "blue", entry.detail, clean) for entry in report.pending)
    rows += (_other(entry, _GONE, "=", "green", _described(entry), clean, 1) for entry in report.gone)
    rows += (
        _other(entry, "ignored", "=", "dim", f"{_described(entry)}; {_why_ignored(entry)}", clean, 2)
        for entry in report.ignored
    )
    counts = {name.value: count for name, count in report.summary.items()} | {"ignored": len(report.ignored)}
    if report.since_last:
        counts |= {_NEW: len(report.new), _CHANGED: len(report.changed), _GONE: len(report.gone)}
    return Sheet(
        Content.DRIFT,
        **head_of(report, clean),
        last_line=_last_line(report),
        counts=counts,
        has_changes=report.is_due,
        rows=tuple(rows),
        folded=folded(rows),
        keys=tuple(sorted({*map(clean, report.keys), *(row.key for row in rows)})),
        notes=tuple(warning_notes(report.warnings, clean)),
    )


def _row(entry: Drift, mark: str, clean: Clean, rank: int) -> Row:
    is_unknown = entry.class_ is DriftClass.UNKNOWN
    detail = f"{mark}: {entry.detail}" if mark else entry.detail
    fix = f"; fix: {entry.fix}" if entry.fix else ""
    return Row(
        keys=(clean(entry.key),),
        kind=entry.class_.value,
        words=entry.class_.value,
        symbol="?" if is_unknown else "!",
        colour="magenta" if is_unknown else "red",
        rule=entry.class_.value,
        text=clean(detail + since_and_cost(entry) + fix),
        changes=tuple(field_of(change, clean) for change in entry.changes),
        source=place_of(entry.source, clean),
        level=Level.ERROR if is_unknown else Level.WARNING,
        is_finding=True,
        must_stay=True,
        rank=rank,
    )


def _other(
    entry: Drift | Pending, kind: str, symbol: str, colour: str, words: str, clean: Clean, rank: int = 0
) -> Row:
    """A row for what is no drift, or none any more."""
    return Row((clean(entry.key),), kind, kind, symbol, colour, kind, clean(words), rank=_AFTER_DRIFT + rank)


def _described(entry: Drift) -> str:
    return f"{entry.class_.value}: {entry.detail}{since_and_cost(entry)}"
