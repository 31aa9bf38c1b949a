"""Draw up the actions for one key: the job before, the job after, and the requests that lead there."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.body import with_identity
from reconciler.core.canonical import Canonical, by_name
from reconciler.core.code import CODE, known_code, place_of
from reconciler.core.identity import MAX_NAME, Description, Marker, parse_description, remote_name
from reconciler.core.masking import mask
from reconciler.core.mutable import (
    changes_only_marker,
    mutable_changes,
    mutable_part,
    renewed_marker,
    update_body,
)
from reconciler.core.ownership import ConflictingJob, Revision
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.stack import Declared, DesiredJob
from reconciler.core.values import MARKER_SCHEDULE, Change, PlanWarning, Source, node_hours
from reconciler.decide.key_state import KeyState
from reconciler.decide.plan import (
    ACTIONS,
    BAD_ENDS,
    Action,
    After,
    Before,
    PlannedAction,
    PlannedCode,
    Reason,
)
from reconciler.secrets import show

if TYPE_CHECKING:
    from reconciler.core.past import PastRevision

PROTECTED = "protected; set `protect: false` first, in an apply of its own"


class Decision(NamedTuple):
    """The actions for one key: its own first, then those on its other revisions.

    `rule` names the rule that decided; those before it in `RULES` did not apply.
    """

    actions: Sequence[PlannedAction]
    warnings: Sequence[PlanWarning] = ()
    rule: str = ""


class KeyDecision(NamedTuple):
    """What was decided about one key. `own` is the action of a declared key, `more` are all others.

    `rule` names the rule that decided; `chosen` is its action before `needs` and unreadable parts changed it.
    """

    state: KeyState
    own: PlannedAction | None = None
    more: Sequence[PlannedAction] = ()
    warnings: Sequence[PlanWarning] = ()
    rule: str = ""
    chosen: PlannedAction | None = None
    is_proven: bool = True

    @property
    def actions(self) -> Sequence[PlannedAction]:
        return self.more if self.own is None else [self.own, *self.more]

    @property
    def upstream_rerun(self) -> str:
        """Why the key is about to run again because of a needed key, for people; else ""."""
        is_rerun = self.chosen is not None and self.chosen.reason is Reason.UPSTREAM_NEWER
        return self.chosen.detail if self.chosen and is_rerun else ""


def draft(
    state: KeyState,
    action: Action,
    reason: Reason,
    detail: str,
    *,
    revision: Revision | None = None,
    changes: tuple[Change, ...] = (),
    ended_badly: bool = False,
    **more: Any,
) -> PlannedAction:
    """Draft an action of the key on a revision, by default the latest."""
    shown, entry, traits = revision or state.latest, state.entry, ACTIONS[action]
    # Kept jobs show no elapsed time: a plan without changes must not change while its jobs run.
    if shown and shown.job.is_active and (traits.stops_a_job or reason is Reason.WOULD_LOSE_WORK):
        elapsed, nodes = round(shown.job.ran_s(state.at_s), 3), shown.job.node_count
        lost = node_hours(elapsed, nodes) if traits.stops_a_job else 0.0
        more |= {"elapsed": elapsed, "nodes": nodes, "lost_node_hours": lost}
    return PlannedAction(
        key=state.key,
        action=action,
        reason=reason,
        detail=detail,
        before=None if action is Action.CREATE else before_of(shown),
        aged_out_as=shown.job.phase_text if shown and shown.is_aged_out else None,
        ended_badly=action is Action.KEEP and (ended_badly or reason in BAD_ENDS),
        formerly=shown.marker.key if shown and shown.marker.key != state.key else None,
        former_keys=entry.formerly if entry else (),
        changes=mask(changes, (past.declared for past in state.view.remembered)),
        source=Source.of(entry.location) if entry else None,
        needs=entry.needs if entry and traits.starts_a_job else (),
        **more,
    )


def single(state: KeyState, action: Action, reason: Reason, detail: str, **more: Any) -> Decision:
    """Decide on one action for the latest revision."""
    return Decision([draft(state, action, reason, detail, **more)])


def before_of(revision: Revision | None) -> Before | None:
    """Return a revision's job as actions show it; None if it has aged out of the service."""
    if revision is None or revision.is_aged_out:
        return None
    job, marker = revision.job, revision.marker
    return Before(
        id=job.id, name=job.name, revision=marker.revision, phase=job.phase_text, digest=marker.digest
    )


def after_of(revision: Revision) -> After:
    return After(name=revision.job.name, revision=revision.number, digest=revision.marker.digest)


# --- what starts a job


def create(state: KeyState, reason: Reason, detail: str, **more: Any) -> Decision:
    latest = state.latest
    completed = latest is not None and latest.job.phase is Phase.COMPLETED
    follows = {
        "rerun_of": latest.number if latest and completed else None,
        "follows": latest.job.id if latest and not latest.is_aged_out else None,
    }
    more = _started(state) | follows | more
    changes = state.changes if state.has_revision else ()
    return single(state, Action.CREATE, reason, detail, changes=changes, **more)


def next_revision(state: KeyState, reason: Reason, detail: str, **more: Any) -> Decision:
    """Create the next revision, after a termination that is under way."""
    if state.phase is Phase.TERMINATING:
        reason, detail = Reason.WAITS_FOR_TERMINATION, f"waits for termination; {detail}"
    return create(state, reason, detail, **more)


def replacement(state: KeyState, reason: Reason, detail: str, **more: Any) -> Decision:
    """Replace the job. `lost_time`: how long it may have run by then; None: no limit."""
    more |= {"replace_order": state.desired.lifecycle.replace_order, **_started(state)}
    return single(state, Action.REPLACE, reason, detail, changes=state.changes, **more)


def _started(state: KeyState) -> dict[str, Any]:
    """Return what is sent for the next revision, and what the history records of it."""
    number, made_from = state.view.next_revision, dict[str, int]()

    def completed(key: str) -> int | None:
        if (last := state.completed.get(key)) is not None:
            made_from[key] = last
        return last

    desired = state.desired.numbered(number, completed)
    assert desired.body is not None
    marker = Marker(
        state.context.stack,
        state.key,
        number,
        desired.digest,
        schedule=desired.schedule_mark,
        protected=desired.lifecycle.protect is True,
    )
    name = remote_name(state.key, number)
    body = with_identity(
        desired.body,
        name=name,
        workspace_id=state.context.workspace_id,
        description=str(Description(desired.description, marker)),
    )
    return {
        "after": After(name=name, revision=number, digest=desired.digest),
        "desired": body,
        "made_from": made_from,
        "code": planned_code(desired, _code_of(state, state.latest)),
        "declared": _declared(desired, by_name(state.desired.covered_by(desired.digest[:1]))),
    }


def _code_of(state: KeyState, revision: Revision | None) -> str | None:
    """Return the digest of the code that a revision was declared with; "" if it has none, None if unknown."""
    if revision is None:
        return ""
    if state.desired.code and state.desired.is_declared_by(revision.marker.digest):
        return state.desired.code.digest
    if (previous := state.previous_declaration(revision)) is not None:
        return str(previous.get(CODE, ""))
    if (details := state.snapshot.details.get(revision.job.id)) is None:
        return None
    return known_code(details.body, state.snapshot.codes) if place_of(details.body) else ""


def planned_code(desired: DesiredJob, before: str | None = None) -> PlannedCode | None:
    """Return the code that is uploaded before the job starts; `before` is the previous digest."""
    if desired.code is None:
        return None
    name, files, digest, *rest = desired.code
    more = dict(zip(("source", "exclude", "include", "max_size"), rest, strict=True))
    more["before"] = before
    return PlannedCode(digest=digest, name=name, listed=files, store=desired.code_store, **more)


def _declared(desired: DesiredJob, immutable: Canonical, commit: str = "") -> Declared:
    return Declared(
        immutable=immutable,
        mutable=mutable_part(desired.body or {}),
        description=show(desired.description),
        protect=desired.lifecycle.protect,
        commit=commit,
    )


# --- what keeps a job


def keep(state: KeyState, reason: Reason, detail: str) -> Decision:
    """Keep the job, showing the edits that it does not have."""
    if state.revision.is_aged_out:
        detail += "; its record has aged out of the service"
    if state.ignored:
        detail += f"; {state.ignored}"
    more = {"changes": state.changes, "ended_badly": bool(state.bad_end)}
    return single(state, Action.KEEP, reason, detail, after=after_of(state.as_declared), **more)


def keep_or_update(state: KeyState, reason: Reason, detail: str) -> Decision:
    """Keep the job, or update what can be changed on it."""
    revision = state.revision
    desired = state.numbered_as(revision)
    if state.phase is Phase.TERMINATING or revision.is_aged_out:  # cannot be updated
        return keep(state, reason, detail)
    past = state.view.past_of(revision.job.id)
    sent = past.declared.mutable if past and past.declared else None
    updates = mutable_changes(desired, revision.job, revision.marker, state.context.cloud, sent)
    warnings = updates.warnings(state.key, revision.job)
    if not updates.now and not state.is_marker_outdated:
        return keep(state, reason, detail)._replace(warnings=warnings)
    reason = Reason.MARKER_CHANGED if changes_only_marker(updates.now) else Reason.MUTABLE_CHANGED
    detail = f"{', '.join(change.path for change in updates.now)} changed"
    if desired.schedule is not None and state.counts_from_s is None:
        detail += "; the schedule counts from now on"
    digest = None
    if state.is_marker_outdated:
        detail, digest = "only the marker is outdated, not the job", desired.digest
    return Decision(
        [update(state, revision, reason, detail, (*updates.now, *state.changes), digest)], warnings
    )


def update(
    state: KeyState,
    revision: Revision,
    reason: Reason,
    detail: str,
    changes: tuple[Change, ...] = (),
    digest: str | None = None,
) -> PlannedAction:
    """Write all mutable fields and the marker, optionally with another digest."""
    desired = state.numbered_as(revision)
    digest = digest or revision.marker.digest
    marker = renewed_marker(desired, revision.job, revision.marker, digest, state.service_s)
    # A job that keeps another digest keeps the recorded immutable part that it was created with.
    past = state.view.past_of(revision.job.id)
    recorded = past.declared if past and past.declared else Declared()
    if desired.is_declared_by(marker.digest):
        immutable = by_name(state.desired.covered_by(marker.digest[:1]))
    else:
        immutable = dict(recorded.immutable)
    return draft(
        state,
        Action.UPDATE,
        reason,
        detail,
        revision=revision,
        changes=changes,
        after=After(name=revision.job.name, revision=revision.number, digest=marker.digest),
        desired=update_body(desired, revision.job, marker, state.context.cloud),
        declared=_declared(desired, immutable, recorded.commit),
    )


def rename_marker(state: KeyState, revision: Revision) -> PlannedAction:
    old = revision.marker.key
    change = Change(path="marker.key", before=old, after=state.key)
    return _rewrite(state, revision, revision.marker, Reason.RENAMED, f"formerly {old}", (change,))


def restore_marker(state: KeyState, job: ConflictingJob, past: PastRevision) -> PlannedAction:
    marker = past.marker(state.context.stack, state.key, state.desired.lifecycle.protect is True)
    change = Change(path="marker", before=None, after=str(marker))
    detail = f"{job.job.name} is known from history; its marker was removed"
    action = update(state, Revision(job.job, marker), Reason.MARKER_RESTORED, detail, (change,))
    return action if past.key == state.key else action.model_copy(update={"formerly": past.key})


def _rewrite(
    state: KeyState,
    revision: Revision,
    marker: Marker,
    reason: Reason,
    detail: str,
    changes: tuple[Change, ...] = (),
) -> PlannedAction:
    """Write another marker, with the key's name, after the job's own text."""
    if marker.key != state.key:
        marker = marker._replace(key=state.key).for_job(revision.job.name, revision.job.id)
    return draft(
        state,
        Action.UPDATE,
        reason,
        detail,
        revision=revision,
        changes=changes,
        after=After(name=revision.job.name, revision=revision.number, digest=marker.digest),
        desired={"description": str(Description(revision.job.text, marker))},
    )


# --- what ends a job


def end(
    state: KeyState, revision: Revision, reason: Reason, cause: str, entry: DesiredJob | None = None
) -> PlannedAction:
    """Terminate an active revision. A protected one is blocked, or released if `protect: false` is declared.

    For a former member of a sweep, `entry` is a job of that sweep; it declares whether to protect.
    """
    declared = entry or state.entry
    protect = declared.lifecycle.protect if declared else None
    if revision.marker.protected and protect is False:
        marker = revision.marker._replace(protected=False)
        detail = "protection released; the next plan terminates it"
        return _rewrite(state, revision, marker, Reason.PROTECTION_RELEASED, detail)
    if revision.marker.protected or protect:
        detail = f"{cause}, and {PROTECTED}"
        return draft(state, Action.BLOCKED, Reason.PROTECTED, detail, revision=revision)
    return draft(state, Action.TERMINATE, reason, cause, revision=revision)


def block_unknown_digest(state: KeyState, revision: Revision) -> PlannedAction:
    detail = f"digest {revision.marker.digest} needs a newer reconciler"
    return draft(state, Action.BLOCKED, Reason.UNKNOWN_DIGEST, detail, revision=revision)


# --- the key's other revisions


def with_other_revisions(state: KeyState, decision: Decision) -> Decision:
    """Add the actions on the key's other revisions."""
    [action] = decision.actions
    if action.traits.starts_a_job and len(name := action.after.name if action.after else "") > MAX_NAME:
        # A long key leaves few digits for the revision number.
        why = f"{name} has {len(name)} characters, the service allows {MAX_NAME}; shorten the key"
        action = draft(state, Action.BLOCKED, Reason.NAME_TOO_LONG, why)
    latest, more = state.latest, []
    is_starting = latest is not None and latest.job.phase in (Phase.CREATING, Phase.PENDING)
    for revision in state.live:
        if revision is latest:
            continue
        # A key has one active job. With `create_first` the old one stays until the new one is running,
        # even if the apply that created it has stopped waiting.
        if latest and is_starting and state.desired.lifecycle.replace_order == "create_first":
            detail = f"terminated once r{latest.number} is running (replace_order: create_first)"
            more.append(draft(state, Action.DEFER, Reason.SUPERSEDED, detail, revision=revision))
        else:
            more.append(end(state, revision, Reason.SUPERSEDED, "superseded"))
    # A new job waits for every other revision that is ending: the latest one may have ended, or have aged out
    # of the service, while an older one still runs.
    superseded = {one.before.id for one in more if one.before and one.traits.stops_a_job}
    others = [
        one
        for one in state.view.owned
        if one is not latest and (one.job.phase is Phase.TERMINATING or one.job.id in superseded)
    ]
    if others and action.traits.starts_a_job:
        waits = f"waits for the end of {', '.join(f'r{one.number}' for one in others)}; {action.detail}"
        ids = tuple(one.job.id for one in others)
        action = action.model_copy(update={"waits_for_jobs": ids, "detail": waits})
    # Other actions rename the marker along with the job. With `create_first` that would be too late: a crash
    # after the create would leave both keys with revisions of their own.
    touched = {
        one.before.id
        for one in (action, *more)
        if one.before and one.traits.is_executed
        if not (one.traits.stops_a_job and one.replace_order == "create_first")
    }
    renames = [
        rename_marker(state, one)
        for one in state.view.owned
        if one.marker.key != state.key and one.job.id not in touched
        if may(Operation.UPDATE_DESCRIPTION, one.job.phase)
    ]
    return decision._replace(actions=[action, *more, *renames])


# --- marker flags as planned: an update writes the whole marker, and must not undo changes by others


def has_planned_flags(action: PlannedAction, marker: Marker) -> bool:
    """Whether the marker still has the flags that the plan saw: those that the action writes, minus its
    changes.

    A schedule that another runner has meanwhile written as planned is no difference.
    """
    written = parse_description(str((action.desired or {}).get("description", ""))).marker
    if written is None:
        return False
    changed = {change.path: change.before for change in action.changes}
    is_flipped = "lifecycle.protect" in changed or action.reason is Reason.PROTECTION_RELEASED
    was_stopped = written.stopped or clears_stopped(action)
    if (marker.protected, marker.stopped) != (written.protected != is_flipped, was_stopped):
        return False
    schedules = [one.schedule.digest if one.schedule else "" for one in (written, marker)]
    before = changed.get(MARKER_SCHEDULE, written.schedule)
    return schedules[0] == schedules[1] or str(marker.schedule or "") == str(before or "")


def clears_stopped(action: PlannedAction) -> bool:
    """Whether the update removes the `stopped` flag."""
    return any(change.path == "marker.stopped" for change in action.changes)


# --- commands, to be pasted into a shell


def adopt_command(key: str, job_id: str) -> str:
    return f"reconciler adopt {_argument(key)} {quote(job_id)}"


def rename_command(old: str) -> str:
    return f"reconciler adopt --from-stack {old}"


def release_command(key: str) -> str:
    return f"reconciler release {_argument(key)}"


def _argument(key: str) -> str:
    """Return a key as a shell argument, not an option if it begins with a hyphen."""
    return f"-- {key}" if key.startswith("-") else key
