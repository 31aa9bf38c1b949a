"""Whether the marker of a job still is what a plan saw: asked right before, and after, each call.

Source: docs/semantics.md, "Apply" and "Adopting and releasing jobs".
"""

from __future__ import annotations

from reconciler.apply.action_end import ActionEnded
from reconciler.core.observed_job import ObservedJob
from reconciler.decide.marker_flags import has_flags_before, takes_back_the_stop
from reconciler.decide.outcome import Status
from reconciler.decide.plan import PlannedAction, Reason

#: Updates that put a marker where none is, or take it off, whatever flags it has.
_WHATEVER_FLAGS = frozenset({Reason.MARKER_RESTORED, Reason.ADOPTED, Reason.RELEASED})


def is_marked(job: ObservedJob, action: PlannedAction, stack: str) -> bool:
    """Whether a job has the very marker that an action gives it."""
    marker, after = job.marker, action.after
    return (
        marker is not None
        and after is not None
        and (marker.stack, marker.key, marker.revision, marker.digest)
        == (stack, action.key, after.revision, after.digest)
    )


def check_marker(action: PlannedAction, job: ObservedJob, stack: str) -> None:
    """The job that an action is about must still be the one that was planned for.

    Raises:
        ActionEnded: it is somebody else's by now, or another revision.
    """
    marker, before = job.marker, action.before
    assert before is not None
    if action.reason is Reason.ADOPTED:
        check_not_taken(action, job, stack)
        return
    if action.reason in _WHATEVER_FLAGS and marker is None:
        return
    stacks, keys = (stack, action.former_stack), (action.key, action.formerly)
    if marker is None or marker.stack not in stacks or marker.key not in keys:
        raise ActionEnded(Status.CONFLICT, f"{job.name} no longer carries our marker", job.id)
    if (marker.revision, marker.digest) != (before.revision, before.digest):
        raise _changed(job)
    if action.traits.stops_a_job and marker.protected:
        raise ActionEnded(Status.CONFLICT, f"{job.name} has been protected in the meantime", job.id)


def check_flags(action: PlannedAction, job: ObservedJob) -> None:
    """An update writes the whole marker: what somebody wrote there since the plan would be lost.

    Raises:
        ActionEnded: somebody did.
    """
    marker = job.marker
    if action.reason in _WHATEVER_FLAGS:
        return
    if marker is None or not has_flags_before(action, marker):
        raise _changed(job)
    has_ended = job.phase is not None and job.phase.is_terminal
    if takes_back_the_stop(action) and has_ended:
        raise ActionEnded(Status.CONFLICT, f"{job.name} is now {job.phase_text}, as requested", job.id)


def check_not_taken(action: PlannedAction, job: ObservedJob, stack: str) -> None:
    """A job that is to be adopted has no marker yet, or the very one that adopting gives it.

    Raises:
        ActionEnded: it has another one.
    """
    marker = job.marker
    if action.reason is not Reason.ADOPTED or marker is None or is_marked(job, action, stack):
        return
    whose = f"key {marker.key} of stack {marker.stack}"
    said = f"{job.name} was adopted in the meantime: it belongs to {whose}"
    raise ActionEnded(Status.CONFLICT, said, job.id)


def _changed(job: ObservedJob) -> ActionEnded:
    return ActionEnded(Status.CONFLICT, f"the marker of {job.name} has changed in the meantime", job.id)
