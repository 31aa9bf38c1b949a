"""Drift: what changed on the service behind the manifest's back, told apart from what changed in it.

Source: docs/drift.md.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from pydantic import Field

from reconciler.core.declared.stack import Stack
from reconciler.core.drift.entry import Drift as Drift
from reconciler.core.drift.entry import DriftClass as DriftClass
from reconciler.core.drift.entry import Pending as Pending
from reconciler.core.drift.rules import check_key, rests_on_absence
from reconciler.core.planning.action_builder import PlanContext
from reconciler.core.planning.plan import (
    Head,
    PlanWarning,
    Source,
    TargetIdentity,
    few_of_a_kind,
    timestamp,
)
from reconciler.core.planning.planner import Snapshot, keys_in_view, keys_owned_in_view, snapshot_warnings
from reconciler.core.text.secret import show


class DriftReport(Head):
    """What changed on the service since the last apply."""

    complete: bool = Field(description="False when something could not be read.")
    drift: tuple[Drift, ...] = Field(description="Sorted by key.")
    pending: tuple[Pending, ...] = Field(description="Sorted by key.")
    summary: dict[DriftClass, int] = Field(description="How many of each class.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    compared: int = Field(0, exclude=True)
    keys: tuple[str, ...] = Field((), exclude=True, description="Every key that was looked at, sorted.")

    @property
    def has_drifted(self) -> bool:
        """Whether anything but what could not be read is not as it was left."""
        return any(item.class_ is not DriftClass.UNKNOWN for item in self.drift)

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
        for entry in document["drift"]:
            if not entry["changes"]:
                del entry["changes"]
        return document


def needs_whole_list(stack: Stack, snapshot: Snapshot, context: PlanContext) -> bool:
    """Whether a report rests on a job not being there, so that a filtered look is not enough."""
    return any(rests_on_absence(key, stack.jobs.get(key), snapshot, context) for key in stack.jobs)


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
    found = [check_key(key, stack.jobs.get(key), snapshot, context) for key in keys]
    drift = tuple(_placed(entry, stack) for entry in chain.from_iterable(one.drift for one in found))
    unknown = len({entry.key for entry in drift if entry.class_ is DriftClass.UNKNOWN})
    is_whole = snapshot.ownership.problem is None and not snapshot.ownership.unattributed
    summary = dict.fromkeys(DriftClass, 0) | Counter(entry.class_ for entry in drift)
    warnings = chain.from_iterable(one.warnings for one in found)
    return DriftReport(
        reconciler_version=version,
        created_at=timestamp(context.at_s),
        stack=stack.name,
        target=target,
        manifest_digest=manifest_digest,
        complete=unknown == 0 and is_whole,
        drift=drift,
        pending=tuple(one.pending for one in found if one.pending),
        summary=summary,
        warnings=few_of_a_kind((*snapshot_warnings(stack, snapshot), *warnings)),
        compared=0 if snapshot.ownership.problem is not None else len(keys) - unknown,
        keys=tuple(keys),
    )


def _placed(entry: Drift, stack: Stack) -> Drift:
    """The same entry with where the manifest has its key."""
    desired = stack.jobs.get(entry.key)
    source = Source.of(desired.location) if desired else None
    return entry.model_copy(update={"source": source})
