"""The target of kind `modelarts`: endpoint, project, credentials and network of one project and workspace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

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
from reconciler.modelarts.target import Connected, Runtime, identify
from reconciler.modelarts.workspace import Workspace

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from reconciler.modelarts.operations import Catalog, Logs


def _group(name: str) -> Any:
    """A group of further calls, whose module is imported on first use."""
    path = "reconciler.modelarts.operations"
    return cached_property(lambda backend: getattr(import_module(path), name)(backend))


class ModelArtsBackend(Workspace):
    """One workspace of one project, and its further calls in groups.

    `logs` is what jobs report: logs, events, metrics; `catalog` flavors, engines, pools and quotas.
    """

    logs: Logs = _group("Logs")
    catalog: Catalog = _group("Catalog")


# --- connect

#: Regions whose address does not follow the pattern. Source: docs/reference/modelarts.md, "Endpoints".
_ENDPOINTS = {
    "ap-southeast-1": "https://modelarts.ap-southeast-1.myhuaweicloud.cn",
    "eu-de": "https://modelarts.eu-de.otc.t-systems.com",
    "eu-nl": "https://modelarts.eu-nl.otc.t-systems.com",
    "eu-west-101": "https://modelarts.eu-west-101.myhuaweicloud.eu",
}


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Return the identity of a target; None if only its credentials can tell the project. Nothing is sent.

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
        listener=runtime.on_request,
        clock=runtime.clock,
        stop=runtime.stop,
        learn=runtime.redactor.learn,
        redact=runtime.redactor,
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
        keys = objects.KeySource(
            credentials,
            lambda: session(iam),
            runtime.clock.now,
            runtime.redactor.learn,
            address,
        )
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

    Nothing is sent yet, unless the project has to be learnt from IAM's token. The network is the one that
    `environ` says.

    Raises:
        NoCredentials: there are none in `environ`, nor in a credentials file.
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
    """Return the address of the service: the target's own, else that of its region.

    Raises:
        ManifestInvalid: it has neither, or an address that must not be used.
    """
    endpoint, region = (target.endpoint or "").strip().rstrip("/"), (target.region or "").strip()
    if not endpoint and not region:
        why = "the target has neither a region nor an endpoint"
        raise _invalid("no endpoint", why, "add region: cn-north-4")
    if not endpoint:
        if not (region.isascii() and region.replace("-", "").isalnum()):
            fix = "use a region id such as cn-north-4"
            raise _invalid("invalid endpoint", f"{region!r} is not a valid region", fix)
        endpoint = _ENDPOINTS.get(region) or f"https://modelarts.{region}.myhuaweicloud.com"
    if problem := endpoint_problem(endpoint, target.insecure):
        raise _invalid("invalid endpoint", *problem)
    return endpoint


def project_of(target: Target, environ: Mapping[str, str], credentials: Credentials | None = None) -> str:
    """Return the project: the target's, else that of the environment, else that of the credentials.

    Raises:
        ManifestInvalid: there is none, or it is not a valid project id.
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
    """Return the cloud of a target: the declared one, else the one of its host."""
    host = urlsplit(endpoint).hostname or ""
    return target.cloud or (Cloud.OTC if host.endswith(".otc.t-systems.com") else Cloud.HUAWEI)


def _named_project(target: Target, environ: Mapping[str, str]) -> str | None:
    named = (target.project_id, environ.get("HUAWEICLOUD_SDK_PROJECT_ID"), environ.get("OS_PROJECT_ID"))
    return next((name.strip() for name in named if name and name.strip()), None)


def _invalid(what: str, why: str, fix: str) -> ManifestInvalid:
    return ManifestInvalid(Diagnostic(what, why, fix))


def network_of(endpoint: str, environ: Mapping[str, str]) -> Network:
    """Read proxies and CA bundle from the environment, once and on purpose."""

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
