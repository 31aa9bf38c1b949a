"""The processes of a job: finding, sampling and ending them.

A pid is trusted only together with the start time of its process, because pids are reused. On Linux that time
is relative to the boot, which is identified, so it depends neither on the system clock nor on restarts. A
process belongs to a job if it is a descendant of the supervisor, or has the job's id in its environment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

#: The variable that identifies the processes of a job.
JOB_VARIABLE = "RECONCILER_JOB_ID"
_PROC = Path("/proc")
#: How long to keep killing processes before giving up.
STUCK_S = 60.0


class ProcessIdentity(NamedTuple):
    pid: int
    started: str

    @classmethod
    def of(cls, process: psutil.Process) -> ProcessIdentity:
        """Raises psutil.Error if the process has ended."""
        if not psutil.LINUX:
            return cls(process.pid, repr(process.create_time()))
        try:
            boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            # The fields follow the name of the program, which may contain anything.
            fields = (_PROC / str(process.pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            raise psutil.NoSuchProcess(process.pid) from None
        return cls(process.pid, f"{boot_id} {int(fields[19])}")

    @classmethod
    def own(cls) -> ProcessIdentity:
        return cls.of(psutil.Process())

    @property
    def process(self) -> psutil.Process | None:
        """The process. None if it has ended, even if its pid has been reused."""
        try:
            process = psutil.Process(self.pid)
            is_same = self.of(process) == self
            return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None

    @property
    def is_alive(self) -> bool:
        return self.process is not None


def with_descendants(identities: Iterable[ProcessIdentity]) -> set[psutil.Process]:
    """Return the running processes and their descendants."""
    found: set[psutil.Process] = set()
    for process in filter(None, (identity.process for identity in identities)):
        with contextlib.suppress(psutil.Error):
            found |= {process, *process.children(recursive=True)}
    return found


def processes_of(job_id: str) -> list[psutil.Process]:
    """Find the processes of a job by its id in their environment, without this process."""
    psutil.process_iter.cache_clear()  # its entries may be stale
    return [process for process in psutil.process_iter() if _is_of(process, job_id)]


def _is_of(process: psutil.Process, job_id: str) -> bool:
    try:
        is_running = process.status() != psutil.STATUS_ZOMBIE
        return is_running and process != psutil.Process() and process.environ().get(JOB_VARIABLE) == job_id
    except (psutil.Error, OSError):
        return False  # it has ended, or belongs to another user


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def end_all(
    job_id: str, more: Callable[[], Iterable[psutil.Process]] = descendants, *, grace_s: float
) -> None:
    """End the processes of a job: SIGTERM to their groups, after `grace_s` SIGKILL, until none is left.

    `more` returns further processes that are not found by their environment. SIGTERM is sent once per group,
    so that processes started to save work are spared. Processes that cannot be ended are left: they belong to
    another user, or hang in the kernel.
    """
    denied: set[psutil.Process] = set()
    asked: set[int] = set()
    deadline = time.monotonic() + grace_s
    while (remaining := _alive({*more(), *processes_of(job_id)} - denied)) and (
        time.monotonic() < deadline + STUCK_S
    ):
        if time.monotonic() >= deadline:
            for process in remaining:
                try:
                    process.kill()
                except psutil.AccessDenied:
                    denied.add(process)
                except psutil.Error:
                    pass
        elif not asked:
            asked.add(os.getpgrp())  # not our own group
            for process in remaining:
                with contextlib.suppress(OSError):
                    if (group := os.getpgid(process.pid)) not in asked:
                        asked.add(group)
                        os.killpg(group, signal.SIGTERM)
        # Not `psutil.wait_procs`, which would reap processes and take their exit codes.
        looks_again = time.monotonic() + 0.2
        while _alive(remaining) and time.monotonic() < looks_again:
            time.sleep(0.01)


def _alive(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    def is_alive(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    return {process for process in processes if is_alive(process)}


class Sampler:
    """Samples the processes of a job repeatedly; CPU usage needs two samples.

    A sample has percentages of the machine's CPU, memory and GPUs, if any.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._cpu_s, self._at = 0.0, time.monotonic()

    def sample(self) -> dict[str, float | None]:
        cpu_s = memory = 0.0
        for process in processes_of(self._job_id):
            with contextlib.suppress(psutil.Error):
                cpu_s += sum(process.cpu_times()[:4])
                memory += process.memory_percent()
        now = time.monotonic()
        share = max(0.0, cpu_s - self._cpu_s) / max(1e-6, now - self._at) / (psutil.cpu_count() or 1)
        self._cpu_s, self._at = cpu_s, now
        gpu, gpu_memory = _gpu()
        own = {"cpu": round(100 * min(1.0, share), 1), "memory": round(memory, 2)}
        return {**own, "gpu": gpu, "gpu_memory": gpu_memory}


def _gpu() -> tuple[float | None, float | None]:
    if shutil.which("nvidia-smi") is None:
        return None, None
    command = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu,memory.used,memory.total",
        "--format=csv,noheader,nounits",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, ZeroDivisionError):
        answer = subprocess.run(  # noqa: S603 - a fixed program and fixed arguments
            command, capture_output=True, text=True, timeout=5, check=True
        )
        lines = filter(str.strip, answer.stdout.splitlines())
        rows = [[float(cell) for cell in line.split(",")] for line in lines]
        if rows:
            busy, used, there = map(sum, zip(*rows, strict=True))
            return round(busy / len(rows), 1), round(100 * used / there, 1)
    return None, None
