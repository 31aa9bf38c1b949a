"""What a key needs: its next job waits until the other keys are settled, and may be made of older ones.

Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from reconciler.core.lifecycle import OnUpstream
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning, timestamp
from reconciler.decide.key_state import KeyState
from reconciler.decide.plan import Action, PlannedAction, Reason
from reconciler.decide.rules import made_from_older, spell_reruns


class Upstream(StrEnum):
    """How a key that is needed stands."""

    SETTLED = "settled"
    OPEN = "open"
    FAILED = "failed"


def upstream_warning(action: PlannedAction, state: KeyState) -> PlanWarning | None:
    """The warning about a job that stays although it was made from older ones, or None."""
    newer = state.newer_upstream
    if not newer or not action.traits.keeps_the_job:
        return None
    last, job = max(newer, key=lambda one: one.at_s), state.revision.job
    why = f"{last.key} completed r{last.number} at {timestamp(last.at_s)}, after {job.name} was created"
    fix = "`lifecycle.on_upstream: rerun` runs it again, and so does an edit of `lifecycle.rerun`"
    if state.desired.lifecycle.on_upstream is OnUpstream.RERUN:
        fix = "it runs again once it has ended (on_upstream: rerun)"
    return PlanWarning(what=made_from_older(newer), why=why, fix=fix, key=state.key)


def standing_of(action: PlannedAction | None) -> Upstream:
    """Judge a needed key by its own action: settled is kept, with its newest revision Completed.

    One that is about to run again because of its own `needs` is deferred, and so is not settled.
    None stands for a key that is to be absent. An update of a job that has completed starts nothing.
    """
    if action is None:
        return Upstream.FAILED
    phase = parse_phase(action.phase_before)
    # What has no marker yet may have been made of something else than is declared.
    stays = action.traits.keeps_the_job and action.reason is not Reason.MARKER_RESTORED
    if not stays or phase is None or not phase.is_terminal:
        return Upstream.OPEN
    return Upstream.SETTLED if phase is Phase.COMPLETED else Upstream.FAILED


def runs_again(action: PlannedAction | None) -> bool:
    """Whether a needed key is about to complete once more: its job runs, or one is yet to be started.

    What a person has to settle first, or could not be read, is not about to run.
    """
    if action is None or action.action is Action.UNKNOWN:
        return False
    if action.traits.starts_a_job or action.action is Action.DEFER:
        return True
    phase = parse_phase(action.before.phase) if action.before else None
    return phase is not None and phase.is_active and phase is not Phase.TERMINATING


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
    if not waiting:
        return action
    reruns = [key for key in waiting if runs_again(action_by_key.get(key))]
    if action.reason is Reason.UPSTREAM_NEWER and reruns:
        held = action.not_carried_out(Action.DEFER, Reason.NEEDS_PENDING, spell_reruns(reruns))
    else:
        held = _instead(action, Action.DEFER, Reason.NEEDS_PENDING, f"waiting for {', '.join(waiting)}, then")
    return held.model_copy(update={"waits_for": tuple(waiting)})


def wait_for_blocked(action: PlannedAction, blocked: Sequence[str]) -> PlannedAction:
    """Hold back a create or replace that needs keys which a guard, a policy or pre-flight blocks."""
    said = f"waiting for {', '.join(blocked)}, which is blocked; then"
    held = _instead(action, Action.DEFER, Reason.NEEDS_PENDING, said)
    return held.model_copy(update={"waits_for": tuple(blocked), "follows": None})


def _how_it_failed(key: str, upstream: PlannedAction | None) -> str:
    if upstream is None or not upstream.phase_before:
        return f"{key}, which is absent"
    return f"{key}, which ended as {upstream.phase_before}"


def _instead(action: PlannedAction, kind: Action, reason: Reason, said: str) -> PlannedAction:
    is_new = action.reason is Reason.NOT_FOUND
    why = "" if is_new else f": {action.detail}"
    return action.not_carried_out(kind, reason, f"{said} {action.action.value}{why}")
