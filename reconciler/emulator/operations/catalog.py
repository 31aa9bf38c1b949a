"""The operations on what the service offers: flavors, engines, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.json_body import value_at
from reconciler.emulator.messages import ApiRequest, ApiResponse, json_response
from reconciler.emulator.operations import schemas
from reconciler.emulator.operations.catalog_entries import (
    ENGINES,
    FLAVORS,
    POOL_FLAVORS,
    check_flavor,
    check_pool,
    flavor,
)
from reconciler.emulator.storage.store import USER_ID

_QUOTAS = {
    "job-num": (1, (1 << 31) - 1),
    "visual-job-num": (1, (1 << 31) - 1),
    "job-retention-enabled": (0, 1),
    "job-num-quota-notify": (0, 0),
}
"""What can be limited, and between which numbers. Only job-num has an effect here."""


def flavors(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobFlavors: 200, those of one `flavor_type` or all."""
    kind = request.query.get("flavor_type")
    if kind not in {None, "", "CPU", "GPU", "Ascend"}:
        raise ApiError("ModelArts.2764", f"flavor_type {kind} is not one of CPU, GPU, Ascend.")
    accepted = {name: flavor(name) for name in (*request.flavors, *_accepted(request, _flavors_of))}
    listed = FLAVORS | {name: one for name, one in accepted.items() if name not in FLAVORS}
    found = [one for one in listed.values() if not kind or one["flavor_type"] == kind]
    return json_response(200, {"total_count": len(found), "flavors": found})


def engines(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobEngines: 200."""
    accepted = {name: _generic(name) for name in (*request.engines, *_accepted(request, _engines_of))}
    listed = ENGINES | {name: one for name, one in accepted.items() if name not in ENGINES}
    return json_response(200, {"total": len(listed), "items": list(listed.values())})


def _accepted(request: ApiRequest, names_in: Callable[[dict[str, Any]], Iterable[Any]]) -> list[str]:
    """What jobs were created with that no list has: a catalogue that is not strict offers what it took."""
    if request.strict_catalogue:
        return []
    bodies = (job.body for job in request.store.jobs() if job.project == request.project)
    return sorted({name for body in bodies for name in names_in(body) if isinstance(name, str) and name})


def _flavors_of(body: dict[str, Any]) -> Iterator[Any]:
    yield value_at(body, "spec.resource.flavor_id")
    for task in body.get("tasks") or ():
        yield value_at(task, "task_resource.flavor_id")


def _engines_of(body: dict[str, Any]) -> Iterator[Any]:
    for part in (body, *(body.get("tasks") or ())):
        yield value_at(part, "algorithm.engine.engine_id")


def _generic(engine_id: str) -> dict[str, Any]:
    return {"engine_id": engine_id, "engine_name": engine_id, "engine_version": engine_id}


def pool_flavor(request: ApiRequest) -> ApiResponse:
    """ShowTrainingFlavorMaxAvailableResource: 200, what a pool has left for one node of a flavor."""
    pool_id, flavor_id = request.query.get("pool_id"), request.query.get("flavor_id")
    if not pool_id:
        raise ApiError("ModelArts.2764", "pool_id is required.")
    check_pool(pool_id, strict=request.strict_catalogue)
    if flavor_id:
        check_flavor(flavor_id, pooled=True, strict=request.strict_catalogue)
    cards = POOL_FLAVORS.get(flavor_id or "", 1)
    return json_response(200, {"cpu_core_num": 24 * cards, "mem_size": 96 * cards})


def quotas(request: ApiRequest) -> ApiResponse:
    """ShowTrainingQuotas: 200, the number of jobs that may be kept and are."""
    if request.query.get("resource") not in {None, "", "job-num"}:
        raise ApiError("ModelArts.2764", f"resource {request.query['resource']} has no quota.")
    used = request.store.count(request.project)
    return json_response(
        200, {"quotas": [{"resource": "job-num", "quota": request.store.quota, "used": used}]}
    )


def change_quotas(request: ApiRequest) -> ApiResponse:
    """ModifyTrainingQuotas: 200 and the new quotas. It lasts as long as the store is open."""
    body = schemas.read(request.body, schemas.QUOTAS)
    quotas = body.get("quotas") or []
    for item in quotas:
        resource, quota = item.get("resource"), item.get("quota")
        if resource not in _QUOTAS:
            raise ApiError("ModelArts.2764", f"resource {resource} has no quota.")
        least, most = _QUOTAS[resource]
        if quota is None or quota < least:
            raise invalid(f"quota of {resource} must be at least {least}")
        if quota > most:
            raise ApiError("ModelArts.2816", f"quota of {resource} exceeds its upper limit {most}.")
    for item in quotas:
        if item["resource"] == "job-num":
            request.store.quota = item["quota"]
    return json_response(200, {"user_id": body.get("user_id") or USER_ID, "quotas": quotas})
