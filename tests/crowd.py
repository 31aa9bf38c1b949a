"""A workspace as the backend reads it: pages of 50, searches, and hundreds of foreign jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from reconciler import reconcile
from reconciler.core.body import manifest_form
from reconciler.core.canonical import by_name, canonical, immutable_part
from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, ObservedJob, SearchFilter
from reconciler.core.past import FinishedWork, PastRevision
from reconciler.core.phase import Phase
from reconciler.core.ports import Backend
from reconciler.core.record import NO_HISTORY, HistorySnapshot, Scope
from reconciler.core.scalar import walk_texts
from reconciler.core.stack import Declared, Stack
from reconciler.decide.drift_check import NO_CHECK, LastCheck
from reconciler.decide.plan import Allowances, Plan
from reconciler.errors import NotFound
from reconciler.manifest import LoadedStack
from reconciler.modelarts.observe import PAGE_SIZE, NeedsAbsence, PageReader, SearchPage, observe
from reconciler.modelarts.target import Connected
from reconciler.reconcile import Context
from reconciler.records.recording import Recording
from tests.builders import HOUR, NOW, TARGET, seen


def foreign(count: int) -> tuple[ObservedJob, ...]:
    """Foreign jobs, most of them ended long ago, a few active."""
    return tuple(
        seen(
            key=f"foreign-{number}",
            stack="speech",
            phase=Phase.RUNNING if number % 70 == 0 else Phase.COMPLETED,
            ended_s_ago=1000 * HOUR - number,
            body={},
        )
        for number in range(count)
    )


#: Seven pages.
FOREIGN = foreign(350)


@dataclass
class Workspace:
    """Jobs behind the service's search, with a count of its requests."""

    jobs: Sequence[ObservedJob]
    requests: int = 0
    scanned: int = 0
    detailed: list[str] = field(default_factory=list)

    def page(self, offset: int, filters: Sequence[SearchFilter]) -> SearchPage:
        """Answer one page of a search."""
        self.requests += 1
        self.scanned += not filters
        jobs = [job for job in self.jobs if all(_matches(job, one) for one in filters)]
        found = [_foreign_answers().get(id(job)) or _answer(job) for job in jobs]
        begin = offset * PAGE_SIZE
        return SearchPage(found[begin : begin + PAGE_SIZE], total=len(self.jobs), matching=len(found))

    def observe(
        self, names: Collection[str] | None = None, needs_absence: NeedsAbsence | None = None
    ) -> Observation:
        """Observe it as the backend does."""
        return observe(self.page, PageReader(), names, needs_absence)

    def details(self, job_id: str) -> ObservedJob:
        """One job."""
        self.detailed.append(job_id)
        for job in self.jobs:
            if job.id == job_id:
                return job
        raise NotFound("no such job")


def _matches(job: ObservedJob, condition: SearchFilter) -> bool:
    if condition["key"] == "phase":
        return job.phase_text in condition["value"]
    return any(name.casefold() in job.name.casefold() for name in condition["value"])


@cache
def _foreign_answers() -> Mapping[int, dict[str, Any]]:
    return {id(job): _answer(job) for job in FOREIGN}


def _answer(job: ObservedJob) -> dict[str, Any]:
    def ms(seconds: float | None) -> int | None:
        return None if seconds is None else round(seconds * 1000)

    resource = {**job.body.get("spec", {}).get("resource", {}), "node_count": job.node_count}
    metadata = {
        **job.body.get("metadata", {}),
        "id": job.id,
        "name": job.name,
        "description": job.description,
        "create_time": ms(job.created_at_s),
    }
    return {
        **job.body,
        "metadata": metadata,
        "spec": {**job.body.get("spec", {}), "resource": resource},
        "status": {
            "phase": job.phase_text,
            "start_time": ms(job.started_at_s),
            "duration": ms(job.duration_s),
        },
    }


def as_recorded(jobs: Iterable[ObservedJob], stack: str) -> HistorySnapshot:
    """Return the history of the owned ones of these jobs, each declared as observed."""
    by_key: dict[str, list[PastRevision]] = {}
    for job in jobs:
        if (marker := job.marker) is not None and marker.stack == stack:
            metadata = {"annotations": job.body.get("metadata", {}).get("annotations")}
            form = canonical(manifest_form({**job.body, "metadata": metadata}))
            # As it was declared: see `tests.core.test_decision_table`.
            own, name = f"/b/o/{marker.revision}/", "/b/o/${job.revision}/"
            form = walk_texts(form, lambda text, own=own, name=name: name if text == own else text)
            past = PastRevision(
                marker.key,
                marker.revision,
                job.name,
                job.id,
                marker.digest,
                job.phase_text,
                job.created_at_s,
                job.started_at_s,
                job.duration_s,
                job.node_count,
                seen_at_s=NOW,
                declared=Declared(by_name(immutable_part(form))),
                stopped=marker.stopped,
            )
            by_key.setdefault(marker.key, []).append(past)
    return HistorySnapshot(
        {key: tuple(sorted(past, key=lambda one: one.number)) for key, past in by_key.items()}
    )


def context_of(
    stack: Stack, workspace: Workspace, memory: HistorySnapshot | None, cloud: Cloud = Cloud.HUAWEI
) -> Context:
    """Return the plan context of a stack on a workspace, with this history; None: without one."""
    nothing: Mapping[str, Any] = {}
    loaded = LoadedStack(stack, Path(), nothing, None, "sha256:0")
    clock = SimpleNamespace(now=lambda: NOW, sleep=lambda seconds: None)
    target = Connected(cast("Backend", workspace), TARGET, cloud, cast("Any", clock))
    return Context(loaded, target, cast("Recording", _Recorded(memory or NO_HISTORY)))


@dataclass
class _Recorded:
    memory_: HistorySnapshot
    clock: Any = field(default_factory=lambda: SimpleNamespace(now=lambda: NOW))

    def redact(self, text: str) -> str:
        return text

    def last_check(self, scope: Scope) -> LastCheck:
        return NO_CHECK

    def record_check(self, *check: object) -> None:
        pass

    def memory(self, scope: Scope) -> HistorySnapshot:
        return self.memory_

    def finished(self, scope: Scope, digests: Collection[str]) -> Mapping[str, FinishedWork]:
        return self.memory_.finished

    def recorded_revisions(self, scope: Scope) -> None:
        return None

    def remember(self, *seen: object) -> None:
        pass


def plan_among_foreign_jobs(
    stack: Stack,
    jobs: Sequence[ObservedJob],
    memory: HistorySnapshot | None,
    cloud: Cloud,
    allowances: Allowances,
    rerun: tuple[str, ...] = (),
) -> Plan:
    """Plan in a workspace with 350 foreign jobs before the owned ones."""
    workspace = Workspace([*FOREIGN, *jobs])
    return reconcile.plan(context_of(stack, workspace, memory, cloud)._replace(rerun=rerun), allowances)
