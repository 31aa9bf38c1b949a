"""Child processes of a test: which are left, their CPU time, and the waiting time of one."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace


def children() -> set[int]:
    """Return the children of this process, including zombies."""
    return children_of(os.getpid())


def children_of(pid: int) -> set[int]:
    """Return the children of another process."""
    return {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _parent(path) == pid}


def _parent(stat: Path) -> int | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:  # gone meanwhile
        return None
    # The program name in parentheses may contain anything.
    return int(text.rpartition(")")[2].split()[1])


def children_ran_s() -> float:
    """Return the CPU time of the children of this process, including ended ones.

    A busy machine makes a process take longer, and run no longer.
    """
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran_s = gone.ru_utime + gone.ru_stime
    for pid in children():
        with suppress(OSError):  # gone meanwhile
            ran_s += _scheduled_s(pid)[0]
    return ran_s


#: A replacement for the module `time`: limits then apply to the CPU time of child processes.
TIME_OF_CHILDREN = SimpleNamespace(monotonic=children_ran_s)


class Waited:
    """How long a process has waited since this was created, not counting CPU time and time ready to run.

    Independent of machine load. Read it last after the process ended, before reaping it.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._began_s = pid, 0.0
        self._began_s = self.seconds

    @property
    def seconds(self) -> float:
        """So far, by its main thread."""
        ran_s, held_up_s = _scheduled_s(self._pid)
        # After its end this process may not be scheduled for a while, either.
        return time.monotonic() - ran_s - held_up_s - _scheduled_s(os.getpid())[1] - self._began_s


def _scheduled_s(pid: int) -> tuple[float, float]:
    """Return for how long the main thread of a process ran, and for how long it was ready to run."""
    ran, held_up, *_ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran) / 1e9, int(held_up) / 1e9
