"""The decision table: one key's entry and what was seen of it, to its actions.

`decide` asks in this order: unknown, blocked, conflict; then the row that the newest
revision's phase and digest pick (`present.py`). Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.core.declared.digest import is_known
from reconciler.core.declared.stack import DesiredJob, ReplaceOrder
from reconciler.core.observed.identity import MAX_NAME, parse_remote_name
from reconciler.core.observed.job import ObservedJob
from reconciler.core.observed.ownership import ConflictingJob, KeyView, Ownership, OwnershipState, Revision
from reconciler.core.observed.phase import Operation, Phase, may
from reconciler.core.planning.action_builder import Draft, PlanContext
from reconciler.core.planning.existing_job_rules import Present, declared_then
from reconciler.core.planning.plan import Action, PlannedAction, PlanWarning, Reason
from reconciler.core.record import PastRevision

Decision = tuple[list[PlannedAction], list[PlanWarning]]


def newest(view: KeyView, desired: DesiredJob | None) -> Revision | None:
    """Pick `L`, the revision that stands for the key; one that has aged out of the service may be it.

    The newest one, unless an active one is not outdone by a newer that completed with the declared
    digest: then the active one with the declared digest (the longest running, if several), else the
    newest active one. Terminating ones do not stand for the key while another one is active.
    """
    aged_out = view.aged_out
    revisions = view.owned if aged_out is None else [*view.owned, aged_out]
    done = max((r.number for r in revisions if _has_completed(r, desired)), default=0)
    live = [r for r in view.owned if may(Operation.TERMINATE, r.job.phase) and r.number > done]
    as_declared = [r for r in live if desired and desired.is_declared_by(r.marker.digest)]
    if as_declared:
        return max(as_declared, key=lambda r: (r.job.duration_s or 0.0, -r.number))
    if live:
        return live[-1]
    return revisions[-1] if revisions else None


def _has_completed(revision: Revision, desired: DesiredJob | None) -> bool:
    is_done = revision.job.phase is Phase.COMPLETED
    return is_done and desired is not None and desired.is_declared_by(revision.marker.digest)


def needs_details(view: KeyView, desired: DesiredJob | None, ownership: Ownership) -> str | None:
    """Return the id of the job whose details the decision needs: its declaration changed since."""
    latest = newest(view, desired)
    if desired is None or desired.is_absent or latest is None or _unreadable(view, ownership):
        return None
    if latest.is_aged_out:  # the service has no details of it any more
        return None
    digest = latest.marker.digest
    if desired.is_declared_by(digest) or not is_known(digest) or declared_then(view, latest) is not None:
        return None
    return latest.job.id


def decide(
    view: KeyView,
    desired: DesiredJob | None,
    ownership: Ownership,
    situation: PlanContext,
    details: Mapping[str, ObservedJob],
) -> Decision:
    """Choose the actions for one key.

    `desired` is None for a key that no file declares. `details` holds the jobs that `needs_details`
    asked for, as far as they could be read. The first action is the key's own; further ones
    terminate superseded revisions.
    """
    latest = newest(view, desired)
    draft = Draft(view, desired, situation, latest)
    if why := _unreadable(view, ownership):
        return [draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)], []
    if strange := next((r for r in view.owned if r.job.phase is None), None):
        return [draft.unknown_phase(strange)], []
    if newer := next((r for r in view.owned if not is_known(r.marker.digest)), None):
        detail = f"digest {newer.marker.digest} needs a newer reconciler"
        return [draft.plain(Action.BLOCKED, Reason.UNKNOWN_DIGEST, detail, revision=newer)], []
    if desired is None or desired.is_absent:
        return _absent(draft), []
    if clash := rename_clash(view, desired):
        return [draft.plain(Action.CONFLICT, Reason.RENAME_CLASH, clash)], []
    strangers = _in_conflict(draft)
    if view.history_problem is not None and (strangers or not view.owned):
        why = f"the history could not be read: {view.history_problem}"
        return [draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)], []
    if strangers:
        ours = {stranger.job.id: past for stranger in strangers if (past := _as_ours(view, stranger))}
        if other := next((s for s in strangers if s.job.id not in ours), None):
            return [draft.name_taken(other)], []
        return [draft.restored(stranger, ours[stranger.job.id]) for stranger in strangers], []
    warnings: list[PlanWarning] = []
    if latest is None or latest.job.phase is None:
        action = draft.create(Reason.NOT_FOUND, "new")
    else:
        present = Present(draft, desired, latest, latest.job.phase)
        action, warnings = present.decide(details.get(latest.job.id))
    if action.action is Action.UNKNOWN:
        return [action], warnings
    if action.traits.starts_a_job and (why := _name_problem(action)):
        action = draft.plain(Action.BLOCKED, Reason.NAME_TOO_LONG, why)
    more = _superseded(draft, latest)
    touched = {a.before.id for a in (action, *more) if _writes_the_marker(a) and a.before}
    return [action, *more, *_renamed(draft, touched)], warnings


def _name_problem(action: PlannedAction) -> str | None:
    """Why the service would refuse the name of the next revision: the longest keys run out of digits."""
    name = action.after.name if action.after else ""
    if len(name) <= MAX_NAME:
        return None
    return f"{name} has {len(name)} characters, the service allows {MAX_NAME}; shorten the key"


def rests_on_absence(action: PlannedAction, view: KeyView, desired: DesiredJob | None) -> bool:
    """Whether an action holds only if nothing newer of the key exists, under whatever name.

    A job is only ever started then. And one that was active when it was seen last has ended only if it
    is not there any more; one that had ended would be found by the search for active jobs.
    """
    if action.traits.starts_a_job:
        return True
    latest = newest(view, desired)
    if latest is None or not latest.is_aged_out:
        return False
    past = view.past_of(latest.job.id)
    return past is None or not past.has_ended


def rename_clash(view: KeyView, desired: DesiredJob) -> str | None:
    """Why a renaming cannot be, or None.

    A revision of the new key that has a name of the old one shows that the renaming is under way.
    """
    old = sorted({r.marker.key for r in view.owned} - {desired.key})
    is_under_way = any(
        parse_remote_name(r.job.name).key in desired.formerly
        for r in view.owned
        if r.marker.key == desired.key
    )
    own = any(r.marker.key == desired.key for r in view.owned)
    if not old or not own or is_under_way:
        return None
    return f"formerly: {', '.join(old)}, but {desired.key} already has revisions"


def _writes_the_marker(action: PlannedAction) -> bool:
    """Whether the marker of the job that is there follows a renaming on the way.

    Where the new job is created first it would not do so in time: a crash after that would leave both
    keys with revisions of their own.
    """
    creates_first = action.replace_order is ReplaceOrder.CREATE_FIRST
    return action.traits.is_executed and not (action.action is Action.REPLACE and creates_first)


def _renamed(draft: Draft, touched: Collection[str]) -> list[PlannedAction]:
    """Every further revision that still bears the old key: its marker follows."""
    return [
        draft.renamed(revision)
        for revision in draft.view.owned
        if revision.marker.key != draft.view.key
        and revision.job.id not in touched
        and may(Operation.UPDATE_DESCRIPTION, revision.job.phase)
    ]


def _unreadable(view: KeyView, ownership: Ownership) -> str | None:
    """Why the key cannot be judged, or None."""
    if ownership.problem is not None:
        # What the problem is, a warning says once for all keys.
        return "the list could not be read"
    return view.unreadable[0].why if view.unreadable else None


def _in_conflict(draft: Draft) -> list[ConflictingJob]:
    """Who holds a remote name of the key: any one if nothing of it is owned, else a newer one.

    So the revisions of two stacks never interleave.
    """
    number = draft.latest.number if draft.latest and draft.view.owned else 0
    found = (stranger for stranger in draft.view.strangers if stranger.number > number)
    return sorted(found, key=lambda stranger: stranger.number)


def _as_ours(view: KeyView, stranger: ConflictingJob) -> PastRevision | None:
    """What the history store knows of a job of ours that has lost its marker, if it can be restored."""
    if stranger.standing is not OwnershipState.UNMANAGED or stranger.job.phase in (None, Phase.TERMINATING):
        return None
    return view.past_of(stranger.job.id)


def _absent(draft: Draft) -> list[PlannedAction]:
    """The key is in no file, or says `state: absent`: whatever of it is active ends."""
    if draft.situation.destroys:
        reason, said = Reason.DESTROYED, "destroy"
    elif draft.desired:
        reason, said = Reason.STATE_ABSENT, "state: absent"
    else:
        reason, said = Reason.NOT_IN_MANIFEST, "not in the manifest"
    return [draft.end(r, reason, said) for r in draft.view.owned if may(Operation.TERMINATE, r.job.phase)]


def _superseded(draft: Draft, latest: Revision | None) -> list[PlannedAction]:
    """Every other active revision ends: a key has one.

    With `create_first` the old job stays until the new one has shown that it runs, also where an apply
    stopped waiting for that.
    """
    others = [r for r in draft.view.owned if r is not latest and may(Operation.TERMINATE, r.job.phase)]
    if latest and draft.creates_first and latest.job.phase in (Phase.CREATING, Phase.PENDING):
        detail = f"terminated once r{latest.number} is running (replace_order: create_first)"
        return [draft.plain(Action.DEFER, Reason.SUPERSEDED, detail, revision=r) for r in others]
    return [draft.end(revision, Reason.SUPERSEDED, "superseded") for revision in others]
