"""Drift: what changed on the service behind the manifest's back, told apart from what changed in it.

Source: SEMANTICS 11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from pydantic import Field

from reconciler.core.decide import newest
from reconciler.core.draft import Situation
from reconciler.core.mutable import mutable_changes
from reconciler.core.ownership import KeyView, Revision, Standing
from reconciler.core.phase import Phase
from reconciler.core.plan import Change, Frozen, Head, PlanWarning, TargetIdentity, timestamp
from reconciler.core.planner import Look, about_the_look, keys_in_view, keys_owned_in_view
from reconciler.core.retry import stopped_itself
from reconciler.core.stack import Declared, DesiredJob, Lifecycle, Stack

STUCK_AFTER_S = 3600.0


class DriftClass(StrEnum):
    """What sort of drift it is."""

    MISSING = "missing"
    FAILED = "failed"
    TERMINATED = "terminated"
    MODIFIED = "modified"
    DUPLICATE = "duplicate"
    ORPHANED = "orphaned"
    UNOWNED = "unowned"
    STUCK = "stuck"
    UNKNOWN = "unknown"


class Drift(Frozen):
    """One thing that is not as it was left."""

    key: str = Field(description="Name of the job in the manifest.")
    class_: DriftClass = Field(alias="class", description="What sort of drift it is.")
    job: str | None = Field(None, description="Id of the job, or null where there is none.")
    detail: str = Field("", description="What was found, for people.")
    since: str | None = Field(None, description="Since when, RFC 3339 in UTC, as far as the service says.")


class Pending(Frozen):
    """A key whose manifest is ahead of the service: not drift."""

    key: str = Field(description="Name of the job in the manifest.")
    job: str | None = Field(None, description="Id of the job, or null where there is none.")
    detail: str = Field("", description="What waits to be applied, for people.")


class DriftReport(Head):
    """What changed on the service since the last apply."""

    complete: bool = Field(description="False when something could not be read.")
    drift: tuple[Drift, ...] = Field(description="Sorted by key.")
    pending: tuple[Pending, ...] = Field(description="Sorted by key.")
    summary: dict[DriftClass, int] = Field(description="How many of each class.")
    warnings: tuple[PlanWarning, ...] = Field((), description="What a person should know.")

    compared: int = Field(0, exclude=True)

    @property
    def has_drifted(self) -> bool:
        """Whether anything but what could not be read is not as it was left."""
        return any(item.class_ is not DriftClass.UNKNOWN for item in self.drift)

    @property
    def word(self) -> str:
        """How the check ended, in a word or two."""
        return "unknown" if self.has_unknown else "drift" if self.has_drifted else "no drift"

    @property
    def has_unknown(self) -> bool:
        """Whether something could not be read."""
        return not self.complete


def make_drift_report(
    stack: Stack,
    look: Look,
    situation: Situation,
    target: TargetIdentity,
    *,
    manifest_digest: str,
    version: str,
) -> DriftReport:
    """Look at every key in view and at what the stack owns."""
    drift: list[Drift] = []
    pending: list[Pending] = []
    keys = sorted({*keys_in_view(stack, look.ownership), *keys_owned_in_view(stack, look.ownership)})
    for key in keys:
        desired = stack.jobs.get(key)
        check = _Check(key, look.view(key, desired), desired, look, situation)
        drift += check.drift()
        pending += check.pending()
    unknown = len({item.key for item in drift if item.class_ is DriftClass.UNKNOWN})
    whole = look.ownership.problem is None and not look.ownership.unattributed
    warnings = about_the_look(stack, look)
    summary = dict.fromkeys(DriftClass, 0)
    for item in drift:
        summary[item.class_] += 1
    return DriftReport(
        reconciler_version=version,
        created_at=timestamp(situation.at_s),
        stack=stack.name,
        target=target,
        manifest_digest=manifest_digest,
        complete=unknown == 0 and whole,
        drift=tuple(drift),
        pending=tuple(pending),
        summary=summary,
        warnings=warnings,
        compared=0 if look.ownership.problem is not None else len(keys) - unknown,
    )


class _Check:
    """Drift of one key."""

    def __init__(
        self, key: str, view: KeyView, desired: DesiredJob | None, look: Look, situation: Situation
    ) -> None:
        self._key, self._view, self._look, self._situation = key, view, look, situation
        self._declared = desired if desired and not desired.is_absent else None
        self._latest = newest(view, self._declared)
        self._why_unknown = self._unreadable()

    def _unreadable(self) -> str | None:
        ownership = self._look.ownership
        if ownership.problem is not None:
            # What the problem is, a warning says once for all keys.
            return "the list could not be read"
        if self._view.unreadable:
            return self._view.unreadable[0].why
        if self._declared and self._latest is None and not ownership.proves_absence:
            return "a job could not be read, so it is not known whether this one exists"
        return None

    def drift(self) -> Iterator[Drift]:
        if self._why_unknown is not None:
            yield self._found(DriftClass.UNKNOWN, self._latest, self._why_unknown)
            return
        for revision in self._view.owned:
            if revision.job.phase is None:
                yield self._found(DriftClass.UNKNOWN, revision, f'unknown phase "{revision.job.phase_text}"')
        yield from self._duplicates()
        if self._declared:
            yield from self._of_declared(self._declared)
        else:
            yield from self._orphans()
        yield from self._stuck()

    def pending(self) -> Iterator[Pending]:
        latest, declared = self._latest, self._declared
        if self._why_unknown is not None or declared is None:
            return
        if latest is None:
            if self._was_never_had:
                yield Pending(key=self._key, job=None, detail="new in the manifest")
        elif latest.marker.digest != declared.digest and not self._has_aged_out:
            detail = f"the manifest is ahead of r{latest.number} ({latest.job.phase_text})"
            job = None if latest.is_aged_out else latest.job.id
            yield Pending(key=self._key, job=job, detail=detail)

    @property
    def _was_never_had(self) -> bool:
        """Whether the history store, which knows the stack, says that it never had this key."""
        return self._look.memory.knows_stack and not self._view.remembered

    @property
    def _has_aged_out(self) -> bool:
        """Whether what is declared has completed, and the service does not list it any more."""
        latest, declared = self._latest, self._declared
        if latest is None or declared is None or latest.marker.digest != declared.digest:
            return False
        return latest.is_aged_out and latest.job.phase is Phase.COMPLETED

    def _duplicates(self) -> Iterator[Drift]:
        active = [revision for revision in self._view.owned if revision.job.is_active]
        if len(active) > 1:
            names = ", ".join(f"{r.job.name} ({r.job.phase_text})" for r in active)
            yield self._found(DriftClass.DUPLICATE, self._latest, f"more than one active revision: {names}")

    def _of_declared(self, declared: DesiredJob) -> Iterator[Drift]:
        latest = self._latest
        yield from self._unowned()
        if latest is None or latest.is_aged_out:
            yield from self._missing(latest, declared)
            return
        yield from self._ended(self._view.owned[-1], declared)
        if latest.job.phase is not None and latest.job.phase is not Phase.TERMINATING:
            yield from self._modified(latest, declared)

    def _missing(self, latest: Revision | None, declared: DesiredJob) -> Iterator[Drift]:
        """Nothing owned exists, or nothing as new as the history knows."""
        if latest is None:
            is_missing = not self._was_never_had
        else:
            is_missing = latest.job.phase is not Phase.COMPLETED and not stopped_itself(declared, latest.job)
        if is_missing:
            yield self._found(DriftClass.MISSING, None, "declared, and no job of it exists")

    def _ended(self, latest: Revision, declared: DesiredJob) -> Iterator[Drift]:
        phase = latest.job.phase
        if phase is None or stopped_itself(declared, latest.job):
            return
        if phase.ended_badly:
            yield self._found(DriftClass.FAILED, latest, f"{latest.job.name} ended as {phase}")
        elif phase is Phase.TERMINATED and not latest.marker.stopped:
            yield self._found(DriftClass.TERMINATED, latest, f"{latest.job.name} was terminated, not by us")

    def _modified(self, latest: Revision, declared: DesiredJob) -> Iterator[Drift]:
        past = self._view.past_of(latest.job.id)
        applied = past.declared if past else None
        changes, wanted = self._differing(latest, declared, applied)
        if changes:
            fields = ", ".join(change.path for change in changes)
            yield self._found(DriftClass.MODIFIED, latest, f"{fields} differs from what {wanted}")

    def _differing(
        self, latest: Revision, declared: DesiredJob, applied: Declared | None
    ) -> tuple[tuple[Change, ...], str]:
        """The mutable fields that are not as they were last applied, or else not as they are declared."""
        cloud = self._situation.cloud
        # A renaming that waits to be applied is no drift, so the key is the one on the marker.
        if applied is None:
            as_named = replace(declared, key=latest.marker.key)
            return mutable_changes(as_named, latest.job, latest.marker, cloud).now, "is declared"
        then = DesiredJob(
            key=latest.marker.key,
            body=applied.mutable,
            digest=latest.marker.digest,
            description=applied.description,
            lifecycle=Lifecycle(protect=applied.protect),
        )
        return mutable_changes(then, latest.job, latest.marker, cloud).now, "was last applied"

    def _unowned(self) -> Iterator[Drift]:
        ours = {past.job for past in self._view.remembered}
        for stranger in self._view.strangers:
            if stranger.standing is Standing.UNMANAGED:
                whose = "is ours by the history, and has" if stranger.job.id in ours else "has our name and"
                detail = f"{stranger.job.name} {whose} no marker of ours ({stranger.why})"
                yield Drift.model_validate(
                    {"key": self._key, "class": DriftClass.UNOWNED, "job": stranger.job.id, "detail": detail}
                )

    def _orphans(self) -> Iterator[Drift]:
        for revision in self._view.owned:
            if revision.job.is_active:
                detail = f"{revision.job.name} is {revision.job.phase_text}, and not declared"
                yield self._found(DriftClass.ORPHANED, revision, detail)

    def _stuck(self) -> Iterator[Drift]:
        for revision in self._view.owned:
            # Without a duration nothing says when the termination began, and nothing is guessed.
            since = revision.job.ended_at_s() if revision.job.duration_s else None
            if revision.job.phase is Phase.TERMINATING and since is not None:
                waited = self._situation.at_s - since
                if waited > STUCK_AFTER_S:
                    detail = f"{revision.job.name} is being terminated for more than an hour"
                    yield self._found(DriftClass.STUCK, revision, detail)

    def _found(self, class_: DriftClass, revision: Revision | None, detail: str) -> Drift:
        since = None
        if revision is not None and class_ in (DriftClass.FAILED, DriftClass.TERMINATED, DriftClass.STUCK):
            ended_at_s = revision.job.ended_at_s()
            since = None if ended_at_s is None else timestamp(ended_at_s)
        job = None if revision is None or revision.is_aged_out else revision.job.id
        return Drift.model_validate(
            {"key": self._key, "class": class_, "job": job, "detail": detail, "since": since}
        )
