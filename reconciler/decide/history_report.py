"""What was recorded of a stack, as a document: the runs, and the revisions of its jobs.

`HistoryReport` crosses the process boundary (`history --json`), so it is a frozen model with a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pydantic import Field

from reconciler.core.canonical import mutable_paths
from reconciler.core.diff import changes_between, spell_path
from reconciler.core.record import HistorySnapshot, PastAction, PastRevision, PastRun, PastStep
from reconciler.core.stack import Declared
from reconciler.core.values import Change, Frozen, Head, TargetIdentity, timestamp


class HistoryAction(Frozen):
    """What became of one action of a run, or of one drift since the last check."""

    key: str = Field(description="Name of the job in the manifest.")
    action: str = Field(description="Planned action; of drift checks drift, of accept that.")
    reason: str = Field(description="Reason, as in a plan; of drift its class.")
    status: str = Field(
        description="How it ended: done, failed, denied, timed_out, skipped and so on; "
        "of drift new, changed, gone, accepted or removed."
    )
    detail: str = Field("", description="For people.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    code: str = Field("", description="On failure: the service's error code.")


class HistoryStep(Frozen):
    """One call of a run. Without an end it is unknown whether it took effect: the process died in it."""

    key: str = Field(description="Name of the job in the manifest.")
    action: str = Field(description="Action that the call was part of.")
    call: str = Field(description="create, update or terminate.")
    name: str = Field(description="Name of the job on the service.")
    job: str | None = Field(None, description="Id of the job, if known.")
    began_at: str = Field(description="RFC 3339, UTC.")
    duration_s: float | None = Field(
        None, description="Duration of the call in seconds; null: no answer was recorded."
    )
    ok: bool | None = Field(None, description="Whether it succeeded; null: no answer was recorded.")
    code: str = Field("", description="On failure: the service's error code.")
    message: str = Field("", description="On failure: what went wrong.")
    request_id: str = Field("", description="On failure: request id, for the service's support.")


class HistoryRun(Frozen):
    """One apply, destroy, adopt, release, drift check or accept."""

    id: int = Field(description="Sequence number within the store.")
    kind: str = Field(description="apply, destroy, drift, adopt, release, accept or jobs terminate.")
    result: str | None = Field(
        description="complete, partial, interrupted or failed; of a drift check drift, no drift or "
        "unknown. A run without an end is running, or interrupted if its process is gone."
    )
    began_at: str = Field(description="RFC 3339, UTC.")
    ended_at: str | None = Field(None, description="RFC 3339, UTC; null: no end was recorded.")
    duration_s: float | None = Field(None, description="Duration in seconds.")
    who: str = Field("", description="User, or the actor that the CI service names.")
    where: str = Field("", description="Machine and process, and the URL of the CI run.")
    command: str = Field("", description="The command, without its options.")
    commit: str = Field("", description="Commit of the manifests, with + if they had uncommitted changes.")
    plan_digest: str = Field("", description="Digest of the plan; of a drift check that of the manifests.")
    summary: dict[str, int] = Field(default_factory=dict, description="How many actions ended in each way.")
    actions: tuple[HistoryAction, ...] = Field((), description="In the order in which they ended.")
    steps: tuple[HistoryStep, ...] = Field((), description="The calls, in the order in which they began.")


class HistoryPhase(Frozen):
    """A phase in which a revision was seen."""

    phase: str = Field(description="The service's word.")
    seen_at: str = Field(description="When it was first observed, RFC 3339 in UTC.")


class HistoryDeclared(Frozen):
    """What was declared for a revision, in canonical form. A secret stands there by its name."""

    immutable: dict[str, Any] = Field(description="What the digest covers.")
    mutable: dict[str, Any] = Field(description="Fields that can be changed on a job.")
    description: str = Field(description="Without the marker.")
    protect: bool | None = Field(description="lifecycle.protect.")


class HistoryRevision(Frozen):
    """One revision of a key: what it was, and as far as anybody looked, how it went."""

    key: str = Field(description="Name of the job in the manifest.")
    revision: int = Field(description="1 is the first.")
    name: str = Field(description="Name of the job on the service.")
    job: str = Field(description="Id of the job.")
    digest: str = Field(description="Digest of the declaration it was created from.")
    phase: str | None = Field(description="Phase when last observed; null: not observed yet.")
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    started_at: str | None = Field(None, description="RFC 3339, UTC.")
    ended_at: str | None = Field(None, description="RFC 3339, UTC; null while the job is active.")
    duration_s: float | None = Field(None, description="Seconds it had run when last observed.")
    node_count: int = Field(description="Nodes that it ran on.")
    seen_at: str | None = Field(None, description="Last observation that showed a change.")
    phases: tuple[HistoryPhase, ...] = Field(
        (), description="Oldest first; phases between observations are missing."
    )
    declared: HistoryDeclared | None = Field(None, description="null: it was not recorded.")
    released_at: str | None = Field(
        None, description="When its marker was taken off by release, RFC 3339 in UTC; null: it was not."
    )


class HistoryDiff(Frozen):
    """What was declared differently for two revisions of a key."""

    before: int = Field(description="Number of the first revision.")
    after: int = Field(description="Number of the second revision.")
    changes: tuple[Change, ...] = Field(description="Sorted by path.")


class HistoryReport(Head):
    """What was recorded of a stack on a target, newest first."""

    key: str | None = Field(None, description="Requested key; null: all keys.")
    runs: tuple[HistoryRun, ...] = Field((), description="Applies, destroys and drift checks.")
    revisions: tuple[HistoryRevision, ...] = Field((), description="Revisions of the jobs.")
    diff: HistoryDiff | None = Field(None, description="With --diff only.")


class HistoryExcerpt(NamedTuple):
    """What a report shows, newest first. `key` is None for all keys."""

    key: str | None = None
    runs: Sequence[PastRun] = ()
    revisions: Sequence[PastRevision] = ()
    diff: HistoryDiff | None = None

    def limited_to(self, limit: int) -> HistoryExcerpt:
        """The newest of it; what is compared is compared whatever the limit."""
        if self.diff is not None:
            return self
        return self._replace(runs=self.runs[:limit], revisions=self.revisions[:limit])


def make_history(
    stack: str,
    target: TargetIdentity,
    shown: HistoryExcerpt,
    *,
    manifest_digest: str,
    version: str,
    at_s: float,
) -> HistoryReport:
    """Put a report together."""
    return HistoryReport(
        reconciler_version=version,
        created_at=timestamp(at_s),
        stack=stack,
        target=target,
        manifest_digest=manifest_digest,
        key=shown.key,
        runs=tuple(_run(run) for run in shown.runs),
        revisions=tuple(_revision(one) for one in shown.revisions),
        diff=shown.diff,
    )


def newest_revisions(memory: HistorySnapshot, limit: int | None) -> Sequence[PastRevision]:
    """The revisions of any key that began last; all of them without a limit."""
    every = (one for revisions in memory.by_key.values() for one in revisions)
    return sorted(every, key=_age, reverse=True)[:limit]


def _age(one: PastRevision) -> tuple[float, int, str]:
    # What nobody has looked at yet was made just now.
    return float("inf") if one.created_at_s is None else one.created_at_s, one.number, one.key


def _run(run: PastRun) -> HistoryRun:
    return HistoryRun(
        id=run.id,
        kind=run.kind,
        result=run.word,
        began_at=timestamp(run.at_s),
        ended_at=_maybe(run.ended_at_s),
        duration_s=_span(run.at_s, run.ended_at_s),
        who=run.who,
        where=run.where,
        command=run.command,
        commit=run.commit,
        plan_digest=run.plan_digest,
        summary=dict(run.summary),
        actions=tuple(_action(action) for action in run.actions),
        steps=tuple(_step(step) for step in run.steps),
    )


def _action(action: PastAction) -> HistoryAction:
    return HistoryAction.model_validate(action._asdict())


def _step(step: PastStep) -> HistoryStep:
    return HistoryStep(
        key=step.key,
        action=step.action,
        call=step.call,
        name=step.name,
        job=step.job,
        began_at=timestamp(step.at_s),
        duration_s=_span(step.at_s, step.ended_at_s),
        ok=step.ok,
        code=step.code,
        message=step.message,
        request_id=step.request_id,
    )


def _revision(one: PastRevision) -> HistoryRevision:
    phase = one.phase
    has_ended = phase is not None and phase.is_terminal
    return HistoryRevision(
        key=one.key,
        revision=one.number,
        name=one.name,
        job=one.job,
        digest=one.digest,
        phase=one.phase_text or None,
        created_at=_maybe(one.created_at_s),
        started_at=_maybe(one.started_at_s),
        ended_at=_maybe(one.ended_at_s) if has_ended else None,
        duration_s=one.duration_s,
        node_count=one.node_count,
        seen_at=_maybe(one.seen_at_s),
        phases=tuple(HistoryPhase(phase=text, seen_at=timestamp(at_s)) for text, at_s in one.phases),
        declared=one.declared and HistoryDeclared.model_validate(asdict(one.declared)),
        released_at=_maybe(one.released_at_s),
    )


def _maybe(at_s: float | None) -> str | None:
    return None if at_s is None else timestamp(at_s)


def _span(begin_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else round(max(0.0, end_s - begin_s), 3)


def changes_of(before: Declared, after: Declared) -> tuple[Change, ...]:
    """The fields that were declared differently for two revisions, sorted by path."""
    found = list(changes_between(dict(before.immutable), dict(after.immutable), forces_new_job=True))
    one, other = _on_the_job(before), _on_the_job(after)
    for path in one.keys() | other.keys():
        if one.get(path) != other.get(path):
            found.append(Change(path=path, before=one.get(path), after=other.get(path)))
    return tuple(sorted(found, key=lambda change: change.path))


def _on_the_job(declared: Declared) -> dict[str, Any]:
    """What an edit changes on the job that is there, by path."""
    values = {spell_path(path): _at(declared.mutable, path) for path in mutable_paths()}
    values |= {"description": declared.description, "lifecycle.protect": declared.protect or None}
    return {path: value for path, value in values.items() if value not in (None, "")}


def _at(form: Any, path: Iterable[str]) -> Any:
    for name in path:
        form = form.get(name) if isinstance(form, Mapping) else None
    return form
