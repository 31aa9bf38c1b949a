"""Runs one job, from its copy of the code to its exit code: a process that outlives who started it.

Its arguments are the directory of the target and the id of the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from reconciler.processes import tree
from reconciler.processes.execution import CannotRun, Layout, PreparedJob, TaskProcess, copy_outputs, prepare
from reconciler.processes.table import ProcessStore, SupervisedJob, TaskStatus

#: How often the supervisor looks whether its job has ended, or is to end.
LOOK_S = 0.2
SAMPLE_S, COPY_S = 10.0, 30.0
#: How long the others have between SIGTERM and SIGKILL where one process of a job failed.
FAILED_GRACE_S = 15.0


class JobLog:
    """The output of one task in a file: capped, and never a reason for the task to wait."""

    def __init__(self, path: Path, most: int) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._most = most
        self._lock = threading.Lock()
        self._size = 0

    def say(self, text: str) -> None:
        self.write(f"[ModelArts Service Log] {text}\n".encode(), is_own=True)

    def write(self, data: bytes, *, is_own: bool = False) -> None:
        with self._lock, contextlib.suppress(OSError):
            room = len(data) if is_own else self._most - self._size
            if room > 0:
                self._file.write(data[:room])
            if room < len(data) and self._size <= self._most:
                self._file.write(f"\n[ModelArts Service Log] the log ends at {self._most:,} bytes\n".encode())
                self._size = self._most + 1
            elif not is_own:
                self._size += len(data)

    def copy(self, stream: IO[bytes]) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            self.write(data)


class Supervisor:
    def __init__(self, store: ProcessStore, run: SupervisedJob) -> None:
        self._store, self._run = store, run
        self._id = run.job.id
        self._layout: Layout = store.layout(self._id)
        self._body = run.job.body
        self._logs: dict[str, JobLog] = {}
        self._lock = threading.Lock()
        self._seen: set[tuple[int, float]] = set()

    def main(self) -> None:
        """Run the job to its end; whatever happens, it has one."""
        phase, statuses = "Abnormal", list[TaskStatus]()
        try:
            phase, statuses = self._main()
        except (CannotRun, OSError, subprocess.SubprocessError) as error:
            self._log("worker-0").say(str(error))
            self._event(str(error), "Error")
            phase, statuses = "Failed", [TaskStatus("worker-0", None, str(error))]
        finally:
            tree.end_all(self._id, _descendants(), grace_s=0)
            self._store.finish(self._id, phase, statuses)
            self._store.start_due()

    def _main(self) -> tuple[str, list[TaskStatus]]:
        self._event("Training job is being prepared.")
        execution = prepare(self._id, self._body, self._layout.root, self._run.machine, os.environ)
        self._event("Training code and input are in place.")
        python = self._install(execution)
        if not self._store.begin(self._id):
            return "Terminated", []
        processes = {task.name: self._start(task, python) for task in execution.tasks}
        self._event("Training started.")
        threads = [
            threading.Thread(target=self._log(name).copy, args=(process.stdout,), daemon=True)
            for name, process in processes.items()
        ]
        for thread in threads:
            thread.start()
        phase = self._wait(processes, execution)
        for thread in threads:
            thread.join(timeout=5)
        for name, process in processes.items():
            self._log(name).say(f"Training end with return code: {process.returncode}")
            self._event(f"[{name}] Training finished. Exit code {process.returncode}.")
        copy_outputs(execution.outputs)
        self._event("Training output is copied.")
        return phase, [TaskStatus(name, process.returncode) for name, process in processes.items()]

    def _install(self, execution: PreparedJob) -> str | None:
        """Install a requirements file into an environment kept by its digest; returns its Python."""
        if execution.requirements is None:
            return None
        if not self._run.machine.install_requirements:
            self._log("worker-0").say(
                f"{execution.requirements.name} is not installed: `install_requirements` is not set"
            )
            return None
        digest = hashlib.sha256(
            execution.requirements.read_bytes() + self._run.machine.python.encode()
        ).hexdigest()[:16]
        place = self._store.directory / "environments" / digest
        python = place / "bin" / "python"
        done = place / "installed"
        if not done.exists():
            steps = (
                [self._run.machine.python, "-m", "venv", "--system-site-packages", str(place)],
                [str(python), "-m", "pip", "install", "-r", str(execution.requirements)],
            )
            for step in steps:
                answer = subprocess.run(  # noqa: S603 - what the target says, no shell
                    step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
                )
                self._log("worker-0").write(answer.stdout)
                if answer.returncode:
                    raise CannotRun(
                        f"{' '.join(step[1:5])}… ended with {answer.returncode}", fix="see the log"
                    )
            done.touch()
        return str(python)

    def _start(self, task: TaskProcess, python: str | None) -> subprocess.Popen[bytes]:
        task.directory.mkdir(parents=True, exist_ok=True)
        command = [python, *task.command[1:]] if python else task.command
        return subprocess.Popen(  # noqa: S603 - the job that was declared
            command,
            cwd=task.directory,
            env=dict(task.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait(self, processes: dict[str, subprocess.Popen[bytes]], execution: PreparedJob) -> str:
        """Wait for the end of a job and end what is left of it; returns the phase that it ended in."""
        stop_after_s = _seconds((self._body.get("spec") or {}).get("auto_stop"))
        began = next_sample = time.monotonic()
        next_copy = began + COPY_S
        sampler = tree.Sampler(self._id)
        while True:
            self._note_processes()
            codes = [process.poll() for process in processes.values()]
            if any(codes):
                tree.end_all(self._id, _descendants(), grace_s=FAILED_GRACE_S)
                phase = "Failed"
                break
            if all(code == 0 for code in codes):
                phase = "Completed"
                break
            now = time.monotonic()
            if self._store.is_to_end(self._id) or (stop_after_s is not None and now - began >= stop_after_s):
                tree.end_all(self._id, _descendants(), grace_s=self._run.machine.stop_grace_s)
                phase = "Terminated"
                break
            if now >= next_sample:
                _append(self._layout.metrics, {"ts": time.time(), **sampler.sample()._asdict()})
                next_sample = now + SAMPLE_S
            if now >= next_copy:
                with contextlib.suppress(OSError):  # the last copy tells
                    copy_outputs(execution.outputs)
                next_copy = now + COPY_S
            time.sleep(LOOK_S)
        tree.end_all(self._id, _descendants(), grace_s=0)
        for process in processes.values():
            process.wait()
        return phase

    def _log(self, task: str) -> JobLog:
        with self._lock:
            if task not in self._logs:
                self._layout.root.mkdir(parents=True, exist_ok=True)
                self._logs[task] = JobLog(self._layout.log(task), self._run.machine.max_log_bytes)
            return self._logs[task]

    def _event(self, message: str, level: str = "Info") -> None:
        _append(
            self._layout.events, {"at_ms": time.time_ns() // 1_000_000, "level": level, "message": message}
        )

    def _note_processes(self) -> None:
        for process in _descendants():
            with contextlib.suppress(psutil.Error):
                identity = (process.pid, process.create_time())
                if identity not in self._seen:
                    self._seen.add(identity)
                    _append(self._layout.processes, {"process": identity})


def _append(path: Path, line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _seconds(span: dict[str, Any] | None) -> float | None:
    units = {"SECONDS": 1.0, "MINUTES": 60.0, "HOURS": 3600.0, "DAYS": 86_400.0}
    return (
        None
        if not span
        else float(span["duration"]) * units.get(str(span.get("time_unit", "HOURS")).upper(), 3600.0)
    )


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _adopt_orphans() -> None:
    """Become the parent of what a job leaves behind, so that none of it gets away (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    directory, job_id = Path(sys.argv[1]), sys.argv[2]
    _adopt_orphans()
    with ProcessStore(directory) as store:
        run = store.take_over(job_id)
        if run is not None:
            store.machine = run.machine
            Supervisor(store, run).main()
