"""Targets of kind `process`, whose jobs are processes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from reconciler.core.identity import parse_description
from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.files import private_file, record_directory
from reconciler.modelarts.local import open_store, store_errors
from reconciler.modelarts.objects import open_directory
from reconciler.modelarts.target import Connected, Runtime, identify
from reconciler.processes.execution import CannotRun, Machine
from reconciler.processes.table import ProcessStore

PROJECT = "processes"


def identity_of(name: str, target: Target, environ: Mapping[str, str]) -> TargetIdentity:
    return identify(name, target, "process://this-machine", PROJECT)


def open_target(name: str, target: Target, root: Path, runtime: Runtime, cleanup: ExitStack) -> Connected:
    """Open the jobs of a stack on this machine, and start those that are due.

    Raises:
        LocalFileFailed: their database cannot be used.
    """
    directory = jobs_directory(root)
    private_file(directory / "jobs.sqlite3")
    with store_errors(directory / "jobs.sqlite3"):
        store = ProcessStore(directory, machine_of(target, root), runtime.environ)
        store.start_due()
    identity = identity_of(name, target, runtime.environ)
    connected = open_store(store, directory / "jobs.sqlite3", identity, target, runtime, cleanup)
    return connected._replace(
        runs_images=target.images == "host",
        installs_requirements=bool(target.install_requirements),
        objects=lambda address, is_written: open_directory(
            store.machine.directory(address), is_written=is_written
        ),
    )


def machine_of(target: Target, root: Path) -> Machine:
    """Return the settings of a target. Its paths are relative to `root`."""
    own = str(record_directory(root) / "obs")
    storage = target.storage or own
    by_prefix = {"obs://": storage} if isinstance(storage, str) else storage
    address = target.code_address
    if not any(f"{address}/".startswith(prefix.rstrip("/") + "/") for prefix in by_prefix):
        # A store that no prefix covers is in the default place.
        by_prefix = {address: f"{own}/{address.removeprefix('obs://')}", **by_prefix}
    given = {
        "python": target.python and str(_absolute(root, target.python)),
        "slots": target.slots,
        "inherit": target.environment and tuple(target.environment.inherit),
        "install_requirements": target.install_requirements,
        "runs_images": target.images == "host",
        "keep": target.keep,
    }
    return Machine(
        storage={prefix: str(_absolute(root, place)) for prefix, place in by_prefix.items()},
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )


def completed_number(root: Path, stack: str, key: str) -> int:
    """Return the number of a key's newest revision that has completed on this machine.

    Raises:
        CannotRun: there is none.
    """
    with ProcessStore(jobs_directory(root)) as store:
        described = [
            parse_description(job.body["metadata"].get("description") or "").marker
            for job in store.jobs()
            if job.life.phase == "Completed"
        ]
    owned = [one for one in described if one and (one.stack, one.key) == (stack, key)]
    if not owned:
        raise CannotRun(
            f"{key} has not completed on this machine", fix="apply it first, or set another input"
        )
    return max(one.revision for one in owned)


def jobs_directory(root: Path) -> Path:
    directory = record_directory(root) / "processes"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def _absolute(root: Path, place: str) -> Path:
    path = Path(place).expanduser()
    # Not `resolve`: the Python of a virtual environment must stay a link.
    return path if path.is_absolute() else Path(root).absolute() / path
