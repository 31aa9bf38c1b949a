"""A history laid out over time, as one HTML page that loads nothing: a lane per key, its revisions as bars.

The page is a table with a row per key, which says in words what its lane shows. The numbers stand in a block
of JSON, from which the script `page/timeline.js` draws the lanes that are in view: nothing that was recorded
is ever read as markup or script.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from jinja2.utils import htmlsafe_json_dumps

from reconciler.core.identity import remote_name
from reconciler.core.record import PastRun, RunKind
from reconciler.core.values import timestamp
from reconciler.decide.outcome import spell_status
from reconciler.decide.timeline import Lane, Timeline
from reconciler.decide.timeline_bars import Bar, BarState
from reconciler.decide.timeline_marks import MarkKind
from reconciler.render.html import page
from reconciler.text import printable

_STYLES = ("page.css", "timeline/timeline.css")
_SCRIPTS = tuple(f"timeline/{name}.js" for name in ("values", "scale", "lanes", "runs", "controls"))
_STATES, _MARKS = tuple(BarState), tuple(MarkKind)
#: By letter, and by pattern, every state reads without its colour.
_LETTERS = {
    BarState.QUEUED: "Q",
    BarState.RUNNING: "R",
    BarState.TERMINATING: "E",
    BarState.COMPLETED: "C",
    BarState.FAILED: "F",
    BarState.ABNORMAL: "A",
    BarState.TERMINATED: "T",
    BarState.TERMINATED_OUTSIDE: "X",
    BarState.RELEASED: "L",
    BarState.UNKNOWN: "?",
}
_MARK_LETTERS = {
    MarkKind.UPDATED: "u",
    MarkKind.TERMINATED: "t",
    MarkKind.FAILED: "!",
    MarkKind.DRIFT_GONE: "g",
    MarkKind.DRIFT_ACCEPTED: "k",
    MarkKind.DRIFT: "d",
    MarkKind.ADOPTED: "a",
    MarkKind.RELEASED: "r",
    MarkKind.TERMINATED_OUTSIDE: "x",
    MarkKind.RESTARTED: "s",
    MarkKind.MARKER_RESTORED: "m",
    MarkKind.NAME_TAKEN: "n",
}
_NOT_STARTED = -1
_GOOD, _NOTABLE, _BAD = "good", "notable", "bad"
_RANKS = {"complete": _GOOD, "no drift": _GOOD, "drift": _NOTABLE, "running": _NOTABLE, "partial": _NOTABLE}
_RANK_ORDER = (_GOOD, _NOTABLE, _BAD)
_Clean = Callable[[str], str]


class _Row(NamedTuple):
    """A lane in words."""

    key: str
    state: str
    newest: str
    text: str


class _Entry(NamedTuple):
    """A line of the legend: what a letter and a look stand for."""

    css: str
    letter: str
    word: str


def render_timeline(timeline: Timeline, redact: Callable[[str], str] = str) -> str:
    """A page with a lane per key; no secret that `redact` knows is in it."""
    clean: _Clean = cache(lambda text: printable(redact(text)))
    return page(
        "timeline",
        stack=clean(timeline.stack),
        target=clean(timeline.target.name),
        where=clean(f"{timeline.target.endpoint}, project {timeline.target.project_id}"),
        key="" if timeline.key is None else clean(timeline.key),
        version=timeline.version,
        created_at=timestamp(timeline.at_s),
        summary=_summary(timeline),
        runs={
            "applies": clean(_runs_in_words(timeline, False)),
            "checks": clean(_runs_in_words(timeline, True)),
        },
        hidden=_hidden(timeline),
        rows=[_row(lane, clean) for lane in timeline.lanes],
        legend={"Revisions": _states(timeline), "Changes": _marks(timeline), "Runs": _ranks(timeline)},
        data=_data(timeline, clean),
    )


# --- in words


def _summary(timeline: Timeline) -> str:
    bars = [bar for lane in timeline.lanes for bar in lane.bars]
    if not bars and not timeline.runs:
        return "Nothing is recorded yet."
    outside = sum(mark.kind.is_outside for lane in timeline.lanes for mark in lane.marks)
    said = f"{_count(len(timeline.lanes), 'key')}, {_count(len(bars), 'revision')}"
    ends = _counts(Counter(bar.state.value for bar in bars), (state.value for state in _STATES))
    said += f": {ends}." if ends else "."
    return said + (f" {_count(outside, 'change')} outside of an apply." if outside else "")


def _runs_in_words(timeline: Timeline, are_checks: bool) -> str:
    found = [run for run in timeline.runs if _is_check(run) is are_checks]
    results = Counter(run.word for run in found)
    word = "drift check" if are_checks else "run"
    said = _counts(results, sorted(results, key=lambda one: (_RANK_ORDER.index(_rank(one)), one)))
    return _count(len(found), word) + (f": {said}" if said else "")


def _hidden(timeline: Timeline) -> str:
    left_out = [(timeline.hidden_revisions, "revision"), (timeline.hidden_runs, "run")]
    said = " and ".join(_count(number, f"older {what}") for number, what in left_out if number)
    return f"Not shown: {said}." if said else ""


def _row(lane: Lane, clean: _Clean) -> _Row:
    newest = lane.bars[-1] if lane.bars else None
    state = newest.state.value if newest else "none"
    ends = _counts(Counter(bar.state.value for bar in lane.bars), (one.value for one in _STATES))
    said = [_count(len(lane.bars), "revision") + (f": {ends}" if ends else "")]
    if newest:
        until = "" if newest.is_open else f" to {timestamp(newest.end_s)}"
        said.append(f"r{newest.number} {state} {timestamp(newest.begin_s)}{until}")
    marks = Counter(mark.kind.value for mark in lane.marks)
    if marks:
        said.append("marked: " + _counts(marks, (kind.value for kind in _MARKS)))
    return _Row(clean(lane.key), state, f"r{newest.number}" if newest else "", "; ".join(said))


def _counts(counts: Counter[str], order: Iterable[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in order if counts[name])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _states(timeline: Timeline) -> list[_Entry]:
    """The states that occur, for the legend."""
    there = {bar.state for lane in timeline.lanes for bar in lane.bars}
    if any(bar.started_s is not None for lane in timeline.lanes for bar in lane.bars):
        there.add(BarState.QUEUED)
    return [_Entry(f"bar {_css(one)}", _LETTERS[one], one.value) for one in _STATES if one in there]


def _marks(timeline: Timeline) -> list[_Entry]:
    there = {mark.kind for lane in timeline.lanes for mark in lane.marks}
    return [_Entry(f"mark {_look(one)}", _MARK_LETTERS[one], one.value) for one in _MARKS if one in there]


def _ranks(timeline: Timeline) -> list[_Entry]:
    there = {_rank(run.word) for run in timeline.runs}
    words = {
        _GOOD: ("", "complete, no drift"),
        _NOTABLE: ("P", "partial, drift"),
        _BAD: ("!", "failed, unknown"),
    }
    return [_Entry(f"run {rank}", *words[rank]) for rank in _RANK_ORDER if rank in there]


def _css(state: BarState) -> str:
    return state.value.replace(" ", "-")


def _look(kind: MarkKind) -> str:
    return "outside" if kind.is_outside else "failure" if kind is MarkKind.FAILED else "ours"


# --- as numbers


class _Texts:
    """Every text once; elsewhere it stands by its place."""

    def __init__(self, clean: _Clean) -> None:
        self._clean, self._places = clean, {"": 0}

    def place(self, text: str) -> int:
        return self._places.setdefault(self._clean(text), len(self._places))

    @property
    def every(self) -> list[str]:
        return list(self._places)


def _data(timeline: Timeline, clean: _Clean) -> str:
    """What the script draws: times in seconds after the first one, texts by their places in one list."""
    texts = _Texts(clean)
    begin_s = int(timeline.begin_s)

    def after(at_s: float) -> int:
        return round(at_s) - begin_s

    lanes = [_lane(lane, texts, after) for lane in timeline.lanes]
    runs = [number for run in timeline.runs for number in _run(run, texts, after)]
    data = {
        "begin": begin_s,
        "end": after(timeline.end_s),
        "now": after(timeline.at_s),
        "states": [[state.value, _css(state), _LETTERS[state]] for state in _STATES],
        "marks": [[kind.value, _look(kind), _MARK_LETTERS[kind]] for kind in _MARKS],
        "ranks": list(_RANK_ORDER),
        "lanes": lanes,
        "runs": runs,
        "texts": texts.every,
    }
    return htmlsafe_json_dumps(data, dumps=_compact)


def _compact(value: Any, **_: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lane(lane: Lane, texts: _Texts, after: Callable[[float], int]) -> list[list[int]]:
    """Bars and marks, their numbers in a row; and the names and phases that the numbers do not tell."""
    bars = [number for bar in lane.bars for number in _bar(bar, texts, after)]
    odd = [
        number
        for place, bar in enumerate(lane.bars)
        if bar.name != remote_name(lane.key, bar.number) or bar.state is BarState.UNKNOWN
        for number in (place, texts.place(bar.name), texts.place(bar.phase))
    ]
    marks = [
        number
        for mark in lane.marks
        for number in (_MARKS.index(mark.kind), after(mark.at_s), texts.place(mark.text), mark.run or 0)
    ]
    return [bars, odd, marks]


def _bar(bar: Bar, texts: _Texts, after: Callable[[float], int]) -> tuple[int, ...]:
    begin = after(bar.begin_s)
    return (
        bar.number,
        begin,
        _NOT_STARTED if bar.started_s is None else after(bar.started_s) - begin,
        after(bar.end_s) - begin,
        _STATES.index(bar.state),
        bar.is_open + 2 * bar.is_found,
        bar.track,
        bar.node_count,
        texts.place(bar.digest),
        bar.run or 0,
    )


def _run(run: PastRun, texts: _Texts, after: Callable[[float], int]) -> tuple[int, ...]:
    counts = ", ".join(f"{number} {spell_status(name)}" for name, number in run.summary.items() if number)
    begin = after(run.at_s)
    return (
        run.id,
        int(_is_check(run)),
        _RANK_ORDER.index(_rank(run.word)),
        begin,
        -1 if run.ended_at_s is None else max(0, after(run.ended_at_s) - begin),
        *(texts.place(text) for text in (run.kind, run.word, run.who, run.where, run.commit, counts)),
    )


def _is_check(run: PastRun) -> bool:
    return run.kind == RunKind.DRIFT


def _rank(word: str) -> str:
    return _RANKS.get(word, _BAD)
