"""The records of one stack on one target: opened when first needed, and no plan fails without them.

A plan that changes nothing never opens them. A store that cannot be reached stops no plan, and stops
an apply unless somebody says to go on without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.ports import Clock
from reconciler.core.record import (
    LEASE_S,
    NO_HISTORY,
    Call,
    HistorySnapshot,
    Holder,
    RecordedRevision,
    RecordsUnavailable,
    RevisionId,
    RunKind,
    Scope,
)
from reconciler.core.store_url import file_url
from reconciler.decide.journal import Journal, Records, Run, RunEnd, ScopeLock, Step, StepEnd
from reconciler.decide.plan import Action, Before, Plan, PlannedAction, Reason, without_growing
from reconciler.errors import Diagnostic
from reconciler.record_directory import NAME, record_directory, tighten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ownership import Revision
    from reconciler.core.record import Declared, FinishedWork, PastChange
    from reconciler.decide.drift_check import Acceptance, CheckRecord, DriftId, LastCheck
    from reconciler.decide.journal import Step, StepEnd
    from reconciler.decide.outcome import Outcome

DATABASE = "records.sqlite3"


@dataclass(frozen=True)
class RunMetadata:
    """Who runs this, where, with which command, from which commit of the manifests; "" for unknown."""

    who: str = ""
    where: str = ""
    command: str = ""
    commit: str = ""


@dataclass
class Recording:
    """Where the records of a stack are, and how to get at them.

    `url` is None for the file beside the root file. `origin` is asked when it is first written down, and
    `find_place`, where the manifests in `root` are, when it is first compared.
    `tell` takes what `-v` shows.
    `unavailable` says why nobody knows where the store is: a secret in its address has no value.
    """

    url: str | None
    root: Path
    clock: Clock
    redact: Callable[[str], str] = str
    origin: Callable[[], RunMetadata] = RunMetadata
    find_place: Callable[[Path], str] = os.path.realpath
    lease_s: float = LEASE_S
    goes_on_without: bool = False
    warn: Callable[[str], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None
    unavailable: tuple[Diagnostic, ...] | None = None
    _opened: Records | None = field(default=None, init=False, repr=False)

    @cached_property
    def _origin(self) -> RunMetadata:
        return self.origin()

    def memory(self, scope: Scope) -> HistorySnapshot:
        """What the store knows of a scope. Where it cannot be read, that is said in the answer.

        A store that is there and cannot be read is not an empty one, unless somebody says to work without.
        """
        try:
            records = self.reading()
            return records.memory(scope) if records else NO_HISTORY
        except RecordsUnavailable as unavailable:
            if not self.goes_on_without:
                return HistorySnapshot(problem=str(unavailable), fix=unavailable.diagnostics[0].fix)
            self.warn(f"{unavailable}; working without records")
            return NO_HISTORY

    @cached_property
    def _place(self) -> str:
        return self.find_place(self.root)

    def finished(self, scope: Scope, digests: Collection[str]) -> Mapping[str, FinishedWork]:
        """What other stacks completed on the target of a scope, by digest, and do not declare any more.

        Raises:
            RecordsUnavailable: the store cannot be asked, and nobody said to go on without.
        """
        try:
            records = self.reading()
            return records.finished(scope, digests, self._place) if records else {}
        except RecordsUnavailable:
            # Who works without records is told so where the history is read.
            if not self.goes_on_without:
                raise
            return {}

    def declare(self, scope: Scope, sweeps: Mapping[str, str]) -> None:
        """Write down what an apply declares, if there is a store; what cannot be written stops nothing."""
        try:
            if records := self.reading():
                records.declare(scope, sweeps, self._place)
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; what is declared is not recorded")

    def recorded_revisions(self, scope: Scope) -> Mapping[RevisionId, RecordedRevision] | None:
        """What the store has of each revision, if that can be told cheaply: the file beside the manifest."""
        if self.url is not None or self._opened is not None or self.unavailable is not None:
            return None
        tighten(self.root / NAME)
        from reconciler.records.sqlite.recorded_revisions import read_revisions
        from reconciler.records.sqlite.store_file import has_content

        try:
            return read_revisions(self._file, scope) if has_content(self._link) else {}
        except RecordsUnavailable:  # whoever opens it says so
            return None

    @property
    def _link(self) -> Path:
        return self.root / NAME / DATABASE

    @property
    def _file(self) -> Path:
        return Path(os.path.realpath(self._link))

    def reading(self) -> Records | None:
        """The store, or None where there is none yet.

        Raises:
            RecordsUnavailable: there is one, and it cannot be asked.
        """
        if self._opened is None:
            self._opened = self._open(create=False)
        return self._opened

    def writing(self) -> Records:
        """The store, made where there is none.

        Raises:
            RecordsUnavailable: it cannot be reached, read or written.
        """
        if self._opened is None:
            try:
                self._opened = self._open(create=True)
            except RecordsUnavailable as unavailable:
                self.go_on_without(unavailable)
        assert self._opened is not None
        return self._opened

    def _open(self, *, create: bool) -> Records | None:
        from reconciler.records import open_records
        from reconciler.records.sqlite.store_file import has_content

        if self.unavailable is not None:
            raise RecordsUnavailable(*self.unavailable)
        url = self.url
        tighten(self.root / NAME)
        if url is None:
            has_file = has_content(self._link)
            if create:
                try:
                    record_directory(self.root)
                except OSError as error:
                    why = f"{self.root / NAME}: {error.strerror}"
                    fix = "make the directory writable, or set a store with `records:` or --records"
                    raise RecordsUnavailable(
                        Diagnostic("the record store cannot be written", why, fix)
                    ) from error
            elif not has_file:
                return None
            url = file_url(str(self._file))
        return open_records(url, clock=self.clock, redact=self.redact, create=create)

    def _nothing(self, unavailable: RecordsUnavailable) -> Records:
        from reconciler.records.null import NoRecords

        self.warn(f"{unavailable}; continuing without lock, journal and history")
        return NoRecords()

    def remember(self, scope: Scope, seen: Iterable[Revision], at_s: float) -> None:
        """Write down how the jobs of a scope were seen; the store is made where there is none.

        What cannot be written stops nothing, and changes no result.
        """
        try:
            self._opened = self._opened or self._open(create=True)
            assert self._opened is not None
            self._opened.remember(scope, seen, at_s)
        except RecordsUnavailable as unavailable:
            self.tell(f"{unavailable}; observations are not recorded")

    def last_check(self, scope: Scope) -> LastCheck:
        """What earlier drift checks of a scope left. Where it cannot be read, that is said in the answer."""
        from reconciler.decide.drift_check import NO_CHECK, LastCheck

        try:
            records = self.reading()
            return records.last_check(scope) if records else NO_CHECK
        except RecordsUnavailable as unavailable:
            # Who works without records is told so where the history is read.
            return NO_CHECK if self.goes_on_without else LastCheck(problem=str(unavailable))

    def record_check(self, scope: Scope, ended: RunEnd, digest: str, check: CheckRecord) -> None:
        """Write down a drift check that has ended; the store is made where there is none.

        What cannot be written stops nothing: it is said.
        """
        try:
            self._opened = self._opened or self._open(create=True)
            assert self._opened is not None
            self._opened.record_check(self._run(scope, RunKind.DRIFT, digest), ended, check)
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; this check is not recorded")

    def mark_reported(self, scope: Scope, drift: Collection[DriftId], at_s: float) -> None:
        """Write down that drifts were reported to somebody; what cannot be written stops nothing."""
        if not drift:
            return
        try:
            self.writing().mark_reported(scope, drift, at_s)
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; what was reported is not recorded, and may be reported again")

    def accept(
        self, scope: Scope, digest: str, drift: Collection[DriftId], reason: str | None
    ) -> tuple[int, Acceptance | None]:
        """Write down that drifts which stand are known, or with None that they are not.

        Returns how many were not so before, and who accepted them when.

        Raises:
            RecordsUnavailable: the store cannot be reached, read or written.
        """
        from reconciler.decide.drift_check import Acceptance

        run = self._run(scope, RunKind.ACCEPT, digest)
        acceptance = None if reason is None else Acceptance(run.at_s, run.who, reason)
        word = "removed" if acceptance is None else "accepted"
        ended = RunEnd(run.at_s, "complete", {word: len(drift)})
        return self.writing().accept(run, ended, drift, acceptance), acceptance

    def last_changes(self, scope: Scope) -> Mapping[str, PastChange]:
        """The newest call that changed a job of each key; an unavailable store gives none, and a warning."""
        try:
            records = self.reading()
            return records.last_changes(scope) if records else {}
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; the last changes are not shown")
            return {}

    def scope_lock(self, scope: Scope, on_lost: Callable[[], None]) -> ScopeLock:
        """The lock of a scope in the store, for who runs this; not taken yet."""
        origin = self._origin
        holder = Holder(origin.who, origin.where, origin.command, 0.0, 0.0)
        return self.writing().locked(scope, holder, lease_s=self.lease_s, on_lost=on_lost)

    def go_on_without(self, unavailable: RecordsUnavailable) -> None:
        """Work without the store from now on.

        Raises:
            RecordsUnavailable: nobody said to do so.
        """
        if not self.goes_on_without:
            raise unavailable
        self.close()
        self._opened = self._nothing(unavailable)

    def lock(self, scope: Scope, on_lost: Callable[[], None]) -> StackLock:
        """The lock of a scope, not taken yet; `on_lost` is called if it is lost while it is held."""
        return StackLock(self, scope, on_lost)

    def begin(self, scope: Scope, kind: RunKind, plan_digest: str) -> Journal:
        """Open the journal of a run."""
        journal = self.writing().begin(self._run(scope, kind, plan_digest))
        return _Forgiving(journal, self.warn) if self.goes_on_without else journal

    def _run(self, scope: Scope, kind: RunKind, digest: str) -> Run:
        origin, at_s = self._origin, self.clock.now()
        return Run(scope, kind, origin.who, origin.where, origin.command, origin.commit, digest, at_s)

    def note(self, scope: Scope, kind: RunKind, ended: RunEnd, digest: str) -> None:
        """Write down a run that changed nothing, if there is a store."""
        try:
            if self.reading():
                self.begin(scope, kind, digest).end(ended)
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; this check is not recorded")

    def note_termination(self, scope: Scope, job: ObservedJob) -> None:
        """Write down that a job of the stack was terminated by hand, if there is a store."""
        marker = job.marker
        if marker is None or marker.stack != scope.stack:
            return
        before = Before(
            id=job.id, name=job.name, revision=marker.revision, phase=job.phase_text, digest=marker.digest
        )
        action = PlannedAction(
            key=marker.key, action=Action.TERMINATE, reason=Reason.DESTROYED, before=before
        )
        try:
            if self.reading():
                journal = self.begin(scope, RunKind.TERMINATE, "")
                line = journal.before(Step(action, Call.TERMINATE, job.id))
                journal.after(line, StepEnd(ok=True, job=job.id))
                journal.end(RunEnd(self.clock.now(), "complete", {"terminate": 1}))
        except RecordsUnavailable as unavailable:
            self.warn(f"{unavailable}; the termination is not recorded")

    def close(self) -> None:
        """Let go of the store."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class StackLock:
    """The lock of a scope: held while something is done, let go while it is only watched."""

    def __init__(self, recording: Recording, scope: Scope, on_lost: Callable[[], None]) -> None:
        self._recording, self._scope, self._on_lost = recording, scope, on_lost
        self._lock: ScopeLock | None = None

    def take(self) -> None:
        """Take it.

        Raises:
            LockHeld: another process holds it.
            RecordsUnavailable: the store is unavailable, and nobody said to go on without.
        """
        recording = self._recording
        try:
            self._lock = recording.scope_lock(self._scope, self._on_lost)
            self._lock.take()
        except RecordsUnavailable as unavailable:
            recording.go_on_without(unavailable)
            self._lock = None

    def release(self) -> None:
        """Let it go, however far taking it came; doing so twice is no harm."""
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


class _Forgiving:
    """A journal that calls are made without, once its store has become unavailable: somebody said so."""

    def __init__(self, journal: Journal, warn: Callable[[str], None]) -> None:
        self._journal, self._warn = journal, warn
        self._is_unavailable = False

    @property
    def problem(self) -> str | None:
        """Why not everything could be written down."""
        return self._journal.problem

    def before(self, step: Step) -> int:
        """Write a line, if that can be done."""
        try:
            return self._journal.before(step)
        except RecordsUnavailable as unavailable:
            if not self._is_unavailable:
                self._is_unavailable = True
                self._warn(f"{unavailable}; continuing without a journal")
            return 0

    def after(self, line: int, end: StepEnd) -> None:
        """Write the second line."""
        if line:
            self._journal.after(line, end)

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write an outcome."""
        self._journal.outcome(outcome, declared)

    def end(self, ended: RunEnd) -> None:
        """Close the run."""
        self._journal.end(ended)


def plan_digest(plan: Plan) -> str:
    """Name a plan by what it says, what grows with time aside."""
    import hashlib
    import json

    text = json.dumps(without_growing(plan.document()), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
