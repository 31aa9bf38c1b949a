"""A file that the kernel unlocks when its holder dies, so that a dead holder is known at once.

The lease in the database is what counts; a process lock only proves that its holder is gone. That can be
proved on the machine of the holder alone, so the proof names the machine's boot and the file itself: a
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
    """A process lock that this process holds. `name` is what proves that it was this very one."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Release it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_held = weakref.WeakSet()


class ProcessLocks:
    """The process locks beside a store in a file, by whichever path it was opened.

    A store on a server (`store` is None) has none: those who share it are on other machines too.
    """

    def __init__(self, store: Path | None = None) -> None:
        self._store = store

    def of_scope(self, scope: Scope) -> Path | None:
        """The file for the lock of a scope. It stays, as a trace that the store was in use."""
        text = "\n".join([scope.stack, scope.host, scope.project_id, scope.workspace_id])
        return self._beside(f"lock-{hashlib.sha256(text.encode()).hexdigest()[:12]}")

    def remove_dead(self) -> None:
        """Remove the files of locks whose holders are gone."""
        if (store := self._beside("lock")) is not None:
            for left in store.parent.glob(f"{escape(store.name)}-*"):
                if (found := seize(left)) is not None:
                    with suppress(OSError):
                        left.unlink()
                    found.release()

    def _beside(self, suffix: str) -> Path | None:
        if self._store is None:
            return None
        store = self._store.resolve()
        return store.with_name(f"{store.name}.{suffix}")


def seize(path: Path | None) -> ProcessLock | None:
    """Take the process lock at `path`; None if a living process holds it, or there can be none.

    Two takers in one process exclude each other too: the kernel's lock belongs to the opened file.
    """
    boot = _boot_id()
    if path is None or not boot or sys.platform == "win32":
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


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _release_in_child() -> None:
    """A forked child would keep its parent's process locks alive; closing them there does not unlock them."""
    for process_lock in list(_held):
        process_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
