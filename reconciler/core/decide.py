"""The decision table of SEMANTICS 5: one key's entry and what was seen of it, to its actions.

`decide` asks in the order of the contract: unknown, blocked, conflict; then the row that the newest
revision's phase and digest pick (`present.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.core.digest import is_known
from reconciler.core.draft import Draft, Situation
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import KeyView, Ownership, Revision, Standing, Stranger
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.plan import Action, PlannedAction, PlanWarning, Reason
from reconciler.core.present import Present
from reconciler.core.stack import DesiredJob

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
    live = [r for r in view.owned if may(Operation.TERMINATE, r.job.phase) and r.number > done]
    as_declared = [r for r in live if r.marker.digest == digest]
    if as_declared:
        return max(as_declared, key=lambda r: (r.job.duration_s or 0.0, -r.number))
    return live[-1] if live else view.owned[-1]


def _completed_with(revision: Revision, digest: str | None) -> bool:
    return revision.job.phase is Phase.COMPLETED and revision.marker.digest == digest


def needs_details(view: KeyView, desired: DesiredJob | None, ownership: Ownership) -> str | None:
    """Return the id of the job whose details the decision needs: its declaration changed since."""
    latest = newest(view, desired)
    if desired is None or desired.is_absent or latest is None or _unreadable(view, ownership):
        return None
    digest = latest.marker.digest
    return latest.job.id if digest != desired.digest and is_known(digest) else None


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
    if stranger := _in_conflict(draft):
        return [draft.name_taken(stranger)], []
    warnings: list[PlanWarning] = []
    if latest is None or latest.job.phase is None:
        action = draft.create(Reason.NOT_FOUND, "not found")
    else:
        present = Present(draft, desired, latest, latest.job.phase)
        action, warnings = present.decide(details.get(latest.job.id))
    if action.traits.starts_a_job and not ownership.proves_absence:
        why = "not everything could be read, so it is not known whether a newer job of this key exists"
        action = draft.plain(Action.UNKNOWN, Reason.UNREADABLE, why)
    superseded = [] if action.action is Action.UNKNOWN else _superseded(draft)
    return [action, *superseded], warnings


def _unreadable(view: KeyView, ownership: Ownership) -> str | None:
    """Why the key cannot be judged, or None."""
    if ownership.problem is not None:
        return ownership.problem
    return view.unreadable[0].why if view.unreadable else None


def _in_conflict(draft: Draft) -> Stranger | None:
    """Who holds a name that the key needs, or, unmanaged, one that is newer than the newest revision."""
    number = draft.latest.number if draft.latest else 0
    for stranger in draft.view.strangers:
        is_needed = draft.latest is None and stranger.number == draft.view.next_revision
        is_newer = stranger.standing is Standing.UNMANAGED and stranger.number > number
        if is_needed or is_newer:
            return stranger
    return None


def _absent(draft: Draft) -> list[PlannedAction]:
    """The key is in no file, or says `state: absent`: whatever of it is active ends."""
    if draft.situation.destroys:
        reason, said = Reason.DESTROYED, "destroy"
    elif draft.desired:
        reason, said = Reason.STATE_ABSENT, "state: absent"
    else:
        reason, said = Reason.NOT_IN_MANIFEST, "not in the manifest"
    return [draft.end(r, reason, said) for r in draft.view.owned if may(Operation.TERMINATE, r.job.phase)]


def _superseded(draft: Draft) -> list[PlannedAction]:
    """Every other active revision ends: a key has one.

    With `create_first` the old job stays until the new one has shown that it runs, also where an apply
    stopped waiting for that.
    """
    latest = draft.latest
    others = [r for r in draft.view.owned if r is not latest and may(Operation.TERMINATE, r.job.phase)]
    if latest and draft.creates_first and latest.job.phase in (Phase.CREATING, Phase.PENDING):
        detail = f"ends when r{latest.number} runs (replace_order: create_first)"
        return [draft.plain(Action.DEFER, Reason.SUPERSEDED, detail, revision=r) for r in others]
    return [draft.end(revision, Reason.SUPERSEDED, "superseded") for revision in others]
