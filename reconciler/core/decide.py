"""The decision table of SEMANTICS 5: one key's entry and what was seen of it, to its actions.

`decide` asks in the order of the contract: unknown, blocked, conflict; then the row that the newest
revision's phase and digest pick (`present.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.core.digest import is_known
from reconciler.core.draft import Draft, Situation
from reconciler.core.identity import parse_remote_name
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import KeyView, Ownership, Revision, Standing, Stranger
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.plan import Action, After, PlannedAction, PlanWarning, Reason, timestamp
from reconciler.core.present import Present, declared_then
from reconciler.core.record import PastRevision
from reconciler.core.stack import DesiredJob, ReplaceOrder

Decision = tuple[list[PlannedAction], list[PlanWarning]]


def newest(view: KeyView, desired: DesiredJob | None) -> Revision | None:
    """Pick `L`, the revision that stands for the key.

    The newest one, unless an active one is not outdone by a newer that completed with the declared
    digest: then the active one with the declared digest (the longest running, if several), else the
    newest active one. Terminating ones do not stand for the key while another one is active.
    """
    if not view.owned:
        return None
    digest = desired.digest if desired else None
    done = max((r.number for r in view.owned if _completed_with(r, digest)), default=0)
    if past := completed_before(view, desired):
        done = max(done, past.number)
    live = [r for r in view.owned if may(Operation.TERMINATE, r.job.phase) and r.number > done]
    as_declared = [r for r in live if r.marker.digest == digest]
    if as_declared:
        return max(as_declared, key=lambda r: (r.job.duration_s or 0.0, -r.number))
    return live[-1] if live else view.owned[-1]


def _completed_with(revision: Revision, digest: str | None) -> bool:
    return revision.job.phase is Phase.COMPLETED and revision.marker.digest == digest


def completed_before(view: KeyView, desired: DesiredJob | None) -> PastRevision | None:
    """The newest revision, if it completed with what is declared and its record aged out of the service."""
    past = view.newest_aged_out
    is_done = past is not None and past.phase is Phase.COMPLETED
    return past if desired and past and is_done and past.digest == desired.digest else None


def needs_details(view: KeyView, desired: DesiredJob | None, ownership: Ownership) -> str | None:
    """Return the id of the job whose details the decision needs: its declaration changed since."""
    latest = newest(view, desired)
    if desired is None or desired.is_absent or latest is None or _unreadable(view, ownership):
        return None
    digest = latest.marker.digest
    if digest == desired.digest or not is_known(digest) or declared_then(view, latest) is not None:
        return None
    return latest.job.id


def decide(
    view: KeyView,
    desired: DesiredJob | None,
    ownership: Ownership,
    situation: Situation,
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
    if clash := _both_own(draft, desired):
        return [draft.plain(Action.CONFLICT, Reason.RENAME_CLASH, clash)], []
    if strangers := _in_conflict(draft):
        ours = {stranger.job.id: past for stranger in strangers if (past := _as_ours(view, stranger))}
        if other := next((s for s in strangers if s.job.id not in ours), None):
            return [draft.name_taken(other)], []
        return [draft.restored(stranger, ours[stranger.job.id]) for stranger in strangers], []
    warnings: list[PlanWarning] = []
    if past := completed_before(view, desired):
        action = _aged_out(draft, past)
    elif latest is None or latest.job.phase is None:
        action = draft.create(Reason.NOT_FOUND, "not found")
    else:
        present = Present(draft, desired, latest, latest.job.phase)
        action, warnings = present.decide(details.get(latest.job.id))
    if action.traits.starts_a_job and not ownership.proves_absence:
        why = "not everything could be read, so it is not known whether a newer job of this key exists"
        action = draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)
    if action.action is Action.UNKNOWN:
        return [action], warnings
    more = _superseded(draft, latest if action.reason is not Reason.AGED_OUT else None)
    touched = {a.before.id for a in (action, *more) if _writes_the_marker(a) and a.before}
    return [action, *more, *_renamed(draft, touched)], warnings


def _aged_out(draft: Draft, past: PastRevision) -> PlannedAction:
    when = f" on {timestamp(past.ended_at_s)[:10]}" if past.ended_at_s is not None else ""
    detail = f"completed{when}; its record has aged out of the service"
    after = After(name=past.name, revision=past.number, digest=past.digest)
    action = draft.plain(Action.KEEP, Reason.AGED_OUT, detail, after=after)
    return action.model_copy(update={"before": None})


def _both_own(draft: Draft, desired: DesiredJob) -> str | None:
    """Why a renaming cannot be, or None.

    A revision of the new key that has a name of the old one shows that the renaming is under way.
    """
    old = sorted({r.marker.key for r in draft.view.owned} - {desired.key})
    is_under_way = any(
        parse_remote_name(r.job.name).key in desired.formerly
        for r in draft.view.owned
        if r.marker.key == desired.key
    )
    own = any(r.marker.key == desired.key for r in draft.view.owned)
    if not old or not own or is_under_way:
        return None
    return f"formerly: {', '.join(old)}, but {desired.key} owns revisions of its own"


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


def _in_conflict(draft: Draft) -> list[Stranger]:
    """Who holds a name that the key needs, or, unmanaged, one that is newer than the newest revision."""
    number = draft.latest.number if draft.latest else 0
    found = []
    for stranger in draft.view.strangers:
        is_needed = draft.latest is None and stranger.number == draft.view.next_revision
        is_newer = stranger.standing is Standing.UNMANAGED and stranger.number > number
        if is_needed or is_newer:
            found.append(stranger)
    return sorted(found, key=lambda stranger: stranger.number)


def _as_ours(view: KeyView, stranger: Stranger) -> PastRevision | None:
    """What the history store knows of a job of ours that has lost its marker, if it can be restored."""
    if stranger.standing is not Standing.UNMANAGED or stranger.job.phase in (None, Phase.TERMINATING):
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
        detail = f"ends when r{latest.number} runs (replace_order: create_first)"
        return [draft.plain(Action.DEFER, Reason.SUPERSEDED, detail, revision=r) for r in others]
    return [draft.end(revision, Reason.SUPERSEDED, "superseded") for revision in others]
