"""The preconditions of a saved plan: whether what it was made for is still there.

Source: docs/semantics.md, "Apply".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, groupby
from typing import Any

from reconciler.core.digest import CURRENT, is_known
from reconciler.core.expression import variables_of
from reconciler.core.mutable import overwritten_fields
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import KeyView, Revision
from reconciler.core.phase import Operation, Phase, may, parse_phase
from reconciler.core.scalar import walk_texts
from reconciler.core.values import Change
from reconciler.decide.actions import has_flags_before
from reconciler.decide.key_state import Snapshot
from reconciler.decide.plan import Action, Before, Plan, PlannedAction, Reason
from reconciler.errors import ExitCode, ReconcilerError
from reconciler.secrets import SecretText, matches_redacted
from reconciler.text import format_duration


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
    """Compare what each executed action rests on with what is there at `at_s`; say, for people, what differs.

    That is the job, the phase class, the digest and the name of its own key, and the keys that it needs. What
    else moved (a kept job that failed, a deferred or blocked key) changes nothing of what is executed.
    """
    found: list[str] = []
    known = {action.before.id for action in plan.actions if action.before}
    needed = {key for action in plan.to_execute for key in action.needs}
    executed = {action.key for action in plan.to_execute}
    actions_by_key = {key: [*of_key] for key, of_key in groupby(plan.actions, key=lambda action: action.key)}
    for key in sorted(executed | needed):
        actions = actions_by_key.get(key, [])
        view = snapshot.view_of(key, actions[0].former_keys if actions else ())
        moved = [*_key_moved(actions, view, at_s, known)]
        if key in needed and not moved:
            moved += _unsettled(view)
        found += (f"{key}: {said}" for said in moved)
    return tuple(found)


def _key_moved(
    actions: Sequence[PlannedAction], view: KeyView, at_s: float, known: Collection[str]
) -> Iterator[str]:
    """What moved of a key, as far as its executed actions, or those of the keys that need it, rest on it."""
    for action in actions:
        if action.traits.is_executed or action.action is Action.KEEP:
            yield from _moved(action, view, at_s, known)
    if actions and not all(_stops_looking(action) for action in actions):
        yield from _strangers(actions, view, known)


def _unsettled(view: KeyView) -> Iterator[str]:
    """Say why a needed key is not settled any more: its newest revision has to be completed."""
    newest = view.aged_out or (view.owned[-1] if view.owned else None)
    if newest is None:
        yield "needed, and gone"
    elif newest.job.phase is not Phase.COMPLETED:
        yield f"needed, and {newest.job.name} is {newest.job.phase_text}"


def _is_live(revision: Revision) -> bool:
    """Whether the job is active and nobody has asked for its end."""
    return bool(may(Operation.TERMINATE, revision.job.phase))


def _strangers(actions: Collection[PlannedAction], view: KeyView, known: Collection[str]) -> Iterator[str]:
    """The active jobs of a key that its actions do not know.

    One whose end somebody has asked for matters only where a new job would start beside it.
    """
    starts_a_job = any(action.traits.starts_a_job for action in actions)
    named = {*known, *chain.from_iterable(map(_awaited, actions))}
    for revision in view.owned:
        is_in_the_way = revision.job.is_active if starts_a_job else _is_live(revision)
        if is_in_the_way and revision.job.id not in named:
            yield f"{revision.job.name} exists, which the plan does not know"


def _awaited(action: PlannedAction) -> tuple[str, ...]:
    """The jobs that have to end before the action starts one, as far as it does not end them itself."""
    return action.waits_for_jobs if action.follows is None else (action.follows, *action.waits_for_jobs)


def _stops_looking(action: PlannedAction) -> bool:
    """Whether the action may say nothing of the key's other jobs: it came before they were looked at."""
    is_first = action.traits.stands_in_the_way or action.reason is Reason.MARKER_RESTORED
    return is_first or action.action is Action.UNKNOWN


def _moved(action: PlannedAction, view: KeyView, at_s: float, known: Collection[str]) -> Iterator[str]:
    if view.unreadable:
        yield f"could not be read: {view.unreadable[0].why}"
        return
    if action.before is not None:
        yield from _job_moved(action, action.before, view, at_s)
    starts_a_job = action.after is not None and action.traits.starts_a_job
    if starts_a_job:
        yield from _name_moved(action, view)
        yield from _awaited_moved(action, view, known)
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
    if revision is not None:
        yield from _identity_moved(action, before, revision)
        yield from _marker_or_field_edited(action, revision)
        yield from _run_moved(action, before, revision.job, at_s)
    elif not _has_aged_out(action, before, view):
        yield f"{before.name} ({before.id}) is gone or no longer carries our marker"


def _run_moved(action: PlannedAction, before: Before, job: ObservedJob, at_s: float) -> Iterator[str]:
    then, now = _class_before(before), _class(job.phase, job.phase_text)
    is_kept = action.action is Action.KEEP and (then, now) in _KEPT_ALL_THE_SAME
    if then != now and not is_kept:
        yield f"{before.name} was {before.phase}, now {job.phase_text}"
    ran_s = job.ran_s(at_s)
    if action.lost_time is not None and ran_s > action.lost_time:
        # Planned now, this would be a conflict: the plan was made when less was at stake.
        yield f"{before.name} has now run for {format_duration(ran_s)}, longer than limits.lost_time"


def _has_aged_out(action: PlannedAction, before: Before, view: KeyView) -> bool:
    """Whether the service has forgotten a job that is left as it is, and the history says how it ended."""
    past = view.past_of(before.id)
    is_there = any(conflicting_job.job.id == before.id for conflicting_job in view.conflicting_jobs)
    if past is None or is_there or action.traits.is_executed:
        return False
    return past.has_ended and _class(past.phase, past.phase_text) == _class_before(before)


def _marker_or_field_edited(action: PlannedAction, revision: Revision) -> Iterator[str]:
    """Whether the action would end a job that is now protected, or overwrite what the plan did not show."""
    job, marker = revision.job, revision.marker
    if action.traits.stops_a_job and marker.protected:
        yield f"{job.name} is now protected"
    if action.action is not Action.UPDATE:
        return
    if not has_flags_before(action, marker):
        yield f"the marker of {job.name} has changed"
    shown = {change.path: change for change in action.changes if not change.forces_new_job}
    for change in _overwritten(action, job):
        then = shown.get(change.path)
        found = json.dumps(change.before, ensure_ascii=False)
        if then is None or not (then.sensitive or _is_as_shown(then.before, found)):
            yield f"{change.path} of {job.name} has changed, now {found}"


def _is_as_shown(before: Any, found: str) -> bool:
    """Whether a value is what the plan showed, where a secret may have been masked."""
    shown = json.dumps(before, ensure_ascii=False)
    return shown == found or matches_redacted(shown, found)


def _overwritten(action: PlannedAction, job: ObservedJob) -> tuple[Change, ...]:
    """The values that an update replaces, as they are now; a secret may have another value by now."""
    body = walk_texts(action.desired or {}, _as_secret)
    changes = tuple(one for one in overwritten_fields(body, job) if not one.sensitive)
    if action.declared is None:  # only the marker is written anew, behind the text that the job has
        return changes
    # On a job that has ended, a plan compares only the marker.
    return () if job.phase is None or job.phase.is_terminal else changes


def _as_secret(text: str) -> str:
    """A saved text; one that names a variable is a secret, whose value may not have been looked up."""
    return text if isinstance(text, SecretText) or not variables_of(text) else SecretText(text, text)


def _identity_moved(action: PlannedAction, before: Before, revision: Revision) -> Iterator[str]:
    if revision.job.name != before.name or revision.marker.key != (action.formerly or action.key):
        yield f"{before.name} ({before.id}) is now {revision.job.name} of key {revision.marker.key}"
    if (revision.marker.revision, revision.marker.digest) != (before.revision, before.digest):
        yield f"the marker of {before.name} has changed"


def _name_moved(action: PlannedAction, view: KeyView) -> Iterator[str]:
    after = action.after
    assert after is not None
    holders = (conflicting_job.job.name for conflicting_job in view.conflicting_jobs)
    # Whether the service tells names apart that differ in case only is not documented.
    if taken := next((name for name in holders if name.casefold() == after.name.casefold()), None):
        yield f"the name {taken} is taken"
    elif view.next_revision != after.revision:
        yield f"r{after.revision} is no longer the next revision; r{view.next_revision} is"


def _awaited_moved(action: PlannedAction, view: KeyView, known: Collection[str]) -> Iterator[str]:
    """Whether a job that the new one waits for runs again, or is gone; `known` are judged for themselves."""
    for job_id in _awaited(action):
        last = next((r for r in view.owned if r.job.id == job_id), None)
        if job_id in known:
            continue
        if last is not None and _is_live(last):
            yield f"{last.job.name} is {last.job.phase_text} again"
        elif last is None and view.past_of(job_id) is None:
            yield f"the previous job, {job_id}, is gone"


def _class_before(before: Before) -> str:
    return _class(parse_phase(before.phase), before.phase)


def _class(phase: Phase | None, text: str) -> str:
    return text if phase is None else _CLASSES.get(phase, phase.value)
