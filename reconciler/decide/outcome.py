"""The outcome of an action, and of the wait for its job; what is recorded of them, and progress events.

Source: docs/concepts/crash-safety.md, "Apply", "Waiting"; docs/operations/records.md, "Records".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ConfigDict, Field

from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.values import Frozen
from reconciler.decide.plan import ACTIONS, Action, After, Plan, PlannedAction, Reason
from reconciler.errors import ExitCode, first_of
from reconciler.text import format_duration

if TYPE_CHECKING:
    from reconciler.core.past import Call, RunKind
    from reconciler.core.record import Scope
    from reconciler.core.stack import Declared


class Status(StrEnum):
    """How an action ended."""

    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    TIMED_OUT = "timed_out"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


def spell_status(status: str) -> str:
    """Return a status for people; records and JSON have the status itself."""
    if status == Status.DONE:
        return "succeeded"
    # Unknown text stays unchanged: redaction would not find a secret in another spelling.
    return "timed out" if status == Status.TIMED_OUT else status


def spell_counts(summary: Mapping[str, int]) -> str:
    """Format counts: `2 succeeded, 1 failed`."""
    return ", ".join(f"{count} {spell_status(status)}" for status, count in summary.items() if count)


class Outcome(NamedTuple):
    """The outcome of one action; `code`, `message` and `request_id` are those of its error, if any."""

    action: PlannedAction
    status: Status
    detail: str = ""
    job: str | None = None
    code: str = ""
    message: str = ""
    request_id: str = ""

    @property
    def key(self) -> str:
        return self.action.key


class WaitEnd(StrEnum):
    """The state of the wait for a key."""

    WAITING = "waiting"
    REACHED = "reached"
    ENDED_BADLY = "ended_badly"
    TIMED_OUT = "timed_out"
    BLOCKED = "blocked"
    SUPERSEDED = "superseded_elsewhere"
    GONE = "gone"


class Waited(NamedTuple):
    """The wait for a key, and its newest job as last seen; None if there is none yet."""

    key: str
    action: Action
    end: WaitEnd
    detail: str = ""
    job: ObservedJob | None = None

    def document(self) -> dict[str, Any]:
        job, phase = (self.job.id, self.job.phase_text) if self.job else (None, None)
        return {"key": self.key, "job": job, "phase": phase, "result": self.end.value, "detail": self.detail}

    def describe(self, at_s: float) -> str:
        job, times = self.job, self.times(at_s)
        if job is None or not ACTIONS[self.action].keeps_the_job or self.end is WaitEnd.SUPERSEDED:
            return self.detail
        name = "" if job.name == self.key else f"{job.name} "
        return f"{name}{job.phase_text}" + (f" ({times})" if times else "")

    def times(self, at_s: float) -> str:
        """How long the job was queued and has run, for people; "" if unknown."""
        if self.job is None:
            return ""
        spans = {"queued": round(self.job.queued_s(at_s)), "elapsed": round(self.job.ran_s(at_s))}
        return ", ".join(f"{format_duration(span_s)} {word}" for word, span_s in spans.items() if span_s)


@dataclass(frozen=True)
class Result:
    """The result of a plan: an outcome per action, attempted or skipped, in the plan's order.

    `waits` are the waits that followed. `faults` are unexpected exceptions, i.e. internal errors.
    """

    outcomes: tuple[Outcome, ...] = ()
    interrupted: bool = False
    lost_lock: bool = False
    faults: tuple[Exception, ...] = ()
    waits: tuple[Waited, ...] = ()

    @property
    def word(self) -> str:
        if self.interrupted:
            return "interrupted"
        return "partial" if self.count(*FAILURES) or self.faults else "complete"

    def count(self, *statuses: Status) -> int:
        return sum(outcome.status in statuses for outcome in self.outcomes)

    @property
    def summary(self) -> dict[str, int]:
        return {status.value: self.count(status) for status in Status}


#: Statuses of failed actions; skipped and interrupted ones were not attempted.
FAILURES = {
    Status.DENIED: ExitCode.UNAUTHORIZED,
    Status.FAILED: ExitCode.PARTIAL,
    Status.TIMED_OUT: ExitCode.PARTIAL,
    Status.UNKNOWN: ExitCode.UNKNOWN,
    Status.CONFLICT: ExitCode.REFUSED,
}
WAIT_CODES = {
    WaitEnd.ENDED_BADLY: ExitCode.ENDED_BADLY,
    WaitEnd.SUPERSEDED: ExitCode.ENDED_BADLY,
    WaitEnd.TIMED_OUT: ExitCode.TIMED_OUT,
    WaitEnd.BLOCKED: ExitCode.REFUSED,
    WaitEnd.GONE: ExitCode.UNKNOWN,
}


def exit_code_of(plan: Plan, result: Result | None, signal: ExitCode | None = None) -> ExitCode:
    """Return the exit code of `apply` and `destroy`; without a result nothing was executed.

    Source: docs/reference/exit-codes.md.
    """
    codes = [] if signal is None else [signal]
    if not plan.complete:
        codes.append(ExitCode.UNKNOWN)
    if plan.refusals or (result is None and plan.needing_attention):
        codes.append(ExitCode.REFUSED)
    if result is None:
        return first_of(codes)
    codes += [FAILURES.get(outcome.status, ExitCode.DONE) for outcome in result.outcomes]
    codes += [WAIT_CODES.get(waited.end, ExitCode.DONE) for waited in result.waits]
    if result.lost_lock:
        codes.append(ExitCode.LOCKED)
    if result.faults:
        codes.append(ExitCode.INTERNAL_ERROR)
    if any(outcome.action.traits.needs_attention for outcome in result.outcomes):
        codes.append(ExitCode.REFUSED)
    return first_of(codes)


# --- goals of a wait


class Goal(StrEnum):
    """The state of a job to wait for."""

    RUNNING = "running"
    COMPLETED = "completed"
    ENDED = "ended"


_BADLY = frozenset({Phase.FAILED, Phase.ABNORMAL})

#: Goal → the phases that reach it, and those after which it cannot be reached.
GOALS: dict[Goal, tuple[frozenset[Phase], frozenset[Phase]]] = {
    # A short job may complete between two observations.
    Goal.RUNNING: (frozenset({Phase.RUNNING, Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    Goal.COMPLETED: (frozenset({Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    # For jobs that are being terminated, Terminated is success.
    Goal.ENDED: (frozenset({Phase.COMPLETED, Phase.TERMINATED}), _BADLY),
}


def judge_wait(goal: Goal, phase: Phase | None) -> WaitEnd:
    """Judge a wait by the job's phase; an unknown phase (None) decides nothing."""
    reached, badly = GOALS[goal]
    if phase in reached:
        return WaitEnd.REACHED
    return WaitEnd.ENDED_BADLY if phase in badly else WaitEnd.WAITING


# --- whether the revision that a wait follows is still current


_TERMINATED = frozenset({Phase.TERMINATING, Phase.TERMINATED})


class Followed(NamedTuple):
    """The revision that a wait follows, and what the wait may do.

    `job` is the id of the revision that the plan kept or created, None if there is none yet; `had_ended`
    means that it had ended before the plan. `after` is the revision that an action tried to create.
    `is_deferred` means that the plan deferred an action on the key; `is_kept` that the plan kept the
    revision, or that the wait created it or follows it.
    """

    job: str | None = None
    had_ended: bool = False
    after: After | None = None
    is_deferred: bool = False
    is_kept: bool = True

    @classmethod
    def of(cls, action: PlannedAction) -> Followed:
        phase = action.before.phase if action.before else ""
        ended = {one.value for one in Phase if one.is_terminal or one is Phase.TERMINATING}
        # A create, deferred or not, comes after an ended revision.
        had_ended = phase in ended or action.before is None
        is_kept = action.traits.keeps_the_job
        return cls(action.rests_on, had_ended, is_deferred=action.action is Action.DEFER, is_kept=is_kept)


class Superseded(NamedTuple):
    """The followed revision was ended, or replaced by this one, elsewhere; and why."""

    revision: Revision | None
    why: str


def judge_followed(
    followed: Followed, action: PlannedAction, owned: Sequence[Revision], digest: str | None
) -> Followed | Superseded | None:
    """Judge the followed revision by what a later plan says of its key.

    `owned` are the key's revisions, `digest` is the declared one (None without a manifest). Returns what to
    follow from now on, which may be an announced revision or a retry, or how it was superseded. None if the
    followed job is not listed: the list may lag, so its details must be read.
    """
    if action.action is Action.UNKNOWN or action.reason is Reason.AGED_OUT or action.aged_out_as is not None:
        return followed
    by_id = {revision.job.id: revision for revision in owned}
    newest = by_id.get(action.rests_on or "")
    current = by_id.get(followed.job or "")
    if newest is not None and newest is not current and (current is None or newest.number > current.number):
        if _is_announced(followed, newest, digest) or _is_retry(current, newest, owned):
            return Followed(newest.job.id)
        return Superseded(newest, f"{newest.job.name} was created elsewhere")
    if current is None:
        return None if followed.job else followed
    # Without our mark the platform may have ended it: a bad end, unless a rule starts it again.
    was_ended = current.marker.stopped or (action.traits.starts_a_job and action.scheduled_for is None)
    if was_ended and not followed.had_ended and current.job.phase in _TERMINATED:
        return Superseded(current, f"{current.job.name} was ended elsewhere")
    return followed


def _is_announced(followed: Followed, revision: Revision, digest: str | None) -> bool:
    """Whether an action tried to create it (its response may be lost), or the key waited for it."""
    after = followed.after
    if after is not None and (revision.job.name, revision.marker.digest) == (after.name, after.digest):
        return True
    is_waited_for = followed.job is None or (followed.is_deferred and followed.had_ended)
    return after is None and is_waited_for and revision.marker.digest == digest


def _is_retry(current: Revision | None, newest: Revision, owned: Sequence[Revision]) -> bool:
    """Whether the followed revision ended badly, and its retry was created elsewhere.

    So must all revisions in between. A retry that was terminated is not followed.
    """
    if current is None or newest.job.phase in _TERMINATED:
        return False
    tries = [revision for revision in owned if current.number <= revision.number < newest.number]
    are_equal = all(one.marker.digest == newest.marker.digest for one in tries)
    return are_equal and all(one.job.phase and one.job.phase.ended_badly for one in tries)


def may_start(followed: Followed, action: PlannedAction) -> bool:
    """Whether a wait may execute the action: a deferred one, or a retry of the followed revision."""
    if not action.traits.starts_a_job or action.rests_on != followed.job:
        return False
    return followed.is_deferred or (action.action is Action.CREATE and action.reason is Reason.RETRY)


# --- the journal


class Step(NamedTuple):
    """A call that is about to be made; `declared` is what is declared for the job."""

    action: PlannedAction
    call: Call
    job: str | None = None
    declared: Declared | None = None


class StepEnd(NamedTuple):
    """How a call ended; `is_certain` if it is known whether it took effect."""

    ok: bool
    is_certain: bool = True
    job: str | None = None
    code: str = ""
    message: str = ""
    request_id: str = ""


class Run(NamedTuple):
    """An apply, destroy or drift check, as it begins."""

    scope: Scope
    kind: RunKind
    who: str
    where: str
    command: str
    plan_digest: str
    at_s: float


@dataclass(frozen=True)
class RunReport:
    """The result of a command, with its stack and target as far as known."""

    command: str
    stack: str
    target: str
    is_success: bool
    ended_at_s: float
    duration_s: float
    notifications_failed: int = 0


class RunEnd(NamedTuple):
    """How a run ended, with its outcomes."""

    at_s: float
    result: str
    summary: Mapping[str, int]
    outcomes: tuple[Outcome, ...] = ()


class Journal:
    """The journal of one run; this one keeps nothing. Thread-safe.

    A method of a real one returns once its entry is durable.
    """

    #: Why entries that no call waits for could not be written; None if all were.
    problem: str | None = None

    def before(self, step: Step) -> int:
        """Record a call before it is made; return the entry's number.

        Raises:
            LockLost: the run no longer holds its lock, so the call must not be made.
            RecordsUnavailable: the entry could not be written, so the call must not be made.
        """
        return 0

    def after(self, line: int, end: StepEnd) -> None:
        """Record how the call ended. If the store is unavailable by now, the call has not failed."""

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Record the outcome of an action; `declared` is as in `Step`."""

    def end(self, ended: RunEnd) -> None:
        """Close the run."""


# --- progress events


class EventType(StrEnum):
    """The kinds of lines that `apply --json` prints."""

    VERSION = "version"
    PLANNED = "planned"
    ACTION_STARTED = "action_started"
    ACTION_PROGRESS = "action_progress"
    ACTION_COMPLETED = "action_completed"
    ACTION_FAILED = "action_failed"
    ACTION_SKIPPED = "action_skipped"
    APPLY_COMPLETED = "apply_completed"


class ApplyEvent(Frozen):
    """One line of `apply --json`. Further fields depend on the type."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: EventType = Field(description="Type of event.")
    ts: str = Field(description="Time of the event, RFC 3339 in UTC.")
    sequence: int = Field(description="Sequence number within the apply, from 1.")
    key: str | None = Field(None, description="For actions: name of the job in the manifest.")
    action: Action | None = Field(None, description="For actions: kind of action.")
    job: str | None = Field(None, description="For actions: id of the job, or null if there is none.")
    detail: str | None = Field(None, description="For people.")
    code: str | None = Field(None, description="On failure: the service's error code.")
    message: str | None = Field(None, description="On failure: what went wrong.")
    request_id: str | None = Field(None, description="On failure: request id, for the service's support.")
    summary: dict[str, int] | None = Field(
        None, description="For planned and apply_completed: number of actions by kind or outcome."
    )
    waits: list[dict[str, Any]] | None = Field(
        None, description="For apply_completed: the keys that were waited for, and how each wait ended."
    )

    def document(self) -> dict[str, Any]:
        """Return the event as plain JSON data; those of an action always have key, action and job."""
        document: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        if self.key is not None:
            document.setdefault("job", None)
        return document


def skipped(actions: Iterable[PlannedAction], why: str = "") -> list[Outcome]:
    """Return outcomes for actions that are not executed."""
    return [Outcome(a, Status.SKIPPED, why or a.explanation, job=a.job_id) for a in actions]
