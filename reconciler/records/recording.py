"""The records of one stack on one target: opened when first needed, and no plan fails without them.

A store that cannot be reached stops no plan, and stops an apply unless somebody says to go on without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.addresses import file_url
from reconciler.core.record import (
    LEASE_S,
    NO_HISTORY,
    HistorySnapshot,
    RecordedRevision,
    RecordsUnavailable,
    RevisionId,
    Scope,
)
from reconciler.decide.plan import Action, Before, Plan, PlannedAction, Reason, without_growing
from reconciler.errors import Diagnostic, LockHeld
from reconciler.files import RECORD_DIRECTORY, record_directory, tighten
from reconciler.text import format_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from reconciler.core.code import Code
    from reconciler.core.observed import ObservedJob
    from reconciler.core.ownership import Revision
    from reconciler.core.past import FinishedWork, PastChange, RunKind
    from reconciler.core.ports import Clock
    from reconciler.decide.drift_check import CheckRecord, DriftId, LastCheck
    from reconciler.decide.outcome import Journal, Run, RunEnd
    from reconciler.records.lock import ScopeLock
    from reconciler.records.store import Records

DATABASE = "records.sqlite3"
#: How often a lock that is waited for is tried, in seconds.
_LOCK_PAUSE_S = 1.0


class RunMetadata(NamedTuple):
    """Who runs this, where, with which command; "" for unknown."""

    who: str = ""
    where: str = ""
    command: str = ""


@dataclass(eq=False, repr=False)
class Recording:
    """Where the records of a stack are, and what becomes of a command where they are not available.

    `url` is None for the file beside the root file. `origin` is asked when it is first written, and
    `find_place`, where the manifests in `root` are, when it is first compared. `tell` takes what `-v` shows.
    `unavailable` says why it is unknown where the store is: a secret in its URL has no value.
    """

    url: str | None
    root: Path
    clock: Clock
    redact: Callable[[str], str] = str
    origin: Callable[[], RunMetadata] = RunMetadata
    find_place: Callable[[Path], str] = os.path.realpath
    lease_s: float = LEASE_S
    lock_timeout_s: float = 0.0
    goes_on_without: bool = False
    warn: Callable[[str], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None
    unavailable: tuple[Diagnostic, ...] | None = None
    _opened: Records | None = field(default=None, init=False)
    #: An apply goes on without the store from here on, whether or not it comes back.
    _is_given_up: bool = field(default=False, init=False)

    @cached_property
    def _origin(self) -> RunMetadata:
        return self.origin()

    @cached_property
    def _place(self) -> str:
        return self.find_place(self.root)

    # --- the store

    def reading(self) -> Records | None:
        """The store, or None where there is none yet.

        Raises:
            RecordsUnavailable: there is one, and it cannot be asked.
        """
        return self._open(create=False)

    def writing(self) -> Records | None:
        """The store, made where there is none; None if it is unavailable and the command goes on without.

        Raises:
            RecordsUnavailable: it cannot be reached, read or written.
        """
        try:
            return self._open(create=True)
        except RecordsUnavailable as unavailable:
            self.go_on_without(unavailable)
            return None

    def go_on_without(self, unavailable: RecordsUnavailable) -> None:
        """Work without the store from now on; raises what is wrong with it if nobody said to do so."""
        if not self.goes_on_without:
            raise unavailable
        self.close()
        self._is_given_up = True
        self.warn(f"{unavailable}; continuing without lock, journal and history")

    def close(self) -> None:
        self._is_given_up = False
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _open(self, *, create: bool) -> Records | None:
        if self._opened is None and not self._is_given_up and (url := self._find(create=create)):
            from reconciler.records.store import open_records

            self._opened = open_records(url, clock=self.clock, redact=self.redact, create=create)
        return self._opened

    def _find(self, *, create: bool) -> str | None:
        """The URL of the store; None if it is the file beside the root file, which is not there yet."""
        from reconciler.records.file import UNWRITABLE, has_content

        if self.unavailable is not None:
            raise RecordsUnavailable(*self.unavailable)
        tighten(self.root / RECORD_DIRECTORY)
        if self.url is not None:
            return self.url
        has_file = has_content(self.root / RECORD_DIRECTORY / DATABASE)
        if create:
            try:
                record_directory(self.root)
            except OSError as error:
                why = f"{self.root / RECORD_DIRECTORY}: {error.strerror}"
                fix = "make the directory writable, or set a store with `records:` or --records"
                raise RecordsUnavailable(Diagnostic(UNWRITABLE, why, fix)) from error
        elif not has_file:
            return None
        return file_url(os.path.realpath(self.root / RECORD_DIRECTORY / DATABASE))

    @contextmanager
    def _optional(self, consequence: str) -> Iterator[None]:
        """What cannot be written or read in the block stops nothing: a warning says so."""
        try:
            yield
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; {consequence}")

    # --- what is read

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What the store knows of a scope. Where it cannot be read, `problem` says why.

        A store that is there and cannot be read is not an empty one, unless somebody says to work without.
        """
        try:
            store = self.reading()
            return store.memory(scope) if store else NO_HISTORY
        except RecordsUnavailable as unavailable:
            if not self.goes_on_without:
                return HistorySnapshot(problem=str(unavailable), fix=unavailable.diagnostics[0].fix)
            self.warn(f"{unavailable}; working without records")
            return NO_HISTORY

    def finished(self, scope: Scope, digests: Collection[str]) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the target of a scope, by digest, and do not declare any more."""
        # `memory` has warned whoever works without records.
        with suppress(RecordsUnavailable) if self.goes_on_without else nullcontext():
            if store := self.reading():
                return store.finished(scope, digests, self._place)
        return {}

    def code(self, digest: str) -> Code | None:
        """The code of that digest, if a revision with it is on record; an unavailable store knows none."""
        with suppress(RecordsUnavailable):
            if store := self.reading():
                return store.codes([digest]).get(digest)
        return None

    def recorded_revisions(self, scope: Scope) -> Mapping[RevisionId, RecordedRevision] | None:
        """What the store has of each revision, if that is cheap to read: in the file beside the manifest."""
        if self.url or self._opened is not None or self._is_given_up:
            return None
        from reconciler.records.database import Database  # the rest of the records is not needed for this

        try:
            if (url := self._find(create=False)) is None:
                return {}
            store = Database.connect(url, clock=self.clock, redact=self.redact, create=False)
            if store is None:
                return {}
            with closing(store):
                return store.recorded_revisions(scope)
        except RecordsUnavailable:  # whoever opens it says so
            return None

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key; an unavailable store gives none, and a warning."""
        with self._optional("the last changes are not shown"):
            if store := self.reading():
                return store.last_changes(scope)
        return {}

    def last_check(self, scope: Scope) -> LastCheck:
        """What earlier drift checks of a scope left. Where it cannot be read, `problem` says why."""
        from reconciler.decide.drift_check import NO_CHECK, LastCheck

        try:
            store = self.reading()
            return store.last_check(scope) if store else NO_CHECK
        except RecordsUnavailable as unavailable:  # which `memory` has said to whoever works without records
            return NO_CHECK if self.goes_on_without else LastCheck(problem=str(unavailable))

    # --- what is written

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write how the jobs of a scope were seen; the store is made where there is none.

        What cannot be written stops nothing, and changes no result.
        """
        try:
            if store := self._open(create=True):
                store.remember(scope, seen, at_s)
        except RecordsUnavailable as unavailable:
            self.tell(f"{unavailable}; observations are not recorded")

    def declare(self, scope: Scope, sweeps: Mapping[str, str]) -> None:
        """Write what an apply declares, if there is a store; what cannot be written stops nothing."""
        with self._optional("what is declared is not recorded"):
            if store := self.reading():
                store.declare(scope, sweeps, self._place)

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Write for a scope what is known of these jobs in another one; return how many were new."""
        store = self.writing()
        return store.take_over(scope, old, jobs) if store else 0

    def record_check(self, scope: Scope, ended: RunEnd, digest: str, check: CheckRecord) -> None:
        """Write a drift check that has ended; the store is made where there is none."""
        from reconciler.core.past import RunKind

        with self._optional("this check is not recorded"):
            if store := self._open(create=True):
                store.record_check(self._run(scope, RunKind.DRIFT, digest), ended, check)

    def mark_reported(
        self,
        scope: Scope,
        drift: Collection[DriftId],
        at_s: float,
        delivered: Mapping[DriftId, Mapping[str, float]],
    ) -> None:
        with self._optional("what was reported is not recorded, and may be reported again"):
            if (drift or delivered) and (store := self.writing()):
                store.mark_reported(scope, drift, at_s, delivered)

    def lock(self, scope: Scope, on_lost: Callable[[], None]) -> StackLock:
        """The lock of a scope, not taken yet; `on_lost` is called if it is lost while it is held."""
        return StackLock(self, scope, on_lost)

    def begin(self, scope: Scope, kind: RunKind, plan_digest: str) -> Journal:
        """Open the journal of a run; one that writes nothing if the command goes on without the store."""
        if store := self.writing():
            warn = self.warn if self.goes_on_without else None
            return store.begin(self._run(scope, kind, plan_digest), warn)
        from reconciler.decide.outcome import Journal

        return Journal()

    def _run(self, scope: Scope, kind: RunKind, digest: str) -> Run:
        from reconciler.decide.outcome import Run

        origin, at_s = self._origin, self.clock.now()
        return Run(scope, kind, origin.who, origin.where, origin.command, digest, at_s)

    def note(self, scope: Scope, kind: RunKind, ended: RunEnd, digest: str) -> None:
        """Write a run that changed nothing, if there is a store."""
        with self._optional("this check is not recorded"):
            if self.reading():
                self.begin(scope, kind, digest).end(ended)

    def note_termination(self, scope: Scope, job: ObservedJob) -> None:
        """Write that a job of the stack was terminated by hand, if there is a store."""
        from reconciler.core.past import Call, RunKind
        from reconciler.decide.outcome import RunEnd, Step, StepEnd

        marker = job.marker
        if marker is None or marker.stack != scope.stack:
            return
        before = Before(
            id=job.id, name=job.name, revision=marker.revision, phase=job.phase_text, digest=marker.digest
        )
        action = PlannedAction(
            key=marker.key, action=Action.TERMINATE, reason=Reason.DESTROYED, before=before
        )
        with self._optional("the termination is not recorded"):
            if self.reading():
                journal = self.begin(scope, RunKind.TERMINATE, "")
                line = journal.before(Step(action, Call.TERMINATE, job.id))
                journal.after(line, StepEnd(ok=True, job=job.id))
                journal.end(RunEnd(self.clock.now(), "complete", {"terminate": 1}))


class StackLock:
    """The lock of a scope: held while something is done, released while it is only watched."""

    def __init__(self, recording: Recording, scope: Scope, on_lost: Callable[[], None]) -> None:
        self._recording, self._scope, self._on_lost = recording, scope, on_lost
        self._lock: ScopeLock | None = None

    def take_in_time(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Take it as soon as it is free, waiting for it as long as the records' `lock_timeout_s`.

        Nobody waits any more once it `is_over`.

        Raises:
            LockHeld: another process still holds it.
            RecordsUnavailable: the store is unavailable, and nobody said to go on without.
        """
        recording, clock = self._recording, self._recording.clock
        until_s, is_told = clock.now() + recording.lock_timeout_s, False
        while True:
            try:
                return self.take()
            except LockHeld as held:
                self.release()
                if (left_s := until_s - clock.now()) <= 0 or is_over():
                    raise
                if not is_told:
                    recording.warn(f"{held}; waiting for up to {format_duration(left_s)}")
                    is_told = True
                clock.sleep(min(left_s, _LOCK_PAUSE_S))

    def take(self) -> None:
        """Take it.

        Raises:
            LockHeld: another process holds it.
            RecordsUnavailable: the store is unavailable, and nobody said to go on without.
        """
        from reconciler.core.past import Holder

        recording, origin = self._recording, self._recording._origin
        holder = Holder(origin.who, origin.where, origin.command, 0.0, 0.0)
        lease_s, on_lost = recording.lease_s, self._on_lost
        try:
            if store := recording.writing():
                self._lock = store.locked(self._scope, holder, lease_s=lease_s, on_lost=on_lost)
                self._lock.take()
        except RecordsUnavailable as unavailable:
            recording.go_on_without(unavailable)
            self._lock = None

    def release(self) -> None:
        """Release it, however far taking it came. Idempotent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> StackLock:
        try:
            self.take()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def plan_digest(plan: Plan) -> str:
    """Name a plan by what it says, what grows with time aside."""
    return digest_of(without_growing(plan.document()))


def digest_of(tree: Any) -> str:
    """Name plain data by what it says."""
    import hashlib
    import json

    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
