"""The bars of a timeline: a revision each, from its creation to its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from reconciler.core.phase import Phase
from reconciler.core.record import Call, PastRevision, PastRun
from reconciler.core.stack import Declared
from reconciler.decide.key_state import AUTO_STOP_SLACK_S

#: Revisions that overlap by less are one after the other: the service tells times in whole seconds.
_OVERLAP_S = 1.0
#: So many revisions of a key are drawn side by side; more than that share the last place.
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


@dataclass(frozen=True, slots=True)
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


class _Creation(NamedTuple):
    """The call that created a job."""

    run: int
    at_s: float


def bars_by_key(
    runs: Iterable[PastRun], revisions: Iterable[PastRevision], at_s: float
) -> dict[str, tuple[Bar, ...]]:
    """The bars of each key, oldest first; what goes on lasts until `at_s`."""
    runs = tuple(runs)
    created, ended = _creations(runs), _terminated_jobs(runs)
    by_key: dict[str, list[PastRevision]] = defaultdict(list)
    for one in revisions:
        by_key[one.key].append(one)
    return {
        key: _bars(sorted(of_key, key=lambda one: one.number), created, ended, at_s)
        for key, of_key in by_key.items()
    }


def _creations(runs: Iterable[PastRun]) -> dict[str, _Creation]:
    """Name of a job → the call that created it; the service gives no name twice."""
    return {
        step.name: _Creation(run.id, step.at_s)
        for run in runs
        for step in run.steps
        if step.call == Call.CREATE and step.ok is not False
    }


def _terminated_jobs(runs: Iterable[PastRun]) -> frozenset[str]:
    """The jobs that we ended: also where no look has shown the note of it on the job since."""
    return frozenset(
        step.job
        for run in runs
        for step in run.steps
        if step.call == Call.TERMINATE and step.job and step.ok is not False
    )


def _bars(
    revisions: Sequence[PastRevision],
    created: Mapping[str, _Creation],
    ended: frozenset[str],
    at_s: float,
) -> tuple[Bar, ...]:
    """The bars of one key; of its revisions, oldest first."""
    begins = [_begin_s(one, created, at_s) for one in revisions]
    free_from_s: list[float] = []
    bars = []
    for one, begin_s, next_s in zip(revisions, begins, [*begins[1:], at_s], strict=True):
        later_s = next_s if next_s > begin_s else at_s
        known_s = one.ended_at_s if one.has_ended else None
        end_s = known_s if known_s is not None else _open_end_s(one, begin_s, later_s)
        end_s = calendar_time(max(begin_s, end_s))
        creation = created.get(one.name)
        bars.append(
            Bar(
                number=one.number,
                name=one.name,
                state=state_of(one, ended),
                phase=one.phase_text,
                begin_s=begin_s,
                started_s=None if one.started_at_s is None else calendar_time(max(begin_s, one.started_at_s)),
                end_s=end_s,
                is_found=one.created_at_s is None and creation is None,
                is_open=known_s is None,
                track=_place(free_from_s, begin_s, end_s),
                node_count=one.node_count,
                digest=one.digest,
                run=creation.run if creation else None,
            )
        )
    return tuple(bars)


def _begin_s(one: PastRevision, created: Mapping[str, _Creation], at_s: float) -> float:
    """When it was created, by the service, else by our call; else when it was seen first."""
    if one.created_at_s is not None:
        return calendar_time(one.created_at_s)
    if creation := created.get(one.name):
        return calendar_time(creation.at_s)
    seen_s = one.phases[0][1] if one.phases else one.seen_at_s
    return calendar_time(at_s if seen_s is None else min(seen_s, at_s))


def _open_end_s(one: PastRevision, begin_s: float, later_s: float) -> float:
    """Until when to draw one whose end is not known: what has ended ends where it was seen so first."""
    if one.released_at_s is not None:
        return one.released_at_s
    if one.has_ended:
        return one.phases[-1][1] if one.phases else begin_s
    return later_s


def _place(free_from_s: list[float], begin_s: float, end_s: float) -> int:
    """The first track that is free again; a new one if none is."""
    for track, free_s in enumerate(free_from_s):
        if begin_s >= free_s - _OVERLAP_S:
            free_from_s[track] = end_s
            return track
    if len(free_from_s) < _MOST_TRACKS:
        free_from_s.append(end_s)
    return len(free_from_s) - 1


def state_of(one: PastRevision, ended: frozenset[str]) -> BarState:
    """How a revision was seen last; `ended` are the jobs that we terminated."""
    if one.released_at_s is not None and not one.has_ended:
        return BarState.RELEASED
    # What was created, and nobody has looked at since, waits for all that is known.
    state = _STATES[one.phase] if one.phase_text else BarState.QUEUED
    if state is not BarState.TERMINATED or one.stopped or one.job in ended or _stopped_itself(one):
        return state
    return BarState.TERMINATED_OUTSIDE


def _stopped_itself(one: PastRevision) -> bool:
    """Whether it ran for its auto_stop, give or take five minutes (docs/semantics.md, "Decisions")."""
    hours = _auto_stop_hours(one.declared)
    return hours is not None and (one.duration_s or 0.0) >= hours * 3600 - AUTO_STOP_SLACK_S


def _auto_stop_hours(declared: Declared | None) -> float | None:
    """What was declared, of the canonical form: there a number may be a text."""
    spec = declared.immutable.get("spec") if declared else None
    auto_stop = spec.get("auto_stop") if isinstance(spec, Mapping) else None
    hours = auto_stop.get("duration") if isinstance(auto_stop, Mapping) else None
    try:
        return float(hours) if isinstance(hours, str | int | float) else None
    except ValueError:
        return None


def calendar_time(at_s: float) -> float:
    """A time that a calendar has."""
    return min(max(at_s, 0.0), _END_OF_TIME_S)
