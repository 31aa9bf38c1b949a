"""The flags of a marker, as a plan saw them: an update that writes the whole marker must not undo others.

Source: docs/semantics.md, "Ownership".
"""

from __future__ import annotations

from typing import NamedTuple

from reconciler.core.identity import Marker, parse_description
from reconciler.core.values import MARKER_SCHEDULE
from reconciler.decide.plan import PlannedAction, Reason


class Flags(NamedTuple):
    """What a marker says beside whose job it is."""

    protected: bool
    stopped: bool
    schedule: str = ""

    @classmethod
    def of(cls, marker: Marker) -> Flags:
        """The flags of a marker."""
        return cls(marker.protected, marker.stopped, str(marker.schedule or ""))


def flags_before(action: PlannedAction) -> Flags | None:
    """The flags that the plan saw on the job: those that the update writes, with its changes taken back."""
    written = _written(action)
    if written is None:
        return None
    is_flipped = "lifecycle.protect" in _changed(action) or action.reason is Reason.PROTECTION_RELEASED
    schedule = next((one for one in action.changes if one.path == MARKER_SCHEDULE), None)
    return Flags(
        written.protected != is_flipped,
        written.stopped or takes_back_the_stop(action),
        str((written.schedule if schedule is None else schedule.before) or ""),
    )


def has_flags_before(action: PlannedAction, marker: Marker) -> bool:
    """Whether a marker has the flags that the plan saw.

    That another runner has meanwhile written the schedule that the action writes changes nothing.
    """
    then, now = flags_before(action), Flags.of(marker)
    if then is None or now == then:
        return now == then
    written = _written(action)
    is_same = written is not None and _digest_of(written) == _digest_of(marker)
    return is_same and now._replace(schedule=then.schedule) == then


def takes_back_the_stop(action: PlannedAction) -> bool:
    """Whether an update says of a job that we had marked as stopped that it goes on."""
    return "marker.stopped" in _changed(action)


def _written(action: PlannedAction) -> Marker | None:
    return parse_description(str((action.desired or {}).get("description", ""))).marker


def _digest_of(marker: Marker) -> str:
    return marker.schedule.digest if marker.schedule else ""


def _changed(action: PlannedAction) -> set[str]:
    return {change.path for change in action.changes}
