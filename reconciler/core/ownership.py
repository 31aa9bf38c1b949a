"""Which observed job belongs to which key of which stack, and who else holds a key's names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.identity import Marker, parse_remote_name
from reconciler.core.observed import Observation, ObservedJob, Unreadable
from reconciler.core.record import HistorySnapshot, RecordedRevision, RevisionId

if TYPE_CHECKING:
    from reconciler.core.past import PastRevision


class OwnershipState(StrEnum):
    """What a job is to a stack."""

    OWNED = "owned"
    FOREIGN = "foreign"
    UNMANAGED = "unmanaged"


def standing(job: ObservedJob, stack: str) -> OwnershipState:
    """Say whose job it is. A marker on a job it was not written for counts for nothing."""
    if job.marker is None:
        return OwnershipState.UNMANAGED
    return OwnershipState.OWNED if job.marker.stack == stack else OwnershipState.FOREIGN


class Revision(NamedTuple):
    """An owned job with the marker that is believed on it.

    `is_aged_out` says that the service has forgotten the job: what it was, and how it ended, is what the
    history store says.
    """

    job: ObservedJob
    marker: Marker
    is_aged_out: bool = False

    @property
    def number(self) -> int:
        return self.marker.revision


class ConflictingJob(NamedTuple):
    """A job that is not ours and has one of the key's remote names."""

    job: ObservedJob
    number: int
    standing: OwnershipState

    @property
    def why(self) -> str:
        if self.standing is not OwnershipState.UNMANAGED and self.job.marker:
            return f"owned by key {self.job.marker.key} of stack {self.job.marker.stack}"
        return "copied marker" if self.job.claimed_marker else "unmanaged"


@dataclass(eq=False, repr=False)
class KeyView:
    """Everything that was seen of one key: owned revisions (oldest first), conflicting jobs, unreadable jobs.

    `remembered` are the revisions that the history store knows, oldest first, seen or not;
    `history_problem` says why it could not be read.
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
        """Whether a job of the key is active, or may be: it cannot be read, or its phase is not known.

        A job that has lost its marker counts if the history knows it as the key's.
        """
        lost = (
            one.job
            for one in self.conflicting_jobs
            if one.standing is OwnershipState.UNMANAGED and self.past_of(one.job.id)
        )
        jobs = chain((one.job for one in self.owned), lost)
        return bool(self.unreadable) or any(job.is_active or job.phase is None for job in jobs)

    @property
    def next_revision(self) -> int:
        """1 + the highest number among owned jobs, the history store, and the names `key-r<N>` seen."""
        owned = (revision.number for revision in self.owned)
        remembered = (revision.number for revision in self.remembered)
        return 1 + max([self.highest_name, *owned, *remembered])

    @property
    def aged_out(self) -> Revision | None:
        """The newest revision, if only the history store knows it: the service forgets what has ended."""
        newest = self.remembered[-1] if self.remembered else None
        if newest is None or any(revision.number >= newest.number for revision in self.owned):
            return None
        is_there = any(conflicting.job.id == newest.job for conflicting in self.conflicting_jobs)
        return None if is_there else self._as_ended(newest)

    def _as_ended(self, past: PastRevision) -> Revision:
        return Revision(past.job_as_ended(), past.marker(self.stack, self.key), is_aged_out=True)

    def past_of(self, job_id: str) -> PastRevision | None:
        """What the history store knows of a job."""
        return next((past for past in self.remembered if past.job == job_id), None)

    @property
    def ever_owned(self) -> list[Revision]:
        """The owned revisions, and those whose records have aged out of the service; oldest first."""
        if not self.remembered:
            return self.owned
        seen = {revision.number for revision in self.owned}
        aged_out = [self._as_ended(past) for past in self.remembered if past.number not in seen]
        return sorted([*aged_out, *self.owned], key=lambda revision: revision.number)

    @property
    def last_start_s(self) -> float | None:
        """When the key was last started: the latest creation of a revision, by the service or the history.

        None where there is no revision, or nothing says when the newest was created. Of one that the service
        has forgotten the first look at it will do, which came later.
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
        """The same view without some jobs: they were deleted while we looked."""
        return replace(self, owned=[r for r in self.owned if r.job.id not in job_ids])

    def joined(self, old: KeyView) -> KeyView:
        """The same view with the revisions of a key that was renamed to this one."""
        owned = sorted([*self.owned, *old.owned], key=lambda revision: revision.number)
        return replace(self, owned=owned, unreadable=[*self.unreadable, *old.unreadable])

    def remembering(self, past: Iterable[PastRevision], unmanaged: Mapping[str, ObservedJob]) -> KeyView:
        """The same view with what the history store knows of the key.

        Jobs that it knows, and that have lost their marker, conflict with the key, whatever their name. Of
        those that were released only the number counts: it is not given again.
        """
        every = sorted(past, key=lambda revision: revision.number)
        remembered = tuple(revision for revision in every if revision.released_at_s is None)
        lost = {r.job: r.number for r in remembered if r.job in unmanaged}
        for conflicting in self.conflicting_jobs:
            lost.pop(conflicting.job.id, None)
        lost_jobs = [ConflictingJob(unmanaged[j], n, OwnershipState.UNMANAGED) for j, n in lost.items()]
        return replace(
            self,
            remembered=remembered,
            conflicting_jobs=[*self.conflicting_jobs, *lost_jobs],
            highest_name=max([self.highest_name, *(revision.number for revision in every)]),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Ownership:
    """An observation, sorted by key for one stack.

    `proves_absence` says that a key of which nothing was seen has nothing: the look was whole, and no
    unreadable job could be it. `unattributed` are jobs of which not even the name could be read,
    `unmanaged` those without a believed marker, by id.
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
        """Whether all that was looked at could be read, be it a part of the workspace only."""
        return self.problem is None and not self.unattributed

    @property
    def proves_absence(self) -> bool:
        return self.is_whole and not self.unattributed

    def view(self, key: str) -> KeyView:
        """What was seen of a key; empty if nothing was."""
        return self.views.get(key) or KeyView(key, self.stack)

    def remembered(self, memory: HistorySnapshot, keys: Collection[str]) -> list[PastRevision]:
        """What the history store knows of these keys, each job once and as the key's that it is by now."""
        found = {r.job: r for key in keys for r in memory.by_key.get(key, ())}
        return [r for r in found.values() if (self.key_by_job.get(r.job) or memory.key_of(r.job)) in keys]

    @property
    def owned_keys(self) -> tuple[str, ...]:
        return tuple(sorted(key for key, view in self.views.items() if view.owned))

    @property
    def concerned_keys(self) -> tuple[str, ...]:
        """The keys that own a job, or may own one that could not be read; sorted."""
        return tuple(sorted(key for key, view in self.views.items() if view.owned or view.unreadable))


def sort_by_key(observation: Observation, stack: str, declared: frozenset[str]) -> Ownership:
    """Attribute every job of an observation to a key of `stack`, in one pass.

    Names that differ in case only are taken for a clash: whether the service tells them apart is not
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
    for lost in observation.unreadable:
        keys = {lost.claimed.key} if lost.claimed is not None and lost.claimed.stack == stack else set()
        if lost.name is not None:
            folded = parse_remote_name(lost.name).key.casefold()
            keys |= {key for key in declared | views.keys() if key.casefold() == folded}
        for key in keys:
            view(key).unreadable.append(lost)
        if not keys and lost.name is None:
            unattributed.append(lost)
    for key in declared | views.keys():
        for job, number in by_folded_name.get(key.casefold(), ()):
            seen, whose = view(key), standing(job, stack)
            is_own = job.marker is not None and job.marker.key == key
            # A job that was renamed away keeps its name, so the key goes on behind it.
            if number > 1 or (whose is OwnershipState.OWNED and not is_own):
                seen.highest_name = max(seen.highest_name, number)
            if whose is not OwnershipState.OWNED:
                seen.conflicting_jobs.append(ConflictingJob(job, number, whose))
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
    """Whether the store has all of these revisions as they were seen. None: it is not known what it has."""
    return recorded is not None and all(
        recorded.get(RevisionId(one.marker.key, one.number))
        == RecordedRevision(
            one.job.id, one.marker.digest, one.job.phase_text, one.marker.stopped, one.marker.schedule
        )
        for one in seen
    )
