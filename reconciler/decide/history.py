"""What was recorded of a stack: the runs and revisions as a document, and laid out over time.

`HistoryReport` crosses the process boundary (`history --json`), so it is a frozen model with a schema. A
`Timeline` has a lane per key, its revisions as bars, and marks; `render/timeline.py` makes a page of it.
A mark is something that was done to a job that exists, or that changed outside of an apply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import Field

from reconciler.core.canonical import mutable_paths
from reconciler.core.diff import changes_between, spell_path
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import Call, HistorySnapshot, PastAction, PastRevision, PastRun, PastStep
from reconciler.core.stack import Declared
from reconciler.core.values import Change, Frozen, Head, TargetIdentity, timestamp, timestamp_or_none
from reconciler.decide.drift_check import DriftClass
from reconciler.decide.key_state import AUTO_STOP_SLACK_S
from reconciler.decide.outcome import Status, spell_status
from reconciler.decide.plan import Action, Reason

# --- the document


class HistoryAction(Frozen):
    """What became of one action of a run, or of one drift since the last check."""

    key: str = Field(description="Name of the job in the manifest.")
    action: str = Field(description="Planned action; of drift checks drift.")
    reason: str = Field(description="Reason, as in a plan; of drift its class.")
    status: str = Field(
        description="How it ended: done, failed, denied, timed_out, skipped and so on; "
        "of drift new, changed or gone."
    )
    detail: str = Field("", description="For people.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    code: str = Field("", description="On failure: the service's error code.")


class HistoryStep(Frozen):
    """One call of a run. Without an end it is unknown whether it took effect: the process died in it."""

    key: str = Field(description="Name of the job in the manifest.")
    action: str = Field(description="Action that the call was part of.")
    call: str = Field(description="create, update or terminate.")
    name: str = Field(description="Name of the job on the service.")
    job: str | None = Field(None, description="Id of the job, if known.")
    began_at: str = Field(description="RFC 3339, UTC.")
    duration_s: float | None = Field(
        None, description="Duration of the call in seconds; null: no answer was recorded."
    )
    ok: bool | None = Field(None, description="Whether it succeeded; null: no answer was recorded.")
    code: str = Field("", description="On failure: the service's error code.")
    message: str = Field("", description="On failure: what went wrong.")
    request_id: str = Field("", description="On failure: request id, for the service's support.")


class HistoryRun(Frozen):
    """One apply, destroy, adopt, release or drift check."""

    id: int = Field(description="Sequence number within the store.")
    kind: str = Field(description="apply, destroy, drift, adopt, release or jobs terminate.")
    result: str | None = Field(
        description="complete, partial, interrupted or failed; of a drift check drift, no drift or "
        "unknown. A run without an end is running, or interrupted if its process is gone."
    )
    began_at: str = Field(description="RFC 3339, UTC.")
    ended_at: str | None = Field(None, description="RFC 3339, UTC; null: no end was recorded.")
    duration_s: float | None = Field(None, description="Duration in seconds.")
    who: str = Field("", description="User, or the actor that the CI service names.")
    where: str = Field("", description="Machine and process, and the URL of the CI run.")
    command: str = Field("", description="The command, without its options.")
    commit: str = Field("", description="Commit of the manifests, with + if they had uncommitted changes.")
    plan_digest: str = Field("", description="Digest of the plan; of a drift check that of the manifests.")
    summary: dict[str, int] = Field(default_factory=dict, description="How many actions ended in each way.")
    actions: tuple[HistoryAction, ...] = Field((), description="In the order in which they ended.")
    steps: tuple[HistoryStep, ...] = Field((), description="The calls, in the order in which they began.")


class HistoryPhase(Frozen):
    """A phase in which a revision was seen."""

    phase: str = Field(description="The service's word.")
    seen_at: str = Field(description="When it was first observed, RFC 3339 in UTC.")


class HistoryDeclared(Frozen):
    """What was declared for a revision, in canonical form. A secret stands there by its name."""

    immutable: dict[str, Any] = Field(description="What the digest covers.")
    mutable: dict[str, Any] = Field(description="Fields that can be changed on a job.")
    description: str = Field(description="Without the marker.")
    protect: bool | None = Field(description="lifecycle.protect.")


class HistoryRevision(Frozen):
    """One revision of a key: what it was, and as far as anybody looked, how it went."""

    key: str = Field(description="Name of the job in the manifest.")
    revision: int = Field(description="1 is the first.")
    name: str = Field(description="Name of the job on the service.")
    job: str = Field(description="Id of the job.")
    digest: str = Field(description="Digest of the declaration it was created from.")
    phase: str | None = Field(description="Phase when last observed; null: not observed yet.")
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    started_at: str | None = Field(None, description="RFC 3339, UTC.")
    ended_at: str | None = Field(None, description="RFC 3339, UTC; null while the job is active.")
    duration_s: float | None = Field(None, description="Seconds it had run when last observed.")
    node_count: int = Field(description="Nodes that it ran on.")
    seen_at: str | None = Field(None, description="Last observation that showed a change.")
    phases: tuple[HistoryPhase, ...] = Field(
        (), description="Oldest first; phases between observations are missing."
    )
    declared: HistoryDeclared | None = Field(None, description="null: it was not recorded.")
    released_at: str | None = Field(
        None, description="When its marker was taken off by release, RFC 3339 in UTC; null: it was not."
    )


class HistoryDiff(Frozen):
    """What was declared differently for two revisions of a key."""

    before: int = Field(description="Number of the first revision.")
    after: int = Field(description="Number of the second revision.")
    changes: tuple[Change, ...] = Field(description="Sorted by path.")


class HistoryReport(Head):
    """What was recorded of a stack on a target, newest first."""

    key: str | None = Field(None, description="Requested key; null: all keys.")
    runs: tuple[HistoryRun, ...] = Field((), description="Applies, destroys and drift checks.")
    revisions: tuple[HistoryRevision, ...] = Field((), description="Revisions of the jobs.")
    diff: HistoryDiff | None = Field(None, description="With --diff only.")


class HistoryExcerpt(NamedTuple):
    """What a report shows, newest first. `key` is None for all keys."""

    key: str | None = None
    runs: Sequence[PastRun] = ()
    revisions: Sequence[PastRevision] = ()
    diff: HistoryDiff | None = None

    def limited_to(self, limit: int) -> HistoryExcerpt:
        """The newest of it; what is compared is compared whatever the limit."""
        if self.diff is not None:
            return self
        return self._replace(runs=self.runs[:limit], revisions=self.revisions[:limit])


def make_history(
    stack: str,
    target: TargetIdentity,
    shown: HistoryExcerpt,
    *,
    manifest_digest: str,
    version: str,
    at_s: float,
) -> HistoryReport:
    """Put a report together."""
    return HistoryReport(
        reconciler_version=version,
        created_at=timestamp(at_s),
        stack=stack,
        target=target,
        manifest_digest=manifest_digest,
        key=shown.key,
        runs=tuple(map(_run, shown.runs)),
        revisions=tuple(map(_revision, shown.revisions)),
        diff=shown.diff,
    )


def newest_revisions(memory: HistorySnapshot, limit: int | None) -> Sequence[PastRevision]:
    """The revisions of any key that began last; all of them without a limit."""

    def age(one: PastRevision) -> tuple[float, int, str]:
        # What nobody has looked at yet was made just now.
        return float("inf") if one.created_at_s is None else one.created_at_s, one.number, one.key

    every = (one for revisions in memory.by_key.values() for one in revisions)
    return sorted(every, key=age, reverse=True)[:limit]


def _run(run: PastRun) -> HistoryRun:
    return HistoryRun(
        **_same(HistoryRun, run),
        **_times(run),
        result=run.word,
        ended_at=timestamp_or_none(run.ended_at_s),
        summary=dict(run.summary),
        actions=tuple(HistoryAction(**action._asdict()) for action in run.actions),
        steps=tuple(HistoryStep(**_same(HistoryStep, step), **_times(step)) for step in run.steps),
    )


def _revision(one: PastRevision) -> HistoryRevision:
    return HistoryRevision(
        **_same(HistoryRevision, one),
        revision=one.number,
        phase=one.phase_text or None,
        created_at=timestamp_or_none(one.created_at_s),
        started_at=timestamp_or_none(one.started_at_s),
        ended_at=timestamp_or_none(one.ended_at_s) if one.has_ended else None,
        seen_at=timestamp_or_none(one.seen_at_s),
        phases=tuple(HistoryPhase(phase=text, seen_at=timestamp(at_s)) for text, at_s in one.phases),
        declared=one.declared and HistoryDeclared(**asdict(one.declared)),
        released_at=timestamp_or_none(one.released_at_s),
    )


def _same(model: type[Frozen], record: PastRun | PastStep | PastRevision) -> dict[str, Any]:
    """The plain fields that a document takes over from what was recorded."""
    names = model.model_fields.keys() - {"summary", "actions", "steps", "phases", "declared", "result"}
    return {name: getattr(record, name) for name in names.intersection(record._fields)}


def _times(one: PastRun | PastStep) -> dict[str, Any]:
    duration_s = None if one.ended_at_s is None else round(max(0.0, one.ended_at_s - one.at_s), 3)
    return {"began_at": timestamp(one.at_s), "duration_s": duration_s}


def changes_of(before: Declared, after: Declared) -> tuple[Change, ...]:
    """The fields that were declared differently for two revisions, sorted by path."""
    found = list(changes_between(dict(before.immutable), dict(after.immutable), forces_new_job=True))
    one, other = _on_the_job(before), _on_the_job(after)
    for path in one.keys() | other.keys():
        if one.get(path) != other.get(path):
            found.append(Change(path=path, before=one.get(path), after=other.get(path)))
    return tuple(sorted(found, key=lambda change: change.path))


def _on_the_job(declared: Declared) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path in mutable_paths():
        value: Any = declared.mutable
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        values[spell_path(path)] = value
    values |= {"description": declared.description, "lifecycle.protect": declared.protect or None}
    return {path: value for path, value in values.items() if value not in (None, "")}


# --- laid out over time

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
        return self in list(MarkKind)[list(MarkKind).index(MarkKind.DRIFT) :]


class Bar(NamedTuple):
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


class TimelineMark(NamedTuple):
    """Something that happened to a key at a time. `run` is the run that did or found it, if one did."""

    kind: MarkKind
    at_s: float
    text: str = ""
    run: int | None = None


class Lane(NamedTuple):
    """What is known of one key: its revisions and its marks, oldest first."""

    key: str
    bars: tuple[Bar, ...]
    marks: tuple[TimelineMark, ...]


class Timeline(NamedTuple):
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
    return min(max(at_s, 0.0), _END_OF_TIME_S)


# --- its bars

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
    steps = [(run.id, step) for run in runs for step in run.steps if step.ok is not False]
    # The service gives no name twice. A job that we ended may not have been looked at since.
    created = {step.name: (run, step) for run, step in steps if step.call == Call.CREATE}
    ended = {step.job for _, step in steps if step.call == Call.TERMINATE and step.job}
    by_key: dict[str, list[PastRevision]] = defaultdict(list)
    for one in sorted(revisions, key=lambda one: one.number):
        by_key[one.key].append(one)
    return {key: tuple(_bars(of_key, created, ended, at_s)) for key, of_key in by_key.items()}


def _bars(
    revisions: Sequence[PastRevision],
    created: Mapping[str, tuple[int, PastStep]],
    ended: Iterable[str],
    at_s: float,
) -> Iterator[Bar]:
    """The bars of one key; of its revisions, oldest first. `ended` are the jobs that we terminated."""
    begins = [_begin_s(one, created, at_s) for one in revisions]
    free_from_s: list[float] = []
    for one, begin_s, next_s in zip(revisions, begins, [*begins[1:], at_s], strict=True):
        known_s = end_s = one.ended_at_s if one.has_ended else None
        if end_s is None and one.released_at_s is not None:
            end_s = one.released_at_s
        elif end_s is None and one.has_ended:  # where it was seen so first
            end_s = one.phases[-1][1] if one.phases else begin_s
        elif end_s is None:
            end_s = next_s if next_s > begin_s else at_s
        end_s = _calendar_time(max(begin_s, end_s))
        started_s = one.started_at_s
        # A job that was created and not observed since is taken for queued.
        state = _STATES[one.phase] if one.phase_text else BarState.QUEUED
        if one.released_at_s is not None and not one.has_ended:
            state = BarState.RELEASED
        elif state is BarState.TERMINATED and not (one.stopped or one.job in ended or _stopped_itself(one)):
            state = BarState.TERMINATED_OUTSIDE
        # The first track that is free again; a new one if none is.
        free = (track for track, free_s in enumerate(free_from_s) if begin_s >= free_s - _OVERLAP_S)
        track = next(free, len(free_from_s))
        if track < _MOST_TRACKS:
            free_from_s[track : track + 1] = [end_s]
        yield Bar(
            number=one.number,
            name=one.name,
            state=state,
            phase=one.phase_text,
            begin_s=begin_s,
            started_s=None if started_s is None else _calendar_time(max(begin_s, started_s)),
            end_s=end_s,
            is_found=one.created_at_s is None and one.name not in created,
            is_open=known_s is None,
            track=min(track, _MOST_TRACKS - 1),
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


# --- its marks

#: What a drift check, or accept, has noted of a key, in the place of an outcome.
_DRIFT: Mapping[str, MarkKind] = {
    "new": MarkKind.DRIFT,
    "changed": MarkKind.DRIFT,
    "gone": MarkKind.DRIFT_GONE,
    "accepted": MarkKind.DRIFT_ACCEPTED,
}
#: What was done, by its reason, else by the action. What a create or replace made is a bar, and the record of
#: a revision says when it was released.
_DONE: Mapping[str, MarkKind | None] = {
    Reason.RELEASED: None,
    Reason.ADOPTED: MarkKind.ADOPTED,
    Reason.MARKER_RESTORED: MarkKind.MARKER_RESTORED,
    Action.UPDATE: MarkKind.UPDATED,
    Action.TERMINATE: MarkKind.TERMINATED,
}
_CHECKS = frozenset({"drift", "accept"})
#: Classes of drift that the bars show themselves, and the one that is none.
_SHOWN_BY_BARS = frozenset({DriftClass.FAILED, DriftClass.TERMINATED, DriftClass.UNKNOWN})
_NOT_TRIED = frozenset({Status.SKIPPED, Status.INTERRUPTED})


def _marks_by_key(
    runs: Sequence[PastRun], revisions: Iterable[PastRevision], bars: Mapping[str, Sequence[Bar]]
) -> dict[str, tuple[TimelineMark, ...]]:
    """The marks of each key, oldest first; `runs` are oldest first, too.

    What one run after another finds unchanged is marked once, when it was found first.
    """
    found: dict[str, list[TimelineMark]] = defaultdict(list)
    last: dict[str, tuple[MarkKind, str]] = {}
    for run in runs:
        times = {step.key: step.ended_at_s or step.at_s for step in run.steps}
        for action in run.actions:
            kind, text = _mark_of(action)
            if kind is None:
                if action.status == Status.DONE:
                    last.pop(action.key, None)
                continue
            if kind in (MarkKind.FAILED, MarkKind.NAME_TAKEN) and last.get(action.key) == (kind, text):
                continue
            last[action.key] = kind, text
            at_s = times.get(action.key, run.ended_at_s or run.at_s)
            found[action.key].append(TimelineMark(kind, at_s, text, run.id))
    for one in revisions:
        found[one.key] += _marks_of_revision(one)
    for key, of_key in bars.items():
        for bar in of_key:
            if bar.state is BarState.TERMINATED_OUTSIDE:
                text = f"{bar.name} was terminated, not by an apply"
                found[key].append(TimelineMark(MarkKind.TERMINATED_OUTSIDE, bar.end_s, text))
    return {key: tuple(sorted(marks, key=lambda one: one.at_s)) for key, marks in found.items() if marks}


def _mark_of(action: PastAction) -> tuple[MarkKind | None, str]:
    """How an outcome is marked, if it is, and with which words."""
    detail, is_done = action.detail, action.status == Status.DONE
    if action.action in _CHECKS:
        kind = _DRIFT.get(action.status)
        if action.reason in _SHOWN_BY_BARS and kind is not MarkKind.DRIFT_ACCEPTED:
            kind = None
        return kind, f"{action.reason}: {detail}" if detail else action.reason
    kind = None if action.status in _NOT_TRIED else MarkKind.FAILED
    if action.reason == Reason.NAME_TAKEN and action.action == Action.CONFLICT:
        kind = MarkKind.NAME_TAKEN
    elif is_done:
        kind = _DONE.get(action.reason, _DONE.get(action.action))
    if not is_done and action.status not in _NOT_TRIED:
        detail = f"{action.action} {spell_status(action.status)}" + (f": {detail}" if detail else "")
    return kind, f"{detail} ({action.code})" if action.code and action.code not in detail else detail


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
