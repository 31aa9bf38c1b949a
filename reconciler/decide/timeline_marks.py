"""The marks of a timeline: what was done to a job that exists, and what changed outside of an apply."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.core.phase import parse_phase
from reconciler.core.record import PastAction, PastRevision, PastRun
from reconciler.decide.drift_entry import DriftClass
from reconciler.decide.outcome import Status, spell_status
from reconciler.decide.plan import Action, Reason
from reconciler.decide.timeline_bars import Bar, BarState


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
        return self not in _NOT_OUTSIDE


_NOT_OUTSIDE = frozenset(
    {MarkKind.UPDATED, MarkKind.TERMINATED, MarkKind.FAILED, MarkKind.DRIFT_GONE, MarkKind.DRIFT_ACCEPTED}
)


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """Something that happened to a key at a time. `run` is the run that did or found it, if one did."""

    kind: MarkKind
    at_s: float
    text: str = ""
    run: int | None = None


_OF_REASONS: Mapping[str, MarkKind] = {
    Reason.ADOPTED: MarkKind.ADOPTED,
    Reason.MARKER_RESTORED: MarkKind.MARKER_RESTORED,
}
_OF_ACTIONS: Mapping[str, MarkKind] = {Action.UPDATE: MarkKind.UPDATED, Action.TERMINATE: MarkKind.TERMINATED}
#: What a drift check, or accept, has noted of a key: the word that stands in the place of an outcome.
_OF_DRIFT: Mapping[str, MarkKind] = {
    "new": MarkKind.DRIFT,
    "changed": MarkKind.DRIFT,
    "gone": MarkKind.DRIFT_GONE,
    "accepted": MarkKind.DRIFT_ACCEPTED,
}
_NOTED_BY = frozenset({"drift", "accept"})
#: Classes of drift that the bars tell themselves, and the one that is none.
_TOLD_OTHERWISE = frozenset({DriftClass.FAILED, DriftClass.TERMINATED, DriftClass.UNKNOWN})
_NOT_TRIED = frozenset({Status.SKIPPED, Status.INTERRUPTED})


def marks_by_key(
    runs: Sequence[PastRun],
    revisions: Iterable[PastRevision],
    bars: Mapping[str, Sequence[Bar]],
) -> dict[str, list[TimelineMark]]:
    """The marks of each key, oldest first. `runs` are given oldest first.

    What one run after another finds unchanged is marked once, when it was found first.
    """
    found: dict[str, list[TimelineMark]] = defaultdict(list)
    for of_key, mark in _of_runs(runs):
        found[of_key].append(mark)
    for one in revisions:
        found[one.key] += _of_revision(one)
    for of_key, of_bars in bars.items():
        found[of_key] += _ended_elsewhere(of_bars)
    return {of_key: sorted(marks, key=lambda mark: mark.at_s) for of_key, marks in found.items() if marks}


def _of_runs(runs: Sequence[PastRun]) -> Iterator[tuple[str, TimelineMark]]:
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
    """What of an outcome is marked. What a create or replace made is a bar, and the record of a revision says
    when it was released.
    """
    if action.action in _NOTED_BY:
        kind = _OF_DRIFT.get(action.status)
        return None if action.reason in _TOLD_OTHERWISE and kind is not MarkKind.DRIFT_ACCEPTED else kind
    if action.reason == Reason.NAME_TAKEN and action.action == Action.CONFLICT:
        return MarkKind.NAME_TAKEN
    if action.status == Status.DONE:
        is_recorded = action.reason == Reason.RELEASED
        return None if is_recorded else _OF_REASONS.get(action.reason) or _OF_ACTIONS.get(action.action)
    return None if action.status in _NOT_TRIED else MarkKind.FAILED


def _text(action: PastAction) -> str:
    said = action.detail
    if action.action in _NOTED_BY:
        return f"{action.reason}: {said}" if said else action.reason
    if action.status != Status.DONE and action.status not in _NOT_TRIED:
        said = f"{action.action} {spell_status(action.status)}" + (f": {said}" if said else "")
    return f"{said} ({action.code})" if action.code and action.code not in said else said


def _of_revision(one: PastRevision) -> Iterator[TimelineMark]:
    """What the looks at a job showed: that it was restarted; and that its marker was taken off."""
    if one.released_at_s is not None:
        said = f"{one.name} was released: its marker was taken off"
        yield TimelineMark(MarkKind.RELEASED, one.released_at_s, said)
    has_ended = False
    for text, at_s in one.phases:
        phase = parse_phase(text)
        if has_ended and phase is not None and phase.is_active:
            yield TimelineMark(MarkKind.RESTARTED, at_s, f"{one.name} was seen {text} after it had ended")
        has_ended = phase is not None and phase.is_terminal


def _ended_elsewhere(bars: Sequence[Bar]) -> Iterator[TimelineMark]:
    for bar in bars:
        if bar.state is BarState.TERMINATED_OUTSIDE:
            said = f"{bar.name} was terminated, not by an apply"
            yield TimelineMark(MarkKind.TERMINATED_OUTSIDE, bar.end_s, said)
