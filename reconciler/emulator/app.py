"""The application: the emulated service as a WSGI callable, its routes, and its control API.

A request passes routing, faults, credentials and project, then its operation. `server` puts the application
on a socket; it can also be called in-process.

The control API under /emulator directs the emulator over HTTP. It exists only with `control=True`, requires
the same credentials, and refuses web pages: a foreign `Origin`, or a `Host` that is not this machine. Its
calls: docs/operations/emulator.md, "Control the server".
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.http import http_date
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from reconciler.emulator import jobs
from reconciler.emulator.auth import CLOUDS, Authenticator, Settings
from reconciler.emulator.faults import Effect, Fault, Faults, ResponseLost, chaos, corrupt, read_fault
from reconciler.emulator.jobs import ApiRequest
from reconciler.emulator.schemas import ApiError, ApiResponse, invalid, json_response, read_json, refuse_if
from reconciler.emulator.store import Job, Store

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


#: Method and path of each call, below /emulator.
CONTROL_CALLS = (
    *("GET jobs", "POST jobs/<job_id>/phase", "POST jobs/<job_id>/hold", "POST jobs/<job_id>/release"),
    *("GET clock", "POST clock", "GET requests", "DELETE requests", "GET settings", "POST settings"),
    *("GET faults", "POST faults", "DELETE faults"),
)


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
KEPT_REQUESTS = 10_000
#: What the offset of a search can count.
COUNTED = ("pages", "items")


class ServedRequest(NamedTuple):
    """One request that was served; status 0 means that it got no response."""

    method: str
    path: str
    operation: str
    status: int


class Application:
    """The emulated service. Tests direct and read `store`, `faults`, `requests` and `offset_counts`."""

    def __init__(self, store: Store, settings: Settings, faults: Faults, offset_counts: str) -> None:
        if offset_counts not in COUNTED:
            raise ValueError(f"offset_counts is pages or items, not {offset_counts}")
        self.store = store
        self.settings = settings
        self.faults = faults
        self.requests: deque[ServedRequest] = deque(maxlen=KEPT_REQUESTS)
        self.offset_counts = offset_counts
        self.authenticator = Authenticator(settings)
        self.routes = route_map(settings.cloud, with_control=settings.control)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request.

        Raises:
            ResponseLost: a fault took the response; see `faults`.
        """
        request, request_id = Request(environ), uuid.uuid4().hex
        operation, fault, given = "", None, ApiResponse(0)
        try:
            endpoint, path, data = self._route(request)
            if isinstance(endpoint, Route):
                operation = endpoint.operation
                fault = self.faults.trigger(request.method, operation, request.path, data)
                given = self._operate(endpoint, path, request, request_id, data, fault)
            else:
                _check_local_origin(request.headers)
                self.authenticator.check(request, data)
                given = self._control(endpoint, path.get("job_id", ""), data)
        except ApiError as refusal:
            given = json_response(refusal.status, refusal.body(request_id))
        finally:
            if not request.path.startswith("/emulator/"):
                self.requests.append(ServedRequest(request.method, request.path, operation, given.status))
        # A 204 has no body.
        text = "" if given.status == 204 else given.text
        response = Response(text, given.status, mimetype=JSON)
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
                    counts_items=self.offset_counts == "items",
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

    def _control(self, call: str, job_id: str, data: bytes) -> ApiResponse:
        """Carry out one of `CONTROL_CALLS`: 200 with JSON, or 204."""
        match call:
            case "GET jobs":
                return json_response(200, {"jobs": [_summary(job) for job in self.store.jobs()]})
            case "POST clock":
                seconds: Any = _read_object(data).get("advance_s")
                is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
                is_wrong = not is_number or not 0 <= seconds < 1e11
                refuse_if(is_wrong, "advance_s must be a number of seconds, zero or more")
                self.store.clock.advance(seconds=seconds)
            case "POST jobs/<job_id>/phase":
                body = _read_object(data)
                phase, secondary = body.get("phase"), body.get("secondary_phase")
                if not isinstance(phase, str) or not isinstance(secondary, str | None):
                    raise invalid("phase must be text")
                return json_response(200, _summary(self.store.set_phase(job_id, phase, secondary)))
            case "POST jobs/<job_id>/hold":
                return json_response(200, _summary(self.store.hold(job_id)))
            case "POST jobs/<job_id>/release":
                return json_response(200, _summary(self.store.release(job_id)))
            case "GET requests":
                return json_response(200, {"requests": [served._asdict() for served in list(self.requests)]})
            case "DELETE requests":
                self.requests.clear()
                return ApiResponse(204)
            case "POST faults":
                wanted = read_json(data)
                try:
                    if isinstance(wanted, dict) and "chaos" in wanted:
                        self.faults.add(*chaos(float(wanted["chaos"]), int(wanted.get("seed", 0))))
                    else:
                        self.faults.add(*map(read_fault, wanted if isinstance(wanted, list) else [wanted]))
                except (ValueError, TypeError, AttributeError, OverflowError) as error:
                    raise invalid(str(error)) from None
            case "DELETE faults":
                self.faults.clear()
                return ApiResponse(204)
            case "POST settings":
                wanted = _read_object(data)
                counted = wanted.pop("offset_counts", self.offset_counts)
                refuse_if(
                    wanted or counted not in COUNTED, "the only setting is offset_counts: pages or items"
                )
                self.offset_counts = counted
        # A change is answered as a GET is.
        match call.partition(" ")[2]:
            case "clock":
                return json_response(200, {"now_ms": self.store.clock.now_ms()})
            case "faults":
                return json_response(200, {"faults": [asdict(fault) for fault in self.faults]})
        return json_response(200, {"offset_counts": self.offset_counts})


def create_app(
    store: Store, *, faults: Iterable[Fault] = (), offset_counts: str = "pages", **settings: Any
) -> Application:
    """Return the emulated service on a store, as a WSGI application; `Settings` says what can be set.

    `offset_counts`: whether the offset of a search counts "pages" or "items".

    Raises:
        ValueError: an unknown cloud or way to count, or one half of a key pair.
    """
    return Application(store, Settings(**settings), Faults(*faults), offset_counts)


def _summary(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "project_id": job.project,
        "workspace_id": job.workspace_id,
        "name": job.name,
        "phase": job.life.phase,
        "secondary_phase": job.life.secondary,
        "held": bool(job.life.held_ms),
    }


def _check_local_origin(headers: Headers) -> None:
    """Refuse requests of web pages, by their origin, or by a foreign host name that leads to this machine."""
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if not _is_this_machine(f"//{host}") or (origin is not None and not _is_this_machine(origin)):
        raise ApiError(
            "APIGW.0305", "The control API is for this machine, and not for web pages of others.", status=403
        )


def _is_this_machine(url: str) -> bool:
    try:
        name = urlsplit(url).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _read_object(data: bytes) -> dict[str, Any]:
    body = read_json(data)
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    return body
