"""The operations on the tags of jobs, which lie beside the job and are not part of its response."""

from __future__ import annotations

import re
from typing import Any

from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.messages import ApiRequest, ApiResponse, json_response
from reconciler.emulator.operations import schemas
from reconciler.emulator.operations.search import Condition, check_tags_differ, has_tag, name_contains
from reconciler.emulator.operations.validation import check_workspace

_KEY = re.compile(r"(?!_sys_)(?! )[\w .:=+\-@]{1,128}(?<! )")
_VALUE = re.compile(r"[\w .:=+\-@/]{0,255}")


def create(request: ApiRequest) -> ApiResponse:
    """CreateTrainJobTags: 204; a key that is there gets the new value."""
    tags = _tags(request)
    for tag in tags:
        if not _KEY.fullmatch(tag["key"]) or not _VALUE.fullmatch(tag.get("value") or ""):
            raise invalid(f"tag {tag['key']} has a key or value that is not allowed")
    request.store.tag(request.project, request.job_id, {tag["key"]: tag.get("value") or "" for tag in tags})
    return ApiResponse(204)


def delete(request: ApiRequest) -> ApiResponse:
    """DeleteTrainJobTags: 204; keys that are not there are no error."""
    request.store.untag(request.project, request.job_id, [tag["key"] for tag in _tags(request)])
    return ApiResponse(204)


def show(request: ApiRequest) -> ApiResponse:
    """ShowTrainJobTags: 200, the tags of one job."""
    tags = request.store.tags(request.project, request.job_id)
    return json_response(200, {"tags": [{"key": key, "value": value} for key, value in tags.items()]})


def show_all(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobTags: 200, the tags of all jobs of the project, by key."""
    limit, offset = _page(request, 1000)
    values_by_key = list(request.store.tag_values(request.project).items())[offset : offset + limit]
    return json_response(200, {"tags": [{"key": key, "values": values} for key, values in values_by_key]})


def search(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobsByTags: 200, the jobs that match, with their tags."""
    limit, offset = _page(request, 1000)
    jobs = request.store.tagged(request.project, *_conditions(request))
    resources = [
        {
            "resource_id": job.id,
            "resource_name": job.name,
            "workspace_id": job.workspace_id,
            "tags": [
                {"key": key, "value": value}
                for key, value in request.store.tags(request.project, job.id).items()
            ],
            "resource_detail": None,
        }
        for job in jobs[offset : offset + limit]
    ]
    return json_response(200, {"resources": resources, "total_count": len(jobs)})


def count(request: ApiRequest) -> ApiResponse:
    """CountTrainingJobsByTags: 200, how many jobs match."""
    return json_response(
        200, {"total_count": len(request.store.tagged(request.project, *_conditions(request)))}
    )


def _tags(request: ApiRequest) -> list[dict[str, Any]]:
    tags = schemas.read(request.body, schemas.TAGS).get("tags") or []
    if not tags or not all(tag.get("key") for tag in tags):
        raise invalid("tags must hold tags with a key")
    return list(tags)


def _conditions(request: ApiRequest) -> list[Condition]:
    body = schemas.read(request.body, schemas.TAG_QUERY)
    check_workspace(body.get("workspace_id"), strict=request.strict_catalogue)
    check_tags_differ(body.get("tags") or ())
    if len(body.get("matches") or ()) > 1:
        raise invalid("matches must hold one item")
    found = []
    if body.get("workspace_id"):
        found.append(Condition("workspace_id = ?", (body["workspace_id"],)))
    if body.get("without_any_tag"):
        found.append(Condition("id NOT IN (SELECT job_id FROM tags)", ()))
    found += [has_tag(tag) for tag in body.get("tags") or ()]
    for match in body.get("matches") or ():
        if match.get("key") != "resource_name":
            raise invalid("matches[].key must be resource_name")
        if match.get("value"):
            found.append(name_contains(match["value"]))
    return found


def _page(request: ApiRequest, most: int) -> tuple[int, int]:
    try:
        limit, offset = int(request.query.get("limit") or most), int(request.query.get("offset") or 0)
    except ValueError:
        raise ApiError("ModelArts.2764", "limit and offset must be numbers.") from None
    if not 1 <= limit <= most or offset < 0:
        raise ApiError("ModelArts.2764", f"limit must be 1 to {most}, and offset not negative.")
    return limit, offset
