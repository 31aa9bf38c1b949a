"""Target kind → backend. Here, and only here, the embedded emulator and the client of the API meet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.backends.auth.known_secrets import known_secrets
from reconciler.core.declared.marks import Cloud
from reconciler.core.declared.stack import Target, TargetKind
from reconciler.core.diagnostic import ManifestInvalid
from reconciler.core.planning.plan import TargetIdentity
from reconciler.core.ports import Backend, Catalog, Clock, ReadingListener, Rejected, RequestListener
from reconciler.core.text.secret import Redactor
from reconciler.record_directory import private_file, record_directory

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from reconciler.emulator import Store

#: The local target has one project, whatever the stack.
LOCAL_PROJECT = "local"


@dataclass(frozen=True, slots=True)
class Connected:
    """A target that can be asked: its backend, who it is, what its cloud can change on a job, its clock.

    `catalog` is None where whatever can be meant is offered.
    """

    backend: Backend
    identity: TargetIdentity
    cloud: Cloud
    clock: Clock
    catalog: Catalog | None = None


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs a stack: its environment and clock, what is kept out of every output, and who is told.

    `redactor` learns each value that must not be seen, and takes all of them out of what the service says.
    `warn` is told what a person should know, `tell` what `-v` shows, `on_request` of each request, and
    `reading` when the list of jobs is read. Once `stop` is set nobody sleeps any more, and nothing that
    changes something is sent. `command` is what the records name as such.
    """

    environ: Mapping[str, str]
    clock: Clock
    redactor: Redactor = field(default_factory=Redactor)
    warn: Callable[[str], None] = _ignore
    tell: Callable[[str], None] = _ignore
    on_request: RequestListener | None = None
    reading: ReadingListener | None = None
    stop: threading.Event | None = None
    command: str = ""


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
        yield _KINDS[target.kind](name, target, root, runtime, cleanup)


def _local(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    from reconciler.backends.connect import connect_inprocess
    from reconciler.emulator import Store, create_app

    file = record_directory(root) / "local.sqlite3"
    private_file(file)
    with _telling_of(file):
        store = Store(str(file))
    cleanup.callback(store.close)
    app = create_app(store, project_id=LOCAL_PROJECT)

    def telling_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with _telling_of(file):
            return app(environ, start_response)

    backend = connect_inprocess(
        telling_app,
        project_id=LOCAL_PROJECT,
        workspace_id=target.workspace_id,
        listener=runtime.on_request,
        clock=runtime.clock,
        stop=runtime.stop,
        redact=runtime.redactor,
    )
    cleanup.callback(backend.close)
    backend.reading = runtime.reading or backend.reading
    identity = _identity(name, target, TargetKind.LOCAL.value, LOCAL_PROJECT)
    return Connected(backend, identity, Cloud.HUAWEI, _LocalClock(store, runtime.clock))


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity | None:
    """Who a target is; None if nobody but its credentials may know the project. Nothing is sent.

    Raises:
        ManifestInvalid: the target says too little to find the service.
    """
    if target.kind is TargetKind.LOCAL:
        return _identity(name, target, TargetKind.LOCAL.value, LOCAL_PROJECT)
    from reconciler.backends.connect import endpoint_of, project_of

    endpoint = endpoint_of(target, environ)
    try:
        return _identity(name, target, endpoint, project_of(target, environ))
    except ManifestInvalid:
        return None


class LocalFileFailed(Rejected):
    """The file of the local target cannot be read or written; what was asked had no effect."""

    what = "cannot use the file of the local target"


@contextmanager
def _telling_of(file: Path) -> Iterator[None]:
    from reconciler.emulator import StoreError

    try:
        yield
    except StoreError as error:
        raise LocalFileFailed(f"{file}: {error}", fix=_fix_of(error, file)) from error


def _fix_of(error: Exception, file: Path) -> str:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process is using it; retry when that process has ended"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"{file.name} must be a writable file, and {file.parent} a directory"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return "check whether the disk is full"
    return f"remove {file} if you can lose the jobs of the local target"


class _LocalClock:
    """The time that the embedded service keeps: its jobs live, and are judged, by one clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def now(self) -> float:
        """Seconds since 1970, as the service counts them."""
        from reconciler.emulator import StoreError

        try:
            return self._store.clock.now_ms() / 1000
        except StoreError:  # the next request will say what is wrong; a clock goes on
            return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._clock.sleep(seconds)


def _modelarts(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    from reconciler.backends.connect import connect
    from reconciler.backends.modelarts.catalog import ServiceCatalog

    backend = connect(
        target,
        runtime.environ,
        listener=runtime.on_request,
        clock=runtime.clock,
        stop=runtime.stop,
        learn=runtime.redactor.learn,
        redact=runtime.redactor,
    )
    cleanup.callback(backend.close)
    backend.reading = runtime.reading or backend.reading
    identity = _identity(name, target, backend.endpoint, backend.project_id)
    return Connected(backend, identity, backend.cloud, runtime.clock, ServiceCatalog(backend))


def _identity(name: str, target: Target, endpoint: str, project_id: str) -> TargetIdentity:
    return TargetIdentity(
        name=name,
        kind=target.kind,
        endpoint=endpoint,
        project_id=project_id,
        workspace_id=target.workspace_id,
    )


_Opener = Callable[[str, Target, Path, Runtime, ExitStack], Connected]
#: A new kind of target is a row here.
_KINDS: dict[TargetKind, _Opener] = {TargetKind.LOCAL: _local, TargetKind.MODELARTS: _modelarts}
