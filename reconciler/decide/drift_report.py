"""Drift: what changed on the service behind the manifest's back, told apart from what changed in it.

Source: docs/drift.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pydantic import Field

from reconciler.core.drift_rule import IgnoreRule
from reconciler.core.stack import Stack
from reconciler.core.values import Head, PlanWarning, Source, TargetIdentity, few_of_a_kind, timestamp
from reconciler.decide.drift_check import Acceptance, DriftId
from reconciler.decide.drift_comparison import DriftComparison
from reconciler.decide.drift_entry import Drift as Drift
from reconciler.decide.drift_entry import DriftClass as DriftClass
from reconciler.decide.drift_entry import IgnoredBy, IgnoredDrift
from reconciler.decide.drift_entry import Pending as Pending
from reconciler.decide.drift_rules import check_key, rests_on_absence
from reconciler.decide.key_state import PlanContext, Snapshot, keys_in_view, keys_owned_in_view, state_of
from reconciler.decide.planner import snapshot_warnings, upstream_reruns
from reconciler.decide.sweep_members import SweepEntries
from reconciler.secrets import show

#: What only a report has that was compared with the last check.
_SINCE_LAST = ("compared_with", "new", "changed", "gone")


class DriftReport(Head):
    """What changed on the service since the last apply."""

    complete: bool = Field(description="False when something could not be read.")
    drift: tuple[Drift, ...] = Field(description="Sorted by key.")
    pending: tuple[Pending, ...] = Field(description="Sorted by key.")
    ignored: tuple[IgnoredDrift, ...] = Field(
        (), description="Drift that is known, and not counted; sorted by key."
    )
    compared_with: str | None = Field(
        None,
        description="With --since-last only: time of the check compared with, RFC 3339 in UTC; null: there "
        "was none, or it could not be read.",
    )
    new: tuple[Drift, ...] = Field((), description="With --since-last only: what that check did not see.")
    changed: tuple[Drift, ...] = Field(
        (), description="With --since-last only: what is about another job by now, or has other changes."
    )
    gone: tuple[Drift, ...] = Field((), description="With --since-last only: what is there no more.")
    summary: dict[DriftClass, int] = Field(description="How many of each class; ignored ones aside.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    compared: int = Field(0, exclude=True)
    keys: tuple[str, ...] = Field((), exclude=True, description="Every key that was looked at, sorted.")
    is_partial: bool = Field(False, exclude=True, description="Whether other keys may own jobs.")
    proves_absence: bool = Field(True, exclude=True, description="Whether no unread job may be of any key.")
    since_last: bool = Field(False, exclude=True, description="Whether only what is new or due counts.")
    comparison: DriftComparison | None = Field(None, exclude=True)

    @property
    def has_drifted(self) -> bool:
        """Whether anything but what could not be read is not as it was left."""
        return any(item.class_ is not DriftClass.UNKNOWN for item in self.drift)

    @property
    def is_due(self) -> bool:
        """Whether the check has something to report.

        That is any drift, or with `since_last` drift that is new, has changed, or has lasted since it was
        last reported for longer than it may.
        """
        if not self.since_last or self.comparison is None:
            return self.has_drifted
        return bool(self.comparison.reported)

    @property
    def cannot_compare(self) -> bool:
        """Whether nobody knows what of the drift is new: the last check could not be read."""
        comparison = self.comparison
        return self.since_last and self.has_drifted and comparison is not None and bool(comparison.problem)

    @property
    def unknown_keys(self) -> frozenset[str]:
        """The keys that could not be judged."""
        return frozenset(entry.key for entry in self.drift if entry.class_ is DriftClass.UNKNOWN)

    def has_judged(self, key: str) -> bool:
        """Whether a drift of the key that is not in the report is there no more."""
        if not self.proves_absence or key in self.unknown_keys:
            return False
        return key in self.keys or not self.is_partial

    @property
    def word(self) -> str:
        """How the check ended, in a word or two."""
        return "unknown" if self.has_unknown else "drift" if self.has_drifted else "no drift"

    @property
    def has_unknown(self) -> bool:
        """Whether something could not be read."""
        return not self.complete

    def document(self) -> dict[str, Any]:
        """The report as plain JSON data, as `drift --json` shows it. No secret is in it."""
        document: dict[str, Any] = show(self.model_dump(mode="json", by_alias=True))
        for entries in ("drift", "ignored", "new", "changed", "gone"):
            for entry in document[entries]:
                if not entry["changes"]:
                    del entry["changes"]
        for name in () if self.since_last else _SINCE_LAST:
            del document[name]
        return document


def needs_whole_list(stack: Stack, snapshot: Snapshot, context: PlanContext) -> bool:
    """Whether a report rests on a job not being there, so that a filtered look is not enough."""
    return any(rests_on_absence(state_of(key, job, snapshot, context)) for key, job in stack.jobs.items())


def make_drift_report(
    stack: Stack,
    snapshot: Snapshot,
    context: PlanContext,
    target: TargetIdentity,
    *,
    manifest_digest: str,
    version: str,
) -> DriftReport:
    """Look at every key in view and at what the stack owns."""
    keys = sorted({*keys_in_view(stack, snapshot.ownership), *keys_owned_in_view(stack, snapshot.ownership)})
    reruns = upstream_reruns(stack, snapshot, context)
    entries, recorded = SweepEntries(stack), snapshot.memory.sweeps
    found = []
    for key in keys:
        state = state_of(key, stack.jobs.get(key), snapshot, context)
        state = replace(state, former_entry=entries.former_entry(key, recorded))
        found.append(check_key(state, reruns.get(key, "")))
    every = [_placed(entry, stack) for entry in chain.from_iterable(one.drift for one in found)]
    at_s = context.at_s
    drift, ignored = _without_ignored(every, stack.ignored_drift, at_s)
    unknown = len({entry.key for entry in drift if entry.class_ is DriftClass.UNKNOWN})
    is_whole = snapshot.ownership.problem is None and not snapshot.ownership.unattributed
    warnings = [
        *_expired_rules(stack.ignored_drift, at_s),
        *chain.from_iterable(one.warnings for one in found),
    ]
    return DriftReport(
        reconciler_version=version,
        created_at=timestamp(context.at_s),
        stack=stack.name,
        target=target,
        manifest_digest=manifest_digest,
        complete=unknown == 0 and is_whole,
        drift=drift,
        pending=tuple(one.pending for one in found if one.pending),
        ignored=ignored,
        summary=_summary(drift),
        warnings=few_of_a_kind((*snapshot_warnings(stack, snapshot), *warnings)),
        compared=0 if snapshot.ownership.problem is not None else len(keys) - unknown,
        keys=tuple(keys),
        is_partial=stack.is_partial,
        proves_absence=is_whole,
    )


def _placed(entry: Drift, stack: Stack) -> Drift:
    """The same entry with where the manifest has its key."""
    desired = stack.jobs.get(entry.key)
    source = Source.of(desired.location) if desired else None
    return entry.model_copy(update={"source": source})


def with_comparison(report: DriftReport, comparison: DriftComparison, *, since_last: bool) -> DriftReport:
    """The report with when each drift was first seen; what was accepted is known, and not counted.

    With `since_last` it tells what became of each drift since the last check, and only that counts.
    """
    drift: list[Drift] = []
    ignored: list[IgnoredDrift] = []
    # The entries that were compared are those of the report, in its order.
    for entry, standing in zip((*report.drift, *report.ignored), comparison.standing, strict=True):
        seen = entry.model_copy(update={"since": standing.entry.since})
        if isinstance(seen, IgnoredDrift):
            ignored.append(seen)
        elif standing.acceptance is not None:
            ignored.append(_accepted(seen, standing.acceptance))
        else:
            drift.append(seen)
    compared: dict[str, Any] = {}
    if since_last:
        at_s = comparison.compared_with_s
        compared = {
            "compared_with": None if at_s is None else timestamp(at_s),
            "new": comparison.new,
            "changed": comparison.changed,
            "gone": comparison.gone,
        }
    return report.model_copy(
        update={
            **compared,
            "warnings": (*report.warnings, *_unread_check(report, comparison)),
            "drift": tuple(drift),
            "ignored": tuple(sorted(ignored, key=lambda entry: entry.key)),
            "summary": _summary(drift),
            "since_last": since_last,
            "comparison": comparison,
        }
    )


def _unread_check(report: DriftReport, comparison: DriftComparison) -> Iterator[PlanWarning]:
    """That the last check could not be read, unless the same is said of all records."""
    problem = comparison.problem
    if problem is not None and not any(problem in warning.why for warning in report.warnings):
        why = f"{problem}; since when drift stands is unknown, and whether it was accepted"
        yield PlanWarning(what="the last check could not be read", why=why)


def with_acceptance(
    report: DriftReport, accepted: Collection[DriftId], acceptance: Acceptance
) -> DriftReport:
    """The report once these drifts are taken for known."""
    drift = tuple(entry for entry in report.drift if DriftId.of(entry) not in accepted)
    known = [_accepted(entry, acceptance) for entry in report.drift if DriftId.of(entry) in accepted]
    ignored = sorted((*report.ignored, *known), key=lambda entry: entry.key)
    return report.model_copy(update={"drift": drift, "ignored": tuple(ignored), "summary": _summary(drift)})


def _summary(drift: Iterable[Drift]) -> dict[DriftClass, int]:
    return dict.fromkeys(DriftClass, 0) | Counter(entry.class_ for entry in drift)


def _accepted(entry: Drift, acceptance: Acceptance) -> IgnoredDrift:
    return _ignored(
        entry,
        by=IgnoredBy.ACCEPT,
        reason=acceptance.reason,
        who=acceptance.who or None,
        accepted_at=timestamp(acceptance.at_s),
    )


def _ignored(entry: Drift, **why: Any) -> IgnoredDrift:
    fields = {name: getattr(entry, name) for name in Drift.model_fields}
    return IgnoredDrift.model_construct(**fields, **why)


def _without_ignored(
    entries: Iterable[Drift], rules: Sequence[IgnoreRule], at_s: float
) -> tuple[tuple[Drift, ...], tuple[IgnoredDrift, ...]]:
    """The entries that count, and those that a rule ignores: the first that does."""
    rules = [rule for rule in rules if not rule.has_expired(at_s)]
    drift: list[Drift] = []
    ignored: list[IgnoredDrift] = []
    for entry in entries:
        rule = next((one for one in rules if one.matches(entry.key, entry.class_.value)), None)
        if rule is None:
            drift.append(entry)
            continue
        until = None if rule.until is None else rule.until.isoformat()
        place = Source.of(rule.location)
        ignored.append(_ignored(entry, by=IgnoredBy.RULE, reason=rule.reason, until=until, rule=place))
    return tuple(drift), tuple(ignored)


def _expired_rules(rules: Iterable[IgnoreRule], at_s: float) -> Iterator[PlanWarning]:
    for rule in rules:
        if rule.has_expired(at_s):
            place = f"{rule.location}: " if rule.location else ""
            why = f"{place}it ignored {rule.class_} of {rule.key} until {rule.until} ({rule.reason})"
            yield PlanWarning(what="expired rule of drift.ignore", why=why, fix="remove it, or edit `until`")
