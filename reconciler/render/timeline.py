"""A history as a timeline: a self-contained HTML page without scripts.

Each key has a lane, an SVG image whose bars and marks have tooltips, and a summary in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from reconciler.core.past import PastRun, RunKind
from reconciler.core.values import timestamp
from reconciler.decide.history import Bar, Lane, MarkKind, Timeline
from reconciler.decide.outcome import spell_counts
from reconciler.render.history import COLOURS, life_of, origin_of
from reconciler.render.html import fragment, page
from reconciler.text import format_count, printable

#: Width of a lane and minimum width of a bar, in SVG units.
_WIDTH, _LEAST = 1000.0, 2.0
#: Number of labels on the time axis.
_TIMES = 6
#: Class of a run's mark, by its outcome; see `COLOURS`.
_RUNS = {
    "green": "complete, no drift",
    "dim": "nothing to do",
    "yellow": "drift, refused, interrupted, unfinished",
    "red": "partial, unknown",
    "blue": "running",
}
_PHASES = ("creating", "pending", "running", "terminating", "completed", "failed", "abnormal", "terminated")


class Shape(NamedTuple):
    """A bar or mark in a lane, with its CSS class and its tooltip."""

    css: str
    x: str
    width: str
    y: int
    height: int
    text: str


class TimelineRow(NamedTuple):
    name: str
    words: str
    css: str
    shapes: tuple[Shape, ...]


def render_timeline(timeline: Timeline, redact: Callable[[str], str] = str) -> str:
    """Render a page with a lane per key."""
    report, lanes = timeline.report, render_lanes(timeline, redact, level=1)
    title = printable(redact(f"History {report.stack}@{report.target.name}"))
    return page("timeline", title=title, body=lanes, version=report.version)


def render_lanes(timeline: Timeline, redact: Callable[[str], str] = str, *, level: int = 3) -> str:
    """Render the content of the page. `level` is that of its headings."""
    clean = cache(lambda text: printable(redact(text)))
    report, lanes, runs = timeline.report, timeline.lanes, timeline.runs
    begin_s, span_s = timeline.begin_s, max(1.0, report.at_s - timeline.begin_s)

    def shape(css: str, y: int, height: int, text: str, at_s: float, end_s: float | None = None) -> Shape:
        x = _WIDTH * min(max(at_s - begin_s, 0.0), span_s) / span_s
        width = 0.0 if end_s is None else _WIDTH * (end_s - at_s) / span_s
        return Shape(
            css, f"{min(x, _WIDTH - _LEAST):.2f}", f"{max(width, _LEAST):.2f}", y, height, clean(text)
        )

    def run_row(name: str, chosen: list[PastRun]) -> TimelineRow:
        shapes = tuple(
            shape(f"run {COLOURS.get(run.word, 'red')}", 4, 16, _about_run(run, redact), run.at_s)
            for run in chosen
        )
        words = Counter(run.word for run in chosen).most_common()
        return TimelineRow(name, clean(", ".join(f"{count} {word}" for word, count in words)), "", shapes)

    def lane_row(lane: Lane) -> TimelineRow:
        # Overlapping revisions are drawn at different heights.
        shapes = [
            shape(f"bar {_css(bar)}", 8 + bar.revision.number % 2 * 6, 8, _about_bar(bar), *bar[1:])
            for bar in lane.bars
        ]
        for mark in lane.marks:
            css, text = f"mark {mark.kind.replace(' ', '-')}", f"{timestamp(mark.at_s)}: {mark.text}"
            shapes.append(shape(css, 0, 7, f"{mark.kind} {text}", mark.at_s))
        newest = lane.bars[-1] if lane.bars else None
        words = f"r{newest.revision.number} {_phase(newest)}" if newest else ""
        return TimelineRow(clean(lane.key), clean(words), _css(newest) if newest else "", tuple(shapes))

    counts = format_count(len(lanes), "key"), format_count(sum(len(one.bars) for one in lanes), "revision")
    hidden = [
        format_count(number, what)
        for number, what in (
            (timeline.hidden_revisions, "older revision"),
            (timeline.hidden_runs, "older run"),
        )
        if number
    ]
    return fragment(
        "lanes",
        level=level,
        stack=clean(report.stack),
        target=clean(report.target.name),
        where=clean(report.target.about),
        key="" if report.key is None else clean(report.key),
        created_at=timestamp(report.at_s),
        summary=f"{', '.join(counts)}." if lanes or runs else "Nothing is recorded yet.",
        hidden=f"Not shown: {' and '.join(hidden)}." if hidden else "",
        times=[timestamp(begin_s + span_s * place / (_TIMES - 1)) for place in range(_TIMES)],
        runs=[
            run_row("Applies", [run for run in runs if run.kind != RunKind.DRIFT]),
            run_row("Drift checks", [run for run in runs if run.kind == RunKind.DRIFT]),
        ],
        lanes=[*map(lane_row, lanes)],
        phases=(*_PHASES, "unknown"),
        run_words=_RUNS.items(),
        marks=[(kind.value, kind.replace(" ", "-")) for kind in MarkKind],
    )


def _css(bar: Bar) -> str:
    phase = bar.revision.phase
    return "unknown" if phase is None else phase.value.lower()


def _phase(bar: Bar) -> str:
    return bar.revision.phase_text or "not observed yet"


def _about_bar(bar: Bar) -> str:
    one = bar.revision
    facts = [*life_of(one), format_count(one.node_count, "node"), f"digest {one.digest}"]
    return f"r{one.number} {one.name}: {_phase(bar)}; {', '.join(facts)}"


def _about_run(run: PastRun, redact: Callable[[str], str]) -> str:
    counts = spell_counts(run.summary)
    about = f"#{run.id} {run.kind}: {run.word}, {timestamp(run.at_s)}, by {origin_of(run, redact)}"
    return f"{about}; {counts}" if counts else about
