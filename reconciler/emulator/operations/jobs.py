"""The operations on training jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.emulator.errors import invalid
from reconciler.emulator.json_body import dump_json, value_at
from reconciler.emulator.messages import ApiRequest, ApiResponse, json_response
from reconciler.emulator.operations import mutable_fields, schemas, validation
from reconciler.emulator.operations.job_response import AI_PROJECT
from reconciler.emulator.operations.search import read_search
from reconciler.emulator.storage.job_row import Job


def create(request: ApiRequest) -> ApiResponse:
    """CreateTrainingJob: 201 and the whole job, whose `user_name` is still empty."""
    body = schemas.read(request.body, schemas.JOB)
    validation.check_job(body, strict_catalogue=request.strict_catalogue)
    job = request.store.create(request.project, body)
    named = f'"user_name":{dump_json(request.store.user_name)}'
    return ApiResponse(201, request.text(job).replace(named, '"user_name":""', 1))


def search(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobs: 200 and a page of whole jobs."""
    body = schemas.read(request.body, schemas.SEARCH)
    query = replace(
        read_search(body, request.store.clock.now_ms(), strict=request.strict_catalogue),
        counts_items=request.counts_items,
        shift=request.shift,
    )
    page = request.store.search(request.project, query)
    page_fields: dict[str, Any] = {
        "total": max(0, page.total - query.shift),
        "count": max(0, page.count - query.shift),
        "limit": query.limit,
        "offset": query.offset,
        "sort_by": "create_time",
        "order": "desc" if query.descending else "asc",
        "group_by": query.group_by,
        "workspace_id": query.workspace_id,
        "ai_project": AI_PROJECT,
    }
    if query.train_type:
        page_fields["train_type"] = query.train_type
    items = ",".join(request.text(job) for job in page.jobs)
    return ApiResponse(200, f'{dump_json(page_fields)[:-1]},"items":[{items}]}}')


def show(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobDetails: 200 and the whole job."""
    return ApiResponse(200, request.text(request.store.get(request.project, request.job_id)))


def update(request: ApiRequest) -> ApiResponse:
    """ChangeTrainingJobDescription: 200 without a body. A field that is absent is left alone."""
    changes = schemas.read(request.body, mutable_fields.UPDATE)
    mutable_fields.check_update(changes, request.cloud)
    spec = changes.get("spec") or {}

    def change(job: Job, body: dict[str, Any]) -> None:
        if request.strict_catalogue:
            validation.check_dedicated(spec, value_at(body, "spec.resource") or {})
        mutable_fields.check_phase(changes, job.life.phase)
        mutable_fields.merge(body, changes)

    request.store.change(request.project, request.job_id, change)
    return ApiResponse(200)


def act(request: ApiRequest) -> ApiResponse:
    """StopTrainingJob: 202 and the whole job: terminating, or beginning anew after its end."""
    action = schemas.read(request.body, schemas.ACTION).get("action_type")
    actions = {"terminate": request.store.terminate, "restart": request.store.restart}
    if action not in actions:
        raise invalid(f"action_type {action} is not one of {', '.join(actions)}")
    return ApiResponse(202, request.text(actions[action](request.project, request.job_id)))


def delete(request: ApiRequest) -> ApiResponse:
    """DeleteTrainingJob: 202 without a body; allowed in every phase."""
    request.store.delete(request.project, request.job_id)
    return ApiResponse(202)


def delete_many(request: ApiRequest) -> ApiResponse:
    """BatchDeleteTrainingJob: 202; at most 100 jobs of one workspace, all or none."""
    jobs = schemas.read(request.body, schemas.BATCH).get("jobs") or []
    if not 1 <= len(jobs) <= 100:
        raise invalid("jobs must hold 1 to 100 jobs")
    job_ids = [str(value_at(job, "metadata.id") or "") for job in jobs]
    if not all(job_ids):
        raise invalid("jobs[].metadata.id is required")
    if len({request.store.get(request.project, job_id).workspace_id for job_id in job_ids}) > 1:
        raise invalid("the jobs must be of one workspace")
    request.store.delete(request.project, *job_ids)
    return json_response(202, {})


def check_name(request: ApiRequest) -> ApiResponse:
    """ValidateTrainingJobName: 200, `is_duplicate`."""
    name = request.query.get("job_name")
    validation.check_name(name)
    workspace_id = request.query.get("workspace_id")
    validation.check_workspace(workspace_id, strict=request.strict_catalogue)
    taken = request.store.is_taken(request.project, workspace_id or "0", name or "")
    return json_response(200, {"is_duplicate": taken})
