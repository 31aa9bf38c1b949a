"""The recorded runs and revisions of a stack, as a document and as a timeline.

A `Timeline` has a lane per key, with bars for revisions, and marks; `render/timeline.py` makes a page of it.
A mark is an action on an existing job, or a change outside of apply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.core.body import auto_stop_hours, mapping_at
from reconciler.core.code import Code
from reconciler.core.past import Call, PastAction, PastRevision, PastRun, PastStep, RunKind
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.record import RevisionId
from reconciler.core.values import FORMAT_VERSION, TargetIdentity, timestamp, timestamp_or_none
from reconciler.decide.key_state import has_run_for
from reconciler.decide.outcome import FAILURES, Status, spell_status
from reconciler.decide.plan import Action, CodeChange, Reason, code_changes, spell_code_changes
from reconciler.text import format_count, format_size

# --- the document


class RevisionCode(NamedTuple):
    """The code of a revision, and `before` that of the revision `since`; None if unknown.

    `commit` is as in `Declared`.
    """

    code: Code
    commit: str
    since: PastRevision | None = None
    before: Code | None = None

    @property
    def files(self) -> tuple[CodeChange, ...] | None:
        return None if self.before is None else code_changes(self.before.files, self.code.files)

    @property
    def words(self) -> str:
        """The changed files and the commit: `2 files changed (train.py, data.py new) since r1; …`."""
        summary = f"{format_count(len(self.code.files), 'file')}, {format_size(self.code.size)}"
        if self.files is not None and self.since is not None:
            summary = spell_code_changes(self.files) if self.files else "unchanged"
            summary += f" since r{self.since.number}"
        commit, dirty = self.commit.removesuffix("-dirty"), self.commit.endswith("-dirty")
        commit = f"; commit {commit[:10]}" + (" with uncommitted files" if dirty else "") if commit else ""
        return summary + commit

    def document(self) -> dict[str, Any]:
        files = None if self.files is None else [one.model_dump(mode="json") for one in self.files]
        return {
            "digest": self.code.digest,
            "commit": self.commit.removesuffix("-dirty") or None,
            "clean": not self.commit.endswith("-dirty") if self.commit else None,
            "files": files,
        }


class HistoryReport(NamedTuple):
    """The records of a stack on a target until `at_s`, newest first.

    `key` is None for all keys; `keys` are the keys that it stands for, several for a sweep.
    """

    stack: str
    target: TargetIdentity
    manifest_digest: str
    version: str
    at_s: float
    key: str | None = None
    runs: Sequence[PastRun] = ()
    revisions: Sequence[PastRevision] = ()
    keys: Collection[str] = ()
    codes: Mapping[RevisionId, RevisionCode] = MappingProxyType({})

    @property
    def selected_keys(self) -> Collection[str]:
        """The keys that the report is about; empty for all."""
        return self.keys or [key for key in (self.key,) if key is not None]

    @property
    def summary(self) -> dict[str, int]:
        return {"runs": len(self.runs), "revisions": len(self.revisions)}

    def limited_to(self, limit: int) -> HistoryReport:
        """Return only the newest runs and revisions."""
        return self._replace(runs=self.runs[:limit], revisions=self.revisions[:limit])

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON data, as `history --json` prints it."""
        return {
            "format_version": FORMAT_VERSION,
            "reconciler_version": self.version,
            "created_at": timestamp(self.at_s),
            "stack": self.stack,
            "target": self.target.model_dump(mode="json"),
            "manifest_digest": self.manifest_digest,
            "key": self.key,
            "runs": [*map(_run, self.runs)],
            "revisions": [
                _revision(one, self.codes.get(RevisionId(one.key, one.number))) for one in self.revisions
            ],
        }


def codes_of(
    listed: Iterable[PastRevision],
    every: Iterable[PastRevision],
    read: Callable[[Collection[str]], Mapping[str, Code]],
) -> dict[RevisionId, RevisionCode]:
    """Return the code of the listed revisions, with the previous code of the key; `read` gets digests."""
    last: dict[str, PastRevision] = {}
    since: dict[RevisionId, PastRevision | None] = {}
    for r in sorted(every, key=lambda r: r.number):
        if r.code_digest:
            since[RevisionId(r.key, r.number)] = last.get(r.key)
            last[r.key] = r
    pairs = [(r, since.get(RevisionId(r.key, r.number))) for r in listed if r.code_digest]
    codes = read({r.code_digest for pair in pairs for r in pair if r}) if pairs else {}
    return {
        RevisionId(r.key, r.number): RevisionCode(
            codes[r.code_digest],
            r.declared.commit if r.declared else "",
            before,
            codes.get(before.code_digest) if before else None,
        )
        for r, before in pairs
        if r.code_digest in codes
    }


def newest_revisions(revisions: Iterable[PastRevision], limit: int | None) -> Sequence[PastRevision]:
    """Return the revisions of any key that were created last; all without a limit."""

    def age(r: PastRevision) -> tuple[float, int, str]:
        # A revision not observed yet was created just now.
        return float("inf") if r.created_at_s is None else r.created_at_s, r.number, r.key

    return sorted(revisions, key=age, reverse=True)[:limit]


def duration_s(one: PastRun | PastStep) -> float | None:
    """Return how long a run or call took; None if its end is not recorded."""
    return None if one.ended_at_s is None else round(max(0.0, one.ended_at_s - one.at_s), 3)


def _run(run: PastRun) -> dict[str, Any]:
    """Describe a run; without an end it is running, or unfinished."""
    return {
        "id": run.id,
        "kind": run.kind,
        "result": run.word,
        "began_at": timestamp(run.at_s),
        "ended_at": timestamp_or_none(run.ended_at_s),
        "duration_s": duration_s(run),
        **{name: getattr(run, name) for name in ("who", "where", "command", "plan_digest")},
        "summary": dict(run.summary),
        "actions": [action._asdict() for action in run.actions],
        "steps": [*map(_step, run.steps)],
    }


def _step(step: PastStep) -> dict[str, Any]:
    """Describe a call; without an end it is unknown whether it took effect, because the process died."""
    times = {"began_at": timestamp(step.at_s), "duration_s": duration_s(step)}
    fields = step._asdict()
    before, after = ("key", "action", "call", "name", "job"), ("ok", "code", "message", "request_id")
    return {name: fields[name] for name in before} | times | {name: fields[name] for name in after}


def _revision(revision: PastRevision, code: RevisionCode | None) -> dict[str, Any]:
    """Describe a revision, and how it went as far as it was observed."""
    return {
        "key": revision.key,
        "revision": revision.number,
        "name": revision.name,
        "job": revision.job,
        "digest": revision.digest,
        "phase": revision.phase_text or None,
        "created_at": timestamp_or_none(revision.created_at_s),
        "started_at": timestamp_or_none(revision.started_at_s),
        "ended_at": timestamp_or_none(revision.ended_at_s) if revision.has_ended else None,
        "duration_s": revision.duration_s,
        "node_count": revision.node_count,
        "seen_at": timestamp_or_none(revision.seen_at_s),
        # When each phase was first seen; phases between two observations are missing.
        "phases": [{"phase": text, "seen_at": timestamp(at_s)} for text, at_s in revision.phases],
        # In canonical form, with the names of secrets; null if not recorded.
        "declared": revision.declared
        and {name: value for name, value in asdict(revision.declared).items() if name != "commit"},
        "code": code and code.document(),
        "released_at": timestamp_or_none(revision.released_at_s),
    }


# --- the timeline

#: Maximum number of revisions, and of runs, in a timeline.
MOST_SHOWN = 5_000


class MarkKind(StrEnum):
    """The kind of a mark."""

    APPLY = "apply"
    FAILED = "failed action"
    OUTSIDE = "changed outside"
    GONE = "drift gone"


class Bar(NamedTuple):
    """A revision, from its creation to its end; an active one lasts until now, or the next revision."""

    revision: PastRevision
    begin_s: float
    end_s: float


class TimelineMark(NamedTuple):
    """An event of a key."""

    kind: MarkKind
    at_s: float
    text: str


class Lane(NamedTuple):
    """The revisions and marks of one key, oldest first."""

    key: str
    bars: tuple[Bar, ...]
    marks: tuple[TimelineMark, ...]


class Timeline(NamedTuple):
    """Lanes by key, and the runs of the stack, oldest first; with the number of older ones left out."""

    report: HistoryReport
    begin_s: float
    lanes: tuple[Lane, ...]
    runs: tuple[PastRun, ...]
    hidden_revisions: int
    hidden_runs: int


def make_timeline(report: HistoryReport) -> Timeline:
    """Lay a history out over time. Nothing lasts longer than until `report.at_s`."""
    shown = report.limited_to(MOST_SHOWN)
    runs, steps = tuple(shown.runs[::-1]), [step for run in shown.runs for step in run.steps]
    # Names are unique on the service.
    created = {step.name: step.at_s for step in steps if step.call == Call.CREATE and step.ok is not False}
    # A job that we terminated may not have been observed since.
    ended = {step.job for step in steps if step.call == Call.TERMINATE and step.ok is not False}
    by_key: dict[str, list[PastRevision]] = {key: [] for key in report.selected_keys}
    for r in sorted(shown.revisions, key=lambda r: r.number):
        by_key.setdefault(r.key, []).append(r)
    marks = _marks_of_runs(runs)
    lanes = []
    for key in sorted(report.selected_keys or {*by_key, *marks}):
        bars = tuple(_bars(by_key.get(key, ()), created, report.at_s))
        lane_marks = [*marks[key], *(mark for bar in bars for mark in _marks_of_revision(bar, ended))]
        lanes.append(Lane(key, bars, tuple(sorted(lane_marks, key=lambda mark: mark.at_s))))
    times = [bar.begin_s for lane in lanes for bar in lane.bars] + [run.at_s for run in runs]
    hidden = (len(report.revisions) - len(shown.revisions), len(report.runs) - len(shown.runs))
    return Timeline(report, min([report.at_s, *times]), tuple(lanes), runs, *hidden)


def _bars(revisions: Sequence[PastRevision], created: Mapping[str, float], at_s: float) -> Iterator[Bar]:
    """Yield the bars of one key, oldest first. `created` has the time of our create call for each name."""

    def begin_of(revision: PastRevision) -> float:
        """Return its creation by the service, else by our call, else when it was first seen."""
        seen_s = revision.phases[0][1] if revision.phases else revision.seen_at_s
        known = (revision.created_at_s, created.get(revision.name), seen_s, at_s)
        return min(max(next(time for time in known if time is not None), 0.0), at_s)

    begins = [begin_of(revision) for revision in revisions]
    for revision, begin_s, next_s in zip(revisions, begins, [*begins, at_s][1:], strict=True):
        end_s = revision.ended_at_s if revision.has_ended else revision.released_at_s
        if end_s is None and revision.has_ended:  # when it was first seen ended
            end_s = revision.phases[-1][1] if revision.phases else begin_s
        elif end_s is None:
            end_s = next_s if next_s > begin_s else at_s
        yield Bar(revision, begin_s, min(max(begin_s, end_s), at_s))


def _marks_of_runs(runs: Iterable[PastRun]) -> dict[str, list[TimelineMark]]:
    """Return the marks of each key; of equal results in consecutive runs only the first is marked."""
    marks: dict[str, list[TimelineMark]] = defaultdict(list)
    last: dict[str, tuple[MarkKind, str]] = {}
    for run in runs:
        times = {step.key: step.ended_at_s or step.at_s for step in run.steps}
        for action in run.actions:
            kind, text = _mark_of(run, action)
            is_repeated = last.pop(action.key, None) == (kind, text)
            if kind is None:
                continue
            last[action.key] = kind, text
            if not is_repeated or kind is MarkKind.APPLY:
                at_s = times.get(action.key, run.ended_at_s or run.at_s)
                marks[action.key].append(TimelineMark(kind, at_s, text))
    return marks


def _mark_of(run: PastRun, action: PastAction) -> tuple[MarkKind | None, str]:
    """Return the kind of mark for an outcome, if any, and its text. A created job is a bar instead."""
    kind, status, label = None, action.status, f"{action.action} {spell_status(action.status)}"
    if run.kind == RunKind.DRIFT:
        kind = {"new": MarkKind.OUTSIDE, "changed": MarkKind.OUTSIDE, "gone": MarkKind.GONE}.get(status)
        label = f"{action.reason} {status}"
    elif status == Status.DONE and action.action in (Action.UPDATE, Action.TERMINATE):
        kind, label = MarkKind.APPLY, f"{action.action} ({action.reason.replace('_', ' ')})"
    elif action.reason == Reason.NAME_TAKEN:
        kind, label = MarkKind.OUTSIDE, "name taken"
    elif status in FAILURES:
        kind = MarkKind.FAILED
    text = f"{label}: {action.detail}" if action.detail else label
    return kind, f"{text} ({action.code})" if action.code and action.code not in text else text


def _marks_of_revision(bar: Bar, ended: set[str | None]) -> Iterator[TimelineMark]:
    """Yield terminations by others, and restarts. `ended` are the jobs that we terminated."""
    past = bar.revision
    if past.phase is Phase.TERMINATED and not (past.stopped or past.job in ended or _stopped_itself(past)):
        yield TimelineMark(MarkKind.OUTSIDE, bar.end_s, f"{past.name} was terminated, not by an apply")
    has_ended = False
    for text, at_s in past.phases:
        phase = parse_phase(text)
        if has_ended and phase is not None and phase.is_active:
            yield TimelineMark(MarkKind.OUTSIDE, at_s, f"{past.name} was seen {text} after it had ended")
        has_ended = phase is not None and phase.is_terminal


def _stopped_itself(revision: PastRevision) -> bool:
    """Whether it ran for its auto_stop (docs/concepts/decisions.md)."""
    span = mapping_at(revision.declared.immutable if revision.declared else {}, "spec", "auto_stop")
    with suppress(TypeError, ValueError):
        # The canonical form may have text for the number.
        amount = {**span, "duration": float(span["duration"])} if "duration" in span else {}
        return has_run_for(revision.duration_s, auto_stop_hours({"spec": {"auto_stop": amount}}))
    return False
