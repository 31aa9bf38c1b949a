"""The preconditions of a saved plan: whether what it was made for is still there.

Source: docs/semantics.md, "Apply".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from reconciler.core.declared.digest import CURRENT, is_known
from reconciler.core.diagnostic import ReconcilerError
from reconciler.core.exit_code import ExitCode
from reconciler.core.observed.ownership import KeyView, Revision
from reconciler.core.observed.phase import Operation, Phase, may, parse_phase
from reconciler.core.planning.plan import Action, Before, Plan, PlannedAction, Reason
from reconciler.core.planning.planner import Snapshot
from reconciler.core.text.duration import format_duration


class StalePlan(ReconcilerError):
    """The service, or the program, is not what the plan was made for: nothing was changed."""

    exit_code = ExitCode.STALE


_ACTIVE = "active"
#: Phase → its class. A move within a class changes no action.
_CLASSES: dict[Phase, str] = {
    Phase.CREATING: _ACTIVE,
    Phase.PENDING: _ACTIVE,
    Phase.RUNNING: _ACTIVE,
    Phase.ABNORMAL: Phase.FAILED.value,
}
#: Moves from one class to another that leave a keep what it is.
_KEPT_ALL_THE_SAME = frozenset(
    {(_ACTIVE, Phase.COMPLETED.value), (Phase.TERMINATING.value, Phase.TERMINATED.value)}
)


def failed_preconditions(plan: Plan, snapshot: Snapshot, at_s: float) -> tuple[str, ...]:
    """Compare each action's precondition with what is there at `at_s`; say, for people, which fail."""
    found: list[str] = []
    known = {action.before.id for action in plan.actions if action.before}
    for key, of_key in groupby(plan.actions, key=lambda action: action.key):
        actions = list(of_key)
        view = snapshot.view_of(key, actions[0].former_keys)
        for action in actions:
            found += (f"{key}: {said}" for said in _moved(action, view, at_s))
        if not all(_stops_looking(action) for action in actions):
            strange = (r for r in view.owned if _is_live(r) and r.job.id not in known)
            found += (f"{key}: {r.job.name} exists, which the plan does not know" for r in strange)
    return tuple(found)


def _is_live(revision: Revision) -> bool:
    """Whether the job is active and nobody has asked for its end."""
    return bool(may(Operation.TERMINATE, revision.job.phase))


def _stops_looking(action: PlannedAction) -> bool:
    """Whether the action may say nothing of the key's other jobs: it came before they were looked at."""
    is_first = action.traits.stands_in_the_way or action.reason is Reason.MARKER_RESTORED
    return is_first or action.action is Action.UNKNOWN


def _moved(action: PlannedAction, view: KeyView, at_s: float) -> Iterator[str]:
    if action.action is Action.UNKNOWN:
        return
    if view.unreadable:
        yield f"could not be read: {view.unreadable[0].why}"
        return
    if action.before is not None:
        yield from _job_moved(action, action.before, view, at_s)
    starts_a_job = action.after is not None and action.traits.starts_a_job
    if starts_a_job:
        yield from _name_moved(action, view)
    if not action.traits.stands_in_the_way:
        yield from _digests_moved(action, starts_a_job=starts_a_job)


def _digests_moved(action: PlannedAction, *, starts_a_job: bool) -> Iterator[str]:
    digests = [shown.digest for shown in (action.before, action.after) if shown is not None]
    for digest in digests:
        if not is_known(digest):
            yield f"digest {digest} needs another version of reconciler"
    if starts_a_job and digests[-1][:1] != CURRENT:
        yield f"digest {digests[-1]} was computed by another version of reconciler"


def _job_moved(action: PlannedAction, before: Before, view: KeyView, at_s: float) -> Iterator[str]:
    if action.reason is Reason.MARKER_RESTORED:
        bears_none = before.id in {conflicting_job.job.id for conflicting_job in view.conflicting_jobs}
        if not bears_none or view.past_of(before.id) is None:
            yield f"{before.name} ({before.id}) is no longer a known job without a marker"
        return
    revision = next((r for r in view.owned if r.job.id == before.id), None)
    if revision is None:
        yield f"{before.name} ({before.id}) is gone or no longer carries our marker"
        return
    yield from _identity_moved(action, before, revision)
    then, now = _class(parse_phase(before.phase), before.phase), _class_of(revision)
    is_kept = action.action is Action.KEEP and (then, now) in _KEPT_ALL_THE_SAME
    if then != now and not is_kept:
        yield f"{before.name} was {before.phase}, now {revision.job.phase_text}"
    ran_s = revision.job.ran_s(at_s)
    if action.lost_time is not None and ran_s > action.lost_time:
        # Planned now, this would be a conflict: the plan was made when less was at stake.
        yield f"{before.name} has now run for {format_duration(ran_s)}, longer than limits.lost_time"


def _identity_moved(action: PlannedAction, before: Before, revision: Revision) -> Iterator[str]:
    if revision.job.name != before.name or revision.marker.key != (action.formerly or action.key):
        yield f"{before.name} ({before.id}) is now {revision.job.name} of key {revision.marker.key}"
    if (revision.marker.revision, revision.marker.digest) != (before.revision, before.digest):
        yield f"the marker of {before.name} has changed"


def _name_moved(action: PlannedAction, view: KeyView) -> Iterator[str]:
    after = action.after
    assert after is not None
    if any(conflicting_job.job.name == after.name for conflicting_job in view.conflicting_jobs):
        yield f"the name {after.name} is taken"
    elif view.next_revision != after.revision:
        yield f"r{after.revision} is no longer the next revision; r{view.next_revision} is"
    elif last := next((r for r in view.owned if r.job.id == action.follows and _is_live(r)), None):
        yield f"{last.job.name} is {last.job.phase_text} again"
    elif action.follows and action.follows not in {r.job.id for r in view.owned} | {
        past.job for past in view.remembered
    }:
        yield f"the previous job, {action.follows}, is gone"


def _class_of(revision: Revision) -> str:
    return _class(revision.job.phase, revision.job.phase_text)


def _class(phase: Phase | None, text: str) -> str:
    return text if phase is None else _CLASSES.get(phase, phase.value)
