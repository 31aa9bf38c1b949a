"""What a decision rests on: the jobs of the service, their details, and what the history has of the stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.ownership import Revision, is_recorded, sort_by_key
from reconciler.core.ports import Backend, SupportsClockSkew
from reconciler.core.record import (
    NO_HISTORY,
    HistorySnapshot,
    RecordedRevision,
    RecordsUnavailable,
    RevisionId,
)
from reconciler.core.selection import is_glob, narrow
from reconciler.core.stack import Stack
from reconciler.decide.key_state import PlanContext, Snapshot, newest
from reconciler.decide.planner import details_needed, needs_whole_list, rests_on_memory
from reconciler.decide.renames import digests_to_start
from reconciler.errors import Diagnostic, NotFound, ServiceError, Unauthorized
from reconciler.text import format_count

if TYPE_CHECKING:
    from reconciler.reconcile import Context


def observe(
    context: Context, plan_context: PlanContext, *, with_details: bool = False, with_drift: bool = False
) -> tuple[Stack, Snapshot]:
    """Look at the workspace; for a plan, also at the details of the jobs whose declaration changed.

    A report on drift needs no details, and one `with_drift` beside a plan needs what both do.

    Returns the stack as it is in view, and what was seen. What cannot be read is unknown, and said in
    the plan. What was seen of owned revisions is recorded.

    Raises:
        Unauthorized: the target does not let us read at all.
        WrongUsage: `only` names a key that is neither declared nor owned.
    """
    whole = context.loaded.stack
    reports_drift = with_drift or not with_details
    reader = _SnapshotReader(context, plan_context, with_details=with_details, reports_drift=reports_drift)
    reader.open_history()
    seen = context.target.backend.observe(reader.names, reader.needs_whole_list)
    context.tell(f"read {len(seen.jobs)} jobs: {seen.strategy}, {format_count(seen.requests, 'request')}")
    snapshot = reader.with_finished_work(reader.snapshot(seen))
    reader.record(snapshot)
    return narrow(whole, context.only, snapshot.ownership.owned_keys, context.unmatched), snapshot


def survey(context: Context) -> tuple[Observation, Snapshot]:
    """Look at the whole workspace, whatever that costs, and at all that the history knows of the stack.

    Raises:
        Unauthorized: the target does not let us read at all.
        RecordsUnavailable: the history cannot be read, and what is planned is about to be carried out.
    """
    reader = _SnapshotReader(context, context.plan_context(), with_details=False, reports_drift=True)
    reader.open_history()
    seen = context.target.backend.observe(reader.names, lambda _: True)
    context.tell(f"read {len(seen.jobs)} jobs: {seen.strategy}, {format_count(seen.requests, 'request')}")
    snapshot = reader.snapshot(seen)
    reader.record(snapshot)
    return seen, snapshot


class _SnapshotReader:
    """Turns observations into what a plan rests on: sorted by key, with history and details as needed."""

    def __init__(
        self, context: Context, plan_context: PlanContext, *, with_details: bool, reports_drift: bool
    ) -> None:
        self._context, self._stack = context, context.loaded.stack
        self._plan_context, self._with_details = plan_context, with_details
        self._reports_drift = reports_drift
        self._history = StackHistory(context)
        self._asked: set[str] = set()
        self._details: dict[str, ObservedJob] = {}
        self._gone: frozenset[str] = frozenset()

    def open_history(self) -> None:
        """Settle what counts as recorded, before the service is read."""
        self._history.open()

    @property
    def names(self) -> frozenset[str]:
        """The keys whose jobs are looked for, active or not."""
        return self._stack.declared_keys | frozenset(self._stack.jobs) | self._stack.former_keys

    def needs_whole_list(self, partial: Observation) -> bool:
        """Whether a decision rests on something not being there, so that searches are not enough."""
        snapshot = self.snapshot(partial)
        stack, unmatched = self._in_view(snapshot)
        # A key that is not declared may own jobs that no search was made for.
        if not all(map(is_glob, unmatched)):
            return True
        if needs_whole_list(stack, snapshot, self._plan_context, asked=self._asked):
            return True
        if not self._reports_drift or self._plan_context.destroys:
            return False
        from reconciler.decide.drift import needs_whole_list as report_needs_whole_list

        return report_needs_whole_list(stack, snapshot, self._plan_context)

    def snapshot(self, observation: Observation) -> Snapshot:
        """What was observed, and what the decisions about it rest on besides."""
        ownership = sort_by_key(observation, self._stack.name, self.names)
        snapshot = Snapshot(ownership, self._details, self._gone, skew_s=self._skew_s)
        # A report on drift needs what was last applied, whatever is declared now.
        service_s = self._plan_context.at_s - self._skew_s
        if self._reports_drift or rests_on_memory(self._stack, snapshot, self._history.recorded, service_s):
            snapshot = snapshot._replace(memory=self._history.memory)
        if not self._with_details:
            return snapshot
        # A job that is gone by now makes way for an older revision, whose details may be needed then.
        while wanted := [job_id for job_id in self._needed(snapshot) if job_id not in self._asked]:
            self._asked.update(wanted)
            details, gone = _read(self._context.target.backend, wanted, self._context.parallelism)
            self._details |= details
            self._gone |= gone
            snapshot = snapshot._replace(details=self._details, gone=self._gone)
        return snapshot

    def with_finished_work(self, snapshot: Snapshot) -> Snapshot:
        """The same with what other stacks finished of what is about to be new: it may have been renamed."""
        digests = digests_to_start(self._in_view(snapshot)[0], snapshot) if self._with_details else None
        if not digests:
            return snapshot
        return snapshot._replace(memory=self._history.with_finished_work(snapshot.memory, digests))

    def _begun_schedules(self, snapshot: Snapshot) -> Iterator[Revision]:
        """The latest revisions that only the history knows: a schedule that was edited counts from now on.

        Of a job that is there its marker says so.
        """
        service_s = self._plan_context.at_s - self._skew_s
        for key, desired in self._in_view(snapshot)[0].jobs.items():
            view = snapshot.view(key, desired)
            latest = newest(view, desired)
            past = view.past_of(latest.job.id) if latest and latest.is_aged_out else None
            if desired.is_absent or latest is None or past is None:
                continue
            mark = desired.renewed_schedule_mark(past.schedule, service_s)
            if mark != past.schedule:
                job = replace(latest.job, phase_text=past.phase_text or latest.job.phase_text)
                yield latest._replace(job=job, marker=latest.marker._replace(schedule=mark))

    @cached_property
    def _skew_s(self) -> float:
        """How far our clock is ahead of the service's, by its first answer: all is decided by one time."""
        backend = self._context.target.backend
        return (backend.skew_s or 0.0) if isinstance(backend, SupportsClockSkew) else 0.0

    def _needed(self, snapshot: Snapshot) -> tuple[str, ...]:
        return details_needed(self._in_view(snapshot)[0], snapshot)

    def _in_view(self, snapshot: Snapshot) -> tuple[Stack, list[str]]:
        """The stack in view as far as it is known by now, and what of `only` matches nothing."""
        unmatched: list[str] = []
        owned = snapshot.ownership.owned_keys
        return narrow(self._stack, self._context.only, owned, unmatched.extend), unmatched

    def record(self, snapshot: Snapshot) -> None:
        """Write down how the owned revisions were seen, if the store does not have it yet."""
        seen = [revision for view in snapshot.ownership.views.values() for revision in view.owned]
        if self._context.is_applied:
            seen += self._begun_schedules(snapshot)
        recording = self._context.recording
        if recording and not is_recorded(seen, self._history.recorded):
            recording.remember(self._context.scope, seen, self._plan_context.at_s)


class StackHistory:
    """What the history store knew before the service was read, and only as much as something may rest on.

    What somebody creates and records while we read would look as if the service had forgotten it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def open(self) -> None:
        """Ask for what is recorded; later additions are not counted.

        Raises:
            RecordsUnavailable: it cannot be read, and what is planned is about to be carried out.
        """
        if self.recorded is None or self._context.is_applied:
            _ = self.memory

    @cached_property
    def recorded(self) -> Mapping[RevisionId, RecordedRevision] | None:
        """What it has of each revision; None if that takes as long as asking for all."""
        recording = self._context.recording
        return recording.recorded_revisions(self._context.scope) if recording else {}

    @cached_property
    def memory(self) -> HistorySnapshot:
        """All that it knows.

        Raises:
            RecordsUnavailable: it cannot be read, and what is planned is about to be carried out.
        """
        recording = self._context.recording
        if recording is None:
            return NO_HISTORY
        memory = recording.memory(self._context.scope)
        if memory.problem is not None:
            return self._unreadable(memory.problem, memory.fix)
        return memory if self.recorded is None else memory.limited_to(self.recorded)

    def with_finished_work(self, memory: HistorySnapshot, digests: frozenset[str]) -> HistorySnapshot:
        """The same with what other stacks completed of these digests, and do not declare any more.

        Raises:
            RecordsUnavailable: it cannot be read, and what is planned is about to be carried out.
        """
        recording = self._context.recording
        if recording is None or memory.problem is not None:
            return memory
        try:
            return replace(memory, finished=recording.finished(self._context.scope, digests))
        except RecordsUnavailable as unavailable:
            return self._unreadable(str(unavailable), unavailable.diagnostics[0].fix)

    def _unreadable(self, problem: str, fix: str | None) -> HistorySnapshot:
        if not self._context.is_applied:
            return HistorySnapshot(problem=problem, fix=fix)
        raise RecordsUnavailable(
            Diagnostic(
                "the history could not be read",
                f"{problem}; finished work might run again",
                f"{fix or 'repair the record store'}; or work without it: --without-records",
            )
        )


def _read(
    backend: Backend, job_ids: list[str], parallelism: int
) -> tuple[dict[str, ObservedJob], frozenset[str]]:
    """Read details: what was read by id, and the ids that the service does not know any more."""
    gone = set()

    def read(job_id: str) -> ObservedJob | None:
        try:
            return backend.details(job_id)
        except NotFound:
            gone.add(job_id)
        except Unauthorized:
            raise
        except ServiceError:
            pass  # stays unread, so its key is unknown
        return None

    with ThreadPoolExecutor(max_workers=max(1, min(parallelism, len(job_ids)))) as pool:
        found = list(pool.map(read, job_ids))
    return {job.id: job for job in found if job is not None}, frozenset(gone)
