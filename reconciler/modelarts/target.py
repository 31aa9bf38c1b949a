"""Targets of any kind: the runtime that opens them, an open target, and the module of each kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from reconciler.core.addresses import endpoint_problem
from reconciler.core.fields.field_types import Cloud
from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.errors import Diagnostic, ManifestInvalid, NotSupported
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.secrets import Redactor

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from reconciler.core.ports import (
        Backend,
        Catalog,
        Clock,
        ReadingListener,
        RequestListener,
        SupportsSearch,
        UploadListener,
    )
    from reconciler.modelarts.operations import Logs
    from reconciler.modelarts.workspace import Workspace


class Connected(NamedTuple):
    """An open target: its backend, identity and clock, and what its cloud can change on a job.

    `checks_offers` is true if the service rejects a create that is not in its catalog, `runs_images` if it
    runs the commands of container images, `installs_requirements` if it installs the packages of requirements
    files. `objects` opens the object store at an OBS address, for reading or writing. Optional abilities are
    properties that raise `NotSupported`.
    """

    backend: Backend
    identity: TargetIdentity
    cloud: Cloud
    clock: Clock
    checks_offers: bool = False
    runs_images: bool = True
    installs_requirements: bool = True
    objects: Callable[[str, bool], ObjectStore] | None = None

    @property
    def search(self) -> SupportsSearch:
        fix = "reconciler status shows the jobs of the stack"
        return cast("SupportsSearch", self._backend_with("search", "search for jobs", fix))

    @property
    def deletion(self) -> Workspace:
        return cast("Workspace", self._backend_with("delete", "delete the records of jobs"))

    @property
    def logs(self) -> Logs:
        return cast("Logs", self._backend_with("logs", "show logs, events and metrics of jobs").logs)

    @property
    def catalog(self) -> Catalog:
        return cast("Catalog", self._backend_with("catalog", "list flavors, engines and pools").catalog)

    def _backend_with(self, name: str, ability: str, *fix: str) -> Any:
        if hasattr(self.backend, name):
            return self.backend
        raise self.not_supported(ability, *fix)

    def not_supported(
        self, ability: str, fix: str = "select a target of another kind: --target"
    ) -> NotSupported:
        """Return the error for an ability that this kind of target lacks."""
        name, kind = self.identity.name, self.identity.kind
        return NotSupported(f"target {name} is of kind {kind}, which cannot {ability}", fix=fix)


@dataclass(eq=False, repr=False)
class Runtime:
    """The environment of a run: variables, clock, redactor and listeners.

    `redactor` learns each secret and redacts texts of the service. `warn` receives warnings, `log_debug`
    messages for `-v`, `on_request` each request. `reading` is entered while the list of jobs is read,
    `uploading` while code is uploaded. Once `stop` is set, sleeps end and requests that change something are
    not sent. `command` is the name of the command in the records.
    """

    environ: Mapping[str, str]
    clock: Clock
    redactor: Redactor = field(default_factory=Redactor)
    warn: Callable[[str], None] = lambda _: None
    log_debug: Callable[[str], None] = lambda _: None
    on_request: RequestListener | None = None
    reading: ReadingListener | None = None
    uploading: UploadListener | None = None
    stop: threading.Event | None = None
    command: str = ""


def _module_of(target: Target) -> Any:
    """The module of a kind of target, with `open_target` and `identity_of`; see `core.values`."""
    return import_module(target.traits.module)


@contextmanager
def connected(name: str, target: Target, root: Path, runtime: Runtime) -> Iterator[Connected]:
    """Open a target for the `with` block. `root` is the directory of the stack's root file.

    Raises:
        Unauthorized: no credentials were found.
        LocalFileFailed: the file of a local target cannot be used.
        ManifestInvalid: the target has no usable endpoint, or no project.
    """
    # All of them, used or not: any of them may appear in output.
    runtime.redactor.add_secrets(known_secrets(runtime.environ))
    with ExitStack() as cleanup:
        yield _module_of(target).open_target(name, target, root, runtime, cleanup)


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Return the identity of a target. None if the project depends on its credentials. Nothing is sent.

    Raises:
        ManifestInvalid: the target has no usable endpoint, or no project.
    """
    identity: TargetIdentity | None = _module_of(target).identity_of(name, target, environ)
    return identity


def identify(name: str, target: Target, endpoint: str, project_id: str) -> TargetIdentity:
    return TargetIdentity(
        name=name,
        kind=target.kind,
        endpoint=endpoint,
        project_id=project_id,
        workspace_id=target.workspace_id,
    )


def known_values(name: str, target: Target | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the `target` of a plan, as far as it is known without credentials and service."""
    if target is None:
        return {"name": name}
    try:
        identity = identity_of(name, target, environ)
    except ManifestInvalid:
        identity = None
    if identity is not None:
        return identity.model_dump(mode="json")
    known = {"name": name, "kind": target.kind, "workspace_id": str(target.workspace_id)}
    return known if target.project_id is None else {**known, "project_id": target.project_id}


# --- endpoints

#: Regions with other domains, for all services or for one. Source: docs/reference/modelarts.md, "Endpoints";
#: docs/reference/code.md, "The object store".
_DOMAINS = {
    "eu-de": "otc.t-systems.com",
    "eu-nl": "otc.t-systems.com",
    "eu-west-101": "myhuaweicloud.eu",
    "modelarts.ap-southeast-1": "myhuaweicloud.cn",
}


def service_endpoint(
    target: Target,
    service: str,
    named: str | None,
    field: str,
    *,
    insecure: bool | None = None,
    takes_path: bool = False,
) -> str:
    """Return the endpoint of a service: the one given in `field`, else that of the region.

    If `insecure` is None, plain http is allowed for loopback only, whatever the target says.

    Raises:
        ManifestInvalid: there is neither, or the endpoint is not allowed.
    """
    endpoint, region = (named or "").strip().rstrip("/"), (target.region or "").strip()
    if not endpoint and not region:
        why = f"the target has neither a region nor an {field}"
        fix = f"add region, or {field}: https://{service}.REGION.myhuaweicloud.com"
        raise ManifestInvalid(Diagnostic("no endpoint", why, fix))
    if not endpoint:
        if not (region.isascii() and region.replace("-", "").isalnum()):
            why, fix = f"{region!r} is not a valid region", "use a region id such as cn-north-4"
            raise ManifestInvalid(Diagnostic(f"invalid {field}", why, fix))
        domain = _DOMAINS.get(f"{service}.{region}") or _DOMAINS.get(region, "myhuaweicloud.com")
        endpoint = f"https://{service}.{region}.{domain}"
    if problem := endpoint_problem(endpoint, insecure, takes_path=takes_path):
        raise ManifestInvalid(Diagnostic(f"invalid {field}", *problem))
    return endpoint
