"""The target of kind `modelarts`: one project and workspace of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.errors import ManifestInvalid
from reconciler.modelarts import endpoint as service
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.target import Connected, Runtime


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Who the target is; None if nobody but its credentials may know the project. Nothing is sent.

    Raises:
        ManifestInvalid: the target says too little to find the service.
    """
    endpoint = service.endpoint_of(target, environ)
    try:
        return _identity(name, target, endpoint, service.project_of(target, environ))
    except ManifestInvalid:
        return None


def connect(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    """Find endpoint, project and credentials.

    Raises:
        Unauthorized: no credentials were found.
        ManifestInvalid: the target says too little to find the service.
    """
    backend = service.connect(
        target,
        runtime.environ,
        SessionOptions(
            listener=runtime.on_request,
            clock=runtime.clock,
            stop=runtime.stop,
            learn=runtime.redactor.learn,
            redact=runtime.redactor,
            limiter=runtime.limiter,
        ),
    )
    cleanup.callback(backend.close)
    backend.reading = runtime.reading or backend.reading
    identity = _identity(name, target, backend.endpoint, backend.project_id)
    return Connected(backend, identity, backend.cloud, runtime.clock, checks_offers=True)


def _identity(name: str, target: Target, endpoint: str, project_id: str) -> TargetIdentity:
    return TargetIdentity(
        name=name,
        kind=target.kind,
        endpoint=endpoint,
        project_id=project_id,
        workspace_id=target.workspace_id,
    )
