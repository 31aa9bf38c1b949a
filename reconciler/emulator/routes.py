"""The routes: which operation a method and a path mean, and in which cloud it exists."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from werkzeug.routing import Map, Rule

from reconciler.emulator import jobs, logs
from reconciler.emulator.control import CONTROL_CALLS
from reconciler.emulator.jobs import ApiRequest
from reconciler.emulator.schemas import ApiResponse
from reconciler.emulator.settings import CLOUDS

HUAWEI = frozenset({"huawei"})
_BASE = "/v2/<project_id>"
_JOB = f"{_BASE}/training-jobs/<job_id>"
_TAGS = f"{_BASE}/modelarts-training-job"


class Route(NamedTuple):
    """One operation. `operation` is its name in the vendor's SDK."""

    operation: str
    method: str
    path: str
    handler: Callable[[ApiRequest], ApiResponse]
    clouds: frozenset[str] = CLOUDS


ROUTES = (
    Route("CreateTrainingJob", "POST", f"{_BASE}/training-jobs", jobs.create),
    Route("ListTrainingJobs", "POST", f"{_BASE}/training-job-searches", jobs.search),
    Route("ShowTrainingJobDetails", "GET", _JOB, jobs.show),
    Route("ChangeTrainingJobDescription", "PUT", _JOB, jobs.update),
    Route("StopTrainingJob", "POST", f"{_JOB}/actions", jobs.act),
    Route("DeleteTrainingJob", "DELETE", _JOB, jobs.delete),
    Route("BatchDeleteTrainingJob", "POST", f"{_BASE}/training-jobs/batch-delete", jobs.delete_many, HUAWEI),
    Route("ValidateTrainingJobName", "GET", f"{_BASE}/training-job-names", jobs.check_name, HUAWEI),
    Route("ShowTrainingJobFlavors", "GET", f"{_BASE}/training-job-flavors", jobs.flavors),
    Route("ShowTrainingJobEngines", "GET", f"{_BASE}/training-job-engines", jobs.engines),
    Route("ShowTrainingQuotas", "GET", f"{_BASE}/training-quotas", jobs.quotas, HUAWEI),
    Route("ListTrainingJobEvents", "GET", f"{_JOB}/events", logs.events),
    Route("ListTrainingJobTasks", "GET", f"{_JOB}/tasks", logs.tasks, HUAWEI),
    Route("ListTrainingJobStages", "GET", f"{_JOB}/stages", logs.stages, HUAWEI),
    Route("ShowTrainingJobLogsPreview", "GET", f"{_JOB}/tasks/<task_id>/logs/preview", logs.log_preview),
    Route("ShowObsUrlOfTrainingJobLogs", "GET", f"{_JOB}/tasks/<task_id>/logs/url", logs.log_url),
    Route("ShowTrainingJobLogsFromAom", "GET", f"{_JOB}/logs/<task_id>", logs.log_lines, HUAWEI),
    Route("ShowTrainingJobMetrics", "GET", f"{_JOB}/metrics/<task_id>", logs.metrics),
    Route("CreateTrainJobTags", "POST", f"{_TAGS}/<job_id>/tags/create", jobs.create_tags, HUAWEI),
    Route("DeleteTrainJobTags", "DELETE", f"{_TAGS}/<job_id>/tags/delete", jobs.delete_tags, HUAWEI),
    Route("ShowTrainJobTags", "GET", f"{_TAGS}/<job_id>/tags", jobs.show_tags, HUAWEI),
    Route("ListTrainingJobTags", "GET", f"{_TAGS}/tags", jobs.list_tags, HUAWEI),
    Route(
        "ListTrainingJobsByTags", "POST", f"{_TAGS}/resource-instances/filter", jobs.search_by_tags, HUAWEI
    ),
    Route("CountTrainingJobsByTags", "POST", f"{_TAGS}/resource-instances/count", jobs.count_by_tags, HUAWEI),
)

MORE_ROUTES = (
    Route(
        "ShowTrainingFlavorMaxAvailableResource",
        "GET",
        f"{_BASE}/training-pool-flavors",
        jobs.pool_flavor,
        HUAWEI,
    ),
    Route("ModifyTrainingQuotas", "PUT", f"{_BASE}/training-quotas", jobs.change_quotas, HUAWEI),
    Route("ShowTrainingJobRoutePlan", "GET", f"{_JOB}/route_plan", logs.route_plan, HUAWEI),
)
"""Operations that no command of `reconciler` offers; it calls the first itself, before it replaces a job."""


@cache
def route_map(cloud: str, *, with_control: bool) -> Map:
    """Return the URL map of a cloud; the endpoint of a rule is its `Route`, or one of `CONTROL_CALLS`."""
    rules = [
        Rule(route.path, methods=[route.method], endpoint=route)
        for route in (*ROUTES, *MORE_ROUTES)
        if cloud in route.clouds
    ]
    if with_control:
        calls = ((call, *call.split(" ")) for call in CONTROL_CALLS)
        rules += [Rule(f"/emulator/{path}", methods=[method], endpoint=call) for call, method, path in calls]
    return Map(rules, strict_slashes=False, merge_slashes=False, redirect_defaults=False)
