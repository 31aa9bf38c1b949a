"""The processes that a test started and left behind, how long they ran, and how long one has waited."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace


def children() -> set[int]:
    """The children of this process, those that have ended and were not waited for included."""
    return children_of(os.getpid())


def children_of(pid: int) -> set[int]:
    """The same of another process."""
    return {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _parent(path) == pid}


def _parent(stat: Path) -> int | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has gone meanwhile
        return None
    # The name of the program, in brackets, may hold anything.
    return int(text.rpartition(")")[2].split()[1])


def children_ran_s() -> float:
    """How long the children of this process have run, those that have gone included.

    A busy machine makes a process take longer, and run no longer.
    """
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran_s = gone.ru_utime + gone.ru_stime
    for pid in children():
        with suppress(OSError):  # it has gone meanwhile
            ran_s += _scheduled_s(pid)[0]
    return ran_s


#: In the place of the module `time`: a time limit is then one of what the children of this process run.
TIME_OF_CHILDREN = SimpleNamespace(monotonic=children_ran_s)


class Waited:
    """How long a process has waited since this was made, the time aside in which it ran or was not let run.

    A busy machine makes no wait longer. Asked last when the process has ended, and before it is waited for.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._began_s = pid, 0.0
        self._began_s = self.seconds

    @property
    def seconds(self) -> float:
        """So far, by its main thread."""
        ran_s, held_up_s = _scheduled_s(self._pid)
        # When it has ended we may not be let run for a while, either.
        return time.monotonic() - ran_s - held_up_s - _scheduled_s(os.getpid())[1] - self._began_s


def _scheduled_s(pid: int) -> tuple[float, float]:
    """How long the main thread of a process has run, and how long it could have and did not."""
    ran, held_up, *_ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran) / 1e9, int(held_up) / 1e9
