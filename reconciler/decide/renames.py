"""Keys that look renamed: one that is no longer declared, and a new one that takes its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.core.digest import digest_of, is_known
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.key_state import newest
from reconciler.decide.sweep_members import MAY_BE_RENAME, Renaming, SweepEntries, find_renaming

if TYPE_CHECKING:
    from reconciler.decide.key_state import Snapshot


def rename_hints(stack: Stack, snapshot: Snapshot) -> Iterator[PlanWarning]:
    """Yield a hint at `formerly` for each new key whose job a key that is gone may have.

    That is one that was declared alike, running or completed; of several each is one new key's, in the order
    of their names. And it is a former member of an entry, where one expression names one for each new member.
    The members of a sweep get one hint together, for their entry is where `formerly` has to stand.
    """
    hints = _Hints(stack, snapshot)
    if hints.gone and hints.new:
        yield from hints.of_entries()
        yield from hints.of_keys()


class _Hints:
    """The keys of a stack that are new, and those that are gone."""

    def __init__(self, stack: Stack, snapshot: Snapshot) -> None:
        self._stack, self._snapshot = stack, snapshot
        self._entries = SweepEntries(stack)
        self._taken: set[str] = set()
        self._told: set[str] = set()

    @cached_property
    def new(self) -> Mapping[str, DesiredJob]:
        """The declared jobs of which nothing is owned or on record, by key."""
        return {key: job for key, job in sorted(self._stack.jobs.items()) if self._is_new(job)}

    def _is_new(self, job: DesiredJob) -> bool:
        if job.is_absent or job.formerly or self._snapshot.ownership.view(job.key).owned:
            return False
        return not self._snapshot.view(job.key, job).remembered

    @cached_property
    def gone(self) -> Mapping[str, Revision]:
        """The newest revision of each key that nobody declares, by key."""
        stack, snapshot = self._stack, self._snapshot
        declared = {*stack.declared_keys, *stack.whole, *stack.jobs, *stack.former_keys}
        found = {}
        for key in sorted({*snapshot.ownership.owned_keys, *snapshot.memory.by_key} - declared):
            revision = newest(snapshot.view(key), None)
            if revision is not None and is_known(revision.marker.digest):
                found[key] = revision
        return found

    # --- former members of an entry that is still there

    def of_entries(self) -> Iterator[PlanWarning]:
        """Yield a hint for each entry whose members came and went."""
        left = defaultdict[str, dict[str, str]](dict)
        for key, revision in self.gone.items():
            if (job := self._entries.former_entry(key, self._snapshot.memory.sweeps)) is not None:
                left[job.sweep or job.key][key] = revision.marker.digest
        for entry, gone in left.items():
            # Where not every new member has a former one, `formerly` is no way out.
            self._told.add(entry)
            came = self._came(entry)
            if renaming := self._renaming(entry, came, gone, entry):
                self._taken |= {*renaming.pairs.values()}
                yield renaming.hint(entry, came[0])

    def _came(self, entry: str) -> list[str]:
        return sorted(job.key for job in self._entries.members.get(entry, ()) if self._is_new(job))

    def _renaming(
        self, entry: str, came: Collection[str], gone: Mapping[str, str], former: str
    ) -> Renaming | None:
        members = self._entries.members.get(entry, [])
        return find_renaming(members, came, gone, former, self._stack.declared_keys) if came else None

    # --- keys that were declared alike

    def of_keys(self) -> Iterator[PlanWarning]:
        """Yield a hint for each new key that is declared as one that is gone was."""
        waiting = self._waiting()
        letters = sorted({digest[:1] for digest in waiting})
        for key, job in self.new.items():
            for digest in (_digest_by(job, letter) for letter in letters):
                if waiting.get(digest):
                    revision = waiting[digest].pop(0)
                    if (job.sweep or key) not in self._told:
                        self._told.add(job.sweep or key)
                        yield self._hint(revision, job)
                    break

    def _waiting(self) -> dict[str, list[Revision]]:
        """The revisions that are worth keeping, by their digests."""
        found: defaultdict[str, list[Revision]] = defaultdict(list)
        for key, revision in self.gone.items():
            phase = revision.job.phase
            is_active = revision.job.is_active and phase is not Phase.TERMINATING
            if key not in self._taken and (is_active or phase is Phase.COMPLETED):
                found[revision.marker.digest].append(revision)
        return found

    def _hint(self, revision: Revision, job: DesiredJob) -> PlanWarning:
        old, new = revision.marker.key, job.key
        has_completed = revision.job.phase is Phase.COMPLETED
        loss = (
            "which has completed, runs again"
            if has_completed
            else "which is active, starts from the beginning"
        )
        why = f"{old} is no longer declared, and {new} is new and declared alike: its work, {loss}"
        fix = f"add `formerly: {old}` to {new} to keep its job"
        if job.sweep is not None:
            fix = self._fix_of_renamed_entry(old, job, job.sweep)
        return PlanWarning(what=MAY_BE_RENAME, why=why, fix=fix, key=new)

    def _fix_of_renamed_entry(self, old: str, job: DesiredJob, entry: str) -> str:
        """What keeps the jobs of an entry whose name, or all of whose axes, were changed."""
        gone = {key: revision.marker.digest for key, revision in self.gone.items() if key not in self._taken}
        recorded = self._snapshot.memory.sweeps.get(old)
        for former in (recorded, old.removesuffix(job.key.removeprefix(entry)), entry):
            if former and (renaming := self._renaming(entry, self._came(entry), gone, former)):
                return renaming.fix(entry)
        return f"add `formerly` to {entry}, with ${{matrix.AXIS}} where {old} has a value, to keep its jobs"


def _digest_by(job: DesiredJob, letter: str) -> str:
    return job.digest if job.digest[:1] == letter else digest_of(job.covered_by(letter), letter)
