"""Keys that come and go: members of sweeps, and keys that look renamed.

A member is named by its values, so an edit of the axes leaves jobs whose keys the entry no longer produces.
Source: docs/concepts/decisions.md.
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
from reconciler.text import few, format_count

if TYPE_CHECKING:
    from reconciler.core.past import FinishedWork

# --- members of sweeps


#: Title of a hint at a rename, in plans and reviews.
MAY_BE_RENAME = "may be a rename"
#: Maximum number of expressions to try, and of constants for each value in one.
_MAX_TRIES, _MAX_CONSTANTS = 1_000, 8
#: Maximum number of jobs to compare with a new key whose name is in its texts.
_MAX_NAMED = 20


class SweepEntries:
    """The entries of a stack that have a matrix, with their members."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    @cached_property
    def members(self) -> Mapping[str, list[DesiredJob]]:
        by_entry: defaultdict[str, list[DesiredJob]] = defaultdict(list)
        for job in (self._stack.whole or self._stack.jobs).values():
            if job.sweep is not None and not job.is_absent:
                by_entry[job.sweep].append(job)
        return by_entry

    def former_entry(self, key: str, recorded: Mapping[str, str]) -> DesiredJob | None:
        """Return a job of the entry that no longer produces a key; None if there is no such entry.

        `recorded` has the entry of each key that was ever applied, or "". For other keys the name decides, if
        it has the form of a member's key.
        """
        if self._stack.find(key) is not None:
            return None
        entry = recorded.get(key)
        if entry is None:
            # Prefer the longer name: `lr-sweep` over `lr`.
            named = (
                name
                for name, members in self.members.items()
                if not axes_of(members).isdisjoint(values_in(key, name, axes_of(members)) or ())
            )
            entry = max(named, key=len, default="")
        if not entry:
            return None
        declared = self._stack.find(entry)
        return next(iter(self.members.get(entry, ())), None if declared and declared.is_absent else declared)


def values_in(key: str, entry: str, axes: Collection[str]) -> Mapping[str, str] | None:
    """Return the values in a generated key of an entry, by axis: `-axis-value` in alphabetical order.

    None if it is not such a key. An axis may contain hyphens; one not in `axes` is taken to be a single word.
    """
    if not key.startswith(f"{entry}-"):
        return None
    words = key.removeprefix(f"{entry}-").split("-")
    values: dict[str, str] = {}
    while words:
        named = (
            one for one in sorted(axes, key=len, reverse=True) if f"{'-'.join(words)}-".startswith(f"{one}-")
        )
        axis = next(named, words[0])
        count = axis.count("-") + 1
        value, words = words[count : count + 1], words[count + 1 :]
        if not value or axis in values or not re.fullmatch(AXIS_NAME, axis):
            return None
        if not re.fullmatch(r"[A-Za-z0-9_]*", value[0]):
            return None
        values[axis] = value[0]
    return values if list(values) == sorted(values) else None


class Renaming(NamedTuple):
    """An expression that names the former key of each new member of a sweep; `pairs` maps new to old keys."""

    expression: str
    pairs: Mapping[str, str]

    def fix(self, entry: str) -> str:
        return f'add `formerly: "{self.expression}"` to {entry} to keep its jobs'

    def hint(self, entry: str, key: str) -> PlanWarning:
        old = sorted(self.pairs.values())
        count = format_count(len(old), "member")
        why = f"{count} of {entry} would start, and as many are no longer produced: {few(old)}"
        return PlanWarning(what=MAY_BE_RENAME, why=why, fix=self.fix(entry), key=key)


def find_renaming(
    members: Sequence[DesiredJob],
    added: Collection[str],
    gone: Mapping[str, str],
    entry: str,
    declared: Collection[str],
) -> Renaming | None:
    """Find the `formerly` with which the new members of a sweep keep the jobs of former ones.

    `added` are the keys of the new members, `gone` the digests of former keys, which begin with `entry`. None
    if no expression gives each new member, and no other, a former key. Of several the best one gives the most
    members the declaration that their job had.
    """
    new = [member for member in members if member.key in added]
    rows: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for key in sorted(gone) if new else ():
        if (values := values_in(key, entry, axes_of(members))) is not None:
            rows[tuple(values)].append(tuple(values.values()))
    best: tuple[int, Renaming] | None = None
    for axes, values_of_axes in rows.items():
        columns = zip(axes, zip(*values_of_axes, strict=True), strict=True)
        for texts in islice(product(*(_texts(axis, column, new) for axis, column in columns)), _MAX_TRIES):
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


def _texts(axis: str, column: Sequence[str], new: Sequence[DesiredJob]) -> list[str]:
    """Return candidate texts for a value: the axis of that name, a constant, or another axis."""
    texts = set(column)
    fitting = [name for name in new[0].matrix if all(job.matrix.get(name) in texts for job in new)]
    # The axis of the same name comes first; a constant comes before other axes if there is only one.
    axes = [f"${{matrix.{name}}}" for name in sorted(fitting, key=lambda name: name != axis)]
    place = (axis in fitting) if len(texts) == 1 else len(axes)
    return [*axes[:place], *sorted(texts)[:_MAX_CONSTANTS], *axes[place:]]


def _filled(expression: str, member: DesiredJob) -> str:
    for axis, text in member.matrix.items():
        expression = expression.replace(f"${{matrix.{axis}}}", text)
    return expression


def axes_of(members: Sequence[DesiredJob]) -> frozenset[str]:
    return frozenset(axis for member in members for axis in member.matrix)


# --- keys of a plan that look renamed


def rename_hints(stack: Stack, snapshot: Snapshot) -> Iterator[PlanWarning]:
    """Yield a hint at `formerly` for each new key that may be the new name of a key that is gone.

    Keys match if they were declared alike and the job is active or completed; of several each matches one new
    key, in the order of names. Former members of a sweep match if one expression names one for each new
    member. The members of a sweep get one hint together, because `formerly` belongs to the entry.
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
    former = defaultdict[str, dict[str, str]](dict)
    for key, digest in digests.items():
        if (member := entries.former_entry(key, snapshot.memory.sweeps)) is not None:
            former[member.sweep or member.key][key] = digest

    def find(entry: str, keys: Mapping[str, str], former: str) -> Renaming | None:
        members = entries.members.get(entry, [])
        new_keys = {job.key for job in members if _is_new(job, snapshot)}
        # Members that were declared, but had no job yet: they waited for their turn.
        sweeps = snapshot.memory.sweeps
        waited = dict.fromkeys((key for key in sweeps.keys() - declared if sweeps[key] == former), "")
        for gone_keys in (keys, {**waited, **keys}):
            found = find_renaming(members, new_keys, gone_keys, former, stack.declared_keys)
            if found and not keys.keys().isdisjoint(found.pairs.values()):
                return found
        return None

    for entry, keys in former.items():
        if renaming := find(entry, keys, entry):
            for key in renaming.pairs.values():
                digests.pop(key, None)
            yield renaming.hint(entry, min(renaming.pairs))
    candidates: defaultdict[str, list[Revision]] = defaultdict(list)
    for key, digest in digests.items():
        if gone[key].job.is_live or gone[key].job.phase is Phase.COMPLETED:
            candidates[digest].append(gone[key])
    letters = sorted({digest[:1] for digest in candidates})
    # If not every new member has a former one, `formerly` does not help.
    hinted = set(former)
    for key, job in new.items():
        known = (
            job.digest if job.digest[:1] == one else digest_of(job.covered_by(one), one) for one in letters
        )
        equal = next((candidates[one] for one in known if candidates[one]), ())
        others = (one for revisions in candidates.values() for one in revisions if key in str(job.body))
        mentioned = (one for one in islice(others, _MAX_NAMED) if one.marker.digest == _digest_as(job, one))
        if (revision := next(chain(equal, mentioned), None)) is None:
            continue
        candidates[revision.marker.digest].remove(revision)
        entry = job.sweep or key
        if entry in hinted:
            continue
        hinted.add(entry)
        old = revision.marker.key
        fix = f"add `formerly: {old}` to {key} to keep its job"
        if job.sweep is not None:  # the name of an entry, or all of its axes, were changed
            names = (snapshot.memory.sweeps.get(old), old.removesuffix(key.removeprefix(entry)), entry)
            matches = (find(entry, digests, name) for name in names if name)
            renaming = next(filter(None, matches), None)
            fix = (
                f"add `formerly` to {entry}, with ${{matrix.AXIS}} where {old} has a value, to keep its jobs"
            )
            fix = renaming.fix(entry) if renaming else fix
        has_completed = revision.job.phase is Phase.COMPLETED
        loss = "has completed, runs again" if has_completed else "is active, starts from the beginning"
        why = (
            f"{old} is no longer declared, and {key} is new with the same declaration: its work, which {loss}"
        )
        yield PlanWarning(what=MAY_BE_RENAME, why=why, fix=fix, key=key)


def _digest_as(job: DesiredJob, revision: Revision) -> str:
    """Return the digest of a declaration under the key of a revision, since its texts may contain the key."""
    letter, key = revision.marker.digest[:1], re.compile(rf"(?<![\w-]){re.escape(job.key)}(?![\w-])")
    form = walk_texts(job.covered_by(letter), lambda text: key.sub(revision.marker.key, text))
    return digest_of(form, letter)


def _is_new(job: DesiredJob, snapshot: Snapshot) -> bool:
    if job.is_absent or job.formerly or snapshot.ownership.view(job.key).owned:
        return False
    return not snapshot.view(job.key, job).remembered


# --- finished work that a new key would run again


class FinishedElsewhere:
    """Work that undeclared keys, or other stacks on the target, have completed."""

    def __init__(self, stack: Stack, snapshot: Snapshot) -> None:
        self._stack, self._snapshot = stack, snapshot

    def with_finished_work(self, action: PlannedAction, desired: DesiredJob) -> PlannedAction:
        """Return the action; a create of a new key gets the finished work that it would run again."""
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
        """The completed work of this stack's undeclared keys by digest: the newest of the first key."""
        from reconciler.core.past import FinishedWork

        ownership, memory = self._snapshot.ownership, self._snapshot.memory
        declared = self._stack.declared_keys | self._stack.former_keys
        completed: list[tuple[str, FinishedWork]] = []
        for key in {*ownership.owned_keys, *memory.by_key} - declared:
            owned = ownership.view(key).owned
            for revision in owned:
                if revision.job.phase is Phase.COMPLETED:
                    completed.append((revision.marker.digest, FinishedWork(key, revision.number)))
            # If the job is listed, the service knows its phase better than the record.
            seen = {revision.job.id for revision in owned}
            for past in ownership.remembered(memory, (key,)):
                is_completed = past.phase is Phase.COMPLETED and past.released_at_s is None
                if is_completed and past.job not in seen:
                    completed.append((past.digest, FinishedWork(key, past.number)))
        completed.sort(key=lambda one: (one[1].key, -one[1].number), reverse=True)
        return {digest: work for digest, work in completed if is_known(digest)}


def ways_to_keep_work(reruns: Collection[PlannedAction]) -> str:
    """Say how to keep the finished work of keys that were renamed, or moved from other stacks."""
    ways = ""
    if any(action.rerun_of_key is not None and action.rerun_of_stack is None for action in reruns):
        ways = "name the old key under `formerly` of the new one, or "
    for stack in sorted({action.rerun_of_stack for action in reruns if action.rerun_of_stack is not None}):
        ways += f"take the jobs of stack {stack} over ({rename_command(stack)}), or "
    return ways


def digests_of_form(digest: str) -> frozenset[str]:
    """Return the digests of the same canonical form under all algorithms."""
    return frozenset(letter + digest[1:] for letter in ALGORITHMS)


def digests_to_start(stack: Stack, snapshot: Snapshot) -> frozenset[str]:
    """Return the digests of declared jobs that are neither owned nor on record, so would be new."""
    views = ((job, snapshot.view(key, job)) for key, job in stack.jobs.items() if not job.is_absent)
    new = (job for job, view in views if not (view.owned or view.remembered))
    return frozenset(digest for job in new for digest in digests_of_form(job.digest))
