"""What a plan rests on, and which keys are in its view."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import KeyView, Ownership
from reconciler.core.record import NO_HISTORY, HistorySnapshot, PastChange
from reconciler.core.stack import DesiredJob, Stack


class Snapshot(NamedTuple):
    """What was seen: everything observed, sorted by key, and the details that were asked for.

    `gone` are jobs that the service listed and then did not know any more; `memory` is what the history
    store knows, as far as it was asked. `skew_s` is how far our clock was ahead of the service's.
    `changes` is the newest recorded call on a job of each key, where a report says by whom it ended.
    """

    ownership: Ownership
    details: Mapping[str, ObservedJob] = MappingProxyType({})
    gone: frozenset[str] = frozenset()
    memory: HistorySnapshot = NO_HISTORY
    skew_s: float = 0.0
    changes: Mapping[str, PastChange] = MappingProxyType({})

    def view(self, key: str, desired: DesiredJob | None = None) -> KeyView:
        """What was seen of a key and of those it had before, without the jobs that are gone."""
        return self.view_of(key, desired.formerly if desired else ())

    def view_of(self, key: str, former_keys: Collection[str]) -> KeyView:
        """The same, where the keys that it had before are known."""
        view = self.ownership.view(key)
        for old in former_keys:
            view = view.joined(self.ownership.view(old))
        if self.gone:
            view = view.without(self.gone)
        if self.memory.problem is not None:
            return view.without_history(self.memory.problem)
        # The newest name last: of a job that is remembered under both this record counts.
        past = self.ownership.remembered(self.memory, (*former_keys, key)) if self.memory.by_key else ()
        return view.remembering(past, self.ownership.unmanaged) if past else view


def keys_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys that the plan is about, sorted.

    With a partial view nothing is absent because it was not seen. A key that another one had before
    is that one's.
    """
    undeclared = set() if stack.is_partial else set(ownership.concerned_keys) - stack.declared_keys
    return tuple(sorted({*stack.jobs, *(undeclared - stack.former_keys)}))


def keys_owned_in_view(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys in view of which something is, or may be, owned; `--only` may name undeclared ones."""
    chosen = stack.chosen or frozenset()
    concerned = set(ownership.concerned_keys)
    owners = {key for key, job in stack.jobs.items() if concerned & {key, *job.formerly}}
    others = {key for key in concerned - stack.former_keys if key in chosen or not stack.is_partial}
    return tuple(sorted(owners | others))


def keys_with_upstream(stack: Stack, ownership: Ownership) -> tuple[str, ...]:
    """The keys that the plan is about, and those that they need, in view or not."""
    keys = set(keys_in_view(stack, ownership))
    waiting = list(keys)
    while waiting:
        job = stack.find(waiting.pop())
        more = set(job.needs if job and not job.is_absent else ()) - keys
        keys |= more
        waiting += more
    return tuple(sorted(keys))
