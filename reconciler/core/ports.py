"""What an edge is handed: the protocols, and the failures that every backend speaks in.

::

    ServiceError
    ├── Unanswered        no answer came: whether the call took effect is not known
    │   └── Unreachable   the call was never sent: it had no effect
    ├── UnreadableAnswer  an answer came, and cannot be understood: the effect is not known either
    ├── ServerError       5xx: the effect is not known
    ├── Throttled         429: no effect; `retry_after_s`
    ├── Interrupted       the program is to stop, so it was not sent, or not sent again: no effect
    ├── Unauthorized      401, 403 and the service's own codes for them
    └── Rejected          any other refusal; no effect
        ├── NotFound      no such job (the service answers 400 ModelArts.2775, never 404)
        ├── NotOffered    what a create names does not exist there (seen before it is sent)
        ├── NameTaken     a job of that name exists (ModelArts.2751)
        └── WrongPhase    too late or too early for the phase (409)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Unpack, runtime_checkable

from reconciler.core.diagnostic import Diagnostic, ReconcilerError
from reconciler.core.exit_code import ExitCode
from reconciler.core.observed.job import Observation, ObservedJob

if TYPE_CHECKING:
    from reconciler.core.drift.check import Acceptance, CheckRecord, DriftId, LastCheck
    from reconciler.core.observed.catalog import EngineOffer, FlavorOffer, Offered, RecordQuota
    from reconciler.core.observed.listing import Listing, SearchFilter
    from reconciler.core.observed.ownership import Revision
    from reconciler.core.observed.reports import EventPage, EventQuery, LogEnd, NodeMetric
    from reconciler.core.outcome import Outcome
    from reconciler.core.policies.expression import Answer, Question
    from reconciler.core.record import (
        Declared,
        FinishedWork,
        HistorySnapshot,
        Holder,
        PastChange,
        PastRevision,
        PastRun,
        Prunable,
        Run,
        RunEnd,
        Scope,
        Step,
        StepEnd,
    )


class ServiceError(ReconcilerError):
    """The target did not do what it was asked.

    `code` is the service's error code (e.g. ModelArts.2751) or "", `message` its text, `status` the
    HTTP status or None, `request_id` what its support asks for or "".
    """

    what = "service error"
    exit_code = ExitCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int | None = None,
        request_id: str = "",
        fix: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.message = message
        self.code = code
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        marks = [code, f"HTTP {status}" if status else "", f"request {request_id}" if request_id else ""]
        said = ", ".join(mark for mark in marks if mark)
        super().__init__(Diagnostic(self.what, f"{message} ({said})" if said else message, fix))


class Unanswered(ServiceError):
    """No answer came: whether the call took effect is not known."""

    what = "no answer from the service"


class Unreachable(Unanswered):
    """The call was never sent, so it had no effect."""

    what = "the service cannot be reached"


class UnreadableAnswer(ServiceError):
    """An answer came that cannot be understood: whether the call took effect is not known."""

    what = "invalid response from the service"


class ServerError(ServiceError):
    """A server error (5xx): whether the call took effect is not known."""

    what = "server error"


class Throttled(ServiceError):
    """Too many requests; `retry_after_s` says how long to wait, in seconds, where the service says it."""

    what = "too many requests"


class Interrupted(ServiceError):
    """The program is to stop, so the call was not sent, or not sent again; it had no effect."""

    what = "interrupted"


class Unauthorized(ServiceError):
    """The service does not know the caller, or does not let the caller do this."""

    what = "authentication or permission failed"
    exit_code = ExitCode.UNAUTHORIZED


class Rejected(ServiceError):
    """The service said no; nothing happened."""

    what = "the service rejected the request"
    exit_code = ExitCode.FAILED


class NotFound(Rejected):
    """There is no job with that id."""

    what = "no such job"


class NotOffered(Rejected):
    """The target does not offer what a job wants."""

    what = "not offered"


class NotSupported(Rejected):
    """What was asked is nothing that this kind of target, or this cloud, can do; nothing was sent."""

    what = "not supported by the target"


class NameTaken(Rejected):
    """A job of that name exists, seen or not."""

    what = "name already taken"


class WrongPhase(Rejected):
    """The job is not in a phase in which that is possible: read it again."""

    what = "wrong phase for this operation"


#: After these it is not known whether the call took effect.
UNCERTAIN = (Unanswered, ServerError, UnreadableAnswer)


class EvaluateExpressions(Protocol):
    """Answers questions of policies; however an expression fails, that is its answer."""

    def __call__(
        self, questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Answer]]:
        """For each question, an answer for each of its places."""
        ...


class Clock(Protocol):
    """Time, as a value that is handed in."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed, or earlier if the program is to stop."""
        ...


class Backend(Protocol):
    """A place where jobs live. Any method may raise a `ServiceError`; all are safe to call from threads."""

    def observe(
        self,
        names: Collection[str] | None = None,
        needs_absence: Callable[[Observation], bool] | None = None,
    ) -> Observation:
        """Read the workspace: all of it, or what a plan for these `names` needs if that is cheaper.

        With names the answer holds at least every active job, and every job whose name begins with one
        of them; it is whole if it had to be, because `needs_absence` says of the partial answer that a
        decision rests on a job not being there. What cannot be read is said in the answer, not raised.

        Raises:
            Unauthorized: nothing can be read, and no later look would help.
        """
        ...

    def find(self, name: str) -> list[ObservedJob]:
        """Return the jobs with exactly this name (case aside); the list is complete, or it raises."""
        ...

    def name_is_taken(self, name: str) -> bool | None:
        """Ask whether the service holds the name, seen or not; None where it cannot be asked."""
        ...

    def details(self, job_id: str) -> ObservedJob:
        """Read one job."""
        ...

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job; asked once, never repeated."""
        ...

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change fields of a job: `description`, and what the cloud lets one change."""
        ...

    def terminate(self, job_id: str) -> None:
        """Ask for the end of a job; it is Terminating from then on."""
        ...


# What a backend may offer beside that is asked for with isinstance, see `backends.target.Connected`.


@runtime_checkable
class SupportsSearch(Protocol):
    """A backend that finds jobs by conditions of its own."""

    def search(
        self,
        filters: Sequence[SearchFilter] = ...,
        *,
        order: str = ...,
        sort_by: str = ...,
        more: Mapping[str, Any] = ...,
        limit: int | None = ...,
        wanted: Callable[[ObservedJob], bool] = ...,
    ) -> Listing:
        """Read the jobs that match; failures are in the answer.

        With a `limit` reading stops after the page on which so many `wanted` jobs are reached. `more` are
        further fields of the search.

        Raises:
            Unauthorized: nobody is allowed to read it.
            Rejected: one of the conditions is not known.
        """
        ...


@runtime_checkable
class SupportsDelete(Protocol):
    """A backend whose job records can be deleted."""

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It is gone some time later, when `details` raises `NotFound`."""
        ...

    def delete_many(self, kind_by_id: Mapping[str, str]) -> None:
        """Delete the records of jobs, given with their `kind`.

        Raises:
            NotFound: one of them does not exist; others may be deleted.
        """
        ...


class Logs(Protocol):
    """What jobs report while they run. A task is e.g. `worker-0`; None means that there is nothing yet."""

    def preview(self, job_id: str, task: str) -> LogEnd | None:
        """Return the end of a task's log."""
        ...

    def url(self, job_id: str, task: str, *, download: bool = ...) -> str | None:
        """Return a link to a task's whole log."""
        ...

    def events(self, job_id: str, **query: Unpack[EventQuery]) -> EventPage:
        """Return a page of events."""
        ...

    def metrics(self, job_id: str, task: str) -> Sequence[NodeMetric] | None:
        """Return how busy a task's node was, minute by minute."""
        ...


@runtime_checkable
class SupportsLogs(Protocol):
    """A backend that keeps what jobs report."""

    @property
    def logs(self) -> Logs:
        """What jobs report while they run."""
        ...


class Catalog(Protocol):
    """What a target offers to jobs. Any method may raise a `ServiceError`: then it is not known."""

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """The flavors of the public pools, of one type or all."""
        ...

    def engine_offers(self) -> Offered[EngineOffer]:
        """The preset engines."""
        ...

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Why the service would refuse a dedicated pool, or a flavor of it; None if nothing is known."""
        ...

    def record_quota(self) -> RecordQuota | None:
        """How many job records there may be, and are; None where that is not limited."""
        ...


@runtime_checkable
class SupportsCatalog(Protocol):
    """A backend that says what it offers."""

    @property
    def catalog(self) -> Catalog:
        """What it offers."""
        ...


@runtime_checkable
class SupportsClockSkew(Protocol):
    """A backend that learns the time from its service."""

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if it told no time."""
        ...


@runtime_checkable
class SupportsDiagnosis(SupportsClockSkew, Protocol):
    """A backend that says how it reaches its service."""

    @property
    def endpoint(self) -> str:
        """The address of the service."""
        ...

    @property
    def credentials_origin(self) -> str:
        """What the credentials are and where they were found, without a secret."""
        ...


class Journal(Protocol):
    """The lines of one run; each method returns when its line is safe on disk. Safe to call from threads."""

    @property
    def problem(self) -> str | None:
        """Why lines that no call waits for could not be written; None if all were."""
        ...

    def before(self, step: Step) -> int:
        """Write down what is about to be asked; return the line's number.

        Raises:
            LockLost: the run no longer holds its lock, so the call must not be made.
            RecordsUnavailable: the line could not be written, so the call must not be made.
        """
        ...

    def after(self, line: int, end: StepEnd) -> None:
        """Write down how it went. A store that is unavailable by now is no failure of the call."""
        ...

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write down what became of an action; `declared` is that of the job it made or changed."""
        ...

    def end(self, ended: RunEnd) -> None:
        """Close the run."""
        ...


class ScopeLock(Protocol):
    """The lock of a scope. As a context manager it is held in the block."""

    def take(self) -> None:
        """Take it, and keep its lease alive.

        Raises:
            LockHeld: somebody else holds it; the words say who, since when, from where, and for how long yet.
        """
        ...

    def release(self) -> None:
        """Let it go, however far taking it came; doing so twice is no harm."""
        ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Records(Protocol):
    """One store for journal, lock and history. Any method may raise `RecordsUnavailable`."""

    def locked(
        self, scope: Scope, holder: Holder, *, lease_s: float, on_lost: Callable[[], None]
    ) -> ScopeLock:
        """The lock of a scope, not taken yet; `on_lost` is called if its lease cannot be kept alive.

        `since_s` and `expires_s` of the holder are the store's to set.
        """
        ...

    def holder(self, scope: Scope) -> Holder | None:
        """Who holds the lock; None if nobody does, or the holder is known to be dead."""
        ...

    def break_lock(self, scope: Scope, seen: Holder | None = None) -> Holder | None:
        """Take the lock away from whoever holds it, and return who that was.

        With `seen`, as `holder` gave it, from that one only: None if it does not hold the lock any more.
        """
        ...

    def begin(self, run: Run) -> Journal:
        """Open a run. Its journal is fenced by the lock that this process holds of the scope, if any."""
        ...

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What is known of a scope."""
        ...

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write down owned revisions as they were seen: new ones, and new phases of those known."""
        ...

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Write down for a scope what is known of these jobs in another one; return how many were new.

        What is known of the scope already stays as it is.
        """
        ...

    def declare(self, scope: Scope, sweeps: Mapping[str, str], place: str) -> None:
        """Write down what an apply declares: each key with its sweep or "", and where the manifest is."""
        ...

    def finished(self, scope: Scope, digests: Collection[str], place: str) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the target of a scope, by digest, and do not declare any more.

        Of a stack that was last applied from `place` all that it completed: it had another name then.
        """
        ...

    def last_check(self, scope: Scope) -> LastCheck:
        """The drift that stands by earlier checks, and when the last one could compare."""
        ...

    def record_check(self, run: Run, ended: RunEnd, check: CheckRecord) -> None:
        """Write down a check that has ended: the run, its events, and the drift that stands by now.

        A drift of another check that this one says nothing of stays as it is, and what was accepted stays
        accepted as long as its content is the same. Of the checks without an event only the newest stay.
        """
        ...

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Write down that drifts which stand were reported at a time: somebody was notified of them."""
        ...

    def accept(
        self, run: Run, ended: RunEnd, drift: Collection[DriftId], acceptance: Acceptance | None
    ) -> int:
        """Write down that drifts which stand are known, or with None that they are not; return how many."""
        ...

    def runs(self, scope: Scope, *, key: str | None = None, limit: int | None = None) -> Sequence[PastRun]:
        """The runs of a scope, newest first; with `key` those that did something about it."""
        ...

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key, by key; failed calls aside."""
        ...

    def revisions(self, scope: Scope, key: str) -> Sequence[PastRevision]:
        """The revisions of one key, oldest first."""
        ...

    def prunable(self, scope: Scope, before_s: float) -> Prunable:
        """Count what `prune` would delete."""
        ...

    def prune(self, scope: Scope, before_s: float) -> int:
        """Delete runs that ended before a time; return how many.

        Also the revisions that are neither the newest of their key nor younger than that.
        """
        ...

    def check(self) -> None:
        """Read the whole store, of all stacks: `RecordsUnavailable` says what in it is damaged."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


#: Told about each request: method, path, status (None: no answer), seconds.
RequestListener = Callable[[str, str, int | None, float], None]
#: Asked for when the list of jobs is read: what it yields is told how many jobs each page had.
ReadingListener = Callable[[], AbstractContextManager[Callable[[int], None]]]
Secrets = Sequence[str]
