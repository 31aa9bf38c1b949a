"""Finished work that a new key would run again: what another key completed that nobody declares any more.

A key that was renamed without `formerly`, an axis that was, an entry that moved to another stack, or a stack
whose name was edited in place. Only equal digests count. Source: docs/semantics.md, "Guards".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from reconciler.core.digest import ALGORITHMS, digest_of, is_known
from reconciler.core.phase import Phase
from reconciler.core.record import FinishedWork
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.actions import rename_command
from reconciler.decide.plan import Action, PlannedAction, Reason

if TYPE_CHECKING:
    from reconciler.decide.key_state import Snapshot


class FinishedElsewhere:
    """What keys completed that are not declared any more, of this stack and of others on its target."""

    def __init__(self, stack: Stack, snapshot: Snapshot) -> None:
        self._stack, self._snapshot = stack, snapshot

    def marked(self, action: PlannedAction, desired: DesiredJob) -> PlannedAction:
        """The action; a create of a new key says whose finished work it runs again, if it does."""
        if action.action is not Action.CREATE or action.reason is not Reason.NOT_FOUND:
            return action
        found = self._find(desired)
        if found is None:
            return action
        return action.model_copy(
            update={"rerun_of": found.number, "rerun_of_key": found.key, "rerun_of_stack": found.stack}
        )

    def _find(self, desired: DesiredJob) -> FinishedWork | None:
        digests = [*digests_of_form(desired.digest)]
        for letter in sorted({digest[:1] for digest in self._own} - {desired.digest[:1]}):
            digests.append(digest_of(desired.covered_by(letter), letter))
        for known in (self._own, self._snapshot.memory.finished):
            if found := next((known[digest] for digest in digests if digest in known), None):
                return found
        return None

    @cached_property
    def _own(self) -> Mapping[str, FinishedWork]:
        """What keys of this stack completed, by digest; of several the newest of the first key."""
        completed = sorted(self._completed(), key=lambda one: (one[1].key, -one[1].number), reverse=True)
        return {digest: work for digest, work in completed if is_known(digest)}

    def _completed(self) -> Iterator[tuple[str, FinishedWork]]:
        ownership, memory = self._snapshot.ownership, self._snapshot.memory
        declared = self._stack.declared_keys | self._stack.former_keys
        for key in sorted({*ownership.owned_keys, *memory.by_key} - declared):
            owned = ownership.view(key).owned
            for revision in owned:
                if revision.job.phase is Phase.COMPLETED:
                    yield revision.marker.digest, FinishedWork(key, revision.number)
            # Of a job that is there, the service knows better than the record how it stands.
            seen = {revision.job.id for revision in owned}
            for past in ownership.remembered(memory, (key,)):
                is_completed = past.phase is Phase.COMPLETED and past.released_at_s is None
                if is_completed and past.job not in seen:
                    yield past.digest, FinishedWork(key, past.number)


def ways_to_keep_work(again: Collection[PlannedAction]) -> Iterator[str]:
    """What keeps the finished work of keys that were renamed, or moved here from other stacks."""
    if any(action.rerun_of_key is not None and action.rerun_of_stack is None for action in again):
        yield "name the old key under `formerly` of the new one"
    for stack in sorted({action.rerun_of_stack for action in again if action.rerun_of_stack is not None}):
        yield f"take the jobs of stack {stack} over ({rename_command(stack)})"


def digests_of_form(digest: str) -> frozenset[str]:
    """The digests that a job of the same form has, whichever version computed them."""
    return frozenset(letter + digest[1:] for letter in ALGORITHMS)


def digests_to_start(stack: Stack, snapshot: Snapshot) -> frozenset[str]:
    """The digests of the declared jobs of which nothing is owned or on record: they are about to be new."""
    new = (
        job
        for key, job in stack.jobs.items()
        if not (job.is_absent or snapshot.view(key, job).owned or snapshot.view(key, job).remembered)
    )
    return frozenset(digest for job in new for digest in digests_of_form(job.digest))
