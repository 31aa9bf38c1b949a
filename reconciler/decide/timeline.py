"""What was recorded of a stack, laid out over time: a lane per key, its revisions as bars, and marks.

A mark is something that was done to a job that exists, or that changed outside of an apply.
Values only: `render/timeline.py` makes a page of them. Times are seconds since 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import Call, PastAction, PastRevision, PastRun, PastStep
from reconciler.core.values import TargetIdentity
from reconciler.decide.drift_check import DriftClass
from reconciler.decide.history_report import HistoryExcerpt
from reconciler.decide.key_state import AUTO_STOP_SLACK_S
from reconciler.decide.outcome import Status, spell_status
from reconciler.decide.plan import Action, Reason

#: How many revisions and runs are laid out, the newest ones: a page of more is too large to be opened.
MOST_BARS = 100_000
MOST_RUNS = 20_000
#: Revisions that overlap by less are one after the other: the service tells times in whole seconds.
_OVERLAP_S = 1.0
#: How many revisions of a key are drawn side by side; more than that share the last place.
_MOST_TRACKS = 8
_END_OF_TIME_S = 253_402_300_799.0


class BarState(StrEnum):
    """How a revision was when it was seen last; of one that was released while active, that."""

    QUEUED = "queued"
    RUNNING = "running"
    TERMINATING = "terminating"
    COMPLETED = "completed"
    FAILED = "failed"
    ABNORMAL = "abnormal"
    TERMINATED = "terminated"
    TERMINATED_OUTSIDE = "terminated elsewhere"
    RELEASED = "released"
    UNKNOWN = "unknown"


class MarkKind(StrEnum):
    """What is marked. The later ones are of what changed outside of an apply."""

    UPDATED = "updated"
    TERMINATED = "terminated by us"
    FAILED = "action failed"
    DRIFT_GONE = "drift gone"
    DRIFT_ACCEPTED = "drift accepted"
    DRIFT = "drift found"
    ADOPTED = "adopted"
    RELEASED = "released"
    TERMINATED_OUTSIDE = "terminated elsewhere"
    RESTARTED = "restarted elsewhere"
    MARKER_RESTORED = "marker restored"
    NAME_TAKEN = "name taken"

    @property
    def is_outside(self) -> bool:
        """Whether it says that something changed outside of an apply."""
        kinds = list(MarkKind)
        return kinds.index(self) >= kinds.index(MarkKind.DRIFT)


@dataclass(frozen=True)
class Bar:
    """A revision of a key, from its creation to its end.

    `started_s` is None for one that never started, or of which that is not known. One whose creation is not
    known `is_found`: it begins with the first look that saw it. One without a known end `is_open`, and lasts
    until the time of the report or until what came after it. `track` is its place
    beside revisions of the same time, from 0. `run` is the run that created it, if that is on record.
    """

    number: int
    name: str
    state: BarState
    phase: str
    begin_s: float
    started_s: float | None
    end_s: float
    is_found: bool
    is_open: bool
    track: int
    node_count: int
    digest: str
    run: int | None


@dataclass(frozen=True)
class TimelineMark:
    """Something that happened to a key at a time. `run` is the run that did or found it, if one did."""

    kind: MarkKind
    at_s: float
    text: str = ""
    run: int | None = None


@dataclass(frozen=True)
class Lane:
    """What is known of one key: its revisions and its marks, oldest first."""

    key: str
    bars: tuple[Bar, ...]
    marks: tuple[TimelineMark, ...]


@dataclass(frozen=True)
class Timeline:
    """Lanes by key, and the runs of the stack, oldest first. `key` is None for all keys.

    `hidden_revisions` and `hidden_runs` are how many older ones were left out.
    """

    stack: str
    target: TargetIdentity
    version: str
    at_s: float
    begin_s: float
    end_s: float
    lanes: tuple[Lane, ...]
    runs: tuple[PastRun, ...]
    key: str | None = None
    hidden_revisions: int = 0
    hidden_runs: int = 0


def make_timeline(
    stack: str, target: TargetIdentity, shown: HistoryExcerpt, *, version: str, at_s: float
) -> Timeline:
    """Lay out a history, of which runs and revisions are given newest first.

    What goes on lasts until `at_s`.
    """
    runs, revisions = tuple(shown.runs[:MOST_RUNS][::-1]), shown.revisions[:MOST_BARS]
    bars = _bars_by_key(runs, revisions, at_s)
    marks = _marks_by_key(runs, revisions, bars)
    keys = {*bars, *marks} if shown.key is None else {shown.key}
    lanes = tuple(Lane(key, bars.get(key, ()), marks.get(key, ())) for key in sorted(keys))
    every_bar = [bar for lane in lanes for bar in lane.bars]
    end_s = max([at_s, *(bar.end_s for bar in every_bar), *(run.at_s for run in runs)])
    begin_s = min([end_s, *(bar.begin_s for bar in every_bar), *(run.at_s for run in runs)])
    return Timeline(
        stack=stack,
        target=target,
        version=version,
        at_s=at_s,
        begin_s=_calendar_time(begin_s),
        end_s=_calendar_time(end_s),
        lanes=lanes,
        runs=runs,
        key=shown.key,
        hidden_revisions=len(shown.revisions) - len(revisions),
        hidden_runs=len(shown.runs) - len(runs),
    )


def _calendar_time(at_s: float) -> float:
    """A time that a calendar has."""
    return min(max(at_s, 0.0), _END_OF_TIME_S)


# ── bars ────────────────────────────────────────────────────────────────────────────────────────────

_STATES: Mapping[Phase | None, BarState] = {
    None: BarState.UNKNOWN,
    Phase.CREATING: BarState.QUEUED,
    Phase.PENDING: BarState.QUEUED,
    Phase.RUNNING: BarState.RUNNING,
    Phase.TERMINATING: BarState.TERMINATING,
    Phase.COMPLETED: BarState.COMPLETED,
    Phase.FAILED: BarState.FAILED,
    Phase.ABNORMAL: BarState.ABNORMAL,
    Phase.TERMINATED: BarState.TERMINATED,
}


def _bars_by_key(
    runs: Sequence[PastRun], revisions: Iterable[PastRevision], at_s: float
) -> dict[str, tuple[Bar, ...]]:
    """The bars of each key, oldest first."""
    steps = [(run.id, step) for run in runs for step in run.steps if step.ok is not False]
    # The service gives no name twice. A job that we ended may not have been looked at since.
    created = {step.name: (run, step) for run, step in steps if step.call == Call.CREATE}
    ended = {step.job for _, step in steps if step.call == Call.TERMINATE and step.job}
    by_key: dict[str, list[PastRevision]] = defaultdict(list)
    for one in revisions:
        by_key[one.key].append(one)
    return {
        key: tuple(_bars(sorted(of_key, key=lambda one: one.number), created, ended, at_s))
        for key, of_key in by_key.items()
    }


def _bars(
    revisions: Sequence[PastRevision],
    created: Mapping[str, tuple[int, PastStep]],
    ended: Iterable[str],
    at_s: float,
) -> Iterator[Bar]:
    """The bars of one key; of its revisions, oldest first."""
    begins = [_begin_s(one, created, at_s) for one in revisions]
    free_from_s: list[float] = []
    for one, begin_s, next_s in zip(revisions, begins, [*begins[1:], at_s], strict=True):
        known_s = one.ended_at_s if one.has_ended else None
        end_s = known_s
        if end_s is None:
            end_s = _open_end_s(one, begin_s, next_s if next_s > begin_s else at_s)
        end_s = _calendar_time(max(begin_s, end_s))
        started_s = one.started_at_s
        yield Bar(
            number=one.number,
            name=one.name,
            state=_state_of(one, ended),
            phase=one.phase_text,
            begin_s=begin_s,
            started_s=None if started_s is None else _calendar_time(max(begin_s, started_s)),
            end_s=end_s,
            is_found=one.created_at_s is None and one.name not in created,
            is_open=known_s is None,
            track=_track(free_from_s, begin_s, end_s),
            node_count=one.node_count,
            digest=one.digest,
            run=created[one.name][0] if one.name in created else None,
        )


def _begin_s(one: PastRevision, created: Mapping[str, tuple[int, PastStep]], at_s: float) -> float:
    """When it was created, by the service, else by our call; else when it was seen first."""
    if one.created_at_s is not None:
        return _calendar_time(one.created_at_s)
    if one.name in created:
        return _calendar_time(created[one.name][1].at_s)
    seen_s = one.phases[0][1] if one.phases else one.seen_at_s
    return _calendar_time(at_s if seen_s is None else min(seen_s, at_s))


def _open_end_s(one: PastRevision, begin_s: float, later_s: float) -> float:
    """Until when to draw one whose end is not known: what has ended ends where it was seen so first."""
    if one.released_at_s is not None:
        return one.released_at_s
    if one.has_ended:
        return one.phases[-1][1] if one.phases else begin_s
    return later_s


def _track(free_from_s: list[float], begin_s: float, end_s: float) -> int:
    """The first track that is free again; a new one if none is."""
    for track, free_s in enumerate(free_from_s):
        if begin_s >= free_s - _OVERLAP_S:
            free_from_s[track] = end_s
            return track
    if len(free_from_s) < _MOST_TRACKS:
        free_from_s.append(end_s)
    return len(free_from_s) - 1


def _state_of(one: PastRevision, ended: Iterable[str]) -> BarState:
    """How a revision was seen last; `ended` are the jobs that we terminated."""
    if one.released_at_s is not None and not one.has_ended:
        return BarState.RELEASED
    # A job that was created and not observed since is taken for queued.
    state = _STATES[one.phase] if one.phase_text else BarState.QUEUED
    if state is not BarState.TERMINATED or one.stopped or one.job in ended or _stopped_itself(one):
        return state
    return BarState.TERMINATED_OUTSIDE


def _stopped_itself(one: PastRevision) -> bool:
    """Whether it ran for its auto_stop, give or take five minutes (docs/semantics.md, "Decisions")."""
    found: object = one.declared.immutable if one.declared else None
    for name in ("spec", "auto_stop", "duration"):
        found = found.get(name) if isinstance(found, Mapping) else None
    try:
        # In the canonical form a number may be a text.
        hours = float(found) if isinstance(found, str | int | float) else None
    except ValueError:
        return False
    return hours is not None and (one.duration_s or 0.0) >= hours * 3600 - AUTO_STOP_SLACK_S


# ── marks ───────────────────────────────────────────────────────────────────────────────────────────

_REASONS: Mapping[str, MarkKind] = {
    Reason.ADOPTED: MarkKind.ADOPTED,
    Reason.MARKER_RESTORED: MarkKind.MARKER_RESTORED,
}
_ACTIONS: Mapping[str, MarkKind] = {Action.UPDATE: MarkKind.UPDATED, Action.TERMINATE: MarkKind.TERMINATED}
#: What a drift check, or accept, has noted of a key, in the place of an outcome.
_DRIFT: Mapping[str, MarkKind] = {
    "new": MarkKind.DRIFT,
    "changed": MarkKind.DRIFT,
    "gone": MarkKind.DRIFT_GONE,
    "accepted": MarkKind.DRIFT_ACCEPTED,
}
_CHECKS = frozenset({"drift", "accept"})
#: Classes of drift that the bars show themselves, and the one that is none.
_SHOWN_BY_BARS = frozenset({DriftClass.FAILED, DriftClass.TERMINATED, DriftClass.UNKNOWN})
_NOT_TRIED = frozenset({Status.SKIPPED, Status.INTERRUPTED})


def _marks_by_key(
    runs: Sequence[PastRun], revisions: Iterable[PastRevision], bars: Mapping[str, Sequence[Bar]]
) -> dict[str, tuple[TimelineMark, ...]]:
    """The marks of each key, oldest first; `runs` are oldest first, too."""
    found: dict[str, list[TimelineMark]] = defaultdict(list)
    for key, mark in _marks_of_runs(runs):
        found[key].append(mark)
    for one in revisions:
        found[one.key] += _marks_of_revision(one)
    for key, of_key in bars.items():
        found[key] += (
            TimelineMark(
                MarkKind.TERMINATED_OUTSIDE, bar.end_s, f"{bar.name} was terminated, not by an apply"
            )
            for bar in of_key
            if bar.state is BarState.TERMINATED_OUTSIDE
        )
    return {key: tuple(sorted(marks, key=lambda one: one.at_s)) for key, marks in found.items() if marks}


def _marks_of_runs(runs: Sequence[PastRun]) -> Iterator[tuple[str, TimelineMark]]:
    """What one run after another finds unchanged is marked once, when it was found first."""
    last: dict[str, tuple[MarkKind, str]] = {}
    for run in runs:
        times = {step.key: step.ended_at_s or step.at_s for step in run.steps}
        for action in run.actions:
            kind = _kind(action)
            if kind is None:
                if action.status == Status.DONE:
                    last.pop(action.key, None)
                continue
            text = _text(action)
            if kind in (MarkKind.FAILED, MarkKind.NAME_TAKEN) and last.get(action.key) == (kind, text):
                continue
            last[action.key] = kind, text
            at_s = times.get(action.key, run.ended_at_s or run.at_s)
            yield action.key, TimelineMark(kind, at_s, text, run.id)


def _kind(action: PastAction) -> MarkKind | None:
    """How an outcome is marked, if it is.

    What a create or replace made is a bar, and the record of a revision says when it was released.
    """
    if action.action in _CHECKS:
        kind = _DRIFT.get(action.status)
        return None if action.reason in _SHOWN_BY_BARS and kind is not MarkKind.DRIFT_ACCEPTED else kind
    if action.reason == Reason.NAME_TAKEN and action.action == Action.CONFLICT:
        return MarkKind.NAME_TAKEN
    if action.status == Status.DONE:
        is_recorded = action.reason == Reason.RELEASED
        return None if is_recorded else _REASONS.get(action.reason) or _ACTIONS.get(action.action)
    return None if action.status in _NOT_TRIED else MarkKind.FAILED


def _text(action: PastAction) -> str:
    detail = action.detail
    if action.action in _CHECKS:
        return f"{action.reason}: {detail}" if detail else action.reason
    if action.status != Status.DONE and action.status not in _NOT_TRIED:
        detail = f"{action.action} {spell_status(action.status)}" + (f": {detail}" if detail else "")
    return f"{detail} ({action.code})" if action.code and action.code not in detail else detail


def _marks_of_revision(one: PastRevision) -> Iterator[TimelineMark]:
    """Marks that looking at a job gives: that it was restarted; and that its marker was taken off."""
    if one.released_at_s is not None:
        text = f"{one.name} was released: its marker was taken off"
        yield TimelineMark(MarkKind.RELEASED, one.released_at_s, text)
    has_ended = False
    for text, at_s in one.phases:
        phase = parse_phase(text)
        if has_ended and phase is not None and phase.is_active:
            yield TimelineMark(MarkKind.RESTARTED, at_s, f"{one.name} was seen {text} after it had ended")
        has_ended = phase is not None and phase.is_terminal
