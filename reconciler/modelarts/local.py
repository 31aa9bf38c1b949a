"""Targets of kind `local`: the emulator in this process, with its jobs in a file of the stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.fields.field_types import Cloud
from reconciler.core.stack import Target
from reconciler.core.values import LOCAL, TargetIdentity
from reconciler.errors import Rejected
from reconciler.files import private_file, record_directory
from reconciler.modelarts.target import Connected, Runtime, identify

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from reconciler.core.ports import Clock
    from reconciler.emulator import Store

#: All local targets have the same project.
LOCAL_PROJECT = "local"


class LocalFileFailed(Rejected):
    """The file of the local target cannot be read or written; the request had no effect."""

    what = "cannot use the file of the local target"


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity:
    return identify(name, target, LOCAL, LOCAL_PROJECT)


def open_target(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    """Open the file of the embedded emulator.

    Raises:
        LocalFileFailed: it cannot be used.
    """
    # Imported here and below, because `identity_of` needs none of it.
    from reconciler.emulator import Store

    file = record_directory(root) / "local.sqlite3"
    private_file(file)
    with store_errors(file):
        store = Store(str(file))
    connected = open_store(store, file, identity_of(name, target, runtime.environ), target, runtime, cleanup)
    from reconciler.modelarts.objects import open_directory  # few stacks upload code

    place = record_directory(root) / "obs"
    return connected._replace(
        objects=lambda address, is_written: open_directory(
            place / address.removeprefix("obs://"), is_written=is_written
        )
    )


def open_store(
    store: Store, file: Path, identity: TargetIdentity, target: Target, runtime: Runtime, cleanup: ExitStack
) -> Connected:
    """Connect to the jobs of a store, served by the emulator in this process."""
    from reconciler.emulator import create_app
    from reconciler.modelarts.connect import connect_inprocess
    from reconciler.modelarts.http import SessionOptions

    cleanup.callback(store.close)
    app = create_app(store, project_id=identity.project_id)

    def wrapped_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with store_errors(file):
            return app(environ, start_response)

    backend = connect_inprocess(
        wrapped_app,
        project_id=identity.project_id,
        workspace_id=target.workspace_id,
        options=SessionOptions(
            listener=runtime.on_request, clock=runtime.clock, stop=runtime.stop, redactor=runtime.redactor
        ),
    )
    cleanup.callback(backend.close)
    backend.reading = runtime.reading or backend.reading
    return Connected(backend, identity, Cloud.HUAWEI, _LocalClock(store, runtime.clock))


@contextmanager
def store_errors(file: Path) -> Iterator[None]:
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
    return f"remove {file} if the jobs of the local target may be lost"


class _LocalClock:
    """The clock of the embedded emulator, by which its jobs run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def now(self) -> float:
        from reconciler.emulator import StoreError

        try:
            return self._store.clock.now_ms() / 1000
        except StoreError:  # reported by the next request
            return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
