"""Drawing up the actions of a key: which job is there, which one will be, and what has to be sent for it."""

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
    are_of_marker_only,
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

    `rule` is the name of the rule that decided; those before it in `RULES` did not apply.
    """

    actions: Sequence[PlannedAction]
    warnings: Sequence[PlanWarning] = ()
    rule: str = ""


class KeyDecision(NamedTuple):
    """What was decided about one key. `own` is the action of a declared key, `more` are all others.

    `rule` is the name of the rule that decided; `chosen` is what it chose, before `needs` and what could
    not be read made something else of it.
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
        """Why the key is about to run again because of what it needs, for people; "" if it is not."""
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
    """An action of the key on a revision, else on the one that stands for it."""
    shown, entry, traits = revision or state.latest, state.entry, ACTIONS[action]
    # What is kept shows no work: a plan that changes nothing stays the same while its jobs run.
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


def alone(state: KeyState, action: Action, reason: Reason, detail: str, **more: Any) -> Decision:
    """The decision for one action on the revision that stands for the key."""
    return Decision([draft(state, action, reason, detail, **more)])


def before_of(revision: Revision | None) -> Before | None:
    """The job of a revision, as an action shows it; None where the service has none."""
    if revision is None or revision.is_aged_out:
        return None
    job, marker = revision.job, revision.marker
    return Before(
        id=job.id, name=job.name, revision=marker.revision, phase=job.phase_text, digest=marker.digest
    )


def as_it_is(revision: Revision) -> After:
    return After(name=revision.job.name, revision=revision.number, digest=revision.marker.digest)


# --- what starts a job


def create(
    state: KeyState, reason: Reason, detail: str, changes: tuple[Change, ...] = (), **more: Any
) -> Decision:
    latest = state.latest
    completed = latest is not None and latest.job.phase is Phase.COMPLETED
    follows = {
        "rerun_of": latest.number if latest and completed else None,
        "follows": latest.job.id if latest and not latest.is_aged_out else None,
    }
    more = _started(state) | follows | more
    return alone(state, Action.CREATE, reason, detail, changes=changes, **more)


def next_revision(
    state: KeyState, reason: Reason, detail: str, changes: tuple[Change, ...] = (), **more: Any
) -> Decision:
    """Create the next revision; wait for a termination that is under way."""
    if state.phase is Phase.TERMINATING:
        reason, detail = Reason.WAITS_FOR_TERMINATION, f"waits for termination; {detail}"
    return create(state, reason, detail, changes, **more)


def replacement(
    state: KeyState, reason: Reason, detail: str, changes: tuple[Change, ...] = (), **more: Any
) -> Decision:
    """Replace the job; `lost_time` is how long it may have run by then, None: however long."""
    more |= {"replace_order": state.desired.lifecycle.replace_order, **_started(state)}
    return alone(state, Action.REPLACE, reason, detail, changes=changes, **more)


def _started(state: KeyState) -> dict[str, Any]:
    """What is sent for the next revision, and what the history keeps of it."""
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
    """The digest of the code that a revision was declared with; "" if that is none, None if not known."""
    if revision is None:
        return ""
    if state.desired.code and state.desired.is_declared_by(revision.marker.digest):
        return state.desired.code.digest
    if (then := state.declared_then(revision)) is not None:
        return str(then.get(CODE, ""))
    if (details := state.snapshot.details.get(revision.job.id)) is None:
        return None
    return known_code(details.body, state.snapshot.codes) if place_of(details.body) else ""


def planned_code(desired: DesiredJob, before: str | None = None) -> PlannedCode | None:
    """The code of a job, as it is uploaded before the job is started; `before` is what it was."""
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


def keep(state: KeyState, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> Decision:
    if state.revision.is_aged_out:
        detail += "; its record has aged out of the service"
    if state.ignored:
        detail += f"; {state.ignored}"
    after, ended_badly = as_it_is(state.as_declared), bool(state.bad_end)
    return alone(state, Action.KEEP, reason, detail, after=after, changes=changes, ended_badly=ended_badly)


def keep_or_update(
    state: KeyState, reason: Reason, detail: str, ignored: tuple[Change, ...] = ()
) -> Decision:
    """Keep the job; `ignored` changes are shown. What can be changed on it is updated."""
    revision = state.revision
    desired = state.numbered_as(revision)
    if state.phase is Phase.TERMINATING or revision.is_aged_out:  # nothing can be written on it
        return keep(state, reason, detail, ignored)
    past = state.view.past_of(revision.job.id)
    sent = past.declared.mutable if past and past.declared else None
    found = mutable_changes(desired, revision.job, revision.marker, state.context.cloud, sent)
    warnings = found.warnings(state.key, revision.job)
    if not found.now and not state.is_marker_outdated:
        return keep(state, reason, detail, ignored)._replace(warnings=warnings)
    reason = Reason.MARKER_CHANGED if are_of_marker_only(found.now) else Reason.MUTABLE_CHANGED
    detail = f"{', '.join(change.path for change in found.now)} changed"
    if desired.schedule is not None and state.counts_from_s is None:
        detail += "; the schedule counts from now on"
    digest = None
    if state.is_marker_outdated:
        detail, digest = "only the marker is outdated, not the job", desired.digest
    return Decision([update(state, revision, reason, detail, (*found.now, *ignored), digest)], warnings)


def update(
    state: KeyState,
    revision: Revision,
    reason: Reason,
    detail: str,
    changes: tuple[Change, ...] = (),
    digest: str | None = None,
) -> PlannedAction:
    """Write the marker, with another digest where one is given, and all mutable fields on a job."""
    desired = state.numbered_as(revision)
    digest = digest or revision.marker.digest
    marker = renewed_marker(desired, revision.job, revision.marker, digest, state.service_s)
    # A job that stays with another digest stays on record with the immutable part that it was made of.
    past = state.view.past_of(revision.job.id)
    then = past.declared if past and past.declared else Declared()
    if desired.is_declared_by(marker.digest):
        immutable = by_name(state.desired.covered_by(marker.digest[:1]))
    else:
        immutable = dict(then.immutable)
    return draft(
        state,
        Action.UPDATE,
        reason,
        detail,
        revision=revision,
        changes=changes,
        after=After(name=revision.job.name, revision=revision.number, digest=marker.digest),
        desired=update_body(desired, revision.job, marker, state.context.cloud),
        declared=_declared(desired, immutable, then.commit),
    )


def renamed(state: KeyState, revision: Revision) -> PlannedAction:
    old = revision.marker.key
    change = Change(path="marker.key", before=old, after=state.key)
    return _rewrite(state, revision, revision.marker, Reason.RENAMED, f"formerly {old}", (change,))


def restored(state: KeyState, job: ConflictingJob, past: PastRevision) -> PlannedAction:
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
    """Write another marker, with the key's name, behind the text that the job has."""
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
    state: KeyState, revision: Revision, reason: Reason, said: str, entry: DesiredJob | None = None
) -> PlannedAction:
    """Terminate an active revision; a protected one is blocked, and released if that is declared.

    What is declared for a key that is none any more is what `entry` says, whose member it was.
    """
    declared = entry or state.entry
    protect = declared.lifecycle.protect if declared else None
    if revision.marker.protected and protect is False:
        marker = revision.marker._replace(protected=False)
        detail = "protection released; the next plan terminates it"
        return _rewrite(state, revision, marker, Reason.PROTECTION_RELEASED, detail)
    if revision.marker.protected or protect:
        detail = f"{said}, and {PROTECTED}"
        return draft(state, Action.BLOCKED, Reason.PROTECTED, detail, revision=revision)
    return draft(state, Action.TERMINATE, reason, said, revision=revision)


def of_unknown_digest(state: KeyState, revision: Revision) -> PlannedAction:
    detail = f"digest {revision.marker.digest} needs a newer reconciler"
    return draft(state, Action.BLOCKED, Reason.UNKNOWN_DIGEST, detail, revision=revision)


# --- what follows for the key's other revisions


def completed(state: KeyState, decision: Decision) -> Decision:
    """Add to the key's own action what follows for its other revisions."""
    [action] = decision.actions
    if action.traits.starts_a_job and len(name := action.after.name if action.after else "") > MAX_NAME:
        # The longest keys run out of digits.
        why = f"{name} has {len(name)} characters, the service allows {MAX_NAME}; shorten the key"
        action = draft(state, Action.BLOCKED, Reason.NAME_TOO_LONG, why)
    latest, more = state.latest, []
    is_starting = latest is not None and latest.job.phase in (Phase.CREATING, Phase.PENDING)
    for one in state.live:
        if one is latest:
            continue
        # A key has one active job. But the old one stays until the new one has shown that it runs, also where
        # an apply stopped waiting for that.
        if latest and is_starting and state.desired.lifecycle.replace_order == "create_first":
            detail = f"terminated once r{latest.number} is running (replace_order: create_first)"
            more.append(draft(state, Action.DEFER, Reason.SUPERSEDED, detail, revision=one))
        else:
            more.append(end(state, one, Reason.SUPERSEDED, "superseded"))
    # A key has one job: a new one waits for every other revision that is ending, whatever stands for the key.
    # It may have aged out of the service, or have ended, while an older one runs.
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
    # A marker follows a renaming with what is done about its job. Where the new job is created first that
    # would be too late: a crash after that would leave both keys with revisions of their own.
    touched = {
        one.before.id
        for one in (action, *more)
        if one.before and one.traits.is_executed
        if not (one.traits.stops_a_job and one.replace_order == "create_first")
    }
    following = [
        renamed(state, one)
        for one in state.view.owned
        if one.marker.key != state.key and one.job.id not in touched
        if may(Operation.UPDATE_DESCRIPTION, one.job.phase)
    ]
    return decision._replace(actions=[action, *more, *following])


# --- the flags of a marker, as a plan saw them: an update that writes the whole marker must not undo others


def has_flags_before(action: PlannedAction, marker: Marker) -> bool:
    """Whether a marker has the flags that the plan saw: those that the action writes, its changes taken back.

    That another runner has meanwhile written the schedule that the action writes changes nothing.
    """
    written = parse_description(str((action.desired or {}).get("description", ""))).marker
    if written is None:
        return False
    changed = {change.path: change.before for change in action.changes}
    is_flipped = "lifecycle.protect" in changed or action.reason is Reason.PROTECTION_RELEASED
    was_stopped = written.stopped or takes_back_the_stop(action)
    if (marker.protected, marker.stopped) != (written.protected != is_flipped, was_stopped):
        return False
    schedules = [one.schedule.digest if one.schedule else "" for one in (written, marker)]
    before = changed.get(MARKER_SCHEDULE, written.schedule)
    return schedules[0] == schedules[1] or str(marker.schedule or "") == str(before or "")


def takes_back_the_stop(action: PlannedAction) -> bool:
    """Whether an update says of a job that we had marked as stopped that it goes on."""
    return any(change.path == "marker.stopped" for change in action.changes)


# --- commands, to be pasted into a shell


def adopt_command(key: str, job_id: str) -> str:
    return f"reconciler adopt {_argument(key)} {quote(job_id)}"


def rename_command(old: str) -> str:
    return f"reconciler adopt --from-stack {old}"


def release_command(key: str) -> str:
    return f"reconciler release {_argument(key)}"


def _argument(key: str) -> str:
    """A key as an argument: one that begins with a hyphen is no option."""
    return f"-- {key}" if key.startswith("-") else key
