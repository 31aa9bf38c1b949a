"""The rules for a declared key of which a revision is owned, each from the job to an action or None.

Their order is `RULES` in `rules.py`. Source: docs/semantics.md, "Decisions".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from reconciler.core.aliases import one_spelling
from reconciler.core.body import manifest_form
from reconciler.core.canonical import Canonical, canonical, split
from reconciler.core.diff import changes_between, comparable_with_details, unreported_among
from reconciler.core.digest import CURRENT, digest_of, is_known
from reconciler.core.lifecycle import OnChange, OnUpstream
from reconciler.core.mutable import MutableChanges, mutable_changes
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import KeyView, Revision
from reconciler.core.phase import Phase
from reconciler.core.reconstruction import declared_for
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Change, PlanWarning, timestamp
from reconciler.decide.action_builder import Draft
from reconciler.decide.allowance import Guard
from reconciler.decide.dependencies import Completion, made_from_older, spell_reruns
from reconciler.decide.plan import LOSS_WAY_OUT, Action, After, PlannedAction, Reason
from reconciler.decide.retry import Attempt, bad_run, may_retry, next_attempt, stopped_itself

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
class ExistingJob:
    """A declared key with its newest revision `latest`, whose phase is known.

    `details` are those of the newest revision, needed where its digest differs and the history store does
    not know what was declared then; None if there are none. `newer_upstream` are the completions of needed
    keys that came after the newest revision was created, and `upstream_reruns` the needed keys that are about
    to complete once more.
    """

    draft: Draft
    entry: DesiredJob
    latest: Revision
    phase: Phase
    details: ObservedJob | None
    has_declared_digest: bool
    newer_upstream: tuple[Completion, ...] = ()
    upstream_reruns: tuple[str, ...] = ()

    # --- what the rules ask

    @property
    def is_ended(self) -> bool:
        """Whether it has ended, or is being terminated."""
        return self.phase.is_terminal or self.phase is Phase.TERMINATING

    @cached_property
    def _declared_then(self) -> Canonical | None:
        return declared_then(self.draft.view, self.latest)

    @property
    def is_unreadable(self) -> bool:
        """Whether only the details could say what was edited, and there are none."""
        if self.has_declared_digest or self.details is not None or self.latest.is_aged_out:
            return False
        return self._declared_then is None

    @property
    def edit(self) -> Difference | None:
        """What was edited of what the digest covers; None if nothing was. Not for what `is_unreadable`."""
        return None if self.has_declared_digest or self._difference.is_empty else self._difference

    @cached_property
    def _difference(self) -> Difference:
        digest, then = self.latest.marker.digest, self._declared_then
        if then is not None:
            now = self.entry.covered_by(digest[:1])
            shown = _as_sent(self.entry, now, digest)
            return Difference(changes_between(then, now, forces_new_job=True, shown=shown))
        if self.details is None:
            return Difference(is_known=False)
        return difference(self.entry, self.details, digest)

    @property
    def _is_marker_outdated(self) -> bool:
        """Whether the digest differs and no field does: the job is what is declared."""
        return not self.has_declared_digest and self.edit is None

    @property
    def _as_declared(self) -> Revision:
        """The newest revision, with the declared digest where only its marker is outdated."""
        if not self._is_marker_outdated:
            return self.latest
        return replace(self.latest, marker=replace(self.latest.marker, digest=self.entry.digest))

    @cached_property
    def attempt(self) -> Attempt | None:
        """The retry of a job that ended badly as declared; None if the lifecycle asks for none."""
        if not may_retry(self.latest, self.entry):
            return None
        latest = self._as_declared
        revisions = [latest if r.job.id == latest.job.id else r for r in self.draft.view.ever_owned]
        return next_attempt(bad_run(revisions, self.entry), self.entry, self.draft.context.at_s)

    @property
    def bad_end(self) -> str:
        """How the newest revision ended, if it ended badly."""
        if stopped_itself(self.entry, self.latest.job):
            return ""
        if self.phase.ended_badly:
            return self.phase.value.lower()
        was_ended = self.phase in (Phase.TERMINATED, Phase.TERMINATING) and not self.latest.marker.stopped
        return "terminated outside the manifest" if was_ended else ""

    @property
    def goes_back(self) -> str:
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

    @cached_property
    def due_s(self) -> float | None:
        """The first time of its schedule that is to be started now; None if there is none.

        It has come since the key was last started, and since the schedule began to count.
        """
        schedule, since_s = self.entry.schedule, self.draft.view.last_start_s
        if schedule is None or since_s is None or self.counts_from_s is None:
            return None
        return schedule.due(max(since_s, self.counts_from_s), self.draft.context.service_s)

    @property
    def counts_from_s(self) -> float | None:
        """From when its schedule counts; None if its marker has none, or another one."""
        return self.entry.schedule_counts_from(self.latest.marker.schedule)

    @property
    def edit_waits(self) -> bool:
        """Whether an edit waits for the next time of the schedule; what we stopped and is back does not."""
        return self.entry.edits_wait and not (self.is_ended and self.latest.marker.stopped)

    @property
    def postponed(self) -> str:
        """Says that a time of the schedule has come, and that it waits for the active job."""
        schedule, due_s = self.entry.schedule, self.due_s
        if schedule is None or due_s is None or self.is_ended:
            return ""
        return f"; scheduled for {schedule.spell(due_s)}, starts once it has ended (overlap: skip)"

    @property
    def lost_time(self) -> float | None:
        """How long the job may have run for a replace that nobody asks for; None: one is asked for."""
        is_asked_for = self.entry.lifecycle.on_change is OnChange.REPLACE
        context = self.draft.context
        if is_asked_for or context.allowances.permits_key(Guard.LOST_WORK, self.entry.key):
            return None
        return context.limits.lost_time

    # --- what they answer

    def next_revision(self, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> Row:
        """Create the next revision; wait for a termination that is under way."""
        if self.phase is Phase.TERMINATING:
            reason, detail = Reason.WAITS_FOR_TERMINATION, f"waits for termination; {detail}"
        return self.draft.create(reason, detail, changes), []

    def replacement(
        self, reason: Reason, detail: str, changes: tuple[Change, ...] = (), lost_time: float | None = None
    ) -> Row:
        """Replace the job; `lost_time` is how long it may have run by then, None: however long."""
        draft = self.draft
        number = draft.view.next_revision
        action = draft.plain(
            Action.REPLACE,
            reason,
            detail,
            changes=changes,
            after=draft.after(number),
            desired=draft.body(number),
            declared=draft.declared(self.entry.digest),
            replace_order=self.entry.lifecycle.replace_order,
            lost_time=lost_time,
        )
        return action, []

    def blocked_by_protection(self, said: str, changes: tuple[Change, ...] = ()) -> Row:
        """Leave a protected job alone."""
        detail = f"{said}, and protected; set `protect: false` first, in an apply of its own"
        return self.draft.plain(Action.BLOCKED, Reason.PROTECTED, detail, changes=changes), []

    def defer(self, attempt: Attempt, detail: str, changes: tuple[Change, ...] = ()) -> Row:
        """Wait until a retry is due."""
        reason, due_s = attempt.reason, attempt.due_s
        return self.draft.plain(Action.DEFER, reason, detail, changes=changes, due_s=due_s), []

    def keep(self, reason: Reason, detail: str, changes: tuple[Change, ...] = ()) -> Row:
        """Keep the revision as it is."""
        revision = self._as_declared
        if self.latest.is_aged_out:
            detail += "; its record has aged out of the service"
        after = After(name=revision.job.name, revision=revision.number, digest=revision.marker.digest)
        action = self.draft.plain(
            Action.KEEP, reason, detail, after=after, changes=changes, ended_badly=bool(self.bad_end)
        )
        return action, []

    def keep_or_update(self, reason: Reason, detail: str, ignored: tuple[Change, ...] = ()) -> Row:
        """Keep the revision; `ignored` changes are shown. What can be changed on the job is updated."""
        if self.phase is Phase.TERMINATING or self.latest.is_aged_out:  # nothing can be written on it
            return self.keep(reason, detail, ignored)
        found = self._compared()
        warnings = found.warnings(self.entry.key, self.latest.job)
        if not found.now and not self._is_marker_outdated:
            return self.keep(reason, detail, ignored)[0], warnings
        reason = Reason.MARKER_CHANGED if found.are_of_marker_only else Reason.MUTABLE_CHANGED
        detail = f"{', '.join(change.path for change in found.now)} changed"
        if self.entry.schedule is not None and self.counts_from_s is None:
            detail += "; the schedule counts from now on"
        digest = None
        if self._is_marker_outdated:
            detail, digest = "only the marker is outdated, not the job", self.entry.digest
        changes = (*found.now, *ignored)
        return self.draft.update(self.latest, self.entry, reason, detail, changes, digest), warnings

    def _compared(self) -> MutableChanges:
        """The mutable part beside the job that is there."""
        job = self.latest.job
        past = self.draft.view.past_of(job.id)
        sent = past.declared.mutable if past and past.declared else None
        return mutable_changes(self.entry, job, self.latest.marker, self.draft.context.cloud, sent)


# --- the job is as declared


def unchanged(job: ExistingJob) -> Row | None:
    """Creating, Pending or Running; as declared."""
    if job.is_ended:
        return None
    return job.keep_or_update(Reason.UNCHANGED, job.phase.value.lower() + job.postponed)


def upstream_newer(job: ExistingJob) -> Row | None:
    """Ended; a needed key has completed a newer revision since, or is about to; `on_upstream: rerun`.

    While one is about to, `needs` holds the create back. An edit has its own rules, but for one that
    `on_change: keep` ignores, or that waits for a schedule.
    """
    if not job.is_ended or job.entry.lifecycle.on_upstream is OnUpstream.KEEP:
        return None
    is_left_alone = job.entry.lifecycle.on_change is OnChange.KEEP or job.edit_waits
    if job.edit is not None and not is_left_alone:
        return None
    changes = job.edit.changes if job.edit else ()
    if job.upstream_reruns:
        return job.draft.create(Reason.UPSTREAM_NEWER, spell_reruns(job.upstream_reruns), changes), []
    if not job.newer_upstream:
        return None
    detail = f"{made_from_older(job.newer_upstream)}; on_upstream: rerun"
    return job.next_revision(Reason.UPSTREAM_NEWER, detail, changes)


def completed(job: ExistingJob) -> Row | None:
    """Completed; as declared."""
    if job.phase is not Phase.COMPLETED:
        return None
    if not job.latest.is_aged_out:
        return job.keep_or_update(Reason.COMPLETED, "completed")
    past = job.draft.view.past_of(job.latest.job.id)
    ended_at_s = past.ended_at_s if past else None
    when = "" if ended_at_s is None else f" on {timestamp(ended_at_s)[:10]}"
    return job.keep(Reason.AGED_OUT, f"completed{when}")


def auto_stopped(job: ExistingJob) -> Row | None:
    """Ended otherwise; as declared; it ran for its `auto_stop`, give or take five minutes."""
    if not stopped_itself(job.entry, job.latest.job):
        return None
    return job.keep_or_update(Reason.AUTO_STOPPED, "stopped by its own auto_stop")


def declared_again(job: ExistingJob) -> Row | None:
    """Terminated; as declared; marked as stopped by us."""
    if job.phase.ended_badly or not job.latest.marker.stopped:
        return None
    return job.next_revision(Reason.DECLARED_AGAIN, "declared again after we stopped it")


def retries_exhausted(job: ExistingJob) -> Row | None:
    """Ended badly; as declared; `on_failure: retry` or `on_terminated: recreate`; all retries used."""
    if job.attempt is None or job.attempt.reason is not Reason.RETRIES_EXHAUSTED:
        return None
    return job.keep_or_update(Reason.RETRIES_EXHAUSTED, f"{job.bad_end}; {job.attempt.detail}")


def retry_later(job: ExistingJob) -> Row | None:
    """The same, but a retry is left that is not due yet."""
    if job.attempt is None or job.attempt.reason is not Reason.RETRY_LATER:
        return None
    return job.defer(job.attempt, f"{job.bad_end}; {job.attempt.detail}")


def retry(job: ExistingJob) -> Row | None:
    """The same, but a retry is due."""
    if job.attempt is None:
        return None
    reason = Reason.RETRY if job.phase.ended_badly else Reason.RECREATE
    return job.next_revision(reason, f"{job.bad_end}; {job.attempt.detail}")


def failed(job: ExistingJob) -> Row | None:
    """Failed or Abnormal; as declared; `on_failure: keep`."""
    if not job.phase.ended_badly:
        return None
    return job.keep_or_update(Reason.FAILED, f"{job.bad_end}; on_failure: keep")


def terminated_outside(job: ExistingJob) -> Row | None:
    """Terminated; as declared; not stopped by us; `on_terminated: keep`."""
    rerun = "`rerun` with `on_change: replace`" if job.edit_waits else "`rerun`"
    detail = f"{job.bad_end}; {rerun} or `recreate` starts it again"
    return job.keep_or_update(Reason.TERMINATED_OUTSIDE, detail)


# --- its declaration was edited


def change_ignored(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; `on_change: keep`."""
    if job.entry.lifecycle.on_change is not OnChange.KEEP:
        return None
    bad_end = job.bad_end and f"; {job.bad_end}"
    detail = f"{edit.said}; on_change: keep{bad_end}{job.postponed}"
    return job.keep_or_update(Reason.CHANGE_IGNORED, detail, edit.changes)


def change_refused(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; `on_change: fail`."""
    if job.entry.lifecycle.on_change is not OnChange.FAIL:
        return None
    detail = f"{edit.said}; on_change: fail"
    return job.draft.plain(Action.CONFLICT, Reason.CHANGE_REFUSED, detail, changes=edit.changes), []


def changed_after_end(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; ended."""
    if not job.is_ended:
        return None
    return job.next_revision(Reason.IMMUTABLE_CHANGED, edit.said + job.goes_back, edit.changes)


def protected(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; active; protected."""
    if not (job.latest.marker.protected or job.entry.lifecycle.protect):
        return None
    return job.blocked_by_protection(edit.said, edit.changes)


def would_lose_work(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; active; it has run longer than `limits.lost_time`; nobody allowed the loss."""
    if job.lost_time is None or job.latest.job.ran_s(job.draft.context.at_s) <= job.lost_time:
        return None
    detail = edit.said + LOSS_WAY_OUT
    return job.draft.plain(Action.CONFLICT, Reason.WOULD_LOSE_WORK, detail, changes=edit.changes), []


def ended_badly_before(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; active; this declaration ended badly before, and no retry of it is due.

    Such a replace counts like a retry: else a `create_first` whose new job fails would be tried again by
    every apply.
    """
    run = bad_run([r for r in job.draft.view.ever_owned if r.number != job.latest.number], job.entry)
    if not run:
        return None
    ended = f"this declaration ended as {run[0].job.phase_text} in r{run[0].number}"
    if not may_retry(run[0], job.entry):
        return job.keep(Reason.FAILED, f"{ended}; keeping r{job.latest.number}", edit.changes)
    attempt = next_attempt(run, job.entry, job.draft.context.at_s)
    detail = f"{ended}; {attempt.detail}"
    match attempt.reason:
        case Reason.RETRIES_EXHAUSTED:
            return job.keep(attempt.reason, detail, edit.changes)
        case Reason.RETRY_LATER:
            return job.defer(attempt, detail, edit.changes)
        case Reason.RETRY:
            return None


def changed(job: ExistingJob, edit: Difference) -> Row | None:
    """Edited; active."""
    return job.replacement(Reason.IMMUTABLE_CHANGED, edit.said + job.goes_back, edit.changes, job.lost_time)
