"""The operations: on training jobs, their tags, what they report, and what the service offers.

Tags lie beside a job and are not part of its response. What a job reports (events, tasks, stages, logs,
metrics) derives from its life, so two requests about it get the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from werkzeug.datastructures import Headers

from reconciler.emulator import responses, schemas, validation
from reconciler.emulator.auth import Settings
from reconciler.emulator.catalog import ENGINES, FLAVORS, POOL_FLAVORS, check_flavor, check_listed, flavor
from reconciler.emulator.schemas import ApiError, ApiResponse, dump_json, json_response, refuse_if, value_at
from reconciler.emulator.search import (
    Condition,
    check_tags_differ,
    has_tag,
    milliseconds_of,
    name_contains,
    read_search,
)
from reconciler.emulator.store import METRICS, USER_ID, Job, Store

_TAG_KEY = re.compile(r"(?!_sys_)(?! )[\w .:=+\-@]{1,128}(?<! )")
_TAG_VALUE = re.compile(r"[\w .:=+\-@/]{0,255}")
_MAX_TAG_PAGE = 1000
_QUOTAS = {
    "job-num": (1, (1 << 31) - 1),
    "visual-job-num": (1, (1 << 31) - 1),
    "job-retention-enabled": (0, 1),
    "job-num-quota-notify": (0, 0),
}
"""The limits that can be changed, with their bounds. Only job-num has an effect here."""


@dataclass(frozen=True)
class ApiRequest:
    """The arguments of an operation. `path` holds the variable parts of the URL, `query` its parameters.

    `counts_items` and `shift`: see `read_search`.
    """

    store: Store
    settings: Settings
    path: Mapping[str, Any]
    query: Mapping[str, str]
    headers: Headers
    body: bytes
    counts_items: bool = False
    shift: int = 0

    @property
    def project(self) -> str:
        return str(self.path["project_id"])

    @property
    def job_id(self) -> str:
        return str(self.path["job_id"])

    @property
    def strict(self) -> bool:
        """Whether the catalogue is the whole of what there is."""
        return self.settings.strict_catalogue

    def text(self, job: Job) -> str:
        if not (job.is_variant and self.settings.cloud == "otc"):
            return job.text
        response = json.loads(job.text)
        responses.vary_declared(response)
        return dump_json(response)


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────


def create(request: ApiRequest) -> ApiResponse:
    """CreateTrainingJob: 201 and the whole job, whose `user_name` is still empty."""
    body = schemas.read(request.body, schemas.JOB)
    validation.check_job(body, strict_catalogue=request.strict, time_units=request.store.time_units)
    job = request.store.create(request.project, body)
    named = f'"user_name":{dump_json(request.store.user_name)}'
    return ApiResponse(201, request.text(job).replace(named, '"user_name":""', 1))


def search(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobs: 200 and a page of whole jobs."""
    body = schemas.read(request.body, schemas.SEARCH)
    query = read_search(
        body,
        request.store.clock.now_ms(),
        strict=request.strict,
        counts_items=request.counts_items,
        shift=request.shift,
    )
    page = request.store.search(request.project, query)
    page_fields: dict[str, Any] = {
        "total": max(0, page.total - request.shift),
        "count": max(0, page.count - request.shift),
        "limit": query.limit,
        "offset": query.offset,
        "sort_by": "create_time",
        "order": "desc" if query.descending else "asc",
        "group_by": body.get("group_by") or "",
        "workspace_id": query.workspace_id,
        "ai_project": responses.AI_PROJECT,
    }
    if body.get("train_type"):
        page_fields["train_type"] = body["train_type"]
    items = ",".join(request.text(job) for job in page.jobs)
    return ApiResponse(200, f'{dump_json(page_fields)[:-1]},"items":[{items}]}}')


def show(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobDetails: 200 and the whole job."""
    return ApiResponse(200, request.text(request.store.get(request.project, request.job_id)))


def update(request: ApiRequest) -> ApiResponse:
    """ChangeTrainingJobDescription: 200 without a body. A field that is absent is left alone."""
    changes = schemas.read(request.body, validation.UPDATE)
    validation.check_update(changes, request.settings.cloud)
    spec = changes.get("spec") or {}

    def change(job: Job, body: dict[str, Any]) -> None:
        if request.strict:
            validation.check_dedicated(spec, value_at(body, "spec.resource") or {})
        validation.check_phase(changes, job.life.phase)
        validation.merge(body, changes)

    request.store.change(request.project, request.job_id, change)
    return ApiResponse(200)


def act(request: ApiRequest) -> ApiResponse:
    """StopTrainingJob: 202 and the whole job: terminating, or beginning anew after its end."""
    action = str(schemas.read(request.body, schemas.ACTION).get("action_type"))
    actions = {"terminate": request.store.terminate, "restart": request.store.restart}
    refuse_if(action not in actions, f"action_type {action} is not one of {', '.join(actions)}")
    return ApiResponse(202, request.text(actions[action](request.project, request.job_id)))


def delete(request: ApiRequest) -> ApiResponse:
    """DeleteTrainingJob: 202 without a body; allowed in every phase."""
    request.store.delete(request.project, request.job_id)
    return ApiResponse(202)


def delete_many(request: ApiRequest) -> ApiResponse:
    """BatchDeleteTrainingJob: 202; at most 100 jobs of one workspace, all or none."""
    jobs = schemas.read(request.body, schemas.BATCH).get("jobs") or []
    refuse_if(not 1 <= len(jobs) <= 100, "jobs must hold 1 to 100 jobs")
    job_ids = [str(value_at(job, "metadata.id") or "") for job in jobs]
    refuse_if(not all(job_ids), "jobs[].metadata.id is required")
    workspaces = {request.store.get(request.project, job_id).workspace_id for job_id in job_ids}
    refuse_if(len(workspaces) > 1, "the jobs must be of one workspace")
    request.store.delete(request.project, *job_ids)
    return json_response(202, {})


def check_name(request: ApiRequest) -> ApiResponse:
    """ValidateTrainingJobName: 200, `is_duplicate`."""
    name = request.query.get("job_name")
    validation.check_name(name)
    workspace_id = request.query.get("workspace_id")
    validation.check_workspace(workspace_id, strict=request.strict)
    taken = request.store.is_taken(request.project, workspace_id or "0", name or "")
    return json_response(200, {"is_duplicate": taken})


# ── tags ───────────────────────────────────────────────────────────────────────────────────────


def create_tags(request: ApiRequest) -> ApiResponse:
    """CreateTrainJobTags: 204; a key that is there gets the new value."""
    tags = _tags(request)
    for tag in tags:
        is_allowed = _TAG_KEY.fullmatch(tag["key"]) and _TAG_VALUE.fullmatch(tag.get("value") or "")
        refuse_if(not is_allowed, f"tag {tag['key']} has a key or value that is not allowed")
    request.store.tag(request.project, request.job_id, {tag["key"]: tag.get("value") or "" for tag in tags})
    return ApiResponse(204)


def delete_tags(request: ApiRequest) -> ApiResponse:
    """DeleteTrainJobTags: 204; keys that are not there are no error."""
    request.store.untag(request.project, request.job_id, [tag["key"] for tag in _tags(request)])
    return ApiResponse(204)


def show_tags(request: ApiRequest) -> ApiResponse:
    """ShowTrainJobTags: 200, the tags of one job."""
    return json_response(200, {"tags": _tags_of(request, request.job_id)})


def list_tags(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobTags: 200, the tags of all jobs of the project, by key."""
    limit, offset = _page(request)
    values_by_key = list(request.store.tag_values(request.project).items())[offset : offset + limit]
    return json_response(200, {"tags": [{"key": key, "values": values} for key, values in values_by_key]})


def search_by_tags(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobsByTags: 200, the jobs that match, with their tags."""
    limit, offset = _page(request)
    jobs = _tagged(request)
    resources = [
        {
            "resource_id": job.id,
            "resource_name": job.name,
            "workspace_id": job.workspace_id,
            "tags": _tags_of(request, job.id),
            "resource_detail": None,
        }
        for job in jobs[offset : offset + limit]
    ]
    return json_response(200, {"resources": resources, "total_count": len(jobs)})


def count_by_tags(request: ApiRequest) -> ApiResponse:
    """CountTrainingJobsByTags: 200, how many jobs match."""
    return json_response(200, {"total_count": len(_tagged(request))})


def _tags_of(request: ApiRequest, job_id: str) -> list[dict[str, str]]:
    tags = request.store.tags(request.project, job_id)
    return [{"key": key, "value": value} for key, value in tags.items()]


def _tags(request: ApiRequest) -> list[dict[str, Any]]:
    tags = schemas.read(request.body, schemas.TAGS).get("tags") or []
    refuse_if(not tags or not all(tag.get("key") for tag in tags), "tags must hold tags with a key")
    return list(tags)


def _tagged(request: ApiRequest) -> list[Job]:
    body = schemas.read(request.body, schemas.TAG_QUERY)
    workspace_id, tags, matches = (body.get(name) for name in ("workspace_id", "tags", "matches"))
    validation.check_workspace(workspace_id, strict=request.strict)
    check_tags_differ(tags or ())
    refuse_if(len(matches or ()) > 1, "matches must hold one item")
    found = [Condition("workspace_id = ?", (workspace_id,))] if workspace_id else []
    if body.get("without_any_tag"):
        found.append(Condition("id NOT IN (SELECT job_id FROM tags)", ()))
    found += map(has_tag, tags or ())
    for match in matches or ():
        refuse_if(match.get("key") != "resource_name", "matches[].key must be resource_name")
        if match.get("value"):
            found.append(name_contains(match["value"]))
    return request.store.tagged(request.project, *found)


def _page(request: ApiRequest) -> tuple[int, int]:
    refusal = (f"limit must be 1 to {_MAX_TAG_PAGE}, and offset not negative.", "ModelArts.2764")
    limit = _number(request.query.get("limit"), _MAX_TAG_PAGE, 1, _MAX_TAG_PAGE, *refusal)
    return limit, _number(request.query.get("offset"), 0, 0, 1 << 31, *refusal)


# ── flavors, engines, quotas ───────────────────────────────────────────────────────────────────


def flavors(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobFlavors: 200, those of one `flavor_type` or all."""
    kind = request.query.get("flavor_type")
    is_wrong = kind not in {None, "", "CPU", "GPU", "Ascend"}
    refuse_if(is_wrong, f"flavor_type {kind} is not one of CPU, GPU, Ascend.", "ModelArts.2764")
    names = _accepted(request, "spec.resource.flavor_id", "task_resource.flavor_id")
    listed = {name: flavor(name) for name in (*FLAVORS, *request.settings.flavors, *names)}
    found = [one for one in listed.values() if not kind or one["flavor_type"] == kind]
    return json_response(200, {"total_count": len(found), "flavors": found})


def engines(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobEngines: 200."""
    names = _accepted(request, "algorithm.engine.engine_id", "algorithm.engine.engine_id")
    keys = ("engine_id", "engine_name", "engine_version")
    accepted = {name: dict.fromkeys(keys, name) for name in (*request.settings.engines, *names)}
    listed = [*ENGINES.values(), *(one for name, one in accepted.items() if name not in ENGINES)]
    return json_response(200, {"total": len(listed), "items": listed})


def _accepted(request: ApiRequest, in_job: str, in_task: str) -> list[str]:
    """Return the ids at these paths of all jobs: a catalogue that is not strict lists what it accepted."""
    if request.strict:
        return []
    found: list[Any] = []
    for body in (job.body for job in request.store.jobs() if job.project == request.project):
        found += [value_at(body, in_job), *(value_at(task, in_task) for task in body.get("tasks") or ())]
    return sorted({name for name in found if isinstance(name, str) and name})


def pool_flavor(request: ApiRequest) -> ApiResponse:
    """ShowTrainingFlavorMaxAvailableResource: 200, what a pool has left for one node of a flavor."""
    pool_id, flavor_id = request.query.get("pool_id"), request.query.get("flavor_id")
    if not pool_id:
        raise ApiError("ModelArts.2764", "pool_id is required.")
    check_listed("pool", pool_id, strict=request.strict)
    if flavor_id:
        check_flavor(flavor_id, pooled=True, strict=request.strict)
    cards = POOL_FLAVORS.get(flavor_id or "", 1)
    return json_response(200, {"cpu_core_num": 24 * cards, "mem_size": 96 * cards})


def quotas(request: ApiRequest) -> ApiResponse:
    """ShowTrainingQuotas: 200, the number of jobs that may be kept and are."""
    resource = request.query.get("resource") or "job-num"
    refuse_if(resource != "job-num", f"resource {resource} has no quota.", "ModelArts.2764")
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
        refuse_if(resource not in _QUOTAS, f"resource {resource} has no quota.", "ModelArts.2764")
        least, most = _QUOTAS[resource]
        is_low = quota is None or quota < least
        refuse_if(is_low, f"quota of {resource} must be at least {least}")
        validation.check_limit(f"quota of {resource}", quota, most)
    for item in quotas:
        if item["resource"] == "job-num":
            request.store.quota = item["quota"]
    return json_response(200, {"user_id": body.get("user_id") or USER_ID, "quotas": quotas})


# ── what jobs report ───────────────────────────────────────────────────────────────────────────

_CHINESE = {"scheduling": "作业调度", "preparing": "环境准备", "running": "作业运行", "end": "作业结束"}
_ORDERS = frozenset({"asc", "desc"})
_LEVELS = frozenset({"Info", "Error", "Warning"})
_SOURCES = frozenset({"K8S", "Job", "Task"})
"""Where an event comes from; only Open Telekom Cloud filters by it."""
_BAD_QUERY = ("Bad request.", "ModelArts.50004000")
_LOG_BYTES = 5 * 1024 * 1024


def events(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobEvents: 200, what happened to the job, newest first unless asked otherwise."""
    job = request.store.get(request.project, request.job_id)
    query = request.query
    pattern = query.get("pattern") or ""
    refuse_if(len(pattern) > 256, *_BAD_QUERY)
    offset = _number(query.get("offset"), 0, 0, 1 << 31)
    limit = _number(query.get("limit"), 50, 1, 100)
    order = _one_of(query.get("order"), _ORDERS) or "desc"
    level = _one_of(query.get("level"), _LEVELS)
    source = _one_of(query.get("source"), _SOURCES) if request.settings.cloud == "otc" else None
    first_ms, last_ms = _time(query.get("start_time")), _time(query.get("end_time"))
    found = [
        {"time": _iso(event.at_ms), "level": event.level, "message": event.message, "source": "Job"}
        for event in request.store.events(job)
        if (first_ms is None or event.at_ms >= first_ms) and (last_ms is None or event.at_ms <= last_ms)
    ]
    found = [
        event
        for event in found
        if level in {None, event["level"]}
        and source in {None, event["source"]}
        and pattern in event["message"]
    ]
    page = {
        # A string in the documents' table, a number in their example.
        "total": str(len(found)) if job.is_variant else len(found),
        "limit": limit,
        "offset": offset,
        "order": order,
        "start_time": query.get("start_time") or "",
        "end_time": query.get("end_time") or "",
        "events": (found if order == "asc" else found[::-1])[offset : offset + limit],
    }
    return json_response(200, page)


def tasks(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobTasks: 200, a list of the tasks that were scheduled, with their addresses."""
    job = request.store.get(request.project, request.job_id)
    times = len([step for step in job.life.past if step.phase == "Running"])
    wanted = _number(request.query.get("schedule_count"), times, 0, 1 << 31)
    names = responses.task_names(job.node_count) if 1 <= wanted <= times else []
    found = [
        {"task": name, "ip": f"172.16.0.{n}", "host_ip": f"192.168.0.{n}", "schedule_count": wanted}
        for n, name in enumerate(names, 1)
    ]
    return json_response(200, found)


def stages(request: ApiRequest) -> ApiResponse:
    """ListTrainingJobStages: 200, the stages scheduling, preparing, running and end of the last run."""
    job = request.store.get(request.project, request.job_id)
    life = job.life
    starts = {
        "scheduling": life.since("Pending"),
        "preparing": life.started_ms,
        "running": life.started_ms,
        "end": life.ended_ms,
    }
    begun = [(name, start) for name, start in starts.items() if start]
    ends = [start for _, start in begun[1:]] + [life.ended_ms]
    listed = [
        {
            "job_id": job.id,
            "name": name,
            "en_message": name.capitalize(),
            "zh_message": _CHINESE[name],
            "start_time": _iso(start),
            "end_time": _iso(end) if end else "",
            "stage_order": order,
            "sub_stages": [],
        }
        for order, ((name, start), end) in enumerate(zip(begun, ends, strict=False), 1)
    ]
    return json_response(200, {"total_count": 1, "running_records": [{"record_order": 1, "stages": listed}]})


def route_plan(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobRoutePlan: 200; no plan was made here, so each rank is that of its worker."""
    job = request.store.get(request.project, request.job_id)
    ranks = ",".join(f"{index}-{index}" for index in range(job.node_count))
    return json_response(200, {"job_id": job.id, "status": "failed", "rank_mapping": ranks})


def log_preview(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobLogsPreview: 200, the end of the log; 204 while there is none."""
    text, size = request.store.log(*_task(request), _LOG_BYTES)
    return json_response(
        200, {"content": text.decode(errors="replace"), "current_size": len(text), "full_size": size}
    )


def log_url(request: ApiRequest) -> ApiResponse:
    """ShowObsUrlOfTrainingJobLogs: 200, a link that nobody serves; 204 while there is no log."""
    job, task = _task(request)
    kind = request.headers.get("Content-Type") or request.query.get("Content-Type") or "text/plain"
    how = "download" if kind.startswith("application/octet-stream") else "preview"
    link = f"https://modelarts-training-log.obs.invalid/{job.id}/{task}/modelarts-job-{job.id}-{task}.log"
    return json_response(200, {"obs_url": f"{link}?{how}"})


def log_lines(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobLogsFromAom: 200, `lines` lines from `base_line` on; 204 while there is no log."""
    log = request.store.log(*_task(request))[0].decode(errors="replace").splitlines()
    lines = _number(request.query.get("lines"), 50, 1, 500)
    order = request.query.get("order") or "desc"
    refuse_if(order not in _ORDERS, f"order {order} is not one of asc, desc.", "ModelArts.2764")
    base = request.query.get("base_line")
    # Without a base line the newest lines are shown, or the oldest when the order is ascending.
    if order == "asc":
        start = _number(base, -1, 0, 1 << 31) + 1
    else:
        start = max(0, _number(base, len(log), 0, 1 << 31) - lines)
    shown = log[start : start + lines]
    return json_response(
        200,
        {
            "start_line": str(start),
            "end_line": str(start + max(0, len(shown) - 1)),
            "lines": len(shown),
            "content": "".join(f"{line}\n" for line in shown),
        },
    )


def metrics(request: ApiRequest) -> ApiResponse:
    """ShowTrainingJobMetrics: 200, values of each metric, -1 where there is none; 204 before the start."""
    values = request.store.metrics(*_task(request, "ModelArts.2777"))
    return json_response(200, {"metrics": [{"metric": name, "value": values[name]} for name in METRICS]})


def _task(request: ApiRequest, not_ready: str = "ModelArts.2776") -> tuple[Job, str]:
    """Return the job and the task that a call names; refuse a task that the job does not have."""
    job, task = request.store.get(request.project, request.job_id), str(request.path["task_id"])
    is_known = task in responses.task_names(job.node_count)
    refuse_if(not is_known, f"The log path of task {task} was not found.", "ModelArts.2820")
    refuse_if(not job.life.started_ms, "The task has not started.", not_ready)
    return job, task


def _number(text: str | None, default: int, least: int, most: int, *refusal: str) -> int:
    try:
        number = int(text) if text else default
    except ValueError:
        number = least - 1
    refuse_if(text and not least <= number <= most, *(refusal or _BAD_QUERY))
    return number


def _one_of(text: str | None, allowed: frozenset[str]) -> str | None:
    refuse_if(text and text not in allowed, *_BAD_QUERY)
    return text or None


def _time(text: str | None) -> int | None:
    try:
        return milliseconds_of(text) if text else None
    except ValueError:
        raise ApiError(_BAD_QUERY[1], _BAD_QUERY[0]) from None


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
