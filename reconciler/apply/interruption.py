"""What an interrupt left of an action: which of its calls had been made, and which were not sent any more."""

from __future__ import annotations

from collections.abc import Collection

from reconciler.core.record import Call
from reconciler.decide.outcome import Outcome, Status
from reconciler.decide.plan import PlannedAction

INTERRUPTED = "interrupted before it started"
WITHOUT_EFFECT = "interrupted; nothing was changed"


def outcome_of_interrupted(action: PlannedAction, done: Collection[Call], *, has_begun: bool) -> Outcome:
    """The outcome of an action that was stopped between two of its calls; `done` are those that were made.

    One that changed nothing was skipped, and one that had only to be looked at once more is done. Anything
    else is interrupted, and its detail says how far it came: the next plan goes on from there.
    """
    job = action.before.id if action.before else None
    if not done:
        return Outcome(action, Status.SKIPPED, WITHOUT_EFFECT if has_begun else INTERRUPTED, job=job)
    is_only_to_end = action.traits.stops_a_job and not action.traits.starts_a_job
    if is_only_to_end and Call.TERMINATE in done:
        return Outcome(action, Status.DONE, "its termination was requested", job=job)
    detail = f"interrupted: {_how_far(action, done)}; the next apply completes it"
    return Outcome(action, Status.INTERRUPTED, detail, job=job, message=detail)


def _how_far(action: PlannedAction, done: Collection[Call]) -> str:
    old = action.before.name if action.before else action.key
    new = action.after.name if action.after else action.key
    if Call.TERMINATE in done and Call.CREATE not in done:
        return f"{old} was terminated, {new} was not created"
    if Call.CREATE in done:
        return f"{new} was created, {old} was not terminated"
    if action.traits.stops_a_job:
        return f"{old} was marked as stopped, but not terminated"
    return f"{old} was updated, but not verified"
