"""The flags of a marker, as a plan saw them: an update that writes the whole marker must not undo others.

Source: docs/semantics.md, "Ownership".
"""

from __future__ import annotations

from typing import NamedTuple

from reconciler.core.observed.identity import parse_description
from reconciler.core.planning.plan import PlannedAction, Reason


class Flags(NamedTuple):
    """What a marker says beside whose job it is."""

    protected: bool
    stopped: bool


def flags_before(action: PlannedAction) -> Flags | None:
    """The flags that the plan saw on the job: those that the update writes, with its changes taken back."""
    written = parse_description(str((action.desired or {}).get("description", ""))).marker
    if written is None:
        return None
    is_flipped = "lifecycle.protect" in _changed(action) or action.reason is Reason.PROTECTION_RELEASED
    return Flags(written.protected != is_flipped, written.stopped or takes_back_the_stop(action))


def takes_back_the_stop(action: PlannedAction) -> bool:
    """Whether an update says of a job that we had marked as stopped that it goes on."""
    return "marker.stopped" in _changed(action)


def _changed(action: PlannedAction) -> set[str]:
    return {change.path for change in action.changes}
