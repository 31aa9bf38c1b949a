"""A third kind of target: jobs in memory, and nothing beyond the core protocol of a backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.errors import NameTaken, NotFound, WrongPhase
from reconciler.modelarts.target import Connected, Runtime

KIND = "memory"


@dataclass
class MemoryBackend:
    """Jobs run from their creation until terminated."""

    jobs: dict[str, ObservedJob] = field(default_factory=dict)
    now: Callable[[], float] = lambda: 0.0

    def observe(
        self, names: Collection[str] | None = None, needs_absence: Callable[[Observation], bool] | None = None
    ) -> Observation:
        """Return all jobs."""
        return Observation(tuple(self.jobs.values()), requests=1, strategy="all jobs in memory")

    def find(self, name: str) -> list[ObservedJob]:
        """Return the jobs of this name."""
        return [job for job in self.jobs.values() if job.name.casefold() == name.casefold()]

    def name_is_taken(self, name: str) -> bool | None:
        """Always False: no job is hidden."""
        return bool(self.find(name))

    def details(self, job_id: str) -> ObservedJob:
        """One job."""
        if job_id not in self.jobs:
            raise NotFound(f"no job {job_id}")
        return self.jobs[job_id]

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a running job."""
        metadata = body["metadata"]
        if self.find(metadata["name"]):
            raise NameTaken(f"{metadata['name']} exists")
        job = ObservedJob(
            str(uuid4()),
            metadata["name"],
            metadata["description"],
            "Running",
            created_at_s=self.now(),
            body=body,
        )
        self.jobs[job.id] = job
        return job

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change the description."""
        self.jobs[job_id] = replace(self.details(job_id), description=changes["description"])

    def terminate(self, job_id: str) -> None:
        """End a job at once."""
        if not self.details(job_id).is_active:
            raise WrongPhase("it has ended")
        self.end(job_id, "Terminated")

    def end(self, job_id: str, phase: str) -> None:
        """Put a job into a terminal phase."""
        self.jobs[job_id] = replace(self.jobs[job_id], phase_text=phase, duration_s=60.0)


#: The service behind all targets of this kind.
BACKEND = MemoryBackend()


def open_target(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    """Return the backend."""
    BACKEND.now = runtime.clock.now
    identity = identity_of(name, target, runtime.environ)
    return Connected(BACKEND, identity, Cloud.HUAWEI, runtime.clock)


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity:
    """Return the single identity."""
    return TargetIdentity(
        name=name, kind=target.kind, endpoint=KIND, project_id="p1", workspace_id=target.workspace_id
    )


def emptied() -> Iterator[MemoryBackend]:
    """Empty the service before and after a test."""
    BACKEND.jobs.clear()
    yield BACKEND
    BACKEND.jobs.clear()
