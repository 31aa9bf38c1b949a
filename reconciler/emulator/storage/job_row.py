"""A job as a row of the database, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reconciler.emulator.json_body import dump_json, value_at
from reconciler.emulator.operations import catalog_entries, job_response, variants
from reconciler.emulator.operations.lifecycle import Life, LifecycleStep

Body = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One stored job as of `now_ms`. `is_variant`: it is returned as `variants` has it."""

    id: str
    project: str
    workspace_id: str
    name: str
    create_ms: int
    node_count: int
    reserved_hours: int
    life: Life
    now_ms: int
    head: str
    tail: str
    body_text: str
    is_variant: bool = False

    @property
    def body(self) -> Body:
        """The create request as it was sent, with later updates."""
        return dict(json.loads(self.body_text))

    @property
    def status(self) -> dict[str, Any]:
        """The status, as the service returns it."""
        status = job_response.status(self.life, self.node_count, self.now_ms, self.reserved_hours)
        return variants.vary_status(status) if self.is_variant else status

    @property
    def text(self) -> str:
        """The whole job as JSON, as the service returns it."""
        return self.head + dump_json(self.status) + self.tail


def read_job(row: Any, now_ms: int, *, noise: bool = True) -> Job:
    """Return the job that a row holds, as of `now_ms`; with `noise` every second one is a variant."""
    return Job(
        id=row["id"],
        project=row["project"],
        workspace_id=row["workspace_id"],
        name=row["name"],
        create_ms=row["create_ms"],
        node_count=row["node_count"],
        reserved_hours=row["reserved_hours"],
        life=read_life(row).at(now_ms),
        now_ms=now_ms,
        head=row["head"],
        tail=row["tail"],
        body_text=row["body"],
        is_variant=noise and variants.is_variant(row["id"]),
    )


def body_columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that hold a body, and what a search may ask of it."""
    algorithm_id = value_at(body, "algorithm.id") or ""
    pool_id = value_at(body, "spec.resource.pool_id") or ""
    experiment = value_at(body, "metadata.training_experiment_reference")
    return {
        "kind": body["kind"],
        "node_count": job_response.node_count(body),
        "fine_tuned": int(bool(body.get("train_type") or body.get("ftjob_config"))),
        "algorithm_id": algorithm_id,
        "algorithm_name": catalog_entries.algorithm(algorithm_id)["name"] if algorithm_id else "",
        "runtime_type": value_at(body, "spec.runtime_type") or "production",
        "pool_id": pool_id,
        "experiment_id": job_response.experiment_id(experiment) or "",
        "priority": str(value_at(body, "spec.schedule_policy.priority") or ("1" if pool_id else "")),
        "reserved_hours": value_at(body, "spec.reserved_time.duration") or 0,
        "body": dump_json(body),
    }


LIFE = ("phase", "secondary", "steps", "past", "started_ms", "ended_ms", "held_ms")
"""The columns that a life is read from."""


def read_life(row: Any) -> Life:
    """Return the life that a row holds."""
    return Life(
        phase=row["phase"],
        secondary=row["secondary"],
        steps=_steps(row["steps"]),
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        held_ms=row["held_ms"],
        past=_steps(row["past"]),
    )


@lru_cache(maxsize=4096)
def _steps(text: str) -> tuple[LifecycleStep, ...]:
    return tuple(LifecycleStep(*step) for step in json.loads(text))


def life_columns(life: Life) -> dict[str, Any]:
    """Return the columns that hold a life."""
    return {
        "phase": life.phase,
        "secondary": life.secondary,
        "steps": dump_json(life.steps),
        "past": dump_json(life.past),
        "started_ms": life.started_ms,
        "ended_ms": life.ended_ms,
        "held_ms": life.held_ms,
        "next_ms": life.next_ms,
    }
