"""The SQLite file of a store, and the process locks beside it.

A process lock is a file lock that the kernel releases when its holder dies, so that a dead holder is detected
at once. The lease in the database decides; a process lock only proves that its holder is dead, and only on
the same machine. Its name therefore identifies the boot of the machine and the file, which must not have been
replaced. It is stored in the columns `lifeline`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
import weakref
from contextlib import suppress
from glob import escape
from pathlib import Path

from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.errors import Diagnostic
from reconciler.files import kind_of

if sys.platform != "win32":
    import fcntl

UNREACHABLE = "the record store cannot be reached"
UNREADABLE = "the record store cannot be read"
UNWRITABLE = "the record store cannot be written"
#: The fix for an unusable SQLite file.
MOVE_AWAY = "move it away; the next apply creates a new one: mv {place} {place}.broken"
#: Length of the SQLite header that has the magic string and the page size.
_HEAD = 18


def is_on_read_only_mount(file: Path) -> bool:
    if sys.platform != "win32":
        with suppress(OSError):  # SQLite reports it better
            return bool(os.statvfs(file).f_flag & os.ST_RDONLY)
    return False


def has_content(file: Path) -> bool:
    """Whether there is a store. False if there is no file, or one that has just been created.

    Raises:
        RecordsUnavailable: the path is not a SQLite file, or cannot be read.
    """
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        # A dangling link does not mean a missing file: its disk may not be mounted.
        links = (place for place in (file, *file.parents) if place.is_symlink() and not place.exists())
        if (link := next(links, None)) is not None:
            why = f"{file}: {link} is a link to {link.readlink()}, which does not exist"
            fix = f"mount its target, or remove the link: rm {shlex.quote(str(link))}"
            raise RecordsUnavailable(Diagnostic(UNREACHABLE, why, fix)) from None
        return False
    except OSError as error:
        fix = f"check the file and its directory: ls -l {shlex.quote(str(file))}"
        raise RecordsUnavailable(Diagnostic(UNREACHABLE, f"{file}: {error.strerror}", fix)) from None
    if not stat.S_ISREG(found.st_mode):
        raise _refused(UNREACHABLE, file, f"is {kind_of(found.st_mode)}, not a regular file")
    head = b""
    with suppress(OSError):  # SQLite reports it better
        head = _head(file)
        if not head:
            # A store that is being created, unless one of its locks was held before.
            place = file.resolve()
            if any(place.parent.glob(f"{escape(place.name)}.lock-*")) and not _head(place):
                raise _refused(UNREADABLE, place, "is empty, but was in use before")
            return False
    # SQLite treats a file of one byte, and special files without a size, as empty. The size is read again,
    # because the file may have been empty before its header was read.
    size, page_size = file.stat().st_size, 1
    if head.startswith(b"SQLite format 3\0"):
        # A SQLite file consists of whole pages. Other files are left to SQLite.
        page_size = {0: 1, 1: 65536}.get(stored := int.from_bytes(head[16:18], "big"), stored)
    if head and (size < _HEAD or size % page_size):
        raise _refused(UNREADABLE, file, "is truncated or not a database")
    return True


def _head(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_HEAD)


def _refused(what: str, file: Path, why: str) -> RecordsUnavailable:
    fix = MOVE_AWAY.format(place=shlex.quote(str(file)))
    return RecordsUnavailable(Diagnostic(what, f"{file} {why}", fix))


# --- process locks

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_held: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


class ProcessLock:
    """A process lock held by this process. `name` identifies it."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Release it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class ProcessLocks:
    """The process locks beside the file of a store, whatever path it was opened by.

    A store on a server (`store` is None) has none, because its users are on other machines.
    """

    def __init__(self, store: Path | None = None) -> None:
        self._store = store

    def of_scope(self, scope: Scope) -> Path | None:
        """The lock file of a scope. It is kept as evidence that the store was in use."""
        text = "\n".join([scope.stack, scope.host, scope.project_id, scope.workspace_id])
        return self._beside(f"lock-{hashlib.sha256(text.encode()).hexdigest()[:12]}")

    def remove_dead(self) -> None:
        """Remove lock files without living holders."""
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
    """Take the process lock at `path`. None if a living process holds it, or `path` is None.

    It also excludes other threads of this process: the lock belongs to the opened file.
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
    """Close inherited process locks in a forked child: they would outlive the parent."""
    for process_lock in list(_held):
        process_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
