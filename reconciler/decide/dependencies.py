"""What a key needs: its next job waits until the other keys are settled, and may be made of older ones.

Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from reconciler.core.lifecycle import OnUpstream
from reconciler.core.ownership import KeyView, Revision
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning, timestamp
from reconciler.decide.groups import few
from reconciler.decide.plan import Action, PlannedAction, Reason

#: The service rounds times; an end this close to a creation is not after it.
_SAME_TIME_S = 1.0


class Upstream(StrEnum):
    """How a key that is needed stands."""

    SETTLED = "settled"
    OPEN = "open"
    FAILED = "failed"


class Completion(NamedTuple):
    """The revision of a key that completed last, and when."""

    key: str
    number: int
    at_s: float


def completion_of(view: KeyView) -> Completion | None:
    """The last completion of a key, by the service or else the history; None if none is known."""
    found = (
        Completion(view.key, revision.number, at_s)
        for revision in view.ever_owned
        if revision.job.phase is Phase.COMPLETED and (at_s := revision.job.ended_at_s()) is not None
    )
    return max(found, key=lambda completion: completion.at_s, default=None)


def completed_since(latest: Revision, upstream: Iterable[Completion]) -> tuple[Completion, ...]:
    """The completions that came after a revision was created, so that it was made from older ones."""
    created_at_s = latest.job.created_at_s
    if created_at_s is None:
        return ()
    return tuple(one for one in upstream if one.at_s > created_at_s + _SAME_TIME_S)


def made_from_older(newer: Sequence[Completion]) -> str:
    """Say, for people, of which keys a job was made from an older revision."""
    return f"made from an older {few([one.key for one in newer])}"


def upstream_warning(
    action: PlannedAction, desired: DesiredJob, latest: Revision, newer: Sequence[Completion]
) -> PlanWarning | None:
    """The warning about a job that stays although it was made from older ones, or None."""
    if not newer or action.action not in (Action.KEEP, Action.UPDATE):
        return None
    last = max(newer, key=lambda one: one.at_s)
    why = (
        f"{last.key} completed r{last.number} at {timestamp(last.at_s)}, after {latest.job.name} was created"
    )
    fix = "`lifecycle.on_upstream: rerun` runs it again, and so does an edit of `lifecycle.rerun`"
    if desired.lifecycle.on_upstream is OnUpstream.RERUN:
        fix = "it runs again once it has ended (on_upstream: rerun)"
    return PlanWarning(what=made_from_older(newer), why=why, fix=fix, key=desired.key)


def standing_of(action: PlannedAction | None) -> Upstream:
    """Judge a needed key by its own action: settled is kept, with its newest revision Completed.

    One that is about to run again because of its own `needs` is deferred, and so is not settled.
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


def spell_reruns(keys: Sequence[str]) -> str:
    """Say, for people, which needed keys run again first."""
    return f"{few(keys)} {'runs' if len(keys) == 1 else 'run'} again"


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
