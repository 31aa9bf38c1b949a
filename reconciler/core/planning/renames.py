"""Keys that look renamed: one that is no longer declared, and a new one that is declared as its job was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reconciler.core.declared.digest import digest_of, is_known
from reconciler.core.declared.stack import DesiredJob, Stack
from reconciler.core.observed.ownership import Ownership, Revision
from reconciler.core.observed.phase import Phase
from reconciler.core.planning.decide import newest
from reconciler.core.planning.plan import PlanWarning

#: What a hint at a renaming says first, of a review as of a plan.
MAY_BE_RENAME = "may be a rename"


def rename_hints(stack: Stack, ownership: Ownership) -> Iterator[PlanWarning]:
    """Yield a hint at `formerly` for each new key whose job a key that is gone has, running or completed.

    Of several that are declared alike each is one new key's, in the order of their names. The members of a
    sweep get one hint together, for their entry is where `formerly` has to stand.
    """
    told: set[str] = set()
    for revision, job in _pairs(stack, ownership):
        if (job.sweep or job.key) not in told:
            told.add(job.sweep or job.key)
            yield _hint(revision, job)


def _pairs(stack: Stack, ownership: Ownership) -> Iterator[tuple[Revision, DesiredJob]]:
    gone = _gone_by_digest(stack, ownership)
    letters = sorted({digest[:1] for digest in gone})
    for key, job in sorted(stack.jobs.items()) if gone else ():
        if job.is_absent or job.formerly or ownership.view(key).owned:
            continue
        for digest in (_digest_by(job, letter) for letter in letters):
            if gone.get(digest):
                yield gone[digest].pop(0), job
                break


def _gone_by_digest(stack: Stack, ownership: Ownership) -> dict[str, list[Revision]]:
    """The revisions that stand for keys which nobody declares, and are worth keeping; by their digests."""
    found: defaultdict[str, list[Revision]] = defaultdict(list)
    declared = {*stack.declared_keys, *stack.whole, *stack.jobs, *stack.former_keys}
    for key in ownership.owned_keys:
        revision = None if key in declared else newest(ownership.view(key), None)
        if revision is None or not is_known(revision.marker.digest):
            continue
        phase = revision.job.phase
        if phase is Phase.COMPLETED or (revision.job.is_active and phase is not Phase.TERMINATING):
            found[revision.marker.digest].append(revision)
    return found


def _digest_by(job: DesiredJob, letter: str) -> str:
    return job.digest if job.digest[:1] == letter else digest_of(job.covered_by(letter), letter)


def _hint(revision: Revision, job: DesiredJob) -> PlanWarning:
    old, new = revision.marker.key, job.key
    has_completed = revision.job.phase is Phase.COMPLETED
    loss = (
        "which has completed, runs again" if has_completed else "which is active, starts from the beginning"
    )
    why = f"{old} is no longer declared, and {new} is new and declared alike: its work, {loss}"
    fix = f"add `formerly: {old}` to {new} to keep its job"
    if job.sweep is not None:
        fix = (
            f"add `formerly` to {job.sweep}, with ${{matrix.AXIS}} where {old} has a value, to keep its jobs"
        )
    return PlanWarning(what=MAY_BE_RENAME, why=why, fix=fix, key=new)
