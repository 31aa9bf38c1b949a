"""The smallest valid values; a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from reconciler.core.body import CURRENT, covered_by, create_body, desugar, digest_of
from reconciler.core.identity import Description, Marker, ScheduleMark, remote_name
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import Phase
from reconciler.core.scalar import RevisionText, as_released, walk_texts
from reconciler.core.stack import DesiredJob, Stack
from reconciler.core.values import LOCAL, TargetIdentity

NOW = 1_800_000_000.0
HOUR = 3600.0
STACK = "vision"

TARGET = TargetIdentity(name="local", kind=LOCAL, endpoint="local", project_id="local", workspace_id="0")

ENTRY: dict[str, Any] = {
    "algorithm": {
        "code_dir": "obs://b/code/",
        "boot_file": "obs://b/code/train.py",
        "engine": {"engine_id": "pytorch"},
        "parameters": {"lr": 0.1},
    },
    "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u"}},
}


#: Also accepted by the emulator.
ENGINE = "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"
CODE: dict[str, Any] = {
    "code_dir": "obs://b/code/",
    "boot_file": "obs://b/code/train.py",
    "engine": {"engine_id": ENGINE},
}


def a_startable_entry(lr: float = 0.1, **more: Any) -> dict[str, Any]:
    """Return the smallest entry from which the emulator can create a job."""
    spec = {"resource": {"flavor_id": "modelarts.vm.cpu.2u"}}
    return {"algorithm": {**CODE, "parameters": {"lr": lr}}, "spec": spec, **more}


def an_entry(**changed: Any) -> dict[str, Any]:
    """Return a manifest entry; a name such as `algorithm__command` reaches one level down."""
    entry: dict[str, Any] = {k: dict(v) for k, v in ENTRY.items()}
    for name, value in changed.items():
        place, parts = entry, name.split("__")
        for part in parts[:-1]:
            place[part] = dict(place.get(part, {}))
            place = place[part]
        place[parts[-1]] = value
    return entry


def a_job(key: str = "a", *, lifecycle: Mapping[str, Any] | None = None, **changed: Any) -> DesiredJob:
    """A desired job."""
    entry = walk_texts(an_entry(**changed), _as_expression)
    body = create_body(desugar(entry))
    life = Lifecycle.model_validate(lifecycle or {})
    return DesiredJob(
        key=key,
        body=body,
        digest=digest_of(covered_by(CURRENT, body, life.rerun)),
        description=_as_expression(str(changed.get("description", ""))),
        lifecycle=life,
        is_numbered="${job.revision}" in str(entry),
    )


def _as_expression(text: str) -> str:
    first, *others = text.split("${job.revision}")
    return RevisionText([first, *(part for one in others for part in (None, one))]) if others else text


def made_by_0_1_0(desired: DesiredJob) -> DesiredJob:
    """Return the declaration as of version 0.1.0: with its digest and the body it sent."""
    body = walk_texts(desired.body, as_released)
    return replace(desired, body=body, digest=digest_of(desired.covered_by("a"), "a"))


def absent(key: str = "a", **lifecycle: Any) -> DesiredJob:
    """An entry that says `state: absent`."""
    return DesiredJob(
        key=key, body=None, digest="", lifecycle=Lifecycle.model_validate(lifecycle), is_absent=True
    )


def a_stack(*jobs: DesiredJob, is_partial: bool = False, **more: Any) -> Stack:
    """A stack with these jobs in view."""
    return Stack(
        name=STACK,
        jobs={job.key: job for job in jobs},
        declared_keys=frozenset(job.key for job in jobs if not job.is_absent),
        is_partial=is_partial,
        **more,
    )


def seen(
    desired: DesiredJob | None = None,
    *,
    key: str | None = None,
    revision: int = 1,
    phase: str | Phase = Phase.RUNNING,
    stack: str = STACK,
    digest: str | None = None,
    protected: bool = False,
    stopped: bool = False,
    id_part: str | None = None,
    schedule: ScheduleMark | None = None,
    has_schedule: bool = True,
    name: str | None = None,
    job_id: str | None = None,
    text: str | None = None,
    description: str | None = None,
    ran_s: float = 60.0,
    node_count: int = 1,
    ended_s_ago: float = HOUR * 24,
    body: Mapping[str, Any] | None = None,
) -> ObservedJob:
    """Return an owned job as the service reports it, made from `desired`; `description` overrides the marker.

    Its marker has the schedule of `desired` unless another one, or none, is given.
    """
    key = key or (desired.key if desired else "a")
    name = name or remote_name(key, revision)
    job_id = job_id or str(uuid5(NAMESPACE_URL, f"{stack} {name}"))
    marker = Marker(
        stack,
        key,
        revision,
        digest or (desired.digest if desired else "a" + "0" * 12),
        id_part=id_part,
        schedule=schedule or (desired.schedule_mark if desired and has_schedule else None),
        protected=protected,
        stopped=stopped,
    )
    desired = desired.numbered(revision, lambda _: revision) if desired else None
    if text is None:
        text = desired.description if desired else ""
    if description is None:
        description = str(Description(text, marker))
    reported = dict(body if body is not None else (desired.body if desired and desired.body else {}))
    reported["metadata"] = {
        **reported.get("metadata", {}),
        "id": job_id,
        "name": name,
        "description": description,
    }
    started = NOW - ended_s_ago - ran_s
    return ObservedJob(
        id=job_id,
        name=name,
        description=description,
        phase_text=str(phase),
        created_at_s=started - 10,
        started_at_s=started,
        duration_s=ran_s,
        node_count=node_count,
        body=reported,
    )
