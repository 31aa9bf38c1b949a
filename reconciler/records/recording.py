"""The records of one stack on one target, opened on first use.

An unavailable store never fails a plan; it fails an apply, unless `--without-records` is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
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
#: Interval between attempts to take a lock, in seconds.
_LOCK_PAUSE_S = 1.0


class RunMetadata(NamedTuple):
    """User, machine and command of a run; "" for unknown."""

    who: str = ""
    where: str = ""
    command: str = ""


@dataclass(eq=False, repr=False)
class Recording:
    """Access to the records of a stack, and the handling of an unavailable store.

    `url` is None for the file beside the root file. `origin` and `find_place` (the place of the manifests in
    `root`) are only called when needed. `log_debug` receives messages for `-v`. `unavailable` is set if the
    URL is unknown, because a secret in it has no value.
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
    log_debug: Callable[[str], None] = lambda _: None
    unavailable: tuple[Diagnostic, ...] | None = None
    _opened: Records | None = field(default=None, init=False)
    #: Set when an apply continues without the store, even if that becomes available again.
    _is_given_up: bool = field(default=False, init=False)

    # --- the store

    def reading(self) -> Records | None:
        """Open the store for reading. None if it does not exist yet.

        Raises:
            RecordsUnavailable: it exists, but cannot be read.
        """
        return self._open(create=False)

    def writing(self) -> Records | None:
        """Open the store for writing, and create it if necessary. None if the command goes on without it.

        Raises:
            RecordsUnavailable: it cannot be reached, read or written.
        """
        try:
            return self._open(create=True)
        except RecordsUnavailable as unavailable:
            self.go_on_without(unavailable)
            return None

    def go_on_without(self, unavailable: RecordsUnavailable) -> None:
        """Continue without the store, or raise its error unless `--without-records` was given."""
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
        """The URL of the store. None if it is the file beside the root file and does not exist yet."""
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
        """Turn an unavailable store in the block into a warning."""
        try:
            yield
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; {consequence}")

    # --- reading

    def memory(self, scope: Scope) -> HistorySnapshot:
        """Read the history of a scope. If it cannot be read, `problem` says why.

        An unreadable store is not an empty one, unless `--without-records` is given.
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
        """Return completed work that other stacks on the target no longer declare, by digest."""
        # `memory` has already warned about working without records.
        with suppress(RecordsUnavailable) if self.goes_on_without else nullcontext():
            if store := self.reading():
                return store.finished(scope, digests, self.find_place(self.root))
        return {}

    def code(self, digest: str) -> Code | None:
        """Return the recorded code of a digest. None if it is unknown or the store unavailable."""
        with suppress(RecordsUnavailable):
            if store := self.reading():
                return store.codes([digest]).get(digest)
        return None

    def recorded_revisions(self, scope: Scope) -> Mapping[RevisionId, RecordedRevision] | None:
        """Return the recorded revisions if reading them is cheap, in the file beside the manifest."""
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
        except RecordsUnavailable:  # reported when it is opened
            return None

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """Return the newest call that changed a job, by key. Warns if the store is unavailable."""
        with self._optional("the last changes are not shown"):
            if store := self.reading():
                return store.last_changes(scope)
        return {}

    def last_check(self, scope: Scope) -> LastCheck:
        """Return the state of the last drift check. If it cannot be read, `problem` says why."""
        from reconciler.decide.drift_check import NO_CHECK, LastCheck

        try:
            store = self.reading()
            return store.last_check(scope) if store else NO_CHECK
        except RecordsUnavailable as unavailable:  # `memory` has already warned about it
            return NO_CHECK if self.goes_on_without else LastCheck(problem=str(unavailable))

    # --- writing

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Record observed jobs of a scope, creating the store if necessary. Failures are only warnings."""
        try:
            if store := self._open(create=True):
                store.remember(scope, seen, at_s)
        except RecordsUnavailable as unavailable:
            self.log_debug(f"{unavailable}; observations are not recorded")

    def declare(self, scope: Scope, sweeps: Mapping[str, str]) -> None:
        """Record the declarations of an apply, if there is a store. Failures are only warnings."""
        with self._optional("the declared keys are not recorded"):
            if store := self.reading():
                store.declare(scope, sweeps, self.find_place(self.root))

    def rename(self, scope: Scope, actions: Iterable[PlannedAction]) -> None:
        """Record renamed keys whose jobs have aged out, if there is a store. Failures are only warnings."""
        actions = [one for one in actions if one.former_keys and not one.traits.needs_attention]
        new_keys = {old: one.key for one in actions for old in one.former_keys}
        with self._optional("renamed keys are not recorded"):
            if new_keys and (store := self.reading()):
                store.rename(scope, new_keys, {one.before.id for one in actions if one.before})

    def take_over(self, scope: Scope, old: Scope, jobs: Collection[str]) -> int:
        """Copy the history of these jobs from another scope. Returns the number of new revisions."""
        store = self.writing()
        return store.take_over(scope, old, jobs) if store else 0

    def record_check(self, scope: Scope, ended: RunEnd, digest: str, check: CheckRecord) -> None:
        """Record a finished drift check, creating the store if necessary."""
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
        with self._optional("the report is not recorded, so drift may be reported again"):
            if (drift or delivered) and (store := self.writing()):
                store.mark_reported(scope, drift, at_s, delivered)

    def lock(self, scope: Scope, on_lost: Callable[[], None]) -> StackLock:
        """Return the lock of a scope, not taken yet. `on_lost` is called if it is lost."""
        return StackLock(self, scope, on_lost)

    def begin(self, scope: Scope, kind: RunKind, plan_digest: str) -> Journal:
        """Open the journal of a run. Without the store it writes nothing."""
        if store := self.writing():
            warn = self.warn if self.goes_on_without else None
            return store.begin(self._run(scope, kind, plan_digest), warn)
        from reconciler.decide.outcome import Journal

        return Journal()

    def _run(self, scope: Scope, kind: RunKind, digest: str) -> Run:
        from reconciler.decide.outcome import Run

        origin, at_s = self.origin(), self.clock.now()
        return Run(scope, kind, origin.who, origin.where, origin.command, digest, at_s)

    def note(self, scope: Scope, kind: RunKind, ended: RunEnd, digest: str) -> None:
        """Record a run that changed nothing, if there is a store."""
        with self._optional("this check is not recorded"):
            if self.reading():
                self.begin(scope, kind, digest).end(ended)

    def note_termination(self, scope: Scope, job: ObservedJob) -> None:
        """Record that a job of the stack was terminated by hand, if there is a store."""
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
    """The lock of a scope, which may be released and taken again."""

    def __init__(self, recording: Recording, scope: Scope, on_lost: Callable[[], None]) -> None:
        self._recording, self._scope, self._on_lost = recording, scope, on_lost
        self._lock: ScopeLock | None = None

    def take_in_time(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Take the lock, waiting for at most `lock_timeout_s` of the records, or until `is_over`.

        Raises:
            LockHeld: another process still holds it.
            RecordsUnavailable: the store is unavailable, and `--without-records` was not given.
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
        """Take the lock.

        Raises:
            LockHeld: another process holds it.
            RecordsUnavailable: the store is unavailable, and `--without-records` was not given.
        """
        from reconciler.core.past import Holder

        recording, origin = self._recording, self._recording.origin()
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
        """Release the lock, even if taking it failed. Idempotent."""
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
    """Return a digest of a plan, without fields that grow with time."""
    return digest_of(without_growing(plan.document()))


def digest_of(tree: Any) -> str:
    """Return a digest of plain data."""
    import hashlib
    import json

    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
