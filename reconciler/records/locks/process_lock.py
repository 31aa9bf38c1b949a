"""A file that the kernel unlocks when its holder dies, so that a dead holder is known at once.

The lock in the database is what excludes; a lifeline only proves that its holder is gone. That can be
told on the machine of the holder alone, so the proof names the machine's boot and the file itself: a
file that somebody removed and made again proves nothing.
"""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_held: weakref.WeakSet[Lifeline]


class Lifeline:
    """A lifeline that this process holds. `name` is "" where it can prove nothing."""

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


def seize(path: Path) -> Lifeline | None:
    """Take the lifeline at `path`; None if somebody alive holds it, or there can be none.

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
    return Lifeline(descriptor, f"{boot} {found.st_dev}:{found.st_ino}")


def remove_if_dead(path: Path) -> None:
    """Clear away what a process left that was killed."""
    if (found := seize(path)) is not None:
        with suppress(OSError):
            path.unlink()
        found.let_go()


def is_of_this_boot(name: str) -> bool:
    """Whether a lifeline was made on this machine since it was started, so that it can prove something."""
    boot = _boot_id()
    return bool(boot) and name.startswith(f"{boot} ")


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _let_go_in_child() -> None:
    """A forked child would keep its parent's lifelines alive; closing them there does not unlock them."""
    for lifeline in list(_held):
        lifeline.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
