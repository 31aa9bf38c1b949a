"""The rules by which one key has drifted, is ahead, or is as it was left.

One event is told once: what ended is not modified as well, and a job that lost its marker is not
missing as well.

Source: docs/drift.md; docs/semantics.md, "Phases".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from reconciler.core.diff import changes_between
from reconciler.core.digest import is_known
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ownership import ConflictingJob, KeyView, OwnershipState, Revision
from reconciler.core.phase import RULES, Phase
from reconciler.core.record import Call, RunKind
from reconciler.core.stack import DesiredJob
from reconciler.core.values import Change, PlanWarning, node_hours, timestamp
from reconciler.decide.drift_entry import Drift, DriftClass, Pending
from reconciler.decide.drift_fields import FieldDrift, compare_fields, spell_changes
from reconciler.decide.drift_remedies import remedy_for
from reconciler.decide.key_state import Attempt, KeyState, stopped_itself
from reconciler.decide.plan import Reason

STUCK_AFTER_S = 3600.0


class Findings(NamedTuple):
    """What was found of one key."""

    drift: tuple[Drift, ...] = ()
    pending: Pending | None = None
    warnings: tuple[PlanWarning, ...] = ()


def check_key(state: KeyState, rerun: str = "") -> Findings:
    """Compare one key with what was left.

    `rerun` says why the key is about to run again because of what it needs: how its job ended is no drift
    then.
    """
    check = _KeyCheck(state, rerun)
    if why := check.unjudged():
        return Findings((*check.unowned(), check.entry(DriftClass.UNKNOWN, why.revision, why.detail)))
    drift = [*(check.of_declared() if state.declared else check.of_undeclared()), *check.stuck()]
    return Findings(tuple(drift), check.pending(), tuple(check.warnings()))


def rests_on_absence(state: KeyState) -> bool:
    """Whether the key may be missing: nothing owned is seen, and nothing says where it is.

    Searches are not enough then.
    """
    view = state.view
    if not state.declared or view.owned or _is_hidden(state):
        return False
    return not (view.remembered and view.remembered[-1].has_ended)


def _is_hidden(state: KeyState) -> bool:
    """Whether the newest revision may be there all the same: a job without a marker has its name."""
    view = state.view
    unmanaged = {one.job.id for one in view.conflicting_jobs if one.standing is OwnershipState.UNMANAGED}
    return view.remembered[-1].job in unmanaged if view.remembered else bool(unmanaged)


class _Unjudged(NamedTuple):
    """Why a key cannot be judged, and the revision that it is about."""

    detail: str
    revision: Revision | None = None


@dataclass(frozen=True)
class _KeyCheck:
    """The rules, asked of one key."""

    state: KeyState
    rerun: str = ""

    @property
    def view(self) -> KeyView:
        return self.state.view

    @property
    def latest(self) -> Revision | None:
        return self.state.latest

    @property
    def live(self) -> list[Revision]:
        return self.state.live

    # --- what cannot be judged

    def unjudged(self) -> _Unjudged | None:
        """Why the key cannot be judged, or None."""
        state, ownership = self.state, self.state.ownership
        if state.unreadable:
            return _Unjudged(state.unreadable, self.latest)
        for revision in self.view.owned:
            if revision.job.phase is None:
                return _Unjudged(f'unknown phase "{revision.job.phase_text}"', revision)
            if not is_known(revision.marker.digest):
                return _Unjudged(f"digest {revision.marker.digest} needs a newer reconciler", revision)
        if rests_on_absence(state) and not ownership.proves_absence:
            return _Unjudged("a job could not be read, so it is unknown whether this one exists")
        if self.view.history_problem is not None and self._rests_on_history:
            return _Unjudged(f"the history could not be read: {self.view.history_problem}", self.latest)
        return None

    @property
    def _rests_on_history(self) -> bool:
        """Whether the class, or whether it is drift at all, is what the history store says."""
        if self.state.declared is None:
            return bool(self.live)
        # Whose job holds a newer name, and why nothing is owned, only the history store can say.
        if not self.view.owned or self.state.name_holders:
            return True
        fields = self._fields
        return fields is not None and bool(fields.modified)

    # --- drift

    def of_declared(self) -> Iterator[Drift]:
        """What is not as it was left, of a key that is declared."""
        assert self.state.declared is not None
        if self.state.rename_problem:
            return
        yield from self._duplicates()
        yield from self.unowned()
        if not self.view.owned:
            missing = list(self._missing(self.state.declared))
            yield from missing or self._missed(self.state.declared)
            return
        ended = list(self._ended(self.view.aged_out or self.view.owned[-1], self.state.declared))
        yield from ended
        yield from self._missed(self.state.declared)
        fields = self._fields
        latest = self.latest
        if (
            fields
            and fields.modified
            and latest
            and not (self.rerun or _is_about(ended, latest) or self._retry(latest))
        ):
            detail = f"differs from what {fields.basis}: {spell_changes(fields.modified)}"
            yield self.entry(DriftClass.MODIFIED, latest, detail, changes=fields.modified)

    def of_undeclared(self) -> Iterator[Drift]:
        """What runs although nothing declares it, unless that is what the next apply will change."""
        if self._removal_is_pending:
            yield from self._duplicates()
            return
        for revision in self.live:
            detail = f"{revision.job.name} is {revision.job.phase_text}, but not declared"
            yield self.entry(DriftClass.ORPHANED, revision, detail, work=self._work_of([revision.job]))

    @property
    def _removal_is_pending(self) -> bool:
        """Whether the last apply that dealt with the key declared it, or its entry did before an edit.

        One that did not has begun to end the job: a job that runs all the same was started again.
        """
        was_declared = self.state.former_entry is not None or any(
            p.declared is not None for p in self.view.remembered
        )
        return was_declared and bool(self.live) and not any(one.marker.stopped for one in self.live)

    def _duplicates(self) -> Iterator[Drift]:
        active = [revision for revision in self.view.owned if revision.job.is_active]
        if len(active) > 1:
            names = ", ".join(f"{one.job.name} ({one.job.phase_text})" for one in active)
            others = [one.job for one in active if one is not self.latest]
            yield self.entry(
                DriftClass.DUPLICATE,
                self.latest,
                f"more than one active revision: {names}",
                work=self._work_of(others),
                others=tuple(sorted(job.id for job in others)),
            )

    def unowned(self) -> Iterator[Drift]:
        """Jobs without a believed marker that have one of the key's names, or once were its jobs."""
        if self.state.declared is None:
            return
        for conflicting_job in self.view.conflicting_jobs:
            if conflicting_job.standing is OwnershipState.UNMANAGED:
                job = conflicting_job.job
                yield self._entry(
                    DriftClass.UNOWNED,
                    job.id,
                    self._whose(conflicting_job),
                    work=self._work_of([job]) if job.is_active else None,
                )

    def _whose(self, conflicting_job: ConflictingJob) -> str:
        if self.view.past_of(conflicting_job.job.id) is not None:
            return f"{conflicting_job.job.name} is known from history; its marker was removed"
        return (
            f"{conflicting_job.job.name} has a name of this key but no valid marker ({conflicting_job.why})"
        )

    def _missing(self, declared: DesiredJob) -> Iterator[Drift]:
        """The key is declared, and nothing of it is there."""
        if _is_hidden(self.state) or self._was_never_had or self.rerun:
            return
        latest = self.latest
        if latest is None:
            yield self.entry(DriftClass.MISSING, None, f"declared, but no job exists{self._held}")
            return
        is_done = latest.job.phase is Phase.COMPLETED or stopped_itself(declared, latest.job)
        if not is_done and not _was_stopped(latest):
            last = self.view.remembered[-1]
            seen = f"was last seen as {last.phase_text}" if last.phase_text else "was created"
            detail = f"declared, but no job exists; r{last.number} {seen}{self._held}"
            yield self.entry(DriftClass.MISSING, None, detail)

    @property
    def _held(self) -> str:
        foreign = next(
            (one for one in self.view.conflicting_jobs if one.standing is OwnershipState.FOREIGN), None
        )
        return f"; {foreign.job.name} is held by job {foreign.job.id} ({foreign.why})" if foreign else ""

    @property
    def _was_never_had(self) -> bool:
        """Whether the stack never had this key: the history store says so, or the stack was never applied.

        A store in which only observations were recorded says nothing of what was there before them. Where
        neither the service nor a store knows anything of the stack, nothing of it was ever applied.
        """
        memory = self.state.snapshot.memory
        if memory.knows_applies:
            return not self.view.remembered
        return not (self.state.snapshot.ownership.owned_keys or memory.knows_stack or memory.elsewhere)

    def _ended(self, last: Revision, declared: DesiredJob) -> Iterator[Drift]:
        phase = last.job.phase
        if (
            phase is None
            or stopped_itself(declared, last.job)
            or (last.is_aged_out and _is_hidden(self.state))
        ):
            return
        if self.rerun and self.latest and self.latest.job.id == last.job.id:
            return
        if phase.ended_badly and self._retry(last) is None:
            yield self._ended_entry(DriftClass.FAILED, last, f"{last.job.name} ended as {phase}")
        elif phase is Phase.TERMINATED and (by := self._terminated_by(last)):
            detail = f"{last.job.name} was terminated {by}"
            yield self._ended_entry(DriftClass.TERMINATED, last, detail)

    def _terminated_by(self, last: Revision) -> str:
        """By whom a job was terminated, as far as the history says; "" if an apply did it."""
        keys = (self.state.key, *(self.state.entry.formerly if self.state.entry else ()))
        for change in filter(None, map(self.state.snapshot.changes.get, keys)):
            if change.job == last.job.id and change.call == Call.TERMINATE and change.kind != RunKind.APPLY:
                return f"by {change.kind} ({change.who})" if change.who else f"by {change.kind}"
        return "" if last.marker.stopped else "outside reconciler"

    def _retry(self, last: Revision) -> Attempt | None:
        """The retry of a job that failed, if one is due or waited for: the next apply makes it."""
        if last.job.phase is None or not last.job.phase.ended_badly:
            return None
        attempt = self.state.retry_of(last)
        return None if attempt is None or attempt.reason is Reason.RETRIES_EXHAUSTED else attempt

    def _missed(self, declared: DesiredJob) -> Iterator[Drift]:
        """A time of the schedule at which nothing was active, and for which nothing was started in time."""
        latest, schedule, since_s = self.latest, declared.schedule, self.view.last_start_s
        if latest is None or schedule is None or since_s is None or _is_hidden(self.state):
            return
        counts_from_s = declared.schedule_counts_from(latest.marker.schedule)
        if counts_from_s is None or any(revision.job.is_active for revision in self.view.owned):
            return
        ends = (self._ended_at_s(revision) for revision in self.view.ever_owned)
        time_s = schedule.missed(max(since_s, counts_from_s, *ends), self.state.service_s)
        if time_s is not None:
            detail = f"scheduled for {schedule.spell(time_s)}, and not started in time"
            yield self.entry(DriftClass.MISSED, latest, detail, began_at_s=time_s)

    def _ended_at_s(self, revision: Revision) -> float:
        """When a revision ended; one whose end nobody saw was active until it was seen last."""
        past = self.view.past_of(revision.job.id) if revision.is_aged_out else None
        last_seen_s = past.seen_at_s if past is not None and not past.has_ended else None
        return max(revision.job.ended_at_s() or 0.0, last_seen_s or 0.0)

    def _ended_entry(self, class_: DriftClass, last: Revision, detail: str) -> Drift:
        """An entry about a revision that has ended, with all the work that it did in vain."""
        work = node_hours(last.job.duration_s, last.job.node_count)
        return self.entry(class_, last, detail, began_at_s=last.job.ended_at_s(), work=work)

    def stuck(self) -> Iterator[Drift]:
        """Terminations that do not come to an end."""
        for revision in self.view.owned:
            since_s = self._terminating_since_s(revision)
            if since_s is not None and self.state.at_s - since_s > STUCK_AFTER_S:
                detail = f"{revision.job.name} has been terminating for more than an hour"
                work = node_hours(self.state.at_s - since_s, revision.job.node_count)
                yield self.entry(DriftClass.STUCK, revision, detail, began_at_s=since_s, work=work)

    def _terminating_since_s(self, revision: Revision) -> float | None:
        """When the termination that is under way began, in seconds since 1970; None if nothing says so.

        The service shows it by a duration that has come to a halt. Where the duration goes on, or there is
        none, the history has the first look that saw the job terminating.
        """
        if revision.job.phase is not Phase.TERMINATING:
            return None
        began = [revision.job.ended_at_s()] if revision.job.duration_s else []
        past = self.view.past_of(revision.job.id)
        if past is not None and past.phases and past.phases[-1][0] == Phase.TERMINATING:
            began.append(past.phases[-1][1])
        return min((at_s for at_s in began if at_s is not None), default=None)

    # --- pending

    def pending(self) -> Pending | None:
        """What apply would bring about because the manifest says so."""
        said = list(
            self._pending_removal()
            if self.state.declared is None
            else self._pending_edits(self.state.declared)
        )
        if not said:
            return None
        latest = self.latest
        job = latest.job.id if latest and not latest.is_aged_out else None
        return Pending(key=self.state.key, job=job, detail="; ".join(said))

    def _pending_removal(self) -> Iterator[str]:
        if not self._removal_is_pending:
            return
        names = ", ".join(f"{one.job.name} ({one.job.phase_text})" for one in self.live)
        if former := self.state.former_entry:
            yield f"no longer produced by {former.sweep or former.key}; {names}"
        else:
            removed = "state: absent" if self.state.entry else "no longer in the manifest"
            yield f"{removed}; {names} will be terminated"

    def _pending_edits(self, declared: DesiredJob) -> Iterator[str]:
        if clash := self.state.rename_problem:
            yield clash
            return
        latest = self.latest
        if latest is None:
            if self._was_never_had:
                yield "new in the manifest"
            return
        if latest.is_aged_out and _is_hidden(self.state):
            return
        if self.rerun:
            yield self.rerun
        if not (self.rerun and declared.is_declared_by(latest.marker.digest)):
            yield from self._pending_revision(latest, declared)
        former = sorted({one.marker.key for one in self.view.owned} - {self.state.key})
        if former:
            yield f"formerly {', '.join(former)}: the marker follows"
        if (fields := self._fields) and fields.pending:
            yield f"{', '.join(change.path for change in fields.pending)} changed"

    def _pending_revision(self, latest: Revision, declared: DesiredJob) -> Iterator[str]:
        if not declared.is_declared_by(latest.marker.digest):
            ahead = f"changed since r{latest.number} ({latest.job.phase_text})"
            yield f"{ahead}{self._edited(latest, declared)}"
        elif _was_stopped(latest) and not (
            stopped_itself(declared, latest.job)
            or (latest.job.phase is Phase.TERMINATED and self._terminated_by(latest))
        ):
            yield f"declared again; r{latest.number} was stopped by us"
        elif attempt := self._retry(latest):
            due = " is due" if attempt.reason is Reason.RETRY else ""
            yield f"r{latest.number} ended as {latest.job.phase}; {attempt.detail}{due}"

    def _edited(self, latest: Revision, declared: DesiredJob) -> str:
        """The fields that were edited, as far as the history store says what was declared before."""
        then = self.state.declared_then
        if then is None:
            return ""
        now = declared.covered_by(latest.marker.digest[:1])
        changes = changes_between(then, now, forces_new_job=True)
        return f": {', '.join(change.path for change in changes)} changed" if changes else ""

    @cached_property
    def _fields(self) -> FieldDrift | None:
        """The mutable fields of the revision that stands for the key; None where none can be compared."""
        latest, declared = self.latest, self.state.declared
        if latest is None or declared is None or latest.is_aged_out:
            return None
        if latest.job.phase in (None, Phase.TERMINATING):
            return None
        past = self.view.past_of(latest.job.id)
        return compare_fields(declared, latest, past.declared if past else None, self.state.context.cloud)

    # --- what a person should know

    def warnings(self) -> Iterator[PlanWarning]:
        """What is no drift, and looks odd."""
        for revision in self.view.owned:
            yield from self._unexpected_step(revision)
        latest = self.latest
        if self.state.declared:
            yield from self._held_names()
        if self.state.declared and latest:
            if (fields := self._fields) is not None:
                yield from fields.warnings(self.state.key, latest.job)
            for revision in self.live:
                # Two that are active are a duplicate; here the one that counts has ended.
                if not latest.job.is_active and revision is not latest:
                    yield PlanWarning(
                        what="superseded revision is active",
                        why=f"{revision.job.name} is {revision.job.phase_text}, and "
                        f"{latest.job.name} is {latest.job.phase_text}",
                        key=self.state.key,
                    )

    def _held_names(self) -> Iterator[PlanWarning]:
        """Names that the next revision may need, and that another stack has by now."""
        for one in self.state.name_holders:
            if one.standing is not OwnershipState.UNMANAGED:
                why = f"{one.job.name} is held by job {one.job.id} ({one.why})"
                yield PlanWarning(what="name taken", why=why, key=self.state.key)

    def _unexpected_step(self, revision: Revision) -> Iterator[PlanWarning]:
        past, now = self.view.past_of(revision.job.id), revision.job.phase
        before = past.phase if past else None
        if before is None or now is None or is_expected(before, now):
            return
        expected = ", ".join(phase for phase in Phase if phase in RULES[before].expected_next)
        why = f"{revision.job.name} was {before} and is {now}; expected next: {expected}"
        yield PlanWarning(what="unexpected phase", why=why, key=self.state.key)

    def _work_of(self, jobs: Iterable[ObservedJob]) -> float:
        """What jobs have used so far, in node-hours."""
        return round(sum(node_hours(job.ran_s(self.state.at_s), job.node_count) for job in jobs), 6)

    def entry(self, class_: DriftClass, revision: Revision | None, detail: str, **more: Any) -> Drift:
        """One entry of the report about a revision; `more` as below."""
        job = None if revision is None or revision.is_aged_out else revision.job.id
        return self._entry(class_, job, detail, **more)

    def _entry(
        self,
        class_: DriftClass,
        job: str | None,
        detail: str,
        *,
        began_at_s: float | None = None,
        work: float | None = None,
        changes: tuple[Change, ...] = (),
        others: tuple[str, ...] = (),
    ) -> Drift:
        """One entry of the report; `work` are the node-hours that it has cost, `others` further jobs."""
        return Drift.model_validate(
            {
                "key": self.state.key,
                "class": class_,
                "job": job,
                "detail": detail,
                "began_at": None if began_at_s is None else timestamp(began_at_s),
                "node_hours": work,
                "fix": remedy_for(
                    class_,
                    self.state.key,
                    job,
                    edits_wait=bool(self.state.declared and self.state.declared.edits_wait),
                ),
                "changes": changes,
                "others": others,
            }
        )


def is_expected(before: Phase, now: Phase) -> bool:
    """Whether a job that was seen in one phase may be seen in another at the next look.

    Between two looks an active job may have gone several steps. From an end only the service's own
    restart leads on, and that is one step.
    """
    if before is now or now in RULES[before].expected_next:
        return True
    reached, ahead = {before}, [before]
    while ahead:
        phase = ahead.pop()
        steps = RULES[phase].expected_next if phase.is_active else frozenset()
        ahead += steps - reached
        reached |= steps
    return now in reached


def _was_stopped(revision: Revision) -> bool:
    """Whether we ended it, or have begun to."""
    return revision.marker.stopped and revision.job.phase in (Phase.TERMINATED, Phase.TERMINATING)


def _is_about(entries: list[Drift], revision: Revision) -> bool:
    return any(entry.job == revision.job.id for entry in entries)
