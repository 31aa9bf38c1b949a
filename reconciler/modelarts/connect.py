"""Targets of kind `modelarts`: finds endpoint, project, credentials and network settings, and connects.

Also connects to a WSGI application in this process instead of the service.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from reconciler.core.addresses import endpoint_problem, is_loopback
from reconciler.core.fields.field_types import Cloud
from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.errors import Diagnostic, ManifestInvalid, ServiceError
from reconciler.modelarts.auth import AccessKey, Anonymous, find_credentials
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.http import (
    DEFAULT_OPTIONS,
    Credentials,
    Network,
    NoCredentials,
    ServiceSession,
    SessionOptions,
)
from reconciler.modelarts.target import Connected, Runtime, identify, service_endpoint
from reconciler.modelarts.workspace import Workspace

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from reconciler.modelarts.operations import Catalog, Logs


def _group(name: str) -> Any:
    """A group of further calls, imported on first use."""
    path = "reconciler.modelarts.operations"
    return cached_property(lambda backend: getattr(import_module(path), name)(backend))


class ModelArtsBackend(Workspace):
    """One workspace of one project, and groups of further calls.

    `logs` has logs, events and metrics of jobs; `catalog` flavors, engines, pools and quotas.
    """

    logs: Logs = _group("Logs")
    catalog: Catalog = _group("Catalog")


# --- connect


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Return the identity of a target. None if the project depends on its credentials. Nothing is sent.

    Raises:
        ManifestInvalid: the target has no usable endpoint, or no project.
    """
    endpoint = endpoint_of(target)
    try:
        return identify(name, target, endpoint, project_of(target, environ))
    except ManifestInvalid:
        return None


def open_target(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    """Find endpoint, project and credentials.

    Raises:
        Unauthorized: no credentials were found.
        ManifestInvalid: the target has no usable endpoint, or no project.
    """
    options = SessionOptions(
        listener=runtime.on_request, clock=runtime.clock, stop=runtime.stop, redactor=runtime.redactor
    )
    backend = connect(target, runtime.environ, options)
    cleanup.callback(backend.close)
    backend.reading = runtime.reading or backend.reading
    identity = identify(name, target, backend.endpoint, backend.project_id)

    @cache
    def open_store(address: str) -> ObjectStore:
        from reconciler.modelarts import objects  # few stacks upload code

        def session(endpoint: str) -> ServiceSession:
            own = options._replace(network=network_of(endpoint, runtime.environ))
            return ServiceSession(endpoint, Anonymous(), own)

        credentials = backend.session.credentials
        iam = "" if isinstance(credentials, AccessKey) else objects.iam_endpoint(target, runtime.environ)
        keys = objects.KeySource(credentials, lambda: session(iam), runtime.clock.now, address)
        url = objects.bucket_url(target, address.removeprefix("obs://").partition("/")[0])

        def is_elsewhere() -> bool:
            try:
                with session(url) as bucket:
                    bucket.call("GET", "")
            except ServiceError as answer:
                return answer.status is not None and 300 <= answer.status < 400
            return False

        return objects.open_objects(target, address, keys, network_of(url, runtime.environ), is_elsewhere)

    return Connected(
        backend, identity, backend.cloud, runtime.clock, True, objects=lambda address, _: open_store(address)
    )


def connect(
    target: Target, environ: Mapping[str, str], options: SessionOptions = DEFAULT_OPTIONS
) -> ModelArtsBackend:
    """Return the backend of a target.

    Nothing is sent yet, unless the project has to be read from IAM's token. Network settings come from
    `environ`.

    Raises:
        NoCredentials: there are none in `environ` or a credentials file.
        ManifestInvalid: the target has no usable endpoint, or no project.
    """
    clock = options.clock or SystemClock(options.stop)

    def open_session(endpoint: str, credentials: Credentials) -> ServiceSession:
        own = options._replace(network=network_of(endpoint, environ), clock=clock)
        return ServiceSession(endpoint, credentials, own)

    def open_iam(url: str) -> ServiceSession:
        if problem := endpoint_problem(url, target.insecure, takes_path=True):
            raise NoCredentials(f"OS_AUTH_URL: {problem[0]}", fix="set OS_AUTH_URL to https://…/v3")
        return open_session(url, Anonymous())

    endpoint = endpoint_of(target)
    credentials = find_credentials(
        environ,
        open_iam,
        clock,
        profile=target.profile,
        project_id=_named_project(target, environ),
        region=target.region,
    )
    project_id = project_of(target, environ, credentials)
    session = open_session(endpoint, credentials)
    return ModelArtsBackend(session, project_id, target.workspace_id, cloud_of(target, endpoint))


def endpoint_of(target: Target) -> str:
    """Return the endpoint of the service: the target's own, else that of its region.

    Raises:
        ManifestInvalid: the target has neither, or the endpoint is not allowed.
    """
    return service_endpoint(target, "modelarts", target.endpoint, "endpoint", insecure=target.insecure)


def project_of(target: Target, environ: Mapping[str, str], credentials: Credentials | None = None) -> str:
    """Return the project: the target's, else that of the environment, else that of the credentials.

    Raises:
        ManifestInvalid: there is none, or it is not a valid project ID.
    """
    project_id = _named_project(target, environ) or (credentials and credentials.project_id()) or ""
    if not project_id:
        fix = "add project_id to the target, or set HUAWEICLOUD_SDK_PROJECT_ID"
        raise _invalid("no project", "no project_id in the target or the environment", fix)
    if not (project_id.isascii() and project_id.replace("-", "").replace("_", "").isalnum()):
        fix = "copy it from the console: My Credentials, Projects"
        raise _invalid("invalid project", f"{project_id!r} is not a valid project id", fix)
    return project_id


def cloud_of(target: Target, endpoint: str) -> Cloud:
    """Return the cloud of a target: the declared one, else that of its host."""
    host = urlsplit(endpoint).hostname or ""
    return target.cloud or (Cloud.OTC if host.endswith(".otc.t-systems.com") else Cloud.HUAWEI)


def _named_project(target: Target, environ: Mapping[str, str]) -> str | None:
    named = (target.project_id, environ.get("HUAWEICLOUD_SDK_PROJECT_ID"), environ.get("OS_PROJECT_ID"))
    return next((name.strip() for name in named if name and name.strip()), None)


def _invalid(what: str, why: str, fix: str) -> ManifestInvalid:
    return ManifestInvalid(Diagnostic(what, why, fix))


def network_of(endpoint: str, environ: Mapping[str, str]) -> Network:
    """Read proxies and CA bundle from the environment."""

    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.upper()) or ""

    parts = urlsplit(endpoint)
    proxy = variable(f"{parts.scheme}_proxy") or variable("all_proxy")
    no_proxy, host = variable("no_proxy"), parts.netloc.rpartition("@")[2]
    bypass = is_loopback(parts.hostname or "") or (
        no_proxy and proxy_bypass_environment(host, {"no": no_proxy})
    )
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OS_CACERT", "SSL_CERT_FILE")
    return Network(
        proxies={parts.scheme: proxy} if proxy and not bypass else {},
        ca_bundle=next(filter(None, map(environ.get, names)), None),
    )


# --- a service in this process

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiAdapter(BaseAdapter):
    """A transport that calls a WSGI application in this process.

    A `ServiceError` of the app is passed on; any other exception becomes a connection error.
    """

    def __init__(self, app: WsgiApp) -> None:
        super().__init__()
        self._app = app

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        """Return the app's response.

        Raises:
            requests.ConnectionError: the app raised another exception.
            ServiceError: raised by the app.
        """
        assert request.url is not None
        scheme, rest = request.url.partition("://")[::2]
        host, tail = rest.partition("/")[::2]
        path, query = tail.partition("?")[::2]
        name, port = host.partition(":")[::2]
        body = request.body or b""
        assert isinstance(body, bytes)
        own = {"content-type", "content-length", "host", "accept-encoding"}
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes("/" + path).decode("latin-1"),
            "QUERY_STRING": query,
            "REQUEST_URI": "/" + tail,
            "RAW_URI": "/" + tail,
            "SERVER_NAME": name,
            "SERVER_PORT": port or ("443" if scheme == "https" else "80"),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_HOST": request.headers.get("Host", host),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": scheme,
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),  # discarded: errors are responses
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            **{
                "HTTP_" + header.upper().replace("-", "_"): value
                for header, value in request.headers.items()
                if header.lower() not in own
            },
        }
        started: list[tuple[str, list[tuple[str, str]]]] = []
        try:
            with ExitStack() as cleanup:
                chunks = self._app(environ, lambda status, headers, *_: started.append((status, headers)))
                cleanup.callback(getattr(chunks, "close", bool))
                content = b"".join(chunks)
            status, headers = started[-1]
        except ServiceError:
            raise
        except Exception as error:
            raise requests.ConnectionError(f"{type(error).__name__}: {error}") from error
        response = requests.Response()
        code, response.reason = status.partition(" ")[::2]
        response.status_code = int(code)
        response.headers = CaseInsensitiveDict(headers)
        response.request = request
        response.url = request.url or ""
        response.raw = io.BytesIO(content)
        return response

    def close(self) -> None:
        pass


def connect_inprocess(
    app: WsgiApp,
    *,
    project_id: str,
    workspace_id: str = "0",
    cloud: Cloud = Cloud.HUAWEI,
    options: SessionOptions = DEFAULT_OPTIONS,
) -> ModelArtsBackend:
    """Return a backend that calls a WSGI application in this process, without a socket."""
    options = options._replace(make_adapter=lambda: WsgiAdapter(app))
    session = ServiceSession("http://localhost", Anonymous(), options)  # nothing is sent there
    return ModelArtsBackend(session, project_id, workspace_id, cloud)
