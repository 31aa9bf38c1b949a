"""What one key's change means: the rules of the planner, for a job of which only the declarations are known.

What a rule asks of the job, its phase, is taken to be active, where a change costs most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reconciler.core.body_summary import summarize
from reconciler.core.diff import changes_between
from reconciler.core.digest import CURRENT
from reconciler.core.lifecycle import Lifecycle, OnChange
from reconciler.core.masking import mask_declared
from reconciler.core.mutable import SCHEDULE_OPTIONS, DeclaredChanges, declared_changes
from reconciler.core.stack import DesiredJob, Limits
from reconciler.core.values import Change
from reconciler.decide.plan import Action, Reason, few
from reconciler.decide.review_report import ChangeKind, ReviewedJob
from reconciler.text import format_duration

#: Members of `lifecycle` that are compared as part of the job.
_NOT_POLICY = frozenset({"rerun", "protect"})
_PROTECTED = "protected; set `protect: false` first, in an apply of its own"
_IF_ACTIVE = "terminated if active"
_REFUSED_AFTER = "; refused after {} of work"


@dataclass(frozen=True, slots=True)
class Consequence:
    """What apply does about a key whose job is active, and why."""

    action: Action
    reason: Reason
    detail: str
    changes: tuple[Change, ...] = ()


def is_present(job: DesiredJob | None) -> bool:
    """Whether a job is declared to run."""
    return job is not None and not job.is_absent


def added(before: DesiredJob | None, after: DesiredJob) -> ReviewedJob:
    """A key that only HEAD declares."""
    again = before is not None
    detail = "no longer `state: absent`" if again else "new"
    if after.needs:
        detail += f"; starts after {few(after.needs)}"
    reason = Reason.DECLARED_AGAIN if again else Reason.NOT_FOUND
    starts = summarize(after.body or {})
    return _reviewed(ChangeKind.ADDED, after, Consequence(Action.CREATE, reason, detail), starts=starts)


def removed(before: DesiredJob, after: DesiredJob | None) -> ReviewedJob:
    """A key that HEAD does not declare, or declares as absent."""
    return _reviewed(ChangeKind.REMOVED, after or before, _end(before, after))


def dropped(before: DesiredJob, entry: DesiredJob, limits: Limits) -> ReviewedJob:
    """A member of a sweep that its entry, of which `entry` is a job, no longer produces in HEAD."""
    return _reviewed(ChangeKind.REMOVED, before, _end_of_member(before, entry, limits))


def _end_of_member(before: DesiredJob, entry: DesiredJob, limits: Limits) -> Consequence:
    """The job of such a key ends as one does that is edited."""
    said, on_change = f"no longer produced by {before.sweep}", entry.lifecycle.on_change
    if before.lifecycle.protect or entry.lifecycle.protect:
        return Consequence(Action.BLOCKED, Reason.PROTECTED, f"{said}, and {_PROTECTED}")
    if on_change is OnChange.KEEP:
        return Consequence(Action.KEEP, Reason.CHANGE_IGNORED, f"{said}; on_change: keep")
    if on_change is OnChange.FAIL:
        return Consequence(Action.CONFLICT, Reason.CHANGE_REFUSED, f"{said}; on_change: fail")
    detail = f"{said}; {_IF_ACTIVE}"
    if on_change is None:
        detail += _REFUSED_AFTER.format(format_duration(limits.lost_time))
    return Consequence(Action.TERMINATE, Reason.NOT_IN_MANIFEST, detail)


def _end(before: DesiredJob, after: DesiredJob | None) -> Consequence:
    """The job of a removed key ends, unless it is protected."""
    said = "removed" if after is None else "`state: absent`"
    was_protected = before.lifecycle.protect is True
    protect = None if after is None else after.lifecycle.protect
    if was_protected and protect is False:
        detail = f"{said}; protection released, the next apply terminates it"
        return Consequence(Action.UPDATE, Reason.PROTECTION_RELEASED, detail)
    if was_protected or protect:
        return Consequence(Action.BLOCKED, Reason.PROTECTED, f"{said}, and {_PROTECTED}")
    reason = Reason.NOT_IN_MANIFEST if after is None else Reason.STATE_ABSENT
    return Consequence(Action.TERMINATE, reason, f"{said}; {_IF_ACTIVE}")


def changed(before: DesiredJob, after: DesiredJob, limits: Limits) -> ReviewedJob | None:
    """A key that both declare; None if nothing of it differs."""
    consequence = _changed(before, after, limits)
    return None if consequence is None else _reviewed(ChangeKind.CHANGED, after, consequence)


def renamed(before: DesiredJob, after: DesiredJob, limits: Limits) -> ReviewedJob:
    """A key that takes over the revisions of another one, which HEAD does not declare any more."""
    consequence = _changed(before, after, limits, ignored=frozenset({"formerly"}))
    said = f"formerly {before.key}"
    if consequence is None or consequence.action is Action.KEEP:
        more = f"; {consequence.detail}" if consequence else "; the job goes on"
        consequence = Consequence(
            Action.UPDATE, Reason.RENAMED, said + more, consequence.changes if consequence else ()
        )
    else:
        consequence = Consequence(
            consequence.action, consequence.reason, f"{said}; {consequence.detail}", consequence.changes
        )
    return _reviewed(ChangeKind.RENAMED, after, consequence, formerly=before.key)


def clash(before: DesiredJob, after: DesiredJob) -> ReviewedJob:
    """A key that had jobs of its own takes over those of another one."""
    detail = f"formerly {before.key}: conflict if both keys have jobs"
    return _reviewed(
        ChangeKind.RENAMED,
        after,
        Consequence(Action.CONFLICT, Reason.RENAME_CLASH, detail),
        formerly=before.key,
    )


def _changed(
    before: DesiredJob, after: DesiredJob, limits: Limits, ignored: frozenset[str] = frozenset()
) -> Consequence | None:
    mutable = declared_changes(before, after)
    policy = [change for change in _policy_changes(before, after) if change.path not in ignored]
    if before.digest == after.digest:
        return _unedited(mutable, policy)
    edit = changes_between(before.covered_by(CURRENT), after.covered_by(CURRENT), forces_new_job=True)
    changes = (*edit, *mutable.sent, *mutable.left, *policy)
    said = f"{few([change.path for change in edit], 5)} changed"
    on_change = after.lifecycle.on_change
    if left := _left_alone(after):
        action = Action.UPDATE if mutable.sent else Action.KEEP
        return Consequence(action, left[0], f"{said}; {left[1]}", changes)
    if on_change is OnChange.FAIL:
        return Consequence(Action.CONFLICT, Reason.CHANGE_REFUSED, f"{said}; on_change: fail", changes)
    if before.lifecycle.protect or after.lifecycle.protect:
        return Consequence(Action.BLOCKED, Reason.PROTECTED, f"{said}, and {_PROTECTED}", changes)
    detail = f"{said}; replaced if active, else run again"
    if on_change is None:
        detail += _REFUSED_AFTER.format(format_duration(limits.lost_time))
    return Consequence(Action.REPLACE, Reason.IMMUTABLE_CHANGED, detail, changes)


def _left_alone(after: DesiredJob) -> tuple[Reason, str] | None:
    """Why an edit does nothing to the job that is there, or None."""
    on_change = after.lifecycle.on_change
    if on_change is OnChange.KEEP:
        return Reason.CHANGE_IGNORED, "on_change: keep"
    if on_change is None and after.schedule is not None:
        return Reason.WAITS_FOR_SCHEDULE, "waits for the next time of the schedule"
    return None


def _unedited(mutable: DeclaredChanges, policy: list[Change]) -> Consequence | None:
    """The same job is declared; what can be changed on it, or how it is treated, may differ."""
    changes = (*mutable.sent, *mutable.left, *policy)
    if not changes:
        return None
    said = f"{few([change.path for change in changes], 5)} changed"
    if mutable.sent:
        reason = Reason.MARKER_CHANGED if mutable.are_of_marker_only else Reason.MUTABLE_CHANGED
        return Consequence(Action.UPDATE, reason, f"{said}; the job goes on", changes)
    return Consequence(Action.KEEP, Reason.UNCHANGED, f"{said}; nothing is done to the job", changes)


def _policy_changes(before: DesiredJob, after: DesiredJob) -> list[Change]:
    """What differs of how the job is treated: it shows in later plans."""
    found = []
    was, now = _policy(before), _policy(after)
    # Another schedule is written into the marker.
    in_marker = SCHEDULE_OPTIONS if before.schedule_mark != after.schedule_mark else ()
    for path in was:
        if was[path] != now[path] and path not in in_marker:
            found.append(Change(path=path, before=was[path], after=now[path]))
    return found


def _policy(job: DesiredJob) -> dict[str, Any]:
    policy: dict[str, Any] = {
        f"lifecycle.{name}": _plain(getattr(job.lifecycle, name))
        for name in Lifecycle.model_fields
        if name not in _NOT_POLICY
    }
    return {**policy, "needs": list(job.needs) or None, "formerly": list(job.formerly) or None}


def _plain(value: Any) -> Any:
    # The only numbers with a fraction in a lifecycle are spans of time.
    return format_duration(value) if isinstance(value, float) else value


def _reviewed(
    kind: ChangeKind,
    job: DesiredJob,
    consequence: Consequence,
    *,
    formerly: str | None = None,
    starts: str = "",
) -> ReviewedJob:
    return ReviewedJob(
        key=job.key,
        change=kind,
        action=consequence.action,
        reason=consequence.reason,
        detail=consequence.detail,
        formerly=formerly,
        sweep=job.sweep,
        starts=starts,
        changes=mask_declared(consequence.changes),
        source=None,
        replace_order=job.lifecycle.replace_order,
    )
