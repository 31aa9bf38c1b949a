"""The processes that a test started and left behind."""

from __future__ import annotations

import os
from pathlib import Path


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
