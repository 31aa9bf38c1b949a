"""Which removed keys were declared like added ones: they may have been renamed without saying `formerly`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.core.diff import changes_between
from reconciler.core.digest import CURRENT
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning
from reconciler.decide.plan import FOLDED_FROM, few
from reconciler.decide.sweep_members import MAY_BE_RENAME, SweepEntries, find_renaming

#: Two declarations of which so much is equal may be of the same job.
_ALIKE = 0.8
#: Beyond so many pairs only declarations that are equal are looked for.
_MOST_PAIRS = 20_000


class RenamePair(NamedTuple):
    """A removed and an added job; `differing` are the fields that force a new job, if any."""

    removed: DesiredJob
    added: DesiredJob
    differing: tuple[str, ...] = ()


def likely_renames(removed: Sequence[DesiredJob], added: Sequence[DesiredJob]) -> list[RenamePair]:
    """Pair removed jobs with added ones, each at most once: equal declarations first, then nearly equal."""
    waiting: dict[str, list[DesiredJob]] = defaultdict(list)
    for job in removed:
        waiting[job.digest].append(job)
    pairs, rest = [], []
    for job in added:
        if equal := waiting[job.digest]:
            pairs.append(RenamePair(equal.pop(0), job))
        else:
            rest.append(job)
    unpaired = [job for jobs in waiting.values() for job in jobs]
    return sorted((*pairs, *_nearly_equal(unpaired, rest)), key=lambda pair: pair.added.key)


def _nearly_equal(removed: Sequence[DesiredJob], added: Sequence[DesiredJob]) -> Iterator[RenamePair]:
    if len(removed) * len(added) > _MOST_PAIRS:
        return
    leaves = {id(job): frozenset(_leaves(job.covered_by(CURRENT))) for job in (*removed, *added)}
    scored = [
        (-_likeness(leaves[id(one)], leaves[id(other)]), one.key, other.key, one, other)
        for one in removed
        for other in added
        # Members of sweeps are alike by nature: another value is another job.
        if not (one.sweep and other.sweep)
    ]
    taken: set[int] = set()
    for score, _, _, one, other in sorted(scored, key=lambda row: row[:3]):
        if -score < _ALIKE:
            return
        if id(one) not in taken and id(other) not in taken:
            taken |= {id(one), id(other)}
            edit = changes_between(one.covered_by(CURRENT), other.covered_by(CURRENT), forces_new_job=True)
            yield RenamePair(one, other, tuple(change.path for change in edit))


def _likeness(one: frozenset[Any], other: frozenset[Any]) -> float:
    return 2 * len(one & other) / (len(one) + len(other) or 1)


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(tree, Mapping):
        for name, member in tree.items():
            yield from _leaves(member, (*path, str(name)))
    else:
        yield path, str(tree)


def renamed_members(
    removed: Sequence[DesiredJob],
    added: Sequence[DesiredJob],
    entries: SweepEntries,
    declared: Collection[str],
) -> Iterator[tuple[PlanWarning, Mapping[str, str]]]:
    """Hint at the `formerly` that keeps the jobs of a sweep whose members came and went; with its pairs."""
    for entry, members in entries.members.items():
        came = [job.key for job in added if job.sweep == entry and not job.formerly]
        gone = {job.key: job.digest for job in removed if job.sweep == entry}
        renaming = find_renaming(members, came, gone, entry, declared) if came and gone else None
        if renaming is not None:
            yield renaming.hint(entry, came[0]), renaming.pairs


def hints(pairs: Iterable[RenamePair]) -> Iterator[PlanWarning]:
    """Say of each pair what apply would do, and how to say that it is a rename; of a renamed sweep once."""
    groups: dict[object, list[RenamePair]] = defaultdict(list)
    for pair in pairs:
        sweeps = (pair.removed.sweep, pair.added.sweep)
        groups[sweeps if all(sweeps) else pair.added.key].append(pair)
    for group in groups.values():
        if len(group) >= FOLDED_FROM:
            yield _hint_of_sweep(group)
        else:
            yield from map(_hint, group)


def _hint(pair: RenamePair) -> PlanWarning:
    old, new = pair.removed.key, pair.added.key
    how = f"nearly the same declaration ({few(pair.differing)})" if pair.differing else "the same declaration"
    why = f"{old} is removed, {new} is added with {how}; apply ends the one and starts the other"
    return PlanWarning(
        what=MAY_BE_RENAME, why=why, fix=f"if it is the same job, add `formerly: {old}` to {new}", key=new
    )


def _hint_of_sweep(group: Sequence[RenamePair]) -> PlanWarning:
    sweep = group[0].added.sweep
    names = few([f"{pair.removed.key} -> {pair.added.key}" for pair in group])
    why = f"{len(group)} jobs are removed, and as many are added with the same declarations: {names}"
    fix = (
        'if they are the same jobs, keep their keys with name: "…${matrix.AXIS}…", or add `formerly` to each'
    )
    return PlanWarning(what=MAY_BE_RENAME, why=why, fix=fix, key=sweep)
