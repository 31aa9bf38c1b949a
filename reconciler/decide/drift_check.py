"""Drift as plain data, what is written down of drift checks, and a check compared with the last one.

Of each drift there is one record, however many checks saw it, and it goes when the drift does; what was new,
changed or gone is an event of the check that saw it. Times are seconds since 1970.

Source: docs/concepts/drift.md; docs/operations/records.md, "Drift checks".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import Field, WithJsonSchema

from reconciler.core.record import REMIND_S
from reconciler.core.values import Change, Frozen, Source, timestamp
from reconciler.secrets import without_secrets

# --- what is not as it was left


class DriftClass(StrEnum):
    """Class of drift."""

    MISSING = "missing"
    FAILED = "failed"
    TERMINATED = "terminated"
    MISSED = "missed"
    MODIFIED = "modified"
    DUPLICATE = "duplicate"
    ORPHANED = "orphaned"
    UNOWNED = "unowned"
    STUCK = "stuck"
    UNKNOWN = "unknown"


#: What to do about each class: a command to run, or an edit. KEY and JOB stand for the key and the job's id.
REMEDIES: dict[DriftClass, str] = {
    DriftClass.MISSING: "reconciler plan --only KEY shows whether apply creates it; "
    "edit `lifecycle.rerun` of KEY to run it again, or remove KEY from the manifest",
    DriftClass.FAILED: "reconciler jobs logs KEY; then edit `lifecycle.rerun` of KEY to run it again, "
    "or set `lifecycle.on_failure: retry`",
    DriftClass.TERMINATED: "edit `lifecycle.rerun` of KEY to run it again, set "
    "`lifecycle.on_terminated: recreate`, or remove KEY from the manifest",
    DriftClass.MISSED: "reconciler why KEY shows what holds it back, if anything; run reconciler apply more "
    "often, or set a longer `lifecycle.starting_deadline`",
    DriftClass.MODIFIED: "reconciler apply --only KEY restores it; or declare the new value and apply",
    DriftClass.DUPLICATE: "reconciler apply --only KEY terminates all but one revision",
    DriftClass.ORPHANED: "declare KEY to keep it, reconciler release KEY to let it go on unmanaged, "
    "or reconciler apply to terminate it",
    DriftClass.UNOWNED: "reconciler apply --only KEY restores a marker that was removed; "
    "else reconciler adopt KEY JOB, or rename KEY",
    DriftClass.STUCK: "reconciler jobs events JOB; ask the service's support, and name the job's id",
    DriftClass.UNKNOWN: "check again; reconciler doctor says what cannot be reached",
}

#: Beside a reference pydantic leaves out the description of a field, or not, by the model it builds first.
_PublishedClass = Annotated[
    DriftClass, WithJsonSchema({"type": "string", "enum": [one.value for one in DriftClass]})
]


class Drift(Frozen):
    """One thing that is not as it was left."""

    key: str = Field(description="Name of the job in the manifest.")
    class_: _PublishedClass = Field(alias="class", description="Class of drift.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What was found, for people.")
    since: str | None = Field(
        None,
        description="When a check first saw it, RFC 3339 in UTC: this one, if no earlier one is recorded.",
    )
    changes: tuple[Change, ...] = Field(
        (),
        description="For modified: each field as it was last applied, or is declared, and as it is now; "
        "omitted for other classes.",
    )
    began_at: str | None = Field(
        None, description="When it happened, RFC 3339 in UTC; null: neither service nor history says so."
    )
    node_hours: float | None = Field(
        None,
        description="Node-hours that it has cost: thrown away by a failed or terminated revision, or used so "
        "far by jobs that nothing declares; null: it costs none, or the service says too little.",
    )
    fix: str | None = Field(None, description="What to do about it: a command to run, or an edit to make.")
    remedy: str = Field("", exclude=True, description="`fix`, with KEY and JOB in the place of both.")
    source: Source | None = Field(None, exclude=True, description="Location of the key in the manifest.")
    others: tuple[str, ...] = Field(
        (), exclude=True, description="Ids of the other jobs that it is about, sorted."
    )


class IgnoredDrift(Drift):
    """Drift that is known: a rule of the manifest ignores it."""

    reason: str = Field("", description="Why, as the rule says.")
    until: str | None = Field(None, description="Last day of the rule, in UTC; null: it has no end.")
    rule: Source | None = Field(None, description="Location of the rule in the manifest.")

    @classmethod
    def of(cls, entry: Drift, **why: Any) -> IgnoredDrift:
        """The same drift, and why it is known."""
        return cls.model_construct(**{name: getattr(entry, name) for name in Drift.model_fields}, **why)


class Pending(Frozen):
    """A key whose manifest is ahead of the service: not drift."""

    key: str = Field(description="Name of the job in the manifest.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What is yet to be applied, for people.")


# --- what is written down of checks


class DriftId(NamedTuple):
    """What makes two entries of two checks the same drift; `job` is "" where there is none."""

    key: str
    class_: str
    job: str

    @classmethod
    def of(cls, entry: Drift) -> DriftId:
        """The id of an entry."""
        return cls(entry.key, entry.class_.value, entry.job or "")


class StandingDrift(NamedTuple):
    """A drift as the last check that looked at its key left it.

    `content` is what makes it another one if it changes, see `content_of`. `since_s` is the first check that
    saw it, `reported_at_s` the last one that reported it; None: none has yet. `is_hidden` says that it was
    ignored then. `delivered` are the times of the checks that sent it to some URLs while another one failed,
    by the key path of the URL.
    """

    entry: Drift
    content: str
    since_s: float
    reported_at_s: float | None = None
    is_hidden: bool = False
    delivered: Mapping[str, float] = MappingProxyType({})

    @property
    def id(self) -> DriftId:
        """What it is known by."""
        return DriftId.of(self.entry)

    @property
    def counts(self) -> bool:
        """Whether it is drift that somebody has to know of; what could not be read says nothing of drift."""
        return not self.is_hidden and self.entry.class_ is not DriftClass.UNKNOWN


class LastCheck(NamedTuple):
    """What the record store has of earlier checks of a scope.

    `at_s` is the last check that could compare, None if there was none. `problem` says why the store could
    not be read: then nothing is known of earlier checks, and nothing may be taken for new.
    """

    at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    problem: str | None = None


NO_CHECK = LastCheck()


class DriftChange(StrEnum):
    """What became of a drift since the last check."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"


class DriftEvent(NamedTuple):
    """Something that became of a drift."""

    change: DriftChange
    entry: Drift


class CheckRecord(NamedTuple):
    """What a check leaves in the store.

    `compared_at_s` is None for a check that compared nothing. `standing` are the drifts that it saw, and
    `gone` those that are not there any more; of any other it says nothing.
    """

    compared_at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    gone: tuple[DriftId, ...] = ()
    events: tuple[DriftEvent, ...] = ()


def content_of(entry: Drift, redact: Callable[[str], str]) -> str:
    """What makes a drift another one if it changes, as text without secrets: its job, its changes.

    The detail is none of it, for it names the phases of jobs that run on.
    """
    changes = [[change.path, change.before, change.after] for change in entry.changes]
    tree = [entry.class_.value, entry.job, list(entry.others), changes]
    # As the store writes it: a text that it would change again would be another one at each check.
    return redact(json.dumps(without_secrets(tree, redact), separators=(",", ":")))


# --- a check compared with the last one


class DriftComparison(NamedTuple):
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

    def record(self, *, compared: bool) -> CheckRecord:
        """What is written down of the check; what was reported of it is written later."""
        events = tuple(DriftEvent(change, entry) for change in DriftChange for entry in getattr(self, change))
        return CheckRecord(self.at_s if compared else None, self.standing, self.removed, events)


def compare(
    last: LastCheck,
    found: Sequence[Drift],
    is_judged: Callable[[str], bool],
    *,
    at_s: float,
    redact: Callable[[str], str] = str,
    remind_s: float = REMIND_S,
    notified: Collection[str] = (),
) -> DriftComparison:
    """Compare what a check found with what stood at the last one.

    `is_judged` says of a key whether the check could judge it: of any other one nothing is gone, for nobody
    saw that it is. `notified` are the classes of drift that count as reported once a notification told of
    them.
    """
    # Each drift stood before as that of the same job, else as one of the same class.
    left = {one.id: one for one in last.standing}
    exact = {id_: left.pop(id_, None) for id_ in map(DriftId.of, found)}
    by_class: dict[tuple[str, str], list[StandingDrift]] = {}
    for unmatched in left.values():
        by_class.setdefault(unmatched.id[:2], []).append(unmatched)
    pairs: list[tuple[StandingDrift, StandingDrift | None]] = []
    for entry in found:
        id_ = DriftId.of(entry)
        others = by_class.get(id_[:2])
        old = exact[id_] or (others.pop(0) if others else None)
        pairs.append((_stands(entry, content_of(entry, redact), old, at_s, remind_s), old))
    seen = {old.id for _, old in pairs if old is not None}
    over = [one for one in last.standing if one.id not in seen and is_judged(one.entry.key)]
    # A drift that is about another job by now stands under another id.
    moved = seen.difference(now.id for now, _ in pairs)
    comparison = DriftComparison(
        at_s=at_s,
        compared_with_s=last.at_s,
        standing=tuple(now for now, _ in pairs),
        removed=(*(one.id for one in over), *sorted(moved)),
        problem=last.problem,
    )
    if last.problem is not None:
        return comparison
    # A check that could not judge every key had another exit code than that of drift.
    has_told = last.at_s is not None and not any(
        one.entry.class_ is DriftClass.UNKNOWN for one in last.standing
    )
    entries: dict[str, list[Drift]] = {name: [] for name in ("new", "changed", "lasting", "due", "reported")}
    for now, old in pairs:
        if not now.counts:
            continue
        # Nobody saw it while it was ignored.
        change = DriftChange.NEW if old is None or old.is_hidden else None
        if old is not None and now.content != old.content:
            change = DriftChange.CHANGED
        entries[change or "lasting"].append(now.entry)
        reported_at_s, since_s = now.reported_at_s, now.since_s
        if change is None and reported_at_s is not None and at_s - reported_at_s <= remind_s:
            continue
        entries["due"].append(now.entry)
        # The exit code told of it, and is not to remind, which it does whenever the drift has lasted for
        # another `remind_s`: only a notification is missing.
        is_shown = change is None and reported_at_s is None and has_told and bool(remind_s)
        if is_shown and last.at_s is not None:
            is_shown = (at_s - since_s) // remind_s == (last.at_s - since_s) // remind_s
        if not (is_shown and now.entry.class_.value in notified):
            entries["reported"].append(now.entry)
    lists: dict[str, Any] = {name: tuple(found) for name, found in entries.items()}
    return comparison._replace(**lists, gone=tuple(one.entry for one in over if one.counts))


def _stands(
    entry: Drift, content: str, old: StandingDrift | None, at_s: float, remind_s: float
) -> StandingDrift:
    """What is known of a drift by now."""
    since_s, reported_at_s, delivered = at_s, None, dict[str, float]()
    if old is not None:
        # That another job failed is another event; that the key has several is the same one.
        if entry.job == old.entry.job or entry.class_ is DriftClass.DUPLICATE:
            since_s = old.since_s
        if old.content == content:
            reported_at_s = old.reported_at_s
            # Nobody saw it while it was ignored.
            lasting = {} if old.is_hidden else old.delivered
            delivered = {name: sent_s for name, sent_s in lasting.items() if at_s - sent_s <= remind_s}
    seen = entry.model_copy(update={"since": timestamp(since_s)})
    return StandingDrift(seen, content, since_s, reported_at_s, isinstance(entry, IgnoredDrift), delivered)
