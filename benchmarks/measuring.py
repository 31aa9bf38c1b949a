"""Run commands as processes, and measure time, CPU and memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """The measurements of one run."""

    wall_s: float
    cpu_s: float
    peak_mb: float


class Failed(Exception):
    """A command did not exit with 0."""


def run(command: Sequence[str], *, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Run:
    """Run a command as a whole process; the time is from its start to its end.

    Raises:
        Failed: it did not exit with 0.
    """
    with tempfile.TemporaryFile("w+") as said:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise Failed(f"{' '.join(command)} exited with {process.returncode}\n{said.read()}")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Run(wall_s, usage.ru_utime + usage.ru_stime, kilobytes / 1024)


class Comparison(NamedTuple):
    """Two sides that were measured alternately; a pair is one run of each, close in time."""

    ours: list[Run]
    theirs: list[Run]

    @property
    def ratios(self) -> list[float]:
        """Our time divided by theirs, pair by pair."""
        return [ours.wall_s / theirs.wall_s for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def in_turn(ours: Callable[[], Run], theirs: Callable[[], Run], *, rounds: int) -> Comparison:
    """Measure A B A B …, so that a slowing machine affects both. The first run of each is a warm-up."""
    ours(), theirs()
    compared = Comparison([], [])
    for _ in range(rounds):
        compared.ours.append(ours())
        compared.theirs.append(theirs())
    return compared


def line(name: str, runs: Sequence[Run]) -> str:
    """One line of a report."""
    walls = sorted(run.wall_s for run in runs)
    peak = statistics.median(run.peak_mb for run in runs)
    return (
        f"{name:<34} median {statistics.median(walls):7.3f} s   "
        f"({walls[0]:.3f} to {walls[-1]:.3f})   peak {peak:4.0f} MB"
    )
