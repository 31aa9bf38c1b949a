"""Adoption and release: actions that take jobs into a stack, and out of it.

Each is an update of the job's description, so nothing restarts. An objection is an action that is not
executed, with its reason. Source: docs/concepts/ownership.md, "Adopting and releasing jobs".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from reconciler.core.body import is_known
from reconciler.core.entry import EntryPatch, NotDeclarable, compare_with_job, entry_patch
from reconciler.core.identity import (
    MAX_DESCRIPTION,
    Description,
    Marker,
    parse_description,
    parse_remote_name,
)
from reconciler.core.masking import texts_in
from reconciler.core.mutable import description_change, mutable_changes
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import KeyView, Ownership, Revision
from reconciler.core.past import PastRevision
from reconciler.core.phase import Operation, may
from reconciler.core.record import HistorySnapshot
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Change, PlanWarning
from reconciler.decide.actions import after_of, block_unknown_digest, draft, release_command, update
from reconciler.decide.key_state import KeyState, PlanContext, Snapshot, state_of
from reconciler.decide.plan import Action, After, PlannedAction, Reason


class Adoption(NamedTuple):
    """The decision about one job or key.

    `patch` is the edit of the entry that would make it equal to the job.
    """

    action: PlannedAction
    warnings: tuple[PlanWarning, ...] = ()
    patch: EntryPatch | None = None


@dataclass(frozen=True)
class Candidate:
    """A job to adopt for a declared key; `job` has its details.

    `takes_as_is` is set by `--accept`: adopt it even if it differs from the declaration.
    """

    state: KeyState
    job: ObservedJob
    takes_as_is: bool = False

    @cached_property
    def desired(self) -> DesiredJob:
        return self.state.numbered_as(self.revision)

    @cached_property
    def revision(self) -> Revision:
        """The job as a revision of the key, with its future marker."""
        desired = self.state.desired
        marker = Marker(
            self.state.context.stack,
            desired.key,
            self.state.view.next_revision,
            desired.digest,
            id_part=self.job.id[:8].lower(),
            schedule=desired.renewed_schedule_mark(None, self.state.service_s),
            protected=desired.lifecycle.protect is True,
        )
        return Revision(self.job, marker)

    def refused(
        self, action: Action, reason: Reason, detail: str, changes: tuple[Change, ...] = ()
    ) -> PlannedAction:
        return draft(self.state, action, reason, detail, revision=self.revision, changes=changes)


def adopt(candidate: Candidate) -> Adoption:
    """Decide about a job: an objection, or the update that makes it ours."""
    if (refused := _refused(candidate)) is not None:
        return Adoption(refused)
    desired, job, revision = candidate.desired, candidate.job, candidate.revision
    comparison = compare_with_job(desired, job)
    fields = ", ".join(change.path for change in comparison.changes)
    is_taken = "the job is assumed to have the declared value"
    is_rotated = "of the job is not the declared value; a rotated secret does not count as a difference"
    uncompared = [
        ("field not compared", f"the service does not report {p}; {is_taken}") for p in comparison.unreported
    ]
    uncompared += (("sensitive value differs", f"{path} {is_rotated}") for path in comparison.secrets)
    warnings = [PlanWarning(what=what, why=why, key=desired.key) for what, why in uncompared]
    if fields and not candidate.takes_as_is:
        detail = f"differs from the declaration in {fields}; edit the entry, or add --accept"
        action = candidate.refused(Action.CONFLICT, Reason.DIFFERS, detail, comparison.changes)
        # Values that the plan masks are masked in the patch, too.
        shown = {change.path: change.before for change in action.changes}
        differing = (change for change in comparison.changes if shown[change.path] != change.before)
        hidden = {text for change in differing for text in texts_in(change.before)}
        patch = None
        with suppress(NotDeclarable):  # then only --accept helps
            patch = entry_patch(desired, job, candidate.state.context.stack, hidden)
        return Adoption(action, tuple(warnings), patch)
    mutable = mutable_changes(desired, job, revision.marker, candidate.state.context.cloud)
    changes = [Change(path="marker", before=None, after=str(revision.marker)), *mutable.now]
    if job.phase is not None and job.phase.is_terminal and desired.description.strip() != job.text.strip():
        changes.append(description_change(desired.description, job.text))
    detail = f"{job.name} ({job.phase_text}) becomes r{revision.number}"
    accepted = mutable.warnings(desired.key, job)
    if fields:
        detail += "; taken as it is"
        accepted.append(PlanWarning(what="differs from the declaration", why=fields, key=desired.key))
    action = update(candidate.state, revision, Reason.ADOPTED, detail, tuple(changes))
    return Adoption(action, (*accepted, *warnings))


def _refused(candidate: Candidate) -> PlannedAction | None:
    """Return the first objection: ownership, the entry, something unreadable, or the key's revisions."""
    state, desired, job = candidate.state, candidate.desired, candidate.job
    view, marker = state.view, job.marker
    if marker is not None and marker.stack == state.context.stack:
        own = Revision(job, marker)
        if marker.key == desired.key:
            detail = f"{job.name} is already r{marker.revision} of this key"
            after = after_of(own)
            return draft(state, Action.KEEP, Reason.ALREADY_OWNED, detail, revision=own, after=after)
        detail = (
            f"{job.name} is r{marker.revision} of key {marker.key} of this stack; "
            f"to rename that key, write `formerly: {marker.key}`"
        )
        return draft(state, Action.CONFLICT, Reason.ALREADY_OWNED, detail, revision=own)
    if marker is not None:
        detail = (
            f"{job.name} is owned by key {marker.key} of stack {marker.stack}, which must release it "
            f"first (there: {release_command(marker.key)})"
        )
        return candidate.refused(Action.CONFLICT, Reason.NAME_TAKEN, detail)
    if desired.is_absent:
        detail = "the key is declared with `state: absent`: the next apply would terminate the job"
        return candidate.refused(Action.CONFLICT, Reason.STATE_ABSENT, detail)
    metadata = job.body.get("metadata")
    workspace = metadata.get("workspace_id") if isinstance(metadata, Mapping) else None
    if workspace not in (None, "", state.context.workspace_id):
        here = state.context.workspace_id
        detail = f"{job.name} is in workspace {workspace}, but the target is workspace {here}"
        return candidate.refused(Action.CONFLICT, Reason.NOT_ADOPTABLE, detail)
    if state.ownership.problem is not None:
        return candidate.refused(Action.UNKNOWN, Reason.UNREADABLE, "the list could not be read")
    if unread := [*view.unreadable, *state.ownership.unattributed]:
        detail = f"{unread[0].why}; it may be a revision of this key"
        return candidate.refused(Action.UNKNOWN, Reason.UNREADABLE, detail)
    for own in view.owned:
        if own.job.is_active or own.job.phase is None:
            detail = (
                f"r{own.number} of this key ({own.job.name}, {own.job.id}) is {own.job.phase_text}; "
                f"terminate it or release it first ({release_command(desired.key)})"
            )
            return candidate.refused(Action.CONFLICT, Reason.KEY_IN_USE, detail)
    if (blocked := _not_writable(state, candidate.revision)) is not None:
        return blocked
    own_marker = candidate.revision.marker
    written = str(Description(desired.description, own_marker))
    if len(written) > MAX_DESCRIPTION:
        room = MAX_DESCRIPTION - len(str(own_marker)) - 1
        detail = f"the declared description leaves no room for the marker; it may have {room} characters"
    elif parse_description(written).marker != own_marker:
        detail = f"the id {job.id} does not start with 8 hex digits, as a marker requires"
    else:
        return None
    return candidate.refused(Action.CONFLICT, Reason.NOT_ADOPTABLE, detail)


def _not_writable(state: KeyState, revision: Revision) -> PlannedAction | None:
    """Return the block if the description of a job cannot be changed now; None if it can."""
    job = revision.job
    verdict = may(Operation.UPDATE_DESCRIPTION, job.phase)
    if verdict:
        return None
    reason = Reason.UNKNOWN_PHASE if job.phase is None else Reason.WRONG_PHASE
    detail = f"{job.name} is {job.phase_text}: {verdict.why}; legal {verdict.legal_when}"
    return draft(state, Action.BLOCKED, reason, detail, revision=revision)


# --- release


def release(state: KeyState) -> list[PlannedAction]:
    """Remove the marker from every revision of a key; what cannot be updated now is blocked."""
    if state.unreadable:
        return [draft(state, Action.UNKNOWN, Reason.UNREADABLE, state.unreadable)]
    actions = []
    for revision in state.view.owned:
        job = revision.job
        outcome = "keeps running, unmanaged" if job.is_active else "becomes unmanaged"
        detail = f"released: {job.name} ({job.phase_text}) {outcome}"
        change = Change(path="marker", before=str(revision.marker), after=None)
        released = draft(
            state,
            Action.UPDATE,
            Reason.RELEASED,
            detail,
            revision=revision,
            changes=(change,),
            desired={"description": job.text},
        )
        actions.append(_not_writable(state, revision) or released)
    return actions


def release_warnings(desired: DesiredJob | None, actions: Iterable[PlannedAction]) -> tuple[PlanWarning, ...]:
    """Warn of what the next plan does about a released key that is still declared."""
    released = [action.before for action in actions if action.reason is Reason.RELEASED and action.before]
    if desired is None or desired.is_absent or not released:
        return ()
    where = f" from {desired.location.file}" if desired.location else " from the manifest"
    is_in_the_way = any(parse_remote_name(job.name).key == desired.key for job in released)
    consequence = "be in conflict (name taken)" if is_in_the_way else "create a new job"
    why = f"the next plan will {consequence}"
    return (PlanWarning(what="still declared", why=why, fix=f"remove {desired.key}{where}", key=desired.key),)


# --- a stack that was renamed


@dataclass(frozen=True)
class RenamedStack:
    """A stack under its old name, and how to give it its new one."""

    old: str
    ownership: Ownership
    memory: HistorySnapshot
    context: PlanContext

    def move(self, view: KeyView, desired: DesiredJob | None, key: str) -> list[PlannedAction]:
        """Move the revisions of one key; `view` is what the stack owns of it under its new name."""
        old = state_of(key, None, Snapshot(self.ownership), self.context)
        # Leave out what the new stack owns already: it is not touched.
        state = replace(old, view=KeyView(key, self.context.stack), entry=desired)
        if old.unreadable:
            return [draft(state, Action.UNKNOWN, Reason.UNREADABLE, old.unreadable)]
        if (clash := _clash(view.owned, old.view.owned, self.old)) is not None:
            return [draft(state, Action.CONFLICT, Reason.RENAME_CLASH, clash)]
        return [self._move(state, revision) for revision in old.view.owned]

    def _move(self, state: KeyState, revision: Revision) -> PlannedAction:
        job = revision.job
        if (blocked := _not_writable(state, revision)) is not None:
            return blocked
        if not is_known(revision.marker.digest):
            return block_unknown_digest(state, revision)
        marker = revision.marker._replace(stack=self.context.stack)
        room = MAX_DESCRIPTION - len(f" {marker}")
        detail = f"moves from stack {self.old}"
        if len(job.text) > room:
            detail += f"; its description is cut to {room} characters"
        past = next((p for p in self.memory.by_key.get(marker.key, ()) if p.job == job.id), None)
        return draft(
            state,
            Action.UPDATE,
            Reason.STACK_RENAMED,
            detail,
            revision=revision,
            changes=(Change(path="marker.stack", before=self.old, after=marker.stack),),
            after=After(name=job.name, revision=revision.number, digest=marker.digest),
            desired={"description": str(Description(job.text[:room], marker))},
            declared=past.declared if past else None,
            former_stack=self.old,
        )

    def left_behind(self, declared: Iterable[str]) -> Iterator[PlanWarning]:
        """Warn of the keys that stay with the old stack because they are not declared here."""
        if keys := [key for key in self.ownership.owned_keys if key not in set(declared)]:
            why = f"not declared here, so still owned by stack {self.old}: {', '.join(keys)}"
            yield PlanWarning(what="left with the old stack", why=why)

    def aged_out(
        self, declared: Iterable[str], seen: Iterable[ObservedJob], ours: HistorySnapshot
    ) -> tuple[PastRevision, ...]:
        """Return the revisions of declared keys that only the old stack's history knows.

        `ours` is the history under the new name.
        """
        listed = {job.id for job in seen}
        known = {(past.key, past.number): past for revisions in ours.by_key.values() for past in revisions}
        return tuple(
            past
            for key in sorted(declared)
            for past in self.memory.by_key.get(key, ())
            if past.job not in listed
            and past.released_at_s is None
            and past.supersedes(known.get((past.key, past.number)))
        )

    def taken_over(self, aged_out: Sequence[PastRevision]) -> Iterator[PlanWarning]:
        """Warn of revisions that are taken over although the service has no job for them."""
        if named := ", ".join(f"{past.key} r{past.number}" for past in aged_out):
            source = f"from the history of stack {self.old}, because their records have aged out"
            yield PlanWarning(what="no longer on the service", why=f"taken over {source}: {named}")


def _clash(ours: Sequence[Revision], others: Sequence[Revision], old: str) -> str | None:
    numbers = {revision.number for revision in ours} & {revision.number for revision in others}
    if numbers:
        return f"both this stack and {old} own r{min(numbers)} of this key; release one of them"
    active = [
        next((r for r in revisions if r.job.is_active or r.job.phase is None), None)
        for revisions in (ours, others)
    ]
    if all(active):
        return f"both this stack and {old} have an active revision of this key; terminate or release one"
    return None
