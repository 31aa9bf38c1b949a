"""Target kind → backend. Here, and only here, the embedded emulator and the client of the API meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.marks import Cloud
from reconciler.core.plan import TargetIdentity
from reconciler.core.ports import Backend, RequestListener
from reconciler.core.stack import Target, TargetKind

#: The local target has one project, whatever the stack.
LOCAL_PROJECT = "local"
RECORDS = ".reconciler"


@dataclass(frozen=True, slots=True)
class Connected:
    """A target that can be asked: its backend, who it is, and what its cloud can change on a job."""

    backend: Backend
    identity: TargetIdentity
    cloud: Cloud
    secrets: tuple[str, ...] = ()


@contextmanager
def connected(
    name: str,
    target: Target,
    *,
    root: Path,
    environ: Mapping[str, str],
    listener: RequestListener | None = None,
) -> Iterator[Connected]:
    """Open a target, and close what it holds in the end. `root` is the directory of the stack's root file.

    Raises:
        Unauthorized: no credentials were found.
        ManifestInvalid: the target says too little to find the service.
    """
    with ExitStack() as cleanup:
        yield _KINDS[target.kind](name, target, root, environ, listener, cleanup)


def _local(
    name: str,
    target: Target,
    root: Path,
    environ: Mapping[str, str],
    listener: RequestListener | None,
    cleanup: ExitStack,
) -> Connected:
    from reconciler.backends.connect import connect_inprocess
    from reconciler.emulator import Store, create_app

    store = Store(str(records_directory(root) / "local.sqlite3"))
    cleanup.callback(store.close)
    app = create_app(store, project_id=LOCAL_PROJECT)
    backend = connect_inprocess(
        app, project_id=LOCAL_PROJECT, workspace_id=target.workspace_id, listener=listener
    )
    cleanup.callback(backend.close)
    identity = TargetIdentity(
        name=name,
        kind=target.kind,
        endpoint=TargetKind.LOCAL.value,
        project_id=LOCAL_PROJECT,
        workspace_id=target.workspace_id,
    )
    return Connected(backend, identity, Cloud.HUAWEI)


def _modelarts(
    name: str,
    target: Target,
    root: Path,
    environ: Mapping[str, str],
    listener: RequestListener | None,
    cleanup: ExitStack,
) -> Connected:
    from reconciler.backends.connect import connect, endpoint_of, project_of

    backend = connect(target, environ, listener=listener)
    cleanup.callback(backend.close)
    identity = TargetIdentity(
        name=name,
        kind=target.kind,
        endpoint=endpoint_of(target, environ),
        project_id=project_of(target, environ),
        workspace_id=target.workspace_id,
    )
    return Connected(backend, identity, backend.cloud, tuple(backend.secrets()))


_Opener = Callable[
    [str, Target, Path, Mapping[str, str], "RequestListener | None", ExitStack],
    Connected,
]
_KINDS: dict[TargetKind, _Opener] = {TargetKind.LOCAL: _local, TargetKind.MODELARTS: _modelarts}


def records_directory(root: Path) -> Path:
    """The directory beside the root file where records and the local target's jobs lie; it is made."""
    directory = root / RECORDS
    directory.mkdir(exist_ok=True)
    ignore = directory / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return directory
