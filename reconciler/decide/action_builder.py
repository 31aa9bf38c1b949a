"""Drawing up an action: which job is there, which one will be, and what has to be sent for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from reconciler.core.body import with_identity
from reconciler.core.canonical import Canonical, by_name
from reconciler.core.fields.marks import Cloud
from reconciler.core.identity import Description, Marker, remote_name
from reconciler.core.lifecycle import OnChange, ReplaceOrder
from reconciler.core.masking import mask
from reconciler.core.mutable import mutable_part, renewed_marker, update_body
from reconciler.core.ownership import ConflictingJob, KeyView, OwnershipState, Revision
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.policy_expression import not_evaluated
from reconciler.core.ports import EvaluateExpressions
from reconciler.core.record import PastRevision
from reconciler.core.secret import show
from reconciler.core.stack import Declared, DesiredJob, Limits
from reconciler.core.values import Change, Source, node_hours
from reconciler.decide.allowance import NO_ALLOWANCES, Allowances, Guard
from reconciler.decide.plan import (
    ACTIONS,
    BAD_ENDS,
    LOSS_WAY_OUT,
    Action,
    After,
    Before,
    PlannedAction,
    Reason,
)


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What is the same for every key: whose stack, which cloud, what time it is, what was allowed.

    `destroys` says that every job is to end because somebody asked for just that; `evaluate` answers for
    policies. `at_s` is by our clock, and `skew_s` how far that is ahead of the service's.
    """

    stack: str
    workspace_id: str = "0"
    cloud: Cloud = Cloud.HUAWEI
    at_s: float = 0.0
    limits: Limits = field(default_factory=Limits)
    allowances: Allowances = NO_ALLOWANCES
    destroys: bool = False
    evaluate: EvaluateExpressions = not_evaluated
    skew_s: float = 0.0

    @property
    def service_s(self) -> float:
        """What time it is by the service's clock, as far as that is known."""
        return self.at_s - self.skew_s


@dataclass(frozen=True)
class Draft:
    """Builds the actions of one key."""

    view: KeyView
    desired: DesiredJob | None
    context: PlanContext
    latest: Revision | None

    @property
    def creates_first(self) -> bool:
        """Whether a new job has to run before the old one ends."""
        order = self.desired.lifecycle.replace_order if self.desired else None
        return order is ReplaceOrder.CREATE_FIRST

    def plain(
        self,
        action: Action,
        reason: Reason,
        detail: str,
        *,
        revision: Revision | None = None,
        changes: tuple[Change, ...] = (),
        ended_badly: bool = False,
        **more: Any,
    ) -> PlannedAction:
        shown = revision or self.latest
        return PlannedAction(
            key=self.view.key,
            action=action,
            reason=reason,
            detail=detail,
            before=before_of(shown),
            aged_out_as=shown.job.phase_text if shown and shown.is_aged_out else None,
            ended_badly=action is Action.KEEP and (ended_badly or reason in BAD_ENDS),
            formerly=shown.marker.key if shown and shown.marker.key != self.view.key else None,
            former_keys=self.desired.formerly if self.desired else (),
            changes=mask(changes, (past.declared for past in self.view.remembered)),
            source=Source.of(self.desired.location) if self.desired else None,
            needs=self.desired.needs if self.desired and ACTIONS[action].starts_a_job else (),
            **self._work_at_stake(shown, ACTIONS[action].stops_a_job, reason),
            **more,
        )

    def _work_at_stake(self, shown: Revision | None, is_lost: bool, reason: Reason) -> dict[str, Any]:
        """How long an active job has run, on how many nodes, and what of that the action discards.

        What is kept shows none: a plan that changes nothing stays the same while its jobs run.
        """
        is_at_stake = is_lost or reason is Reason.WOULD_LOSE_WORK
        if shown is None or not shown.job.is_active or not is_at_stake:
            return {}
        elapsed, nodes = round(shown.job.ran_s(self.context.at_s), 3), shown.job.node_count
        lost = node_hours(elapsed, nodes) if is_lost else 0.0
        return {"elapsed": elapsed, "nodes": nodes, "lost_node_hours": lost}

    def unknown_phase(self, revision: Revision) -> PlannedAction:
        verdict = may(Operation.TERMINATE, None)
        detail = f'phase "{revision.job.phase_text}": {verdict.why}; legal {verdict.legal_when}'
        return self.plain(Action.BLOCKED, Reason.UNKNOWN_PHASE, detail, revision=revision)

    def name_taken(self, conflicting_job: ConflictingJob) -> PlannedAction:
        job, marker = conflicting_job.job, conflicting_job.job.marker
        if conflicting_job.standing is OwnershipState.FOREIGN and marker is not None:
            way_out = f"have stack {marker.stack} release it (there: {release_command(marker.key)})"
            if marker.key == self.view.key:
                way_out += f", adopt its jobs if this stack was called so ({rename_command(marker.stack)})"
        else:
            way_out = f"adopt it ({adopt_command(self.view.key, job.id)})"
        detail = f"{job.name} is taken by job {job.id} ({conflicting_job.why}); {way_out}, or rename the key"
        return self.plain(Action.CONFLICT, Reason.NAME_TAKEN, detail)

    def end(
        self, revision: Revision, reason: Reason, said: str, entry: DesiredJob | None = None
    ) -> PlannedAction:
        """Terminate an active revision; a protected one is blocked, and released if that is declared.

        What is declared for a key that is none any more is what `entry` says, whose member it was.
        """
        declared = entry or self.desired
        protect = declared.lifecycle.protect if declared else None
        if revision.marker.protected and protect is False:
            return self._release(revision)
        if revision.marker.protected or protect:
            detail = f"{said}, and protected; set `protect: false` first, in an apply of its own"
            return self.plain(Action.BLOCKED, Reason.PROTECTED, detail, revision=revision)
        return self.plain(Action.TERMINATE, reason, said, revision=revision)

    def end_member(self, revision: Revision, entry: DesiredJob) -> PlannedAction:
        """End an active member that its entry no longer produces, as far as an edit of the entry may."""
        said = f"no longer produced by {entry.sweep or entry.key}"
        ended = self.end(revision, Reason.NOT_IN_MANIFEST, said, entry)
        if ended.action is not Action.TERMINATE:
            return ended
        match entry.lifecycle.on_change:
            case OnChange.REPLACE:
                return ended
            case OnChange.KEEP:
                after = After(name=revision.job.name, revision=revision.number, digest=revision.marker.digest)
                detail = f"{said}; on_change: keep"
                return self.plain(Action.KEEP, Reason.CHANGE_IGNORED, detail, revision=revision, after=after)
            case OnChange.FAIL:
                detail = f"{said}; on_change: fail"
                return self.plain(Action.CONFLICT, Reason.CHANGE_REFUSED, detail, revision=revision)
        if self.context.allowances.permits_key(Guard.LOST_WORK, self.view.key):
            return ended
        lost_time = self.context.limits.lost_time
        if revision.job.ran_s(self.context.at_s) <= lost_time:
            return ended.model_copy(update={"lost_time": lost_time})
        detail = said + LOSS_WAY_OUT
        return self.plain(Action.CONFLICT, Reason.WOULD_LOSE_WORK, detail, revision=revision)

    def _release(self, revision: Revision) -> PlannedAction:
        marker = self._as_own(replace(revision.marker, protected=False), revision)
        detail = "protection released; the next plan terminates it"
        return self._rewrite(revision, marker, Reason.PROTECTION_RELEASED, detail)

    def renamed(self, revision: Revision) -> PlannedAction:
        """Write the key's new name on a revision that bears the old one; nothing else of it is touched."""
        marker = self._as_own(revision.marker, revision)
        detail = f"formerly {revision.marker.key}"
        change = Change(path="marker.key", before=revision.marker.key, after=marker.key)
        return self._rewrite(revision, marker, Reason.RENAMED, detail, (change,))

    def restored(self, conflicting_job: ConflictingJob, past: PastRevision) -> PlannedAction:
        """Write the marker again on a job of ours that has lost it."""
        assert self.desired is not None
        protected = self.desired.lifecycle.protect is True
        marker = past.marker(self.context.stack, self.view.key, protected)
        change = Change(path="marker", before=None, after=str(marker))
        detail = f"{conflicting_job.job.name} is known from history; its marker was removed"
        revision = Revision(conflicting_job.job, marker)
        action = self.update(revision, self.desired, Reason.MARKER_RESTORED, detail, (change,))
        return action if past.key == self.view.key else action.model_copy(update={"formerly": past.key})

    def _as_own(self, marker: Marker, revision: Revision) -> Marker:
        if marker.key == self.view.key:
            return marker
        return replace(marker, key=self.view.key).for_job(revision.job.name, revision.job.id)

    def _rewrite(
        self,
        revision: Revision,
        marker: Marker,
        reason: Reason,
        detail: str,
        changes: tuple[Change, ...] = (),
    ) -> PlannedAction:
        """Write another marker behind the text that the job has."""
        return self.plain(
            Action.UPDATE,
            reason,
            detail,
            revision=revision,
            changes=changes,
            after=After(name=revision.job.name, revision=revision.number, digest=marker.digest),
            desired={"description": str(Description(revision.job.text, marker))},
        )

    def create(self, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> PlannedAction:
        assert self.desired is not None
        number = self.view.next_revision
        action = self.plain(Action.CREATE, reason, detail, changes=changes)
        return action.model_copy(
            update={
                "before": None,
                "elapsed": None,
                "nodes": None,
                "rerun_of": self._finished,
                "after": self.after(number),
                "desired": self.body(number),
                "declared": self.declared(self.desired.digest),
                "follows": self.latest.job.id if self.latest and not self.latest.is_aged_out else None,
            }
        )

    @property
    def _finished(self) -> int | None:
        """The newest revision, if it completed: what is created next runs finished work again."""
        is_finished = self.latest is not None and self.latest.job.phase is Phase.COMPLETED
        return self.latest.number if self.latest and is_finished else None

    def update(
        self,
        revision: Revision,
        desired: DesiredJob,
        reason: Reason,
        detail: str,
        changes: tuple[Change, ...] = (),
        digest: str | None = None,
    ) -> PlannedAction:
        marker = renewed_marker(
            desired,
            revision.job,
            revision.marker,
            digest or revision.marker.digest,
            self.context.service_s,
        )
        after = After(name=revision.job.name, revision=revision.number, digest=marker.digest)
        body = update_body(desired, revision.job, marker, self.context.cloud)
        return self.plain(
            Action.UPDATE,
            reason,
            detail,
            revision=revision,
            changes=changes,
            after=after,
            desired=body,
            declared=self.declared(
                marker.digest, None if desired.is_declared_by(marker.digest) else revision
            ),
        )

    def after(self, number: int) -> After:
        assert self.desired is not None
        return After(name=remote_name(self.view.key, number), revision=number, digest=self.desired.digest)

    def declared(self, digest: str, kept: Revision | None = None) -> Declared:
        """What the history keeps of the declaration for a job whose marker has `digest`.

        A revision that is `kept` with another digest keeps its immutable part as well: that of the history.
        """
        desired = self.desired
        assert desired is not None
        now = by_name(desired.covered_by(digest[:1])) if kept is None else self._declared_then(kept)
        return Declared(
            immutable=now,
            mutable=mutable_part(desired.body or {}),
            description=show(desired.description),
            protect=desired.lifecycle.protect,
        )

    def _declared_then(self, revision: Revision) -> Canonical:
        past = self.view.past_of(revision.job.id)
        return dict(past.declared.immutable) if past and past.declared else {}

    def body(self, number: int) -> dict[str, Any]:
        desired = self.desired
        assert desired is not None
        assert desired.body is not None
        marker = Marker(
            self.context.stack,
            self.view.key,
            number,
            desired.digest,
            schedule=desired.schedule_mark,
            protected=desired.lifecycle.protect is True,
        )
        return with_identity(
            desired.body,
            name=remote_name(self.view.key, number),
            workspace_id=self.context.workspace_id,
            description=str(Description(desired.description, marker)),
        )


def adopt_command(key: str, job_id: str) -> str:
    """What makes a job a revision of a key, to be pasted into a shell."""
    return f"reconciler adopt {_argument(key)} {quote(job_id)}"


def rename_command(old: str) -> str:
    """What makes the jobs of a stack those of its new name, to be pasted into a shell."""
    return f"reconciler adopt --from-stack {old}"


def release_command(key: str) -> str:
    """What takes the markers of a key off its jobs, to be pasted into a shell."""
    return f"reconciler release {_argument(key)}"


def _argument(key: str) -> str:
    """A key as an argument: one that begins with a hyphen is no option."""
    return f"-- {key}" if key.startswith("-") else key


def before_of(revision: Revision | None) -> Before | None:
    if revision is None or revision.is_aged_out:
        return None
    job, marker = revision.job, revision.marker
    return Before(
        id=job.id, name=job.name, revision=marker.revision, phase=job.phase_text, digest=marker.digest
    )
