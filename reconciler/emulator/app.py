"""The application: the emulated service as one WSGI callable.

A request passes the gateway (credentials, project, route), then an operation of `routes`, and
whatever `faults` has in store for it. `server` puts the application on a socket; it can as well be
called in-process.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import MapAdapter
from werkzeug.wrappers import Request, Response

from reconciler.emulator.control.api import Control, ControlSettings, RequestLog, Served, check_caller
from reconciler.emulator.control.faults import AnswerLost, Effect, Fault, Faults, corrupt
from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.gateway.key_lockout import KeyLock
from reconciler.emulator.gateway.signature import BadSignature, SignedRequest, verify
from reconciler.emulator.messages import CallResponse, ReceivedCall, answer
from reconciler.emulator.routes import CLOUDS, Route, route_map
from reconciler.emulator.storage.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MAX_BODY = 12 * 1024 * 1024
JSON = "application/json"


@dataclass(frozen=True)
class Settings:
    """What the gateway demands, and which cloud it stands in. None: anything goes.

    `now` is the real time, for the age of a signature; `sleep` waits real seconds, for delays.
    """

    project_id: str | None = None
    token: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    cloud: str = "huawei"
    strict_catalogue: bool = False
    control: bool = False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


class Application:
    """The emulated service. Tests direct and read `store`, `faults`, `requests` and `dials`."""

    def __init__(self, store: Store, settings: Settings, faults: Faults, dials: ControlSettings) -> None:
        self.store = store
        self.settings = settings
        self.faults = faults
        self.requests = RequestLog()
        self.dials = dials
        self.key_lock = KeyLock()
        self._reins = Control(store, faults, self.requests, dials)
        self._map = route_map(settings.cloud, with_control=settings.control)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request.

        Raises:
            AnswerLost: a fault took the answer; see `faults`.
        """
        request = Request(environ)
        request_id = uuid.uuid4().hex
        served = _Serving(self, request, request_id)
        try:
            response = served.respond()
        except AnswerLost:
            served.log(0)
            raise
        served.log(response.status_code)
        return response(environ, start_response)


class _Serving:
    """One request on its way through the application."""

    def __init__(self, app: Application, request: Request, request_id: str) -> None:
        self.app = app
        self.request = request
        self.request_id = request_id
        self.operation = ""
        self.fault: Fault | None = None

    def respond(self) -> Response:
        try:
            given = self.serve()
        except ApiError as refusal:
            given = answer(refusal.status, refusal.body(self.request_id))
        return self.response(given)

    def serve(self) -> CallResponse:
        adapter: MapAdapter = self.app._map.bind(
            "emulator.invalid", path_info=self.request.path, default_method=self.request.method
        )
        try:
            endpoint, path = adapter.match()
        except MethodNotAllowed:
            self.authenticate(b"")
            raise ApiError("ModelArts.2803", f"Method {self.request.method} is not allowed.") from None
        except HTTPException:
            raise ApiError("APIGW.0101", "The API does not exist or has not been published.") from None
        if (self.request.content_length or 0) > MAX_BODY:
            raise ApiError("ModelArts.4104", "The request body is too large.")
        data = self.request.get_data(cache=False)
        if not isinstance(endpoint, Route):
            check_caller(self.request.headers)
            self.authenticate(data)
            controlled: CallResponse = endpoint(self.app._reins, path, data)
            return controlled
        self.operation = endpoint.operation
        return self.operate(endpoint, path, data)

    def operate(self, route: Route, path: Any, data: bytes) -> CallResponse:
        """Run an operation, with the fault that strikes it, if one does."""
        fault = self.fault = self.app.faults.strike(
            self.request.method, route.operation, self.request.path, data
        )
        effect = fault.effect if fault else None
        if effect is Effect.LOST_BEFORE:
            raise AnswerLost(route.operation)
        if fault and effect is Effect.ANSWER:
            raise ApiError(fault.code, fault.message, status=fault.status)
        if fault and effect is Effect.DELAY:
            self.app.settings.sleep(fault.delay_s)
        try:
            self.authenticate(data)
            self.check_project(path["project_id"])
            given = route.handler(self.call(path, data))
        except ApiError as refusal:
            given = answer(refusal.status, refusal.body(self.request_id))
        if effect is Effect.LOST_AFTER:
            raise AnswerLost(route.operation)
        if fault and effect is Effect.ANSWER_AFTER:
            raise ApiError(fault.code, fault.message, status=fault.status)
        return CallResponse(given.status, corrupt(effect, given.text)) if effect else given

    def call(self, path: Any, data: bytes) -> ReceivedCall:
        settings = self.app.settings
        return ReceivedCall(
            store=self.app.store,
            path=path,
            query=self.query(),
            headers=self.request.headers,
            body=data,
            cloud=settings.cloud,
            strict_catalogue=settings.strict_catalogue,
            counts_items=self.app.dials.offset_counts == "items",
            shift=self.fault.shift if self.fault and self.fault.effect is Effect.MOVED_LIST else 0,
        )

    def query(self) -> Mapping[str, str]:
        try:
            return self.request.args
        except UnicodeDecodeError:
            raise invalid("the query string is not UTF-8") from None

    def authenticate(self, data: bytes) -> None:
        """Accept the token or the signature, whichever is configured; either of them if both are.

        Raises:
            ApiError: 401 APIGW.0301.
        """
        settings, headers = self.app.settings, self.request.headers
        token = headers.get("X-Auth-Token")
        if settings.token is None and settings.access_key is None:
            return
        if settings.token is not None and token is not None:
            if token == settings.token:
                return
            raise _unauthorized("decrypt token fail")
        if settings.access_key is None:
            raise _unauthorized("Token header is missing")
        if settings.token is not None and "Authorization" not in headers:
            raise _unauthorized("Token header is missing")
        now = settings.now()
        try:
            with self.app.key_lock.counting(now):
                verify(_signed(self.request, data), settings.access_key, settings.secret_key or "", now)
        except BadSignature as problem:
            raise _unauthorized(str(problem)) from None
        if settings.security_token not in {None, headers.get("X-Security-Token")}:
            raise _unauthorized("the security token is missing or not that of the access key")

    def check_project(self, project_id: str) -> None:
        if self.app.settings.project_id not in {None, project_id}:
            raise ApiError("ModelArts.2786", "The project ID in the token does not match that in the URI.")

    def response(self, given: CallResponse) -> Response:
        # A 204 has no body, whatever there was to say.
        text = "" if given.status == 204 else given.text
        response = Response(text, given.status, mimetype=JSON)
        response.headers["X-Request-Id"] = self.request_id
        if self.fault and self.fault.retry_after_s is not None:
            response.headers["Retry-After"] = str(self.fault.retry_after_s)
        if self.fault and self.fault.effect is Effect.TRUNCATED:
            data = text.encode()
            response.response = [data[: len(data) // 2]]
            response.headers["Content-Length"] = str(len(data))
        return response

    def log(self, status: int) -> None:
        path = self.request.path
        if not path.startswith("/emulator/"):
            self.app.requests.append(Served(self.request.method, path, self.operation, status))


def _unauthorized(why: str) -> ApiError:
    return ApiError("APIGW.0301", f"Incorrect IAM authentication information: {why}")


def _signed(request: Request, data: bytes) -> SignedRequest:
    return SignedRequest(
        method=request.method,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=data,
    )


def create_app(
    store: Store,
    *,
    project_id: str | None = None,
    token: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    security_token: str | None = None,
    cloud: str = "huawei",
    strict_catalogue: bool = False,
    control: bool = False,
    offset_counts: str = "pages",
    faults: Iterable[Fault] = (),
    now: Callable[[], datetime] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Application:
    """Return the emulated service on a store, as a WSGI application.

    `project_id`: the only project there is (None: any). `token`, `access_key` with `secret_key`: the
    credentials it asks for (none: it asks for none; both: either will do). `security_token`: the one
    that goes with the key pair, of temporary credentials (None: any will do). `cloud`: "huawei" or
    "otc", which has fewer operations and changes a description only. `strict_catalogue`: refuse
    flavors, engines, algorithms, pools and workspaces that the catalogue lacks, and on a public pool
    what needs a dedicated one. `control`: offer the API of `control`. `offset_counts`: whether the
    offset of a search counts "pages" or "items".

    Raises:
        ValueError: an unknown cloud or way to count, or one half of a key pair.
    """
    if cloud not in CLOUDS:
        raise ValueError(f"cloud must be one of {', '.join(sorted(CLOUDS))}, not {cloud}")
    if (access_key is None) != (secret_key is None):
        raise ValueError("access_key and secret_key go together")
    if security_token is not None and access_key is None:
        raise ValueError("security_token goes with access_key and secret_key")
    settings = Settings(
        project_id=project_id,
        token=token,
        access_key=access_key,
        secret_key=secret_key,
        security_token=security_token,
        cloud=cloud,
        strict_catalogue=strict_catalogue,
        control=control,
        now=now or Settings.now,
        sleep=sleep,
    )
    return Application(store, settings, Faults(*faults), ControlSettings(offset_counts))
