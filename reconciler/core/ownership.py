"""Which observed job belongs to which key of which stack, and which other jobs have a key's names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.identity import Marker, parse_remote_name
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.record import HistorySnapshot, RecordedRevision, RevisionId

if TYPE_CHECKING:
    from reconciler.core.past import PastRevision


class Revision(NamedTuple):
    """An owned job with its valid marker.

    `is_aged_out`: the service has deleted the job, so all of this comes from the history.
    """

    job: ObservedJob
    marker: Marker
    is_aged_out: bool = False

    @property
    def number(self) -> int:
        return self.marker.revision


class ConflictingJob(NamedTuple):
    """A job of another owner, or of none, with a remote name of the key."""

    job: ObservedJob
    number: int

    @property
    def is_unmanaged(self) -> bool:
        return self.job.marker is None

    @property
    def why(self) -> str:
        if self.job.marker:
            return f"owned by key {self.job.marker.key} of stack {self.job.marker.stack}"
        return "copied marker" if self.job.claimed_marker else "unmanaged"


@dataclass(eq=False, repr=False)
class KeyView:
    """All that was observed of a key: owned revisions (oldest first), conflicting jobs, unreadable jobs.

    `remembered` are the revisions in the history, oldest first, observed or not; `history_problem` says why
    the history could not be read.
    """

    key: str
    stack: str = ""
    owned: list[Revision] = field(default_factory=list)
    conflicting_jobs: list[ConflictingJob] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    highest_name: int = 0
    remembered: tuple[PastRevision, ...] = ()
    history_problem: str | None = None

    @property
    def may_be_active(self) -> bool:
        """Whether a job of the key is active, or may be: it cannot be read, or its phase is unknown.

        A job that has lost its marker counts if the history knows it as the key's.
        """
        lost = (one.job for one in self.conflicting_jobs if one.is_unmanaged and self.past_of(one.job.id))
        jobs = chain((one.job for one in self.owned), lost)
        return bool(self.unreadable) or any(job.is_active or job.phase is None for job in jobs)

    @property
    def next_revision(self) -> int:
        """One more than the highest number of owned jobs, of the history, and of the names `key-rN` seen."""
        owned = (revision.number for revision in self.owned)
        remembered = (revision.number for revision in self.remembered)
        return 1 + max([self.highest_name, *owned, *remembered])

    @property
    def aged_out(self) -> Revision | None:
        """The newest revision, if only the history has it: the service deletes ended jobs."""
        newest = self.remembered[-1] if self.remembered else None
        if newest is None or any(revision.number >= newest.number for revision in self.owned):
            return None
        is_there = any(conflicting.job.id == newest.job for conflicting in self.conflicting_jobs)
        return None if is_there else self._as_ended(newest)

    def _as_ended(self, past: PastRevision) -> Revision:
        return Revision(past.job_as_ended(), past.marker(self.stack, self.key), is_aged_out=True)

    def past_of(self, job_id: str) -> PastRevision | None:
        """Return the history of a job, or None."""
        return next((past for past in self.remembered if past.job == job_id), None)

    @property
    def ever_owned(self) -> list[Revision]:
        """The owned revisions, and those that the service has deleted; oldest first."""
        if not self.remembered:
            return self.owned
        seen = {revision.number for revision in self.owned}
        aged_out = [self._as_ended(past) for past in self.remembered if past.number not in seen]
        return sorted([*aged_out, *self.owned], key=lambda revision: revision.number)

    @property
    def last_start_s(self) -> float | None:
        """When the key was last started: the latest creation of a revision, by the service or the history.

        None if there is no revision, or the creation of the newest is unknown. For one that the service has
        deleted, the time when it was first seen counts, which is later.
        """
        created = []
        for revision in self.ever_owned:
            at_s, past = revision.job.created_at_s, self.past_of(revision.job.id)
            if at_s is None and past is not None:
                first_seen_s = past.phases[0][1] if past.phases else past.seen_at_s
                at_s = first_seen_s if revision.is_aged_out else past.created_at_s
            created.append(at_s)
        known = [at_s for at_s in created if at_s is not None]
        return max(known) if created and created[-1] is not None else None

    def without(self, job_ids: Collection[str]) -> KeyView:
        """Return the view without some jobs, which were deleted meanwhile."""
        return replace(self, owned=[r for r in self.owned if r.job.id not in job_ids])

    def merged_with(self, old: KeyView) -> KeyView:
        """Return the view with the revisions of a key that was renamed to this one."""
        owned = sorted([*self.owned, *old.owned], key=lambda revision: revision.number)
        return replace(self, owned=owned, unreadable=[*self.unreadable, *old.unreadable])

    def with_past(self, past: Iterable[PastRevision], unmanaged: Mapping[str, ObservedJob]) -> KeyView:
        """Return the view with what the history knows of the key.

        Jobs that it knows and that have lost their marker conflict with the key, whatever their names. Of
        released jobs, only the number counts: it is not reused.
        """
        every = sorted(past, key=lambda revision: revision.number)
        remembered = tuple(revision for revision in every if revision.released_at_s is None)
        lost = {r.job: r.number for r in remembered if r.job in unmanaged}
        for conflicting in self.conflicting_jobs:
            lost.pop(conflicting.job.id, None)
        lost_jobs = [ConflictingJob(unmanaged[job_id], number) for job_id, number in lost.items()]
        return replace(
            self,
            remembered=remembered,
            conflicting_jobs=[*self.conflicting_jobs, *lost_jobs],
            highest_name=max([self.highest_name, *(revision.number for revision in every)]),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Ownership:
    """An observation, grouped by key for one stack.

    `proves_absence`: a key without a job in it has none at all, since it is whole and names each unreadable
    job. `unattributed` are jobs of which not even the name could be read, `unmanaged` those without a valid
    marker, by id.
    """

    views: Mapping[str, KeyView]
    problem: str | None = None
    is_whole: bool = True
    unattributed: tuple[Unreadable, ...] = ()
    active_jobs: int = 0
    unmanaged: Mapping[str, ObservedJob] = field(default_factory=dict)
    key_by_job: Mapping[str, str] = field(default_factory=dict)
    stack: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether everything was read that was asked for, even if that is only part of the workspace."""
        return self.problem is None and not self.unattributed

    @property
    def proves_absence(self) -> bool:
        return self.is_whole and not self.unattributed

    def view(self, key: str) -> KeyView:
        """Return what was observed of a key, which may be nothing."""
        return self.views.get(key) or KeyView(key, self.stack)

    def remembered(self, history: HistorySnapshot, keys: Collection[str]) -> list[PastRevision]:
        """Return the history of these keys, each job once, and under the key that it belongs to now."""
        latest = {r.job: r for key in keys for r in history.by_key.get(key, ())}
        return [
            r for r in latest.values() if (self.key_by_job.get(r.job) or history.key_by_job[r.job]) in keys
        ]

    @property
    def owned_keys(self) -> tuple[str, ...]:
        return tuple(sorted(key for key, view in self.views.items() if view.owned))

    @property
    def concerned_keys(self) -> tuple[str, ...]:
        """The keys that own a job, or an unreadable one that may be theirs; sorted."""
        return tuple(sorted(key for key, view in self.views.items() if view.owned or view.unreadable))


def sort_by_key(observation: Observation, stack: str, declared: frozenset[str]) -> Ownership:
    """Attribute each job of an observation to a key of `stack`.

    Names that differ only in case count as equal, since whether the service distinguishes them is not
    documented.
    """
    views: dict[str, KeyView] = {}
    unmanaged: dict[str, ObservedJob] = {}
    by_folded_name: defaultdict[str, list[tuple[ObservedJob, int]]] = defaultdict(list)

    def view(key: str) -> KeyView:
        return views.setdefault(key, KeyView(key, stack))

    for job in observation.jobs:
        name, marker = parse_remote_name(job.name), job.marker
        by_folded_name[name.key.casefold()].append((job, name.revision))
        if marker is None:
            unmanaged[job.id] = job
        elif marker.stack == stack:
            view(marker.key).owned.append(Revision(job, marker))
    owned = [(key, one.job) for key, seen in views.items() for one in seen.owned]
    unattributed = []
    for gap in observation.unreadable:
        keys = {gap.claimed.key} if gap.claimed is not None and gap.claimed.stack == stack else set()
        if gap.name is not None:
            folded = parse_remote_name(gap.name).key.casefold()
            keys |= {key for key in declared | views.keys() if key.casefold() == folded}
        for key in keys:
            view(key).unreadable.append(gap)
        if not keys and gap.name is None:
            unattributed.append(gap)
    for key in declared | views.keys():
        for job, number in by_folded_name.get(key.casefold(), ()):
            seen, owner = view(key), job.marker if job.marker and job.marker.stack == stack else None
            # A renamed job keeps its name, so the old key continues with a higher number.
            if number > 1 or (owner and owner.key != key):
                seen.highest_name = max(seen.highest_name, number)
            if owner is None:
                seen.conflicting_jobs.append(ConflictingJob(job, number))
    for seen in views.values():
        seen.owned.sort(key=lambda one: (one.number, one.job.created_at_s or 0, one.job.id))
    return Ownership(
        views,
        observation.problem,
        observation.is_whole,
        tuple(unattributed),
        sum(job.is_active for _, job in owned),
        unmanaged,
        {job.id: key for key, job in owned},
        stack,
    )


def is_recorded(seen: Iterable[Revision], recorded: Mapping[RevisionId, RecordedRevision] | None) -> bool:
    """Whether the history has all of these revisions exactly as observed. `recorded` is None if unknown."""
    return recorded is not None and all(
        recorded.get(RevisionId(one.marker.key, one.number))
        == RecordedRevision(
            one.job.id, one.marker.digest, one.job.phase_text, one.marker.stopped, one.marker.schedule
        )
        for one in seen
    )
