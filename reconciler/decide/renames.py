"""Keys that come and go: members of sweeps, and keys that look renamed.

A member is named by its values, so an edit of the axes leaves jobs behind whose keys the entry no longer
produces. Source: docs/concepts/decisions.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, product
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.body import ALGORITHMS, digest_of, is_known
from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.core.scalar import AXIS_NAME, walk_texts
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.actions import rename_command
from reconciler.decide.key_state import Snapshot, current_revision
from reconciler.decide.plan import Action, PlannedAction, Reason
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.core.past import FinishedWork

# --- members of sweeps


#: What a hint at a renaming says first, of a review as of a plan.
MAY_BE_RENAME = "may be a rename"
#: So many ways to write an expression are tried, with so many constants in one place of it.
_MOST_WAYS, _MOST_CONSTANTS = 1_000, 8
#: So many jobs are held against a new key whose name stands in its texts.
_MOST_NAMED = 20


class SweepEntries:
    """The entries of a stack that have a matrix, with their members."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    @cached_property
    def members(self) -> Mapping[str, list[DesiredJob]]:
        found: defaultdict[str, list[DesiredJob]] = defaultdict(list)
        for job in (self._stack.whole or self._stack.jobs).values():
            if job.sweep is not None and not job.is_absent:
                found[job.sweep].append(job)
        return found

    def former_entry(self, key: str, recorded: Mapping[str, str]) -> DesiredJob | None:
        """A job of the entry that no longer produces a key, if it was a member of one and the entry is there.

        The history says which entry that is: `recorded` has the one of each key that was ever applied, or "".
        Of other keys the name says it, if it is spelled as the entry spells those of its members.
        """
        if self._stack.find(key) is not None:
            return None
        entry = recorded.get(key)
        if entry is None:
            # Of `lr` and `lr-sweep` the longer name says more.
            named = (
                name
                for name, members in self.members.items()
                if not axes_of(members).isdisjoint(values_in(key, name, axes_of(members)) or ())
            )
            entry = max(named, key=len, default="")
        if not entry:
            return None
        alone = self._stack.find(entry)
        return next(iter(self.members.get(entry, ())), None if alone and alone.is_absent else alone)


def values_in(key: str, entry: str, axes: Collection[str]) -> Mapping[str, str] | None:
    """The values in a generated key of an entry, by axis: `-axis-value` in alphabetical order.

    None if it is no such key. An axis may hold hyphens; one that is none of `axes` is taken for a word.
    """
    if not key.startswith(f"{entry}-"):
        return None
    words = key.removeprefix(f"{entry}-").split("-")
    found: dict[str, str] = {}
    while words:
        named = (
            one for one in sorted(axes, key=len, reverse=True) if f"{'-'.join(words)}-".startswith(f"{one}-")
        )
        axis = next(named, words[0])
        count = axis.count("-") + 1
        value, words = words[count : count + 1], words[count + 1 :]
        if not value or axis in found or not re.fullmatch(AXIS_NAME, axis):
            return None
        if not re.fullmatch(r"[A-Za-z0-9_]*", value[0]):
            return None
        found[axis] = value[0]
    return found if list(found) == sorted(found) else None


class Renaming(NamedTuple):
    """An expression that names the former key of each new member of a sweep; `pairs` are new and old keys."""

    expression: str
    pairs: Mapping[str, str]

    def fix(self, entry: str) -> str:
        return f'add `formerly: "{self.expression}"` to {entry} to keep its jobs'

    def hint(self, entry: str, key: str) -> PlanWarning:
        old = sorted(self.pairs.values())
        count = "1 member" if len(old) == 1 else f"{len(old)} members"
        why = f"{count} of {entry} would start, and as many are no longer produced: {few(old)}"
        return PlanWarning(what=MAY_BE_RENAME, why=why, fix=self.fix(entry), key=key)


def find_renaming(
    members: Sequence[DesiredJob],
    came: Collection[str],
    gone: Mapping[str, str],
    entry: str,
    declared: Collection[str],
) -> Renaming | None:
    """Find what `formerly` has to say for the new members of a sweep to keep the jobs that are gone.

    `came` are the keys of the new members, `gone` the digests of the keys that are gone, by key; these begin
    with `entry`. None if no expression has a key that is gone for each of them, and for no other member. Of
    several the one is meant that gives most of them the declaration that their job had.
    """
    new = [member for member in members if member.key in came]
    rows: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for key in sorted(gone) if new else ():
        if (values := values_in(key, entry, axes_of(members))) is not None:
            rows[tuple(values)].append(tuple(values.values()))
    best: tuple[int, Renaming] | None = None
    for axes, values_of_axes in rows.items():
        columns = zip(axes, zip(*values_of_axes, strict=True), strict=True)
        for texts in islice(product(*(_ways(axis, column, new) for axis, column in columns)), _MOST_WAYS):
            parts = (f"-{axis}-{text}" for axis, text in zip(axes, texts, strict=True))
            expression = "".join((entry, *parts))
            if _filled(expression, new[0]) not in gone:
                continue
            former = {member.key: _filled(expression, member) for member in members}
            pairs = {member.key: former.pop(member.key) for member in new}
            kept, others = {*pairs.values()}, {*former.values()}
            if not gone.keys() >= kept or len(kept) + len(others) < len(members):
                continue
            if others & kept or not others.isdisjoint({*gone, *declared}):
                continue
            alike = sum(member.is_declared_by(gone[pairs[member.key]]) for member in new)
            if best is None or alike > best[0]:
                best = alike, Renaming(expression, pairs)
    return None if best is None else best[1]


def _ways(axis: str, column: Sequence[str], new: Sequence[DesiredJob]) -> list[str]:
    """What may stand for a value: that of the axis of that name, a constant, or that of another axis."""
    texts = set(column)
    fitting = [name for name in new[0].matrix if all(job.matrix.get(name) in texts for job in new)]
    # An axis of the same name first, and a constant before other axes if there is only one.
    axes = [f"${{matrix.{name}}}" for name in sorted(fitting, key=lambda name: name != axis)]
    place = (axis in fitting) if len(texts) == 1 else len(axes)
    return [*axes[:place], *sorted(texts)[:_MOST_CONSTANTS], *axes[place:]]


def _filled(expression: str, member: DesiredJob) -> str:
    for axis, text in member.matrix.items():
        expression = expression.replace(f"${{matrix.{axis}}}", text)
    return expression


def axes_of(members: Sequence[DesiredJob]) -> frozenset[str]:
    return frozenset(axis for member in members for axis in member.matrix)


# --- keys of a plan that look renamed


def rename_hints(stack: Stack, snapshot: Snapshot) -> Iterator[PlanWarning]:
    """Yield a hint at `formerly` for each new key whose job a key that is gone may have.

    That is one that was declared alike, running or completed; of several each is one new key's, in the order
    of their names. And it is a former member of an entry, where one expression names one for each new member.
    The members of a sweep get one hint together, for their entry is where `formerly` has to stand.
    """
    declared = {*stack.declared_keys, *stack.whole, *stack.jobs, *stack.former_keys}
    keys_ = sorted({*snapshot.ownership.owned_keys, *snapshot.memory.by_key} - declared)
    current = {key: current_revision(snapshot.view(key, None), None) for key in keys_}
    gone = {key: one for key, one in current.items() if one is not None and is_known(one.marker.digest)}
    if not gone:
        return
    new = {key: job for key, job in sorted(stack.jobs.items()) if _is_new(job, snapshot)}
    if not new:
        return
    entries = SweepEntries(stack)
    digests = {key: revision.marker.digest for key, revision in gone.items()}
    left = defaultdict[str, dict[str, str]](dict)
    for key, digest in digests.items():
        if (member := entries.former_entry(key, snapshot.memory.sweeps)) is not None:
            left[member.sweep or member.key][key] = digest

    def find(entry: str, keys: Mapping[str, str], former: str) -> Renaming | None:
        members = entries.members.get(entry, [])
        came = {job.key for job in members if _is_new(job, snapshot)}
        return find_renaming(members, came, keys, former, stack.declared_keys)

    for entry, keys in left.items():
        if renaming := find(entry, keys, entry):
            for key in renaming.pairs.values():
                digests.pop(key)
            yield renaming.hint(entry, min(renaming.pairs))
    waiting: defaultdict[str, list[Revision]] = defaultdict(list)
    for key, digest in digests.items():
        job_ = gone[key].job
        if job_.phase is Phase.COMPLETED or (job_.is_active and job_.phase is not Phase.TERMINATING):
            waiting[digest].append(gone[key])
    letters = sorted({digest[:1] for digest in waiting})
    # Where not every new member has a former one, `formerly` is no way out.
    told = set(left)
    for key, job in new.items():
        known = (
            job.digest if job.digest[:1] == one else digest_of(job.covered_by(one), one) for one in letters
        )
        equal = next((waiting[one] for one in known if waiting[one]), ())
        others = (one for revisions in waiting.values() for one in revisions if key in str(job.body))
        named = (one for one in islice(others, _MOST_NAMED) if one.marker.digest == _digest_as(job, one))
        if (revision := next(chain(equal, named), None)) is None:
            continue
        waiting[revision.marker.digest].remove(revision)
        entry = job.sweep or key
        if entry in told:
            continue
        told.add(entry)
        old = revision.marker.key
        fix = f"add `formerly: {old}` to {key} to keep its job"
        if job.sweep is not None:  # the name of an entry, or all of its axes, were changed
            names = (snapshot.memory.sweeps.get(old), old.removesuffix(key.removeprefix(entry)), entry)
            found = (find(entry, digests, name) for name in names if name)
            renaming = next(filter(None, found), None)
            fix = (
                f"add `formerly` to {entry}, with ${{matrix.AXIS}} where {old} has a value, to keep its jobs"
            )
            fix = renaming.fix(entry) if renaming else fix
        has_completed = revision.job.phase is Phase.COMPLETED
        loss = "has completed, runs again" if has_completed else "is active, starts from the beginning"
        why = f"{old} is no longer declared, and {key} is new and declared alike: its work, which {loss}"
        yield PlanWarning(what=MAY_BE_RENAME, why=why, fix=fix, key=key)


def _digest_as(job: DesiredJob, revision: Revision) -> str:
    """The digest of a declaration under the key of a revision: the key may stand in its texts."""
    letter, key = revision.marker.digest[:1], re.compile(rf"(?<![\w-]){re.escape(job.key)}(?![\w-])")
    form = walk_texts(job.covered_by(letter), lambda text: key.sub(revision.marker.key, text))
    return digest_of(form, letter)


def _is_new(job: DesiredJob, snapshot: Snapshot) -> bool:
    if job.is_absent or job.formerly or snapshot.ownership.view(job.key).owned:
        return False
    return not snapshot.view(job.key, job).remembered


# --- finished work that a new key would run again


class FinishedElsewhere:
    """What keys completed that are not declared any more, of this stack and of others on its target."""

    def __init__(self, stack: Stack, snapshot: Snapshot) -> None:
        self._stack, self._snapshot = stack, snapshot

    def marked(self, action: PlannedAction, desired: DesiredJob) -> PlannedAction:
        """The action; a create of a new key says whose finished work it runs again, if it does."""
        if action.action is not Action.CREATE or action.reason is not Reason.NOT_FOUND:
            return action
        digests = [*digests_of_form(desired.digest)]
        for letter in sorted({digest[:1] for digest in self._own} - {desired.digest[:1]}):
            digests.append(digest_of(desired.covered_by(letter), letter))
        known = (self._own, self._snapshot.memory.finished)
        found = next((work[digest] for work in known for digest in digests if digest in work), None)
        if found is None:
            return action
        return action.model_copy(
            update={"rerun_of": found.number, "rerun_of_key": found.key, "rerun_of_stack": found.stack}
        )

    @cached_property
    def _own(self) -> Mapping[str, FinishedWork]:
        """What keys of this stack completed, by digest; of several the newest of the first key."""
        from reconciler.core.past import FinishedWork

        ownership, memory = self._snapshot.ownership, self._snapshot.memory
        declared = self._stack.declared_keys | self._stack.former_keys
        completed: list[tuple[str, FinishedWork]] = []
        for key in {*ownership.owned_keys, *memory.by_key} - declared:
            owned = ownership.view(key).owned
            for revision in owned:
                if revision.job.phase is Phase.COMPLETED:
                    completed.append((revision.marker.digest, FinishedWork(key, revision.number)))
            # Of a job that is there, the service knows better than the record how it stands.
            seen = {revision.job.id for revision in owned}
            for past in ownership.remembered(memory, (key,)):
                is_completed = past.phase is Phase.COMPLETED and past.released_at_s is None
                if is_completed and past.job not in seen:
                    completed.append((past.digest, FinishedWork(key, past.number)))
        completed.sort(key=lambda one: (one[1].key, -one[1].number), reverse=True)
        return {digest: work for digest, work in completed if is_known(digest)}


def ways_to_keep_work(again: Collection[PlannedAction]) -> str:
    """What keeps the finished work of keys that were renamed, or moved here from other stacks."""
    ways = ""
    if any(action.rerun_of_key is not None and action.rerun_of_stack is None for action in again):
        ways = "name the old key under `formerly` of the new one, or "
    for stack in sorted({action.rerun_of_stack for action in again if action.rerun_of_stack is not None}):
        ways += f"take the jobs of stack {stack} over ({rename_command(stack)}), or "
    return ways


def digests_of_form(digest: str) -> frozenset[str]:
    """The digests that a job of the same form has, whichever version computed them."""
    return frozenset(letter + digest[1:] for letter in ALGORITHMS)


def digests_to_start(stack: Stack, snapshot: Snapshot) -> frozenset[str]:
    """The digests of the declared jobs of which nothing is owned or on record: they are about to be new."""
    views = ((job, snapshot.view(key, job)) for key, job in stack.jobs.items() if not job.is_absent)
    new = (job for job, view in views if not (view.owned or view.remembered))
    return frozenset(digest for job in new for digest in digests_of_form(job.digest))
