"""The rows of docs/semantics.md, "Decisions" for a declared key of which a revision is owned."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.core.declared.aliases import one_spelling
from reconciler.core.declared.body import manifest_form
from reconciler.core.declared.canonical import Canonical, canonical, split
from reconciler.core.declared.diff import changes_between, comparable_with_details, unreported_among
from reconciler.core.declared.digest import CURRENT, digest_of, is_known
from reconciler.core.declared.mutable import MutableChanges, mutable_changes
from reconciler.core.declared.reconstruction import declared_for
from reconciler.core.declared.stack import DesiredJob, OnChange
from reconciler.core.observed.job import ObservedJob
from reconciler.core.observed.ownership import KeyView, Revision
from reconciler.core.observed.phase import Phase
from reconciler.core.planning.action_builder import Draft
from reconciler.core.planning.plan import (
    LOSS_WAY_OUT,
    Action,
    After,
    Change,
    PlannedAction,
    PlanWarning,
    Reason,
    timestamp,
)
from reconciler.core.planning.retry import bad_run, may_retry, next_attempt, stopped_itself

Row = tuple[PlannedAction, list[PlanWarning]]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed of a declaration whose digest is not the marker's; empty: only the marker is behind.

    `unreported` are the fields that details do not show, in which it may have changed, or has.
    """

    changes: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    is_known: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing that can be compared differs, and nothing else is declared."""
        return self.is_known and not self.changes and not self.unreported

    @property
    def said(self) -> str:
        """The changed fields, for people."""
        if not self.is_known:
            return "the declaration changed; the previous one is not on record"
        if self.is_unreported:
            return f"changed in a field that the service does not report ({', '.join(self.unreported)})"
        return f"{', '.join(change.path for change in self.changes)} changed"

    @property
    def is_unreported(self) -> bool:
        """Whether it shows in no field that the service reports."""
        return {change.path for change in self.changes} <= set(self.unreported)


def declared_then(view: KeyView, revision: Revision) -> Canonical | None:
    """What was declared for a revision, if the history store has it and it is what the digest covers."""
    marker = revision.marker
    past = view.past_of(revision.job.id)
    if past is None or past.declared is None or not is_known(marker.digest):
        return None
    then = dict(past.declared.immutable)
    return then if digest_of(then, marker.digest[:1]) == marker.digest else None


def _as_sent(desired: DesiredJob, compared: Canonical, digest: str) -> Canonical:
    """What is compared with a job of that digest, with the texts that a new job would get."""
    return compared if digest[:1] == CURRENT else desired.covered_by(CURRENT)


def difference(desired: DesiredJob, details: ObservedJob, digest: str) -> Difference:
    """Compare what was declared for a job with what is declared now: docs/semantics.md, "Comparison".

    `digest` is its marker's. If a declaration that can be put together from `details` has it, that is what
    was declared, and the changes are those that a history would show. If not, what details report is
    compared, as far as it goes.
    """
    wanted = desired.covered_by(digest[:1])
    shown = _as_sent(desired, wanted, digest)
    reported = split(canonical(one_spelling(manifest_form(details.body)))).immutable
    if (then := declared_for(reported, wanted, digest)) is not None:
        changes = changes_between(then, wanted, forces_new_job=True, shown=shown)
        return Difference(changes, unreported_among(changes, then, wanted, reported))
    comparable = comparable_with_details(reported, wanted)
    changes = changes_between(comparable.before, comparable.after, forces_new_job=True, shown=shown)
    return Difference(changes or comparable.secrets, comparable.unreported)


@dataclass(frozen=True)
class Present:
    """Decides about one declared key with its newest revision `latest`, whose phase is known."""

    draft: Draft
    entry: DesiredJob
    latest: Revision
    phase: Phase

    def decide(self, details: ObservedJob | None) -> Row:
        """Pick the row.

        `details` are those of the newest revision, needed where its digest differs and the history store
        does not know what was declared then.
        """
        if self.entry.is_declared_by(self.latest.marker.digest):
            return self._same()
        then = declared_then(self.draft.view, self.latest)
        if then is not None:
            now = self.entry.covered_by(self.latest.marker.digest[:1])
            shown = _as_sent(self.entry, now, self.latest.marker.digest)
            found = Difference(changes_between(then, now, forces_new_job=True, shown=shown))
        elif self.latest.is_aged_out:
            found = Difference(is_known=False)
        elif details is None:
            return self.draft.plain(Action.UNKNOWN, Reason.UNREADABLE, "its details could not be read"), []
        else:
            found = difference(self.entry, details, self.latest.marker.digest)
        if found.is_empty:
            return self._nothing_differs()
        if self.entry.lifecycle.on_change is OnChange.KEEP:
            return self._keep_or_update(
                Reason.CHANGE_IGNORED, f"{found.said}; on_change: keep{self._bad_end}", found.changes
            )
        if self.entry.lifecycle.on_change is OnChange.FAIL:
            detail = f"{found.said}; on_change: fail"
            return self.draft.plain(Action.CONFLICT, Reason.CHANGE_REFUSED, detail, changes=found.changes), []
        if self.phase.is_terminal or self.phase is Phase.TERMINATING:
            said = found.said + self._goes_back
            return self._next(Reason.IMMUTABLE_CHANGED, said, found.changes), []
        return self._replace(found), []

    @property
    def _bad_end(self) -> str:
        """Says how the newest revision ended, if it ended badly."""
        if stopped_itself(self.entry, self.latest.job):
            return ""
        if self.phase.ended_badly:
            return f"; {self.phase.value.lower()}"
        was_ended = self.phase in (Phase.TERMINATED, Phase.TERMINATING) and not self.latest.marker.stopped
        return "; terminated outside the manifest" if was_ended else ""

    @property
    def _goes_back(self) -> str:
        """Names the older revision that completed what is declared again, if there is one."""
        done = [
            revision.number
            for revision in self.draft.view.ever_owned
            if self.entry.is_declared_by(revision.marker.digest)
            and revision.job.phase is Phase.COMPLETED
            and revision.number < self.latest.number
        ]
        if not done:
            return ""
        return (
            f"; r{done[-1]} completed this declaration, and r{self.latest.number} came after it: runs again"
        )

    def _nothing_differs(self) -> Row:
        """The digest differs and no field does: the job is what is declared, and its marker is behind."""
        if self.phase.is_active and self.phase is not Phase.TERMINATING:
            return self._marker_is_behind()
        row = self._as_declared()._ended_same()
        if self.latest.is_aged_out:
            return row
        # Nothing can be written on a job that is being terminated; and a job that is to follow the ended
        # one has the declared digest, so the old marker may stay behind.
        stays_behind = self.phase is Phase.TERMINATING or row[0].action in (Action.CREATE, Action.DEFER)
        return row if stays_behind else self._marker_is_behind()

    def _as_declared(self) -> Present:
        """The same situation with the declared digest on the newest revision."""
        latest = replace(self.latest, marker=replace(self.latest.marker, digest=self.entry.digest))
        owned = [latest if revision is self.latest else revision for revision in self.draft.view.owned]
        draft = replace(self.draft, view=replace(self.draft.view, owned=owned))
        return replace(self, draft=draft, latest=latest)

    def _same(self) -> Row:
        if self.phase.is_terminal or self.phase is Phase.TERMINATING:
            return self._ended_same()
        return self._keep_or_update(Reason.UNCHANGED, self.phase.value.lower())

    def _ended_same(self) -> Row:
        """The newest revision has ended, or is about to, with what is declared now."""
        if self.phase is Phase.COMPLETED:
            return self._completed()
        if stopped_itself(self.entry, self.latest.job):
            return self._keep_or_update(Reason.AUTO_STOPPED, "stopped by its own auto_stop")
        if not self.phase.ended_badly and self.latest.marker.stopped:
            return self._next(Reason.DECLARED_AGAIN, "declared again after we stopped it"), []
        if may_retry(self.latest, self.entry):
            return self._retry()
        if self.phase.ended_badly:
            return self._keep_or_update(Reason.FAILED, f"{self.phase.value.lower()}; on_failure: keep")
        detail = "terminated outside the manifest; `rerun` or `recreate` starts it again"
        return self._keep_or_update(Reason.TERMINATED_OUTSIDE, detail)

    def _completed(self) -> Row:
        if not self.latest.is_aged_out:
            return self._keep_or_update(Reason.COMPLETED, "completed")
        past = self.draft.view.past_of(self.latest.job.id)
        ended_at_s = past.ended_at_s if past else None
        when = "" if ended_at_s is None else f" on {timestamp(ended_at_s)[:10]}"
        return self._keep(Reason.AGED_OUT, f"completed{when}"), []

    def _retry(self) -> Row:
        """A further attempt, if it is due and there is one left."""
        bad_end = Reason.RETRY if self.phase.ended_badly else Reason.RECREATE
        said = self.phase.value.lower() if self.phase.ended_badly else "terminated outside the manifest"
        run = bad_run(self.draft.view.ever_owned, self.entry)
        attempt = next_attempt(run, self.entry, self.draft.situation.at_s)
        detail = f"{said}; {attempt.detail}"
        match attempt.reason:
            case Reason.RETRIES_EXHAUSTED:
                return self._keep_or_update(Reason.RETRIES_EXHAUSTED, detail)
            case Reason.RETRY_LATER:
                return self.draft.plain(Action.DEFER, Reason.RETRY_LATER, detail, due_s=attempt.due_s), []
            case Reason.RETRY:
                return self._next(bad_end, detail), []

    def _next(self, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> PlannedAction:
        """Create the next revision; wait for a termination that is under way."""
        if self.phase is Phase.TERMINATING:
            reason, detail = Reason.WAITS_FOR_TERMINATION, f"waits for termination; {detail}"
        return self.draft.create(reason, detail, changes)

    def _marker_is_behind(self) -> Row:
        found = self._compared()
        detail = "only the marker is outdated, not the job"
        reason = Reason.MARKER_CHANGED if found.are_of_marker_only else Reason.MUTABLE_CHANGED
        action = self.draft.update(
            self.latest, self.entry, reason, detail, found.now, digest=self.entry.digest
        )
        return action, found.warnings(self.entry.key, self.latest.job)

    def _keep_or_update(self, reason: Reason, detail: str, ignored: tuple[Change, ...] = ()) -> Row:
        """Keep the revision; `ignored` changes are shown. What can be changed on the job is updated."""
        if self.phase is Phase.TERMINATING or self.latest.is_aged_out:  # nothing can be written on it
            return self._keep(reason, detail, ignored), []
        found = self._compared()
        warnings = found.warnings(self.entry.key, self.latest.job)
        if not found.now:
            return self._keep(reason, detail, ignored), warnings
        reason = Reason.MARKER_CHANGED if found.are_of_marker_only else Reason.MUTABLE_CHANGED
        detail = f"{', '.join(change.path for change in found.now)} changed"
        action = self.draft.update(self.latest, self.entry, reason, detail, (*found.now, *ignored))
        return action, warnings

    def _keep(self, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> PlannedAction:
        job, marker = self.latest.job, self.latest.marker
        if self.latest.is_aged_out:
            detail += "; its record has aged out of the service"
        after = After(name=job.name, revision=marker.revision, digest=marker.digest)
        return self.draft.plain(
            Action.KEEP, reason, detail, after=after, changes=changes, ended_badly=bool(self._bad_end)
        )

    def _compared(self) -> MutableChanges:
        """The mutable part beside the job that is there."""
        job = self.latest.job
        past = self.draft.view.past_of(job.id)
        sent = past.declared.mutable if past and past.declared else None
        return mutable_changes(self.entry, job, self.latest.marker, self.draft.situation.cloud, sent)

    def _replace(self, found: Difference) -> PlannedAction:
        """The declaration of an active job changed in what the service cannot change on it."""
        draft, lifecycle, job = self.draft, self.entry.lifecycle, self.latest.job
        if self.latest.marker.protected or lifecycle.protect:
            detail = f"{found.said}, and protected; set `protect: false` first, in an apply of its own"
            return draft.plain(Action.BLOCKED, Reason.PROTECTED, detail, changes=found.changes)
        limit = self._lost_time
        if limit is not None and job.ran_s(draft.situation.at_s) > limit:
            detail = found.said + LOSS_WAY_OUT
            return draft.plain(Action.CONFLICT, Reason.WOULD_LOSE_WORK, detail, changes=found.changes)
        if held := self._failed_before(found):
            return held
        number = draft.view.next_revision
        return draft.plain(
            Action.REPLACE,
            Reason.IMMUTABLE_CHANGED,
            found.said + self._goes_back,
            changes=found.changes,
            after=draft.after(number),
            desired=draft.body(number),
            declared=draft.declared(self.entry.digest),
            replace_order=lifecycle.replace_order,
            lost_time=limit,
        )

    @property
    def _lost_time(self) -> float | None:
        """How long the job may have run for a replace that nobody asks for; None: one is asked for."""
        is_asked_for = self.entry.lifecycle.on_change is OnChange.REPLACE
        situation = self.draft.situation
        if is_asked_for or situation.allowances.permits_loss(self.entry.key):
            return None
        return situation.limits.lost_time

    def _failed_before(self, found: Difference) -> PlannedAction | None:
        """A replace whose declared digest ended badly before counts like a retry.

        Without this a `create_first` whose new job fails would be tried again by every apply.
        """
        run = bad_run([r for r in self.draft.view.ever_owned if r.number != self.latest.number], self.entry)
        if not run:
            return None
        ended = f"this declaration ended as {run[0].job.phase_text} in r{run[0].number}"
        if not may_retry(run[0], self.entry):
            return self._keep(Reason.FAILED, f"{ended}; keeping r{self.latest.number}", found.changes)
        attempt = next_attempt(run, self.entry, self.draft.situation.at_s)
        match attempt.reason:
            case Reason.RETRIES_EXHAUSTED:
                return self._keep(attempt.reason, f"{ended}; {attempt.detail}", found.changes)
            case Reason.RETRY_LATER:
                detail = f"{ended}; {attempt.detail}"
                return self.draft.plain(
                    Action.DEFER, attempt.reason, detail, changes=found.changes, due_s=attempt.due_s
                )
            case Reason.RETRY:
                return None
