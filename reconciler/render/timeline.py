"""A history laid out over time, as one HTML page that loads nothing: a lane per key, its revisions as bars.

The page is a table with a row per key, which says in words what its lane shows. The numbers stand in a block
of JSON, from which the script `page/timeline.js` draws the lanes that are in view: nothing that was recorded
is ever read as markup or script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from jinja2.utils import htmlsafe_json_dumps

from reconciler.core.identity import remote_name
from reconciler.core.record import PastRun, RunKind
from reconciler.core.values import timestamp
from reconciler.decide.history import Bar, BarState, Lane, MarkKind, Timeline
from reconciler.decide.outcome import spell_counts
from reconciler.render.html import page
from reconciler.text import printable

_STATES, _MARKS = tuple(BarState), tuple(MarkKind)
#: Letters in the order of the enumerations, so that no meaning hangs on colour alone.
_STATE_LETTERS = dict(zip(_STATES, "QRECFATXL?", strict=True))
_MARK_LETTERS = dict(zip(_MARKS, "ut!gkdarxsmn", strict=True))
#: How a run went, from good to bad: the letter and the words of the legend.
_RANKS = {
    "good": ("", "complete, no drift"),
    "notable": ("P", "partial, drift"),
    "bad": ("!", "failed, unknown"),
}
_RANK_OF = {
    **dict.fromkeys(("complete", "no drift"), "good"),
    **dict.fromkeys(("drift", "running", "partial"), "notable"),
}
_NEVER = -1


def render_timeline(timeline: Timeline, redact: Callable[[str], str] = str) -> str:
    """A page with a lane per key; no secret that `redact` knows is in it."""
    clean = cache(lambda text: printable(redact(text)))
    lanes = timeline.lanes
    bars = [bar for lane in lanes for bar in lane.bars]
    summary = "Nothing is recorded yet."
    if bars or timeline.runs:
        revisions = _counted(len(bars), "revision", (bar.state for bar in bars), _STATES)
        outside = sum(mark.kind.is_outside for lane in lanes for mark in lane.marks)
        more = f" {_count(outside, 'change')} outside of an apply." if outside else ""
        summary = f"{_count(len(lanes), 'key')}, {revisions}.{more}"
    left_out = ((timeline.hidden_revisions, "older revision"), (timeline.hidden_runs, "older run"))
    hidden = " and ".join(_count(number, what) for number, what in left_out if number)
    return page(
        "timeline",
        stack=clean(timeline.stack),
        target=clean(timeline.target.name),
        where=clean(f"{timeline.target.endpoint}, project {timeline.target.project_id}"),
        key="" if timeline.key is None else clean(timeline.key),
        version=timeline.version,
        created_at=timestamp(timeline.at_s),
        summary=summary,
        runs={
            "applies": clean(_count_runs(timeline, are_checks=False)),
            "checks": clean(_count_runs(timeline, are_checks=True)),
        },
        hidden=f"Not shown: {hidden}." if hidden else "",
        rows=[_row(lane, clean) for lane in lanes],
        legend=_legend(timeline, bars),
        data=_data(timeline, clean),
    )


# ── in words ────────────────────────────────────────────────────────────────────────────────────────


def _count_runs(timeline: Timeline, *, are_checks: bool) -> str:
    words = [run.word for run in timeline.runs if _is_check(run) is are_checks]
    order = sorted(set(words), key=lambda word: (list(_RANKS).index(_rank(word)), word))
    return _counted(len(words), "drift check" if are_checks else "run", words, order)


def _row(lane: Lane, clean: Callable[[str], str]) -> dict[str, str]:
    newest = lane.bars[-1] if lane.bars else None
    parts = [_counted(len(lane.bars), "revision", (bar.state for bar in lane.bars), _STATES)]
    if newest:
        until = "" if newest.is_open else f" to {timestamp(newest.end_s)}"
        parts.append(f"r{newest.number} {newest.state} {timestamp(newest.begin_s)}{until}")
    if lane.marks:
        parts.append("marked: " + _counts((mark.kind for mark in lane.marks), _MARKS))
    return {
        "key": clean(lane.key),
        "state": newest.state if newest else "none",
        "newest": f"r{newest.number}" if newest else "",
        "text": "; ".join(parts),
    }


def _counted(number: int, what: str, words: Iterable[str], order: Iterable[str]) -> str:
    counts = _counts(words, order)
    return _count(number, what) + (f": {counts}" if counts else "")


def _counts(words: Iterable[str], order: Iterable[str]) -> str:
    counts = Counter(words)
    return ", ".join(f"{counts[word]:,} {word}" for word in order if counts[word])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _legend(timeline: Timeline, bars: Iterable[Bar]) -> dict[str, list[dict[str, str]]]:
    """What occurs, each with its look, its letter and its word."""
    states = {bar.state for bar in bars}
    if any(bar.started_s is not None for bar in bars):
        states.add(BarState.QUEUED)
    marks = {mark.kind for lane in timeline.lanes for mark in lane.marks}
    ranks = {_rank(run.word) for run in timeline.runs}
    found: dict[str, list[tuple[str, str, str]]] = {
        "Revisions": [(f"bar {_css(one)}", _STATE_LETTERS[one], one) for one in _STATES if one in states],
        "Changes": [(f"mark {_look(one)}", _MARK_LETTERS[one], one) for one in _MARKS if one in marks],
        "Runs": [(f"run {rank}", *words) for rank, words in _RANKS.items() if rank in ranks],
    }
    names = ("css", "letter", "word")
    return {name: [dict(zip(names, one, strict=True)) for one in entries] for name, entries in found.items()}


def _css(state: BarState) -> str:
    return state.value.replace(" ", "-")


def _look(kind: MarkKind) -> str:
    return "outside" if kind.is_outside else "failure" if kind is MarkKind.FAILED else "ours"


def _is_check(run: PastRun) -> bool:
    return run.kind == RunKind.DRIFT


def _rank(word: str) -> str:
    return _RANK_OF.get(word, "bad")


# ── as numbers ──────────────────────────────────────────────────────────────────────────────────────


def _data(timeline: Timeline, clean: Callable[[str], str]) -> str:
    """What the script draws: times in seconds after the first one, texts by their places in one list."""
    places = {"": 0}
    begin_s = int(timeline.begin_s)

    def place(text: str) -> int:
        return places.setdefault(clean(text), len(places))

    def after(at_s: float) -> int:
        return round(at_s) - begin_s

    def bar_numbers(key: str, bar: Bar) -> Iterator[int]:
        begin = after(bar.begin_s)
        yield from (bar.number, begin, _NEVER if bar.started_s is None else after(bar.started_s) - begin)
        yield from (after(bar.end_s) - begin, _STATES.index(bar.state), bar.is_open + 2 * bar.is_found)
        yield from (bar.track, bar.node_count, place(bar.digest), bar.run or 0)
        if bar.name != remote_name(key, bar.number) or bar.state is BarState.UNKNOWN:
            yield from (place(bar.name), place(bar.phase))

    def run_numbers(run: PastRun) -> Iterator[int]:
        begin = after(run.at_s)
        yield from (run.id, int(_is_check(run)), list(_RANKS).index(_rank(run.word)), begin)
        yield _NEVER if run.ended_at_s is None else max(0, after(run.ended_at_s) - begin)
        yield from map(place, (run.kind, run.word, run.who, run.where, run.commit, spell_counts(run.summary)))

    lanes = [
        [
            [list(bar_numbers(lane.key, bar)) for bar in lane.bars],
            [[_MARKS.index(one.kind), after(one.at_s), place(one.text), one.run or 0] for one in lane.marks],
        ]
        for lane in timeline.lanes
    ]
    data = {
        "begin": begin_s,
        "end": after(timeline.end_s),
        "now": after(timeline.at_s),
        "states": [[state.value, _css(state), _STATE_LETTERS[state]] for state in _STATES],
        "marks": [[kind.value, _look(kind), _MARK_LETTERS[kind]] for kind in _MARKS],
        "ranks": list(_RANKS),
        "lanes": lanes,
        "runs": [list(run_numbers(run)) for run in timeline.runs],
        "texts": list(places),
    }
    return htmlsafe_json_dumps(data, separators=(",", ":"))
