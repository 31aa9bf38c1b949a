"""A drift check compared with the last one: what is new, changed, gone, and what lasts.

Source: docs/drift.md, "Since the last check".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import Any, NamedTuple

from reconciler.core.record import REMIND_S
from reconciler.core.values import timestamp
from reconciler.decide.drift_check import (
    CheckRecord,
    DriftChange,
    DriftEvent,
    DriftId,
    LastCheck,
    StandingDrift,
)
from reconciler.decide.drift_entry import Drift, DriftClass


class FoundDrift(NamedTuple):
    """A drift that a check found: the entry, what it is compared by, and whether a rule ignores it."""

    entry: Drift
    content: str
    is_ignored: bool = False

    @property
    def id(self) -> DriftId:
        """What it is known by."""
        return DriftId.of(self.entry)


@dataclass(frozen=True, slots=True)
class DriftComparison:
    """What became of each drift since the last check that could compare; drift that is hidden is in none.

    `compared_with_s` is the time of that check, None if there was none: everything is new then. `due` are
    those that have to be told now: new, changed, never reported, or not for longer than `remind_s`; and
    `reported` those of them that the exit code reports: not what is due only because a notification failed.
    `standing` is every drift that the check saw, hidden ones and what could not be read included, in the
    order in which it was found. `problem` says why the last check could not be read; then all lists but
    `standing` are empty.
    """

    at_s: float
    compared_with_s: float | None = None
    new: tuple[Drift, ...] = ()
    changed: tuple[Drift, ...] = ()
    gone: tuple[Drift, ...] = ()
    lasting: tuple[Drift, ...] = ()
    due: tuple[Drift, ...] = ()
    reported: tuple[Drift, ...] = ()
    standing: tuple[StandingDrift, ...] = ()
    removed: tuple[DriftId, ...] = ()
    problem: str | None = None

    @property
    def visible(self) -> tuple[Drift, ...]:
        """Every drift that counts: what is new first, then what changed, then what lasts."""
        return (*self.new, *self.changed, *self.lasting)

    def record(self, *, compared: bool, is_reported: bool) -> CheckRecord:
        """What is written down of the check; `is_reported`: everything that stands was told to somebody."""
        standing = self.standing
        if is_reported:
            standing = tuple(
                one if one.is_hidden else replace(one, reported_at_s=self.at_s) for one in standing
            )
        changes = (
            (DriftChange.NEW, self.new),
            (DriftChange.CHANGED, self.changed),
            (DriftChange.GONE, self.gone),
        )
        events = tuple(DriftEvent(change, entry) for change, entries in changes for entry in entries)
        return CheckRecord(self.at_s if compared else None, standing, self.removed, events)


def compare(
    last: LastCheck,
    found: Sequence[FoundDrift],
    is_judged: Callable[[str], bool],
    *,
    at_s: float,
    remind_s: float = REMIND_S,
    notified: Collection[str] = (),
) -> DriftComparison:
    """Compare what a check found with what stood at the last one.

    `is_judged` says of a key whether the check could judge it: of any other one nothing is gone, for nobody
    saw that it is. `notified` are the classes of drift that count as reported once a notification told of
    them.
    """
    pairs = _pairs(last.standing, found, at_s)
    seen = {pair.old.id for pair in pairs if pair.old is not None}
    over = _over(last.standing, seen, is_judged)
    # A drift that is about another job by now stands under another id.
    moved = seen.difference(pair.now.id for pair in pairs)
    comparison = DriftComparison(
        at_s=at_s,
        compared_with_s=last.at_s,
        standing=tuple(pair.now for pair in pairs),
        removed=(*(one.id for one in over), *sorted(moved)),
        problem=last.problem,
    )
    if last.problem is not None:
        return comparison
    due = [pair for pair in pairs if pair.is_due(at_s, remind_s)]

    def was_shown(pair: _Pair) -> bool:
        return pair.now.entry.class_.value in notified and pair.was_shown(last, at_s, remind_s)

    return replace(
        comparison,
        **_by_change(pairs),
        gone=_counted(over),
        due=_entries(due),
        reported=_entries(filterfalse(was_shown, due)),
    )


class _Pair(NamedTuple):
    """A drift as it stands now, and as it stood before; None where it did not."""

    now: StandingDrift
    old: StandingDrift | None

    @property
    def change(self) -> DriftChange | None:
        """What became of it; None: it lasts."""
        if self.old is None:
            return DriftChange.NEW
        if self.now.content != self.old.content:
            return DriftChange.CHANGED
        # Nobody saw it while it was ignored or accepted.
        return DriftChange.NEW if self.old.is_hidden else None

    def is_due(self, at_s: float, remind_s: float) -> bool:
        """Whether it has to be reported now."""
        return self.now.counts and (self.change is not None or self.now.is_due(at_s, remind_s))

    def was_shown(self, last: LastCheck, at_s: float, remind_s: float) -> bool:
        """Whether the exit code told of it, and it is not time to remind: only a notification is missing.

        A check that could not judge every key had another exit code. The exit code reminds whenever it has
        lasted for another `remind_s`.
        """
        if self.change is not None or self.now.reported_at_s is not None or last.at_s is None or not remind_s:
            return False
        if any(one.entry.class_ is DriftClass.UNKNOWN for one in last.standing):
            return False
        since_s = self.now.since_s
        return (at_s - since_s) // remind_s == (last.at_s - since_s) // remind_s


def _over(
    standing: Iterable[StandingDrift], seen: Collection[DriftId], is_judged: Callable[[str], bool]
) -> list[StandingDrift]:
    """What stood at the last check, and is there no more."""
    return [one for one in standing if one.id not in seen and is_judged(one.entry.key)]


def _entries(pairs: Iterable[_Pair]) -> tuple[Drift, ...]:
    return tuple(pair.now.entry for pair in pairs)


def _counted(drift: Iterable[StandingDrift]) -> tuple[Drift, ...]:
    return tuple(one.entry for one in drift if one.counts)


def _by_change(pairs: Iterable[_Pair]) -> dict[str, Any]:
    found: dict[str, list[Drift]] = {"new": [], "changed": [], "lasting": []}
    for pair in pairs:
        if pair.now.counts:
            found[pair.change or "lasting"].append(pair.now.entry)
    return {name: tuple(entries) for name, entries in found.items()}


def _pairs(standing: Iterable[StandingDrift], found: Sequence[FoundDrift], at_s: float) -> list[_Pair]:
    """Each drift that was found with the one that stood before: of the same job, else of the same class."""
    left = {one.id: one for one in standing}
    exact = {one.id: left.pop(one.id, None) for one in found}
    by_class: dict[tuple[str, str], list[StandingDrift]] = {}
    for unmatched in left.values():
        by_class.setdefault(unmatched.id[:2], []).append(unmatched)
    pairs = []
    for one in found:
        others = by_class.get(one.id[:2])
        old = exact[one.id] or (others.pop(0) if others else None)
        pairs.append(_Pair(_stands(one, old, at_s), old))
    return pairs


def _stands(found: FoundDrift, old: StandingDrift | None, at_s: float) -> StandingDrift:
    """What is known of a drift by now. What was accepted stays so until it is another one."""
    entry, is_hidden = found.entry, found.is_ignored
    since_s, reported_at_s, acceptance = at_s, None, None
    if old is not None:
        # That another job failed is another event; that the key has several is the same one.
        if entry.job == old.entry.job or entry.class_ is DriftClass.DUPLICATE:
            since_s = old.since_s
        if old.content == found.content:
            reported_at_s, acceptance = old.reported_at_s, old.acceptance
    return StandingDrift(
        entry.model_copy(update={"since": timestamp(since_s)}),
        found.content,
        since_s,
        reported_at_s,
        is_hidden or acceptance is not None,
        acceptance,
    )
