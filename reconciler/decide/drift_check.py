"""Drift as plain data, the records of drift checks, and the comparison with the last check.

Each drift has one record, however many checks saw it, which is removed with the drift; new, changed and gone
drift are events of a check. Times are seconds since 1970.

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

# --- entries


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


#: A command to run, or an edit, for each class. KEY and JOB stand for the key and the job's id.
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
    DriftClass.ORPHANED: "declare KEY to keep it, reconciler release KEY to leave it running unmanaged, "
    "or reconciler apply to terminate it",
    DriftClass.UNOWNED: "reconciler apply --only KEY restores a marker that was removed; "
    "else reconciler adopt KEY JOB, or rename KEY",
    DriftClass.STUCK: "reconciler jobs events JOB; then contact the service's support with the job id",
    DriftClass.UNKNOWN: "check again; reconciler doctor shows what cannot be reached",
}

#: Without a reference in the schema: whether pydantic puts a description beside one depends on build order.
_PublishedClass = Annotated[
    DriftClass, WithJsonSchema({"type": "string", "enum": [one.value for one in DriftClass]})
]


class Drift(Frozen):
    """One thing that is not as it was left."""

    key: str = Field(description="Name of the job in the manifest.")
    class_: _PublishedClass = Field(alias="class", description="Class of drift.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What was found, in words.")
    since: str | None = Field(
        None,
        description="When a check first saw it, RFC 3339 in UTC; this check, if no earlier one is recorded.",
    )
    changes: tuple[Change, ...] = Field(
        (),
        description="For modified: each field as it was last applied, or is declared, and as it is now; "
        "omitted for other classes.",
    )
    began_at: str | None = Field(
        None, description="When it happened, RFC 3339 in UTC; null: unknown to the service and the history."
    )
    node_hours: float | None = Field(
        None,
        description="Node-hours lost: discarded by a failed or terminated revision, or used so far by jobs "
        "that are not declared; null: none, or unknown.",
    )
    fix: str | None = Field(None, description="What to do about it: a command to run, or an edit to make.")
    remedy: str = Field("", exclude=True, description="`fix`, with the placeholders KEY and JOB.")
    source: Source | None = Field(None, exclude=True, description="Location of the key in the manifest.")
    others: tuple[str, ...] = Field(
        (), exclude=True, description="Ids of the other jobs that it is about, sorted."
    )


class IgnoredDrift(Drift):
    """Known drift, which a rule of the manifest ignores."""

    reason: str = Field("", description="Reason given by the rule.")
    until: str | None = Field(None, description="Last day of the rule, in UTC; null: no end.")
    rule: Source | None = Field(None, description="Location of the rule in the manifest.")

    @classmethod
    def of(cls, entry: Drift, **why: Any) -> IgnoredDrift:
        """Mark drift as ignored by a rule."""
        return cls.model_construct(**{name: getattr(entry, name) for name in Drift.model_fields}, **why)


class Pending(Frozen):
    """A key whose manifest is ahead of the service: not drift."""

    key: str = Field(description="Name of the job in the manifest.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What is yet to be applied, in words.")


# --- records of checks


class DriftId(NamedTuple):
    """What identifies a drift across checks; `job` is "" if there is none."""

    key: str
    class_: str
    job: str

    @classmethod
    def of(cls, entry: Drift) -> DriftId:
        return cls(entry.key, entry.class_.value, entry.job or "")


class StandingDrift(NamedTuple):
    """A drift as the last check of its key left it.

    If `content` changes, the drift has changed; see `content_of`. `since_s` is the first check that saw it,
    `reported_at_s` the last that reported it (None: not reported yet); `is_hidden` means that it was ignored.
    If a check could not notify all URLs, `delivered` has its time for those it could, by their key paths.
    """

    entry: Drift
    content: str
    since_s: float
    reported_at_s: float | None = None
    is_hidden: bool = False
    delivered: Mapping[str, float] = MappingProxyType({})

    @property
    def id(self) -> DriftId:
        return DriftId.of(self.entry)

    @property
    def counts(self) -> bool:
        """Whether it is drift to report: neither ignored nor unknown."""
        return not self.is_hidden and self.entry.class_ is not DriftClass.UNKNOWN


class LastCheck(NamedTuple):
    """What the record store has of earlier checks of a scope.

    `at_s` is the last check that could compare, or None. If `problem` is set, the store could not be read,
    and nothing may be taken for new.
    """

    at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    problem: str | None = None


NO_CHECK = LastCheck()


class DriftChange(StrEnum):
    """How a drift has changed since the last check."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"


class DriftEvent(NamedTuple):
    """A drift that is new, changed or gone."""

    change: DriftChange
    entry: Drift


class CheckRecord(NamedTuple):
    """The record of a check.

    `compared_at_s` is None if it compared nothing. `standing` is the drift that it saw, `gone` what it found
    gone; other drift is left as recorded.
    """

    compared_at_s: float | None = None
    standing: tuple[StandingDrift, ...] = ()
    gone: tuple[DriftId, ...] = ()
    events: tuple[DriftEvent, ...] = ()


def content_of(entry: Drift, redact: Callable[[str], str]) -> str:
    """Return the text that changes if a drift changes, without secrets: class, jobs, changes.

    The detail is left out, because it names phases, which change as jobs run.
    """
    changes = [[change.path, change.before, change.after] for change in entry.changes]
    tree = [entry.class_.value, entry.job, list(entry.others), changes]
    # Redacted as the store does it, or the text would differ from the stored one at each check.
    return redact(json.dumps(without_secrets(tree, redact), separators=(",", ":")))


# --- comparison with the last check


class DriftComparison(NamedTuple):
    """How drift has changed since the last check that could compare. Hidden drift is only in `standing`.

    `compared_with_s` is the time of that check; if None, everything is new. `due` is what to notify of now:
    new, changed, never reported, or not reported for `remind_s`; `reported` is the part of it that sets the
    exit code: not what is due only because a notification failed. `standing` is all drift that was seen,
    hidden and unknown included, in order. If `problem` is set, the last check could not be read, and all
    lists but `standing` are empty.
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
        """All drift that counts: new, then changed, then lasting."""
        return (*self.new, *self.changed, *self.lasting)

    def record(self, *, compared: bool) -> CheckRecord:
        """Return what to record of the check, without what was reported, which is recorded later."""
        events = tuple(DriftEvent(change, entry) for change in DriftChange for entry in getattr(self, change))
        return CheckRecord(self.at_s if compared else None, self.standing, self.removed, events)


def compare(
    last: LastCheck,
    drift: Sequence[Drift],
    is_judged: Callable[[str], bool],
    *,
    at_s: float,
    redact: Callable[[str], str] = str,
    remind_s: float = REMIND_S,
    notified: Collection[str] = (),
) -> DriftComparison:
    """Compare the drift that a check found with that of the last one.

    `is_judged` tells whether the check could judge a key; drift of other keys is never gone. `notified` are
    the classes that count as reported only once a notification has been sent.
    """
    # Match each drift with an earlier one of the same job, else of the same class.
    unmatched_by_id = {one.id: one for one in last.standing}
    exact = {id_: unmatched_by_id.pop(id_, None) for id_ in map(DriftId.of, drift)}
    by_class: dict[tuple[str, str], list[StandingDrift]] = {}
    for unmatched in unmatched_by_id.values():
        by_class.setdefault(unmatched.id[:2], []).append(unmatched)
    pairs: list[tuple[StandingDrift, StandingDrift | None]] = []
    for entry in drift:
        id_ = DriftId.of(entry)
        same_class = by_class.get(id_[:2])
        old = exact[id_] or (same_class.pop(0) if same_class else None)
        pairs.append((_as_standing(entry, content_of(entry, redact), old, at_s, remind_s), old))
    seen = {old.id for _, old in pairs if old is not None}
    ended = [one for one in last.standing if one.id not in seen and is_judged(one.entry.key)]
    # Drift that is about another job now has another id.
    replaced = seen.difference(now.id for now, _ in pairs)
    comparison = DriftComparison(
        at_s=at_s,
        compared_with_s=last.at_s,
        standing=tuple(now for now, _ in pairs),
        removed=(*(one.id for one in ended), *sorted(replaced)),
        problem=last.problem,
    )
    if last.problem is not None:
        return comparison
    # The last check's exit code reported drift only if every key was known.
    was_reported = last.at_s is not None and not any(
        one.entry.class_ is DriftClass.UNKNOWN for one in last.standing
    )
    entries: dict[str, list[Drift]] = {name: [] for name in ("new", "changed", "lasting", "due", "reported")}
    for now, old in pairs:
        if not now.counts:
            continue
        # Drift that is no longer ignored counts as new.
        change = DriftChange.NEW if old is None or old.is_hidden else None
        if old is not None and now.content != old.content:
            change = DriftChange.CHANGED
        entries[change or "lasting"].append(now.entry)
        reported_at_s, since_s = now.reported_at_s, now.since_s
        if change is None and reported_at_s is not None and at_s - reported_at_s <= remind_s:
            continue
        entries["due"].append(now.entry)
        # An earlier exit code has reported it, and no reminder is due (one each `remind_s`): only a
        # notification is missing.
        is_shown = change is None and reported_at_s is None and was_reported and bool(remind_s)
        if is_shown and last.at_s is not None:
            is_shown = (at_s - since_s) // remind_s == (last.at_s - since_s) // remind_s
        if not (is_shown and now.entry.class_.value in notified):
            entries["reported"].append(now.entry)
    lists: dict[str, Any] = {name: tuple(drift) for name, drift in entries.items()}
    return comparison._replace(**lists, gone=tuple(one.entry for one in ended if one.counts))


def _as_standing(
    entry: Drift, content: str, old: StandingDrift | None, at_s: float, remind_s: float
) -> StandingDrift:
    """Return the record of a drift, given the earlier one."""
    since_s, reported_at_s, delivered = at_s, None, dict[str, float]()
    if old is not None:
        # Another job is another event, except for a duplicate.
        if entry.job == old.entry.job or entry.class_ is DriftClass.DUPLICATE:
            since_s = old.since_s
        if old.content == content:
            reported_at_s = old.reported_at_s
            # Drift that is no longer ignored counts as not delivered.
            lasting = {} if old.is_hidden else old.delivered
            delivered = {name: sent_s for name, sent_s in lasting.items() if at_s - sent_s <= remind_s}
    seen = entry.model_copy(update={"since": timestamp(since_s)})
    return StandingDrift(seen, content, since_s, reported_at_s, isinstance(entry, IgnoredDrift), delivered)
