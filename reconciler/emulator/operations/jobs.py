"""The operations on training jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.json_body import value_at
from reconciler.emulator.messages import CallResponse, ReceivedCall, answer
from reconciler.emulator.operations import mutable_fields, schemas, validation
from reconciler.emulator.operations.job_response import AI_PROJECT, dumps
from reconciler.emulator.operations.search import read_search
from reconciler.emulator.storage.job_row import Job


def create(call: ReceivedCall) -> CallResponse:
    """CreateTrainingJob: 201 and the whole job, whose `user_name` is still empty."""
    body = schemas.read(call.body, schemas.JOB)
    validation.check_job(body, strict_catalogue=call.strict_catalogue)
    job = call.store.create(call.project, body)
    named = f'"user_name":{dumps(call.store.user_name)}'
    return CallResponse(201, call.text(job).replace(named, '"user_name":""', 1))


def search(call: ReceivedCall) -> CallResponse:
    """ListTrainingJobs: 200 and a page of whole jobs."""
    body = schemas.read(call.body, schemas.SEARCH)
    asked = replace(
        read_search(body, call.store.clock.now_ms(), strict=call.strict_catalogue),
        counts_items=call.counts_items,
        shift=call.shift,
    )
    page = call.store.search(call.project, asked)
    frame: dict[str, Any] = {
        "total": max(0, page.total - asked.shift),
        "count": max(0, page.count - asked.shift),
        "limit": asked.limit,
        "offset": asked.offset,
        "sort_by": "create_time",
        "order": "desc" if asked.descending else "asc",
        "group_by": asked.group_by,
        "workspace_id": asked.workspace_id,
        "ai_project": AI_PROJECT,
    }
    if asked.train_type:
        frame["train_type"] = asked.train_type
    items = ",".join(call.text(job) for job in page.jobs)
    return CallResponse(200, f'{dumps(frame)[:-1]},"items":[{items}]}}')


def show(call: ReceivedCall) -> CallResponse:
    """ShowTrainingJobDetails: 200 and the whole job."""
    return CallResponse(200, call.text(call.store.get(call.project, call.job_id)))


def update(call: ReceivedCall) -> CallResponse:
    """ChangeTrainingJobDescription: 200 without a body. A field that is absent is left alone."""
    changes = schemas.read(call.body, mutable_fields.UPDATE)
    mutable_fields.check_update(changes, call.cloud)
    spec = changes.get("spec") or {}

    def change(job: Job, body: dict[str, Any]) -> None:
        if call.strict_catalogue:
            validation.check_dedicated(spec, value_at(body, "spec.resource") or {})
        if job.life.phase == "Terminating":
            raise ApiError("ModelArts.2858", "The job is being terminated and cannot be changed.")
        if value_at(spec, "schedule_policy.priority") is not None and job.life.phase != "Pending":
            raise ApiError("ModelArts.2858", "The priority can be changed only while the job is Pending.")
        mutable_fields.merge(body, changes)

    call.store.change(call.project, call.job_id, change)
    return CallResponse(200)


def act(call: ReceivedCall) -> CallResponse:
    """StopTrainingJob: 202 and the whole job: terminating, or beginning anew after its end."""
    action = schemas.read(call.body, schemas.ACTION).get("action_type")
    actions = {"terminate": call.store.terminate, "restart": call.store.restart}
    if action not in actions:
        raise invalid(f"action_type {action} is not one of {', '.join(actions)}")
    return CallResponse(202, call.text(actions[action](call.project, call.job_id)))


def delete(call: ReceivedCall) -> CallResponse:
    """DeleteTrainingJob: 202 without a body; allowed in every phase."""
    call.store.delete(call.project, call.job_id)
    return CallResponse(202)


def delete_many(call: ReceivedCall) -> CallResponse:
    """BatchDeleteTrainingJob: 202; at most 100 jobs of one workspace, all or none."""
    jobs = schemas.read(call.body, schemas.BATCH).get("jobs") or []
    if not 1 <= len(jobs) <= 100:
        raise invalid("jobs must hold 1 to 100 jobs")
    job_ids = [str(value_at(job, "metadata.id") or "") for job in jobs]
    if not all(job_ids):
        raise invalid("jobs[].metadata.id is required")
    if len({call.store.get(call.project, job_id).workspace_id for job_id in job_ids}) > 1:
        raise invalid("the jobs must be of one workspace")
    call.store.delete(call.project, *job_ids)
    return answer(202, {})


def check_name(call: ReceivedCall) -> CallResponse:
    """ValidateTrainingJobName: 200, `is_duplicate`."""
    name = call.query.get("job_name")
    validation.check_name(name)
    workspace_id = call.query.get("workspace_id")
    validation.check_workspace(workspace_id, strict=call.strict_catalogue)
    taken = call.store.is_taken(call.project, workspace_id or "0", name or "")
    return answer(200, {"is_duplicate": taken})
