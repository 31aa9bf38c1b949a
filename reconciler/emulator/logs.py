"""The operations on what a job reports: events, tasks, stages, logs and metrics.

All of it derives from the life of the job, so two requests about it get the same.
"""

from __future__ import annotations

from datetime import UTC, datetime

from reconciler.emulator import responses
from reconciler.emulator.jobs import ApiRequest
from reconciler.emulator.schemas import ApiError, ApiResponse, json_response, refuse_if
from reconciler.emulator.search import milliseconds_of
from reconciler.emulator.store import METRICS, Job

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


def _number(text: str | None, default: int, least: int, most: int) -> int:
    try:
        number = int(text) if text else default
    except ValueError:
        number = least - 1
    refuse_if(text and not least <= number <= most, *_BAD_QUERY)
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
