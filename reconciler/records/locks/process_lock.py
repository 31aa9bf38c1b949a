"""A file that the kernel unlocks when its holder dies, so that a dead holder is known at once.

The lock in the database is what excludes; a process lock only proves that its holder is gone. That can be
told on the machine of the holder alone, so the proof names the machine's boot and the file itself: a
file that somebody removed and made again proves nothing. The columns with its name are called `lifeline`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import weakref
from contextlib import suppress
from glob import escape
from pathlib import Path

from reconciler.core.record import Scope

if sys.platform != "win32":
    import fcntl

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_held: weakref.WeakSet[ProcessLock]


class ProcessLock:
    """A process lock that this process holds. `name` is "" where it can prove nothing."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor: int | None = descriptor
        _held.add(self)

    def let_go(self) -> None:
        """Give it up; doing so twice is no harm."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_held = weakref.WeakSet()


class ProcessLocks:
    """The process locks of a store on a server: none, for those who share it are on other machines too."""

    def was_held(self, scope: Scope) -> bool:
        """Whether the lock of a scope was ever held here."""
        return False

    def seize_lock(self, scope: Scope) -> ProcessLock | None:
        """Take the process lock of a scope's lock; None if somebody alive holds it, or there can be none."""
        return None

    def seize_run(self, run_id: int) -> ProcessLock | None:
        """Take the process lock of a run that begins; those of dead runs are cleared away."""
        return None

    def end_run(self, run_id: int) -> None:
        """Clear the process lock of a run away, which still holds it."""

    def is_run_dead(self, run_id: int, name: str) -> bool:
        """Whether the process of a run is known to be gone; `name` is that of its process lock."""
        return False


class FileProcessLocks(ProcessLocks):
    """Those of a store in a file: they lie beside it, by whichever path it was opened."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def was_held(self, scope: Scope) -> bool:
        """Whether the lock of a scope was ever held: its process lock stays."""
        return self._of_lock(scope).exists()

    def seize_lock(self, scope: Scope) -> ProcessLock | None:
        """Take the process lock of a scope's lock."""
        return seize(self._of_lock(scope))

    def seize_run(self, run_id: int) -> ProcessLock | None:
        """Take the process lock of a run that begins."""
        file = self._of_run(run_id)
        for left in file.parent.glob(f"{escape(file.name.removesuffix(str(run_id)))}*"):
            remove_if_dead(left)
        return seize(file)

    def end_run(self, run_id: int) -> None:
        """Clear the process lock of a run away."""
        with suppress(OSError):
            self._of_run(run_id).unlink()

    def is_run_dead(self, run_id: int, name: str) -> bool:
        """Whether a run was on this machine, and its file is free or gone."""
        if not name or not is_of_this_boot(name):
            return False
        file = self._of_run(run_id)
        if not file.exists():
            return True
        found = seize(file)
        if found is not None:
            found.let_go()
        return found is not None

    def _of_lock(self, scope: Scope) -> Path:
        text = "\n".join([scope.stack, scope.host, scope.project_id, scope.workspace_id])
        return self._beside(f"lock-{hashlib.sha256(text.encode()).hexdigest()[:12]}")

    def _of_run(self, run_id: int) -> Path:
        return self._beside(f"run-{run_id}")

    def _beside(self, suffix: str) -> Path:
        store = self._store.resolve()
        return store.with_name(f"{store.name}.{suffix}")


def seize(path: Path) -> ProcessLock | None:
    """Take the process lock at `path`; None if somebody alive holds it, or there can be none.

    Two takers in one process exclude each other too: the kernel's lock belongs to the opened file.
    """
    boot = _boot_id()
    if not boot or sys.platform == "win32":
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
    except OSError:
        os.close(descriptor)
        return None
    return ProcessLock(descriptor, f"{boot} {found.st_dev}:{found.st_ino}")


def remove_if_dead(path: Path) -> None:
    """Clear away what a process left that was killed."""
    if (found := seize(path)) is not None:
        with suppress(OSError):
            path.unlink()
        found.let_go()


def is_of_this_boot(name: str) -> bool:
    """Whether a process lock was made on this machine since it was started, so that it proves something."""
    boot = _boot_id()
    return bool(boot) and name.startswith(f"{boot} ")


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _let_go_in_child() -> None:
    """A forked child would keep its parent's process locks alive; closing them there does not unlock them."""
    for process_lock in list(_held):
        process_lock.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
