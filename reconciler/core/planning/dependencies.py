"""What a key waits for: `needs` holds back its next job until the other keys are settled.

Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reconciler.core.declared.stack import DesiredJob
from reconciler.core.observed.phase import Phase, parse_phase
from reconciler.core.planning.plan import Action, PlannedAction, Reason


class Upstream(StrEnum):
    """How a key that is needed stands."""

    SETTLED = "settled"
    OPEN = "open"
    FAILED = "failed"


def standing_of(action: PlannedAction | None) -> Upstream:
    """Judge a needed key by its own action: settled is kept, with its newest revision Completed.

    None stands for a key that is to be absent. An update of a job that has completed starts nothing.
    """
    if action is None:
        return Upstream.FAILED
    phase = parse_phase(action.phase_before)
    # What has no marker yet may have been made of something else than is declared.
    stays = action.action in (Action.KEEP, Action.UPDATE) and action.reason is not Reason.MARKER_RESTORED
    if not stays or phase is None or not phase.is_terminal:
        return Upstream.OPEN
    return Upstream.SETTLED if phase is Phase.COMPLETED else Upstream.FAILED


def held_back(
    action: PlannedAction, desired: DesiredJob, action_by_key: Mapping[str, PlannedAction | None]
) -> PlannedAction:
    """Return the action, or what becomes of it while a needed key is not settled.

    Only what would start a job is held back, the whole of a replace included: what runs or has finished
    is never touched because its upstream ran again.
    """
    if not desired.needs or not action.traits.starts_a_job:
        return action
    standing = {key: standing_of(action_by_key.get(key)) for key in desired.needs}
    failed = [key for key, how in standing.items() if how is Upstream.FAILED]
    waiting = [key for key, how in standing.items() if how is Upstream.OPEN]
    if failed:
        said = ", ".join(_how_it_failed(key, action_by_key.get(key)) for key in failed)
        return _instead(action, Action.BLOCKED, Reason.NEEDS_FAILED, f"needs {said}; blocks")
    if waiting:
        held = _instead(action, Action.DEFER, Reason.NEEDS_PENDING, f"waiting for {', '.join(waiting)}, then")
        return held.model_copy(update={"waits_for": tuple(waiting)})
    return action


def _how_it_failed(key: str, upstream: PlannedAction | None) -> str:
    if upstream is None or not upstream.phase_before:
        return f"{key}, which is absent"
    return f"{key}, which ended as {upstream.phase_before}"


def _instead(action: PlannedAction, kind: Action, reason: Reason, said: str) -> PlannedAction:
    is_new = action.reason is Reason.NOT_FOUND
    why = "" if is_new else f": {action.detail}"
    return action.not_carried_out(kind, reason, f"{said} {action.action.value}{why}")
