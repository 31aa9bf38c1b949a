"""Drift: what changed on the service behind the manifest's back, as opposed to edits of the manifest.

One event is reported once, in one class. Source: docs/concepts/drift.md; docs/concepts/revisions.md,
"Phases".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from pydantic import Field

from reconciler.core.body import is_known
from reconciler.core.diff import changes_between
from reconciler.core.fields.field_types import Cloud
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.masking import mask
from reconciler.core.mutable import MutableChanges, edited_paths, mutable_changes, with_secrets_of
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import Revision
from reconciler.core.past import Call, RunKind
from reconciler.core.phase import RULES, Phase
from reconciler.core.scalar import Reference, parts_of
from reconciler.core.stack import Declared, DesiredJob, Stack
from reconciler.core.values import (
    MARKER_SCHEDULE,
    Change,
    Head,
    PlanWarning,
    Source,
    TargetIdentity,
    fold_similar_warnings,
    node_hours,
    timestamp_or_none,
)
from reconciler.decide.drift_check import REMEDIES, Drift, DriftClass, DriftComparison, IgnoredDrift, Pending
from reconciler.decide.key_state import (
    Attempt,
    KeyState,
    PlanContext,
    Snapshot,
    keys_in_view,
    keys_owned_in_view,
    state_of,
)
from reconciler.decide.plan import Reason
from reconciler.decide.planner import snapshot_warnings, upstream_reruns
from reconciler.decide.renames import SweepEntries
from reconciler.errors import ExitCode
from reconciler.secrets import matches_redacted, show

# --- the mutable fields of one job


class _FieldDrift(NamedTuple):
    """The mutable fields of a job: `modified` ones differ from `basis`, `pending` ones were edited."""

    modified: tuple[Change, ...]
    pending: tuple[Change, ...]
    basis: str
    compared: MutableChanges


def _compare_fields(
    declared: DesiredJob, revision: Revision, applied: Declared | None, cloud: Cloud
) -> _FieldDrift:
    """Compare a job with what was last applied to it, or, if that is not recorded, with the declaration."""
    job, marker = revision.job, revision.marker
    # A pending rename is reported separately, so compare under the key of the marker.
    as_named = replace(declared, key=marker.key)
    to_declared = mutable_changes(as_named, job, marker, cloud, applied.mutable if applied else None)
    # Only an apply writes the schedule of a marker: a difference is an edit, not drift.
    pending = tuple(change for change in to_declared.now if change.path == MARKER_SCHEDULE)
    differing, basis = mask(to_declared.now), "is declared"
    if applied is not None:
        # Secrets, and texts that look like one, are redacted in the record: restore them where possible.
        description = _unredacted(applied.description, declared.description, job.text)
        if show(declared.description) == description:
            description = declared.description
        elif any(isinstance(part, Reference) for part in parts_of(description)):
            description = job.text  # only the name of a secret is recorded, not the text
        body = _unredacted(applied.mutable, declared.body, job.body)
        as_applied = DesiredJob(
            key=marker.key,
            body=with_secrets_of(declared.body or {}, body),
            digest=marker.digest,
            description=description,
            lifecycle=Lifecycle(protect=applied.protect),
        )
        to_applied = mutable_changes(as_applied, job, marker, cloud, applied.mutable)
        differing, basis = mask(to_applied.now, [applied]), "was last applied"
        below = tuple(f"{path}." for path in edited_paths(declared, applied))
        edits = mask(to_declared.now, [applied])
        pending = (*(change for change in edits if f"{change.path}.".startswith(below)), *pending)
    # An update would undo the drift, so swap its before and after.
    modified = tuple(
        change.model_copy(update={"before": change.after, "after": change.before})
        for change in differing
        if change.path != MARKER_SCHEDULE
    )
    return _FieldDrift(modified, pending, basis, to_declared)


def _unredacted(recorded: Any, *others: Any) -> Any:
    """Return the recorded value, with redacted texts replaced by the first of `others` that matches."""
    if isinstance(recorded, str):
        texts = (one for one in others if isinstance(one, str) and matches_redacted(recorded, one))
        return next(texts, recorded)
    if isinstance(recorded, Mapping):
        trees = [one for one in others if isinstance(one, Mapping)]
        return {
            name: _unredacted(value, *(tree.get(name) for tree in trees)) for name, value in recorded.items()
        }
    if isinstance(recorded, list):
        lists = (one for one in others if isinstance(one, list) and len(one) == len(recorded))
        return [_unredacted(*items) for items in zip(recorded, *lists, strict=True)]
    return recorded


# --- one key


STUCK_AFTER_S = 3600.0


class Findings(NamedTuple):
    """The findings for one key."""

    drift: tuple[Drift, ...] = ()
    pending: Pending | None = None
    warnings: tuple[PlanWarning, ...] = ()


def check_key(state: KeyState, rerun: str = "") -> Findings:
    """Compare one key with what the last apply left.

    `rerun` says why the key is about to run again because of a needed key: then how its job ended is no
    drift.
    """
    check = _KeyCheck(state, rerun)
    if unknown := check.why_unknown():
        detail, revision = unknown
        return Findings((*check.unowned(), check.entry(DriftClass.UNKNOWN, revision, detail)))
    drift = (*(check.of_declared() if state.declared else check.of_undeclared()), *check.stuck())
    pending = None
    if summary := "; ".join(check.pending()):
        job = state.latest.job.id if state.latest and not state.latest.is_aged_out else None
        pending = Pending(key=state.key, job=job, detail=summary)
    return Findings(drift, pending, tuple(check.warnings()))


def assumes_absence(state: KeyState) -> bool:
    """Whether the key may be missing, so that only a full scan can tell."""
    view = state.view
    if not state.declared or view.owned or _is_hidden(state):
        return False
    return not (view.remembered and view.remembered[-1].has_ended)


def _is_hidden(state: KeyState) -> bool:
    """Whether the latest revision may exist without a marker, as an unmanaged job with a name of the key."""
    view = state.view
    unmanaged = {one.job.id for one in view.conflicting_jobs if one.is_unmanaged}
    return view.remembered[-1].job in unmanaged if view.remembered else bool(unmanaged)


@dataclass(frozen=True)
class _KeyCheck:
    state: KeyState
    rerun: str

    # --- unknown

    def why_unknown(self) -> tuple[str, Revision | None] | None:
        """Return why the key cannot be judged, and the revision concerned; None if it can."""
        state, view = self.state, self.state.view
        if state.unreadable:
            return state.unreadable, state.latest
        for revision in view.owned:
            if revision.job.phase is None:
                return f'unknown phase "{revision.job.phase_text}"', revision
            if not is_known(revision.marker.digest):
                return f"digest {revision.marker.digest} needs a newer reconciler", revision
        if assumes_absence(state) and not state.ownership.proves_absence:
            return "a job could not be read, so it is unknown whether this one exists", None
        if view.history_problem is None:
            return None
        # Only the history knows who owns a newer name, why nothing is owned, whether an apply was ending an
        # undeclared job, and what was last applied.
        needs_history = bool(not view.owned or state.name_holders or (self._fields and self._fields.modified))
        if bool(state.live) if state.declared is None else needs_history:
            return f"the history could not be read: {view.history_problem}", state.latest
        return None

    # --- drift

    def of_declared(self) -> Iterator[Drift]:
        view, latest = self.state.view, self.state.latest
        if self.state.rename_problem:
            return
        yield from self._duplicates()
        yield from self.unowned()
        if not view.owned:
            missing = self._missing()
            yield from [missing] if missing else self._missed()
            return
        if ended := self._ended(view.aged_out or view.owned[-1]):
            yield ended
        yield from self._missed()
        fields = self._fields
        if not (fields and fields.modified and latest) or self.rerun or self._retry(latest):
            return
        if ended is None or ended.job != latest.job.id:
            differences = []
            for change in fields.modified:
                values = (
                    "(none)" if value is None else json.dumps(show(value), ensure_ascii=False)
                    for value in (change.before, change.after)
                )
                differences.append(f"{change.path} {' -> '.join(values)}")
            detail = f"differs from what {fields.basis}: {'; '.join(differences)}"
            yield self.entry(DriftClass.MODIFIED, latest, detail, changes=fields.modified)

    def of_undeclared(self) -> Iterator[Drift]:
        """Yield active jobs that are not declared, unless the next apply will end them as pending."""
        if self._removal_is_pending:
            yield from self._duplicates()
            return
        for revision in self.state.live:
            detail = f"{revision.job.name} is {revision.job.phase_text}, but not declared"
            yield self.entry(DriftClass.ORPHANED, revision, detail, work=self._work_of([revision.job]))

    @property
    def _removal_is_pending(self) -> bool:
        """Whether the job is active because its removal from the manifest is not applied yet.

        If an apply has begun to end it and it is active all the same, it was started again.
        """
        state = self.state
        was_declared = state.former_entry is not None or any(p.declared for p in state.view.remembered)
        return was_declared and bool(state.live) and not any(one.marker.stopped for one in state.live)

    def _duplicates(self) -> Iterator[Drift]:
        latest = self.state.latest
        # An apply that makes the new job first does not wait until the old one has ended.
        active = [one for one in self.state.view.owned if one.job.is_active and not _was_stopped(one)]
        if len(active) > 1:
            names = ", ".join(f"{one.job.name} ({one.job.phase_text})" for one in active)
            others = [one.job for one in active if one is not latest]
            detail = f"more than one active revision: {names}"
            ids = tuple(sorted(job.id for job in others))
            yield self.entry(DriftClass.DUPLICATE, latest, detail, work=self._work_of(others), others=ids)

    def unowned(self) -> Iterator[Drift]:
        """Yield jobs without a valid marker that have a name of the key, or are known as its jobs."""
        for holder in self.state.view.conflicting_jobs if self.state.declared else ():
            if holder.is_unmanaged:
                job = holder.job
                detail = f"{job.name} has a name of this key but no valid marker ({holder.why})"
                if self.state.view.past_of(job.id) is not None:
                    detail = f"{job.name} is known from history; its marker was removed"
                work = self._work_of([job]) if job.is_active else None
                yield self.entry(DriftClass.UNOWNED, job, detail, work=work)

    def _missing(self) -> Drift | None:
        latest, view = self.state.latest, self.state.view
        if _is_hidden(self.state) or self._was_never_applied or self.rerun:
            return None
        detail = "declared, but no job exists"
        if latest is not None:
            is_done = latest.job.phase is Phase.COMPLETED or self.state.stopped_itself(latest)
            if is_done or _was_stopped(latest):
                return None
            last = view.remembered[-1]
            seen = f"was last seen as {last.phase_text}" if last.phase_text else "was created"
            detail += f"; r{last.number} {seen}"
        foreign = (one for one in view.conflicting_jobs if not one.is_unmanaged)
        if holder := next(foreign, None):
            detail += f"; {holder.job.name} is held by job {holder.job.id} ({holder.why})"
        return self.entry(DriftClass.MISSING, None, detail)

    @property
    def _was_never_applied(self) -> bool:
        """Whether the key was never applied, by the history or because nothing of the stack is known.

        A history without applies (only observations) says nothing about what was there before.
        """
        memory = self.state.snapshot.memory
        if any(past.declared is not None for past in memory.revisions):
            return not self.state.view.remembered
        return not (self.state.ownership.owned_keys or memory.knows_stack or memory.elsewhere)

    def _ended(self, last: Revision) -> Drift | None:
        """Return how the last revision ended, with all its work, if that is drift."""
        job, latest = last.job, self.state.latest
        if self.state.stopped_itself(last) or (last.is_aged_out and _is_hidden(self.state)):
            return None
        if self.rerun and latest and latest.job.id == job.id:
            return None
        if job.phase is not None and job.phase.ended_badly and self._retry(last) is None:
            class_, detail = DriftClass.FAILED, f"{job.name} ended as {job.phase}"
        elif job.phase is Phase.TERMINATED and (by := self._terminated_by(last)):
            class_, detail = DriftClass.TERMINATED, f"{job.name} was terminated {by}"
        else:
            return None
        work = node_hours(job.duration_s, job.node_count)
        return self.entry(class_, last, detail, began_at_s=job.ended_at_s(), work=work)

    def _terminated_by(self, last: Revision) -> str:
        """Say who terminated a job, as far as the history knows; "" if an apply did."""
        keys = (self.state.key, *(self.state.entry.formerly if self.state.entry else ()))
        for change in filter(None, map(self.state.snapshot.changes.get, keys)):
            if change.job == last.job.id and change.call == Call.TERMINATE and change.kind != RunKind.APPLY:
                return f"by {change.kind} ({change.who})" if change.who else f"by {change.kind}"
        return "" if last.marker.stopped else "outside reconciler"

    def _retry(self, last: Revision) -> Attempt | None:
        """Return the retry of a failed job if it is due or waited for."""
        if last.job.phase is None or not last.job.phase.ended_badly:
            return None
        attempt = self.state.retry_of(last)
        return None if attempt is None or attempt.reason is Reason.RETRIES_EXHAUSTED else attempt

    def _missed(self) -> Iterator[Drift]:
        """Yield a scheduled time at which no job was active and after which none was started in time."""
        view, latest, schedule = self.state.view, self.state.latest, self.state.desired.schedule
        since_s = view.last_start_s
        if latest is None or schedule is None or since_s is None or _is_hidden(self.state):
            return
        counts_from_s = self.state.counts_from_s
        if counts_from_s is None or any(revision.job.is_active for revision in view.owned):
            return
        since_s = max(since_s, counts_from_s)
        for revision in view.ever_owned:
            # If its end was not seen, assume that it was active until last seen.
            past = view.past_of(revision.job.id) if revision.is_aged_out else None
            seen_s = past.seen_at_s if past is not None and not past.has_ended else None
            since_s = max(since_s, revision.job.ended_at_s() or 0.0, seen_s or 0.0)
        time_s = schedule.missed(since_s, self.state.service_s)
        if time_s is not None:
            detail = f"scheduled for {schedule.spell(time_s)}, and not started in time"
            yield self.entry(DriftClass.MISSED, latest, detail, began_at_s=time_s)

    def stuck(self) -> Iterator[Drift]:
        """Yield terminations that do not end.

        A termination began when the job's duration stopped, or when the history first saw the job
        terminating.
        """
        for revision in self.state.view.owned:
            job, past = revision.job, self.state.view.past_of(revision.job.id)
            if job.phase is not Phase.TERMINATING:
                continue
            began = [job.ended_at_s()] if job.duration_s else []
            if past is not None and past.phases and past.phases[-1][0] == Phase.TERMINATING:
                began.append(past.phases[-1][1])
            since_s = min((at_s for at_s in began if at_s is not None), default=self.state.at_s)
            if self.state.at_s - since_s > STUCK_AFTER_S:
                detail = f"{job.name} has been terminating for more than an hour"
                work = node_hours(self.state.at_s - since_s, job.node_count)
                yield self.entry(DriftClass.STUCK, revision, detail, began_at_s=since_s, work=work)

    # --- pending

    def pending(self) -> Iterator[str]:
        state, latest, declared = self.state, self.state.latest, self.state.declared
        if declared is None:
            if self._removal_is_pending:
                names = ", ".join(f"{one.job.name} ({one.job.phase_text})" for one in state.live)
                removed = "state: absent" if state.entry else "no longer in the manifest"
                protect = state.entry.lifecycle.protect if state.entry else None
                is_protected = any(one.marker.protected for one in state.live) if protect is None else protect
                if former := state.former_entry:
                    yield f"no longer produced by {former.sweep or former.key}; {names}"
                else:
                    ends = "will not be terminated while protected" if is_protected else "will be terminated"
                    yield f"{removed}; {names} {ends}"
        elif clash := state.rename_problem:
            yield clash
        elif latest is None:
            if self._was_never_applied:
                yield "new in the manifest"
        elif not (latest.is_aged_out and _is_hidden(state)):
            if self.rerun:
                yield self.rerun
            if not (self.rerun and declared.is_declared_by(latest.marker.digest)):
                yield from self._pending_revision(latest, declared)
            if former_keys := sorted({one.marker.key for one in state.view.owned} - {state.key}):
                yield f"formerly {', '.join(former_keys)}: the marker follows"
            if (fields := self._fields) and fields.pending:
                yield f"{', '.join(change.path for change in fields.pending)} changed"

    def _pending_revision(self, latest: Revision, declared: DesiredJob) -> Iterator[str]:
        phase, digest = latest.job.phase, latest.marker.digest
        if self._is_edited:
            summary = f"changed since r{latest.number} ({latest.job.phase_text})"
            before = self.state.previous_declaration(latest)
            after = declared.covered_by(digest[:1])
            changes = changes_between(before, after, forces_new_job=True) if before is not None else ()
            paths = [change.path for change in changes]
            for change in (c for c in changes if c.path == "code" and declared.code):
                if files := self.state.context.changed_files(declared, change.before):
                    paths[paths.index("code")] = f"code ({files})"
            yield summary + (f": {', '.join(paths)} changed" if paths else "")
        elif _was_stopped(latest) and not (
            self.state.stopped_itself(latest) or (phase is Phase.TERMINATED and self._terminated_by(latest))
        ):
            yield f"declared again; r{latest.number} was stopped by us"
        elif attempt := self._retry(latest):
            due = " is due" if attempt.reason is Reason.RETRY else ""
            yield f"r{latest.number} ended as {phase}; {attempt.detail}{due}"

    @property
    def _is_edited(self) -> bool:
        """Whether the manifest was edited since the job was created."""
        state = self.state
        return bool(state.declared and state.latest) and not (state.has_declared_digest or state.ignored)

    @cached_property
    def _fields(self) -> _FieldDrift | None:
        """The compared mutable fields of the latest revision; None if they cannot be compared."""
        latest, declared = self.state.latest, self.state.declared
        if latest is None or declared is None or latest.is_aged_out:
            return None
        if latest.job.phase in (None, Phase.TERMINATING):
            return None
        past = self.state.view.past_of(latest.job.id)
        declared = self.state.numbered_as(latest)
        return _compare_fields(declared, latest, past.declared if past else None, self.state.context.cloud)

    # --- warnings

    def warnings(self) -> Iterator[PlanWarning]:
        state, latest, key = self.state, self.state.latest, self.state.key
        for revision in state.view.owned:
            past, now = state.view.past_of(revision.job.id), revision.job.phase
            before = past.phase if past else None
            # A live job may have taken any number of steps since, any other one at most a single one.
            if before is None or now is None or before.is_live or now is before:
                continue
            if now not in RULES[before].expected_next:
                expected = ", ".join(phase for phase in Phase if phase in RULES[before].expected_next)
                why = f"{revision.job.name} was {before} and is {now}; expected next: {expected}"
                yield PlanWarning(what="unexpected phase", why=why, key=key)
        if state.declared is None:
            return
        # Names that the next revision may need, taken by other stacks.
        for holder in state.name_holders:
            if not holder.is_unmanaged:
                why = f"{holder.job.name} is held by job {holder.job.id} ({holder.why})"
                yield PlanWarning(what="name taken", why=why, key=key)
        if latest is None:
            return
        if self._fields is not None:
            yield from self._fields.compared.warnings(key, latest.job)
        # If the latest is active, too, this is drift: duplicate.
        for revision in () if latest.job.is_active else state.live:
            if revision is not latest:
                active = f"{revision.job.name} is {revision.job.phase_text}"
                why = f"{active}, and {latest.job.name} is {latest.job.phase_text}"
                yield PlanWarning(what="superseded revision is active", why=why, key=key)

    def _work_of(self, jobs: Iterable[ObservedJob]) -> float:
        return round(sum(node_hours(job.ran_s(self.state.at_s), job.node_count) for job in jobs), 6)

    def entry(
        self,
        class_: DriftClass,
        of: Revision | ObservedJob | None,
        detail: str,
        *,
        began_at_s: float | None = None,
        work: float | None = None,
        changes: tuple[Change, ...] = (),
        others: tuple[str, ...] = (),
    ) -> Drift:
        """Return a report entry; `work` is its cost in node-hours, `others` are further job ids."""
        state, fix = self.state, REMEDIES[class_]
        if isinstance(of, Revision):
            if class_ is DriftClass.TERMINATED and of.marker.stopped:
                fix = "reconciler apply --only KEY starts it again; or remove KEY from the manifest"
            of = None if of.is_aged_out else of.job
        job = of.id if of else None
        if state.declared and state.declared.edits_wait:
            # Edits wait for the schedule.
            edit = "edit `lifecycle.rerun`"
            fix = fix.replace(edit, f"set `lifecycle.on_change: replace` and {edit}")
        lifecycle = state.desired.lifecycle if state.entry else Lifecycle()
        if lifecycle.on_failure == "retry":
            fix = fix.replace("set `lifecycle.on_failure: retry`", "raise `lifecycle.max_retries`")
        if lifecycle.on_terminated == "recreate":
            advice = "run reconciler apply, which starts it again while `lifecycle.max_retries` allows it"
            fix = fix.replace("set `lifecycle.on_terminated: recreate`", advice)
        has_ended, on_change = class_ in (DriftClass.FAILED, DriftClass.TERMINATED), lifecycle.on_change
        if has_ended and self._is_edited and on_change in (None, "replace") and not state.desired.edits_wait:
            # The edit is made already, and starts a new count of retries.
            fix = (
                "reconciler jobs logs KEY; then run reconciler apply, which starts KEY as currently declared"
            )
        values = {"KEY": state.key, "JOB": job or "JOB"}
        return Drift.model_validate(
            {
                "key": state.key,
                "class": class_,
                "job": job,
                "detail": detail,
                "began_at": timestamp_or_none(began_at_s),
                "node_hours": work,
                "fix": re.sub(r"\b(?:KEY|JOB)\b", lambda found: values[found[0]], fix),
                "changes": changes,
                "others": others,
                "remedy": fix,
                "source": Source.of(state.entry.location) if state.entry else None,
            }
        )


def _was_stopped(revision: Revision) -> bool:
    """Whether we terminated it, or are doing so."""
    return revision.marker.stopped and revision.job.phase in (Phase.TERMINATED, Phase.TERMINATING)


# --- the report


class DriftReport(Head):
    """What changed on the service since the last apply."""

    complete: bool = Field(description="False when something could not be read.")
    drift: tuple[Drift, ...] = Field(description="Sorted by key.")
    pending: tuple[Pending, ...] = Field(description="Sorted by key.")
    ignored: tuple[IgnoredDrift, ...] = Field(
        (), description="Known drift, which is not counted; sorted by key."
    )
    compared_with: str | None = Field(
        None,
        description="With --since-last only: time of the check compared with, RFC 3339 in UTC; null: there "
        "was none, or it could not be read.",
    )
    new: tuple[Drift, ...] = Field(
        (), description="With --since-last only: what the earlier check did not see."
    )
    changed: tuple[Drift, ...] = Field(
        (), description="With --since-last only: what now concerns another job, or has other changes."
    )
    gone: tuple[Drift, ...] = Field((), description="With --since-last only: what no longer exists.")
    summary: dict[DriftClass, int] = Field(
        description="Number of entries of each class, without ignored ones."
    )
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    compared: int = Field(0, exclude=True)
    keys: tuple[str, ...] = Field((), exclude=True, description="Every key that was looked at, sorted.")
    declared: tuple[str, ...] = Field((), exclude=True, description="Keys in the order of the manifest.")
    is_partial: bool = Field(False, exclude=True, description="Whether other keys may own jobs.")
    proves_absence: bool = Field(True, exclude=True, description="Whether no unread job may be of any key.")
    since_last: bool = Field(False, exclude=True, description="Whether only what is new or due counts.")
    comparison: DriftComparison | None = Field(None, exclude=True)

    @property
    def has_drifted(self) -> bool:
        """Whether there is drift, unknown entries aside."""
        return any(item.class_ is not DriftClass.UNKNOWN for item in self.drift)

    @property
    def is_due(self) -> bool:
        """Whether the check has something to report.

        With `since_last` that is drift that is new, has changed, or has lasted for the reminder interval.
        """
        if not self.since_last or self.comparison is None:
            return self.has_drifted
        return bool(self.comparison.reported)

    def is_conclusive(self, key: str) -> bool:
        """Whether drift of the key that is not in the report is gone."""
        unknown = (entry.key for entry in self.drift if entry.class_ is DriftClass.UNKNOWN)
        return self.proves_absence and key not in unknown and (key in self.keys or not self.is_partial)

    @property
    def word(self) -> str:
        """The result in a word or two."""
        return "unknown" if not self.complete else "drift" if self.has_drifted else "no drift"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `drift`: UNKNOWN if nothing was compared.

        Also if drift was found with `--since-last` and the last check could not be read.
        """
        comparison = self.comparison
        cannot_compare = self.since_last and self.has_drifted and comparison and comparison.problem
        if not self.complete or not self.compared or cannot_compare:
            return ExitCode.UNKNOWN
        return ExitCode.CHANGES if self.is_due else ExitCode.DONE

    @property
    def counts(self) -> dict[str, int]:
        """Counts for the history: drift by class, and its changes since the last check."""
        counts = {name.value: count for name, count in self.summary.items()} | {"ignored": len(self.ignored)}
        if self.comparison is not None:
            diff = self.comparison
            counts |= {"new": len(diff.new), "changed": len(diff.changed), "gone": len(diff.gone)}
        return {name: count for name, count in counts.items() if count} | {"pending": len(self.pending)}

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON data, as `drift --json` prints it, without secrets."""
        document = super().document()
        for entries in ("drift", "ignored", "new", "changed", "gone"):
            for entry in document[entries]:
                if not entry["changes"]:
                    del entry["changes"]
        for name in () if self.since_last else ("compared_with", "new", "changed", "gone"):
            del document[name]
        return document


def needs_whole_list(stack: Stack, snapshot: Snapshot, context: PlanContext) -> bool:
    """Whether the report depends on a job being absent, so that filtered searches are not enough."""
    return any(assumes_absence(state_of(key, job, snapshot, context)) for key, job in stack.jobs.items())


def make_drift_report(
    stack: Stack, snapshot: Snapshot, context: PlanContext, target: TargetIdentity
) -> DriftReport:
    """Check every key in view, and every key that the stack owns."""
    keys = sorted({*keys_in_view(stack, snapshot.ownership), *keys_owned_in_view(stack, snapshot.ownership)})
    reruns = upstream_reruns(stack, snapshot, context)
    entries, findings = SweepEntries(stack), []
    for key in keys:
        former = entries.former_entry(key, snapshot.memory.sweeps)
        state = replace(state_of(key, stack.jobs.get(key), snapshot, context), former_entry=former)
        findings.append(check_key(state, reruns.get(key, "")))
    warnings = [*snapshot_warnings(stack, snapshot)]
    rules = []
    for rule in stack.ignored_drift:
        if not rule.has_expired(context.at_s):
            rules.append(rule)
            continue
        place = f"{rule.location}: " if rule.location else ""
        why = f"{place}it ignored {rule.class_} of {rule.key} until {rule.until} ({rule.reason})"
        what, fix = "expired rule of drift.ignore", "remove it, or edit `until`"
        warnings.append(PlanWarning(what=what, why=why, fix=fix))
    drift: list[Drift] = []
    ignored: list[IgnoredDrift] = []
    for entry in chain.from_iterable(one.drift for one in findings):
        by = next((rule for rule in rules if rule.matches(entry.key, entry.class_.value)), None)
        if by is None:
            drift.append(entry)
            continue
        until = None if by.until is None else by.until.isoformat()
        source = Source.of(by.location)
        ignored.append(IgnoredDrift.of(entry, reason=by.reason, until=until, rule=source))
    unknown = len({entry.key for entry in drift if entry.class_ is DriftClass.UNKNOWN})
    return DriftReport(
        **context.head(target),
        complete=unknown == 0 and snapshot.ownership.is_complete,
        drift=tuple(drift),
        pending=tuple(one.pending for one in findings if one.pending),
        ignored=tuple(ignored),
        summary=dict.fromkeys(DriftClass, 0) | Counter(entry.class_ for entry in drift),
        warnings=fold_similar_warnings((*warnings, *chain.from_iterable(one.warnings for one in findings))),
        compared=0 if snapshot.ownership.problem is not None else len(keys) - unknown,
        keys=tuple(keys),
        declared=tuple(stack.whole or stack.jobs),
        is_partial=stack.is_partial,
        proves_absence=snapshot.ownership.is_complete,
    )


def with_comparison(report: DriftReport, comparison: DriftComparison, *, since_last: bool) -> DriftReport:
    """Add to the report when each drift was first seen.

    With `since_last` only what is new, changed or gone since the last check counts.
    """
    # The comparison lists the entries of the report in the same order.
    entries = zip((*report.drift, *report.ignored), comparison.standing, strict=True)
    seen = [entry.model_copy(update={"since": standing.entry.since}) for entry, standing in entries]
    update: dict[str, Any] = {
        "drift": tuple(seen[: len(report.drift)]),
        "ignored": tuple(seen[len(report.drift) :]),
        "since_last": since_last,
        "comparison": comparison,
    }
    if since_last:
        update |= {name: getattr(comparison, name) for name in ("new", "changed", "gone")}
        update["compared_with"] = timestamp_or_none(comparison.compared_with_s)
    problem = comparison.problem
    # A warning about all records may name the same problem.
    if problem is not None and not any(problem in warning.why for warning in report.warnings):
        why = f"{problem}; it is unknown when the drift was first seen"
        warning = PlanWarning(what="the last check could not be read", why=why)
        update["warnings"] = (*report.warnings, warning)
    return report.model_copy(update=update)
