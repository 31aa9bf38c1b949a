"""The control API: how a test, in any language, directs an emulator over HTTP.

It lies under /emulator, which the service does not have, and exists only when the application was
made with `control=True`. It takes and gives JSON, asks for the credentials that the application asks for, if
any, and refuses web pages: a foreign `Origin`, and a `Host` that is not this machine, are refused.

    GET    /emulator/jobs              every job: id, project_id, name, phase, secondary_phase, held
    GET    /emulator/clock             {"now_ms": n}
    POST   /emulator/clock             {"advance_s": n}: let n seconds pass
    POST   /emulator/jobs/{id}/phase   {"phase": "Failed", "secondary_phase": …}: put a job into a phase
    POST   /emulator/jobs/{id}/hold    keep a job in its phase
    POST   /emulator/jobs/{id}/release let it go on
    GET    /emulator/requests          the newest 10,000 requests served: method, path, operation, status
    DELETE /emulator/requests          forget them
    GET    /emulator/faults            the faults in force
    POST   /emulator/faults            one fault, a list of them, or {"chaos": probability, "seed": n}
    DELETE /emulator/faults            remove them all
    GET    /emulator/settings          {"offset_counts": "pages"}
    POST   /emulator/settings          {"offset_counts": "items"}: what `offset` of a search counts
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

from reconciler.emulator.control.faults import Faults, chaos, read_fault
from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.json_body import read_json
from reconciler.emulator.messages import ApiResponse, json_response
from reconciler.emulator.storage.job_row import Job
from reconciler.emulator.storage.store import Store

KEPT_REQUESTS = 10_000


class ServedRequest(NamedTuple):
    """One request that was served; status 0 means that it got no response."""

    method: str
    path: str
    operation: str
    status: int


class RequestLog(deque[ServedRequest]):
    """The newest requests, oldest first."""

    def __init__(self) -> None:
        super().__init__(maxlen=KEPT_REQUESTS)


@dataclass
class ControlSettings:
    """What can be set while the application serves. `offset_counts`: pages or items."""

    offset_counts: str = "pages"

    def __post_init__(self) -> None:
        if self.offset_counts not in {"pages", "items"}:
            raise ValueError(f"offset_counts is pages or items, not {self.offset_counts}")


@dataclass(frozen=True)
class Control:
    """The parts of an application that the control API directs."""

    store: Store
    faults: Faults
    requests: RequestLog
    settings: ControlSettings


Handler = Callable[[Control, Mapping[str, Any], bytes], ApiResponse]


def _show_jobs(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, {"jobs": [_summary(job) for job in control.store.jobs()]})


def _show_clock(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, {"now_ms": control.store.clock.now_ms()})


def _advance(control: Control, path: Mapping[str, Any], data: bytes) -> ApiResponse:
    seconds = _read_object(data).get("advance_s")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        raise invalid("advance_s must be a number of seconds, zero or more")
    control.store.clock.advance(seconds=seconds)
    return _show_clock(control, path, data)


def _set_phase(control: Control, path: Mapping[str, Any], data: bytes) -> ApiResponse:
    body = _read_object(data)
    phase, secondary = body.get("phase"), body.get("secondary_phase")
    if not isinstance(phase, str) or not isinstance(secondary, str | None):
        raise invalid("phase must be a text")
    return json_response(200, _summary(control.store.set_phase(path["job_id"], phase, secondary)))


def _hold(control: Control, path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, _summary(control.store.hold(path["job_id"])))


def _release(control: Control, path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, _summary(control.store.release(path["job_id"])))


def _show_requests(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, {"requests": [served._asdict() for served in list(control.requests)]})


def _clear_requests(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    control.requests.clear()
    return ApiResponse(204)


def _show_faults(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, {"faults": [asdict(fault) for fault in control.faults]})


def _add_faults(control: Control, path: Mapping[str, Any], data: bytes) -> ApiResponse:
    body = read_json(data)
    try:
        if isinstance(body, dict) and "chaos" in body:
            control.faults.add(*chaos(float(body["chaos"]), int(body.get("seed", 0))))
        else:
            control.faults.add(*(read_fault(item) for item in (body if isinstance(body, list) else [body])))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise invalid(str(error)) from None
    return _show_faults(control, path, data)


def _clear_faults(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    control.faults.clear()
    return ApiResponse(204)


def _show_settings(control: Control, _path: Mapping[str, Any], _data: bytes) -> ApiResponse:
    return json_response(200, asdict(control.settings))


def _change_settings(control: Control, path: Mapping[str, Any], data: bytes) -> ApiResponse:
    try:
        wanted = ControlSettings(**{**asdict(control.settings), **_read_object(data)})
    except (ValueError, TypeError):
        raise invalid("the one setting is offset_counts: pages or items") from None
    control.settings.offset_counts = wanted.offset_counts
    return _show_settings(control, path, data)


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


def check_local_origin(headers: Headers) -> None:
    """Refuse a request that a web page may have sent, in whose name the browser calls this machine.

    Its origin says so, or the name by which it found us: that of a page can be made to lead here.

    Raises:
        ApiError: 403.
    """
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


CONTROL_ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/emulator/jobs", _show_jobs),
    ("GET", "/emulator/clock", _show_clock),
    ("POST", "/emulator/clock", _advance),
    ("POST", "/emulator/jobs/<job_id>/phase", _set_phase),
    ("POST", "/emulator/jobs/<job_id>/hold", _hold),
    ("POST", "/emulator/jobs/<job_id>/release", _release),
    ("GET", "/emulator/requests", _show_requests),
    ("DELETE", "/emulator/requests", _clear_requests),
    ("GET", "/emulator/faults", _show_faults),
    ("POST", "/emulator/faults", _add_faults),
    ("DELETE", "/emulator/faults", _clear_faults),
    ("GET", "/emulator/settings", _show_settings),
    ("POST", "/emulator/settings", _change_settings),
)
