"""The application: the emulated service as one WSGI callable, and its routes.

A request passes the route, the faults, the credentials and the project, then its operation. `server` puts
the application on a socket; it can be called in-process, too.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.http import http_date
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from reconciler.emulator import jobs
from reconciler.emulator.auth import CLOUDS, Authenticator, Settings
from reconciler.emulator.control import (
    CONTROL_CALLS,
    KEPT_REQUESTS,
    ControlSettings,
    Effect,
    Fault,
    Faults,
    ResponseLost,
    ServedRequest,
    check_local_origin,
    corrupt,
    respond,
)
from reconciler.emulator.jobs import ApiRequest
from reconciler.emulator.schemas import ApiError, ApiResponse, invalid, json_response, refuse_if
from reconciler.emulator.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HUAWEI = frozenset({"huawei"})
_BASE = "/v2/<project_id>"
_JOB = f"{_BASE}/training-jobs/<job_id>"
_TAGS = f"{_BASE}/modelarts-training-job"
_TAGGED = f"{_TAGS}/resource-instances"
_POOL_FLAVORS = f"{_BASE}/training-pool-flavors"


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
    Route("ListTrainingJobEvents", "GET", f"{_JOB}/events", jobs.events),
    Route("ListTrainingJobTasks", "GET", f"{_JOB}/tasks", jobs.tasks, HUAWEI),
    Route("ListTrainingJobStages", "GET", f"{_JOB}/stages", jobs.stages, HUAWEI),
    Route("ShowTrainingJobLogsPreview", "GET", f"{_JOB}/tasks/<task_id>/logs/preview", jobs.log_preview),
    Route("ShowObsUrlOfTrainingJobLogs", "GET", f"{_JOB}/tasks/<task_id>/logs/url", jobs.log_url),
    Route("ShowTrainingJobLogsFromAom", "GET", f"{_JOB}/logs/<task_id>", jobs.log_lines, HUAWEI),
    Route("ShowTrainingJobMetrics", "GET", f"{_JOB}/metrics/<task_id>", jobs.metrics),
    Route("CreateTrainJobTags", "POST", f"{_TAGS}/<job_id>/tags/create", jobs.create_tags, HUAWEI),
    Route("DeleteTrainJobTags", "DELETE", f"{_TAGS}/<job_id>/tags/delete", jobs.delete_tags, HUAWEI),
    Route("ShowTrainJobTags", "GET", f"{_TAGS}/<job_id>/tags", jobs.show_tags, HUAWEI),
    Route("ListTrainingJobTags", "GET", f"{_TAGS}/tags", jobs.list_tags, HUAWEI),
    Route("ListTrainingJobsByTags", "POST", f"{_TAGGED}/filter", jobs.search_by_tags, HUAWEI),
    Route("CountTrainingJobsByTags", "POST", f"{_TAGGED}/count", jobs.count_by_tags, HUAWEI),
)

MORE_ROUTES = (
    Route("ShowTrainingFlavorMaxAvailableResource", "GET", _POOL_FLAVORS, jobs.pool_flavor, HUAWEI),
    Route("ModifyTrainingQuotas", "PUT", f"{_BASE}/training-quotas", jobs.change_quotas, HUAWEI),
    Route("ShowTrainingJobRoutePlan", "GET", f"{_JOB}/route_plan", jobs.route_plan, HUAWEI),
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


# --- the application

MAX_BODY = 12 * 1024 * 1024
JSON = "application/json"


class Application:
    """The emulated service. Tests direct and read `store`, `faults`, `requests` and `control_settings`."""

    def __init__(
        self, store: Store, settings: Settings, faults: Faults, control_settings: ControlSettings
    ) -> None:
        self.store = store
        self.settings = settings
        self.faults = faults
        self.requests: deque[ServedRequest] = deque(maxlen=KEPT_REQUESTS)
        self.control_settings = control_settings
        self.authenticator = Authenticator(settings)
        self.routes = route_map(settings.cloud, with_control=settings.control)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request.

        Raises:
            ResponseLost: a fault took the response; see `faults`.
        """
        request, request_id = Request(environ), uuid.uuid4().hex
        operation, fault, status = "", None, 0
        try:
            endpoint, path, data = self._route(request)
            if isinstance(endpoint, Route):
                operation = endpoint.operation
                fault = self.faults.trigger(request.method, operation, request.path, data)
                given = self._operate(endpoint, path, request, request_id, data, fault)
            else:
                check_local_origin(request.headers)
                self.authenticator.check(request, data)
                parts = (self.store, self.faults, self.requests, self.control_settings)
                given = respond(*parts, endpoint, path.get("job_id", ""), data)
            status = given.status
        except ApiError as refusal:
            given = json_response(refusal.status, refusal.body(request_id))
            status = given.status
        finally:
            if not request.path.startswith("/emulator/"):
                self.requests.append(ServedRequest(request.method, request.path, operation, status))
        # A 204 has no body.
        text = "" if status == 204 else given.text
        response = Response(text, status, mimetype=JSON)
        response.headers["X-Request-Id"] = request_id
        if self.settings.tells_time:
            response.headers["Date"] = http_date(self.store.clock.now_ms() / 1000)
        if fault and fault.retry_after_s is not None:
            response.headers["Retry-After"] = str(fault.retry_after_s)
        if fault and fault.effect is Effect.TRUNCATED:
            content = text.encode()
            response.response = [content[: len(content) // 2]]
            response.headers["Content-Length"] = str(len(content))
        return response(environ, start_response)

    def _route(self, request: Request) -> tuple[Any, Mapping[str, Any], bytes]:
        adapter = self.routes.bind("emulator.invalid", path_info=request.path, default_method=request.method)
        try:
            endpoint, path = adapter.match()
        except MethodNotAllowed:
            self.authenticator.check(request, b"")
            raise ApiError("ModelArts.2803", f"Method {request.method} is not allowed.") from None
        except HTTPException:
            raise ApiError("APIGW.0101", "The API does not exist or has not been published.") from None
        if (request.content_length or 0) > MAX_BODY:
            raise ApiError("ModelArts.4104", "The request body is too large.")
        return endpoint, path, request.get_data(cache=False)

    def _operate(
        self,
        route: Route,
        path: Mapping[str, Any],
        request: Request,
        request_id: str,
        data: bytes,
        fault: Fault | None,
    ) -> ApiResponse:
        """Run an operation, with the fault that it triggers, if any."""
        effect = fault.effect if fault else None
        if effect is Effect.LOST_BEFORE:
            raise ResponseLost(route.operation)
        if fault and effect is Effect.ANSWER:
            raise ApiError(fault.code, fault.message, status=fault.status)
        if fault and effect is Effect.DELAY:
            self.settings.sleep(fault.delay_s)
        try:
            self.authenticator.check(request, data)
            is_other = self.settings.project_id not in {None, path["project_id"]}
            why = "The project ID in the token does not match that in the URI."
            refuse_if(is_other, why, "ModelArts.2786")
            try:
                query = request.args
            except UnicodeDecodeError:
                raise invalid("the query string is not UTF-8") from None
            given = route.handler(
                ApiRequest(
                    store=self.store,
                    settings=self.settings,
                    path=path,
                    query=query,
                    headers=request.headers,
                    body=data,
                    counts_items=self.control_settings.offset_counts == "items",
                    shift=fault.shift if fault and effect is Effect.MOVED_LIST else 0,
                )
            )
        except ApiError as refusal:
            given = json_response(refusal.status, refusal.body(request_id))
        if effect is Effect.LOST_AFTER:
            raise ResponseLost(route.operation)
        if fault and effect is Effect.ANSWER_AFTER:
            raise ApiError(fault.code, fault.message, status=fault.status)
        return ApiResponse(given.status, corrupt(effect, given.text)) if effect else given


def create_app(
    store: Store, *, faults: Iterable[Fault] = (), offset_counts: str = "pages", **settings: Any
) -> Application:
    """Return the emulated service on a store, as a WSGI application; `Settings` says what can be set.

    `offset_counts`: whether the offset of a search counts "pages" or "items".

    Raises:
        ValueError: an unknown cloud or way to count, or one half of a key pair.
    """
    return Application(store, Settings(**settings), Faults(*faults), ControlSettings(offset_counts))
