"""A target of a stack is opened here, by the module of its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.errors import ManifestInvalid
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.target import Connected, Runtime


class KindModule(Protocol):
    """What the module of a kind of target has, see `core.target_kind`."""

    def connect(
        self, name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack
    ) -> Connected:
        """Open a target, and leave to `cleanup` what has to be closed. `root` is the stack's directory.

        Raises:
            ServiceError: it cannot be opened.
            ManifestInvalid: the target says too little to find the service.
        """
        ...

    def identity_of(self, name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
        """Who a target is; None if nobody but its credentials may know. Nothing is sent.

        Raises:
            ManifestInvalid: the target says too little to find the service.
        """
        ...


def _module_of(target: Target) -> KindModule:
    return cast(KindModule, import_module(target.traits.module))


@contextmanager
def connected(name: str, target: Target, root: Path, runtime: Runtime) -> Iterator[Connected]:
    """Open a target, and close what it holds in the end. `root` is the directory of the stack's root file.

    Raises:
        Unauthorized: no credentials were found.
        LocalFileFailed: the file of a local target cannot be used.
        ManifestInvalid: the target says too little to find the service.
    """
    # Those too that are not used: what is at hand may be printed by a program, and read by a service.
    runtime.redactor.learn(known_secrets(runtime.environ))
    with ExitStack() as cleanup:
        yield _module_of(target).connect(name, target, root, runtime, cleanup)


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Who a target is; None if nobody but its credentials may know the project. Nothing is sent.

    Raises:
        ManifestInvalid: the target says too little to find the service.
    """
    return _module_of(target).identity_of(name, target, environ)


def known_values(name: str, target: Target | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """What a plan would say of a target, as far as it is known without credentials and the service."""
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
