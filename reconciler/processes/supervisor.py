"""The supervisor of a job: a process that outlives the command that started it.

Its arguments are the directory of the target and the id of the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from reconciler.emulator import Job
from reconciler.files import append_private
from reconciler.processes import tree
from reconciler.processes.execution import CannotRun, PreparedJob, TaskProcess, copy_output, install, prepare
from reconciler.processes.table import ProcessStore, TaskStatus
from reconciler.processes.tree import ProcessIdentity

#: Interval at which the supervisor checks whether its job was terminated. The end of a process wakes it.
LOOK_S = 0.2
NOTE_S, SAMPLE_S, COPY_S = 1.0, 10.0, 30.0


class JobLog:
    """The output of a task in a file of limited size. It never blocks the task."""

    def __init__(self, path: Path, most: int) -> None:
        self._file = append_private(path)
        self._most = self._room = most
        self._is_within_line = False

    def say(self, text: str) -> None:
        start = "\n" * self._is_within_line
        self._is_within_line = False
        with contextlib.suppress(OSError):
            self._file.write(f"{start}[ModelArts Service Log] {text}\n".encode())

    def copy(self, stream: IO[bytes]) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            if self._room < 0:
                continue  # the file is full
            is_last = len(data) > self._room
            with contextlib.suppress(OSError):
                self._file.write(data[: self._room])
            self._is_within_line = is_last or not data.endswith(b"\n")
            self._room -= len(data)
            if is_last:
                self.say(f"the log ends at {self._most:,} bytes")


class _ToEndError(Exception):
    """The job was terminated or deleted before it started."""


class Supervisor:
    def __init__(self, store: ProcessStore, job: Job) -> None:
        self._store, self._machine = store, store.machine
        self._id, self._body = job.id, job.body
        self._layout = store.layout(self._id)
        self._logs: dict[str, JobLog] = {}
        self._seen: set[ProcessIdentity] = set()
        self._started: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        # The end of a process wakes the supervisor by this pipe. A lock in a signal handler could deadlock.
        self._woken, waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def main(self) -> None:
        """Run the job, and record its end whatever happens."""
        phase, statuses = "Abnormal", list[TaskStatus]()
        try:
            phase, statuses = self._main()
        except _ToEndError:
            phase = "Terminated"
        except (CannotRun, OSError, subprocess.SubprocessError, ValueError) as error:
            # Logs are shown only of tasks that have started.
            self._store.begin(self._id)
            self._say_error(str(error))
            phase, statuses = "Failed", [TaskStatus("worker-0", None, str(error))]
        finally:
            tree.end_all(self._id, grace_s=0)
            self._store.finish(self._id, phase, statuses)
            self._store.start_due()

    def _main(self) -> tuple[str, list[TaskStatus]]:
        self._event("Training job is being prepared.")
        execution = prepare(self._id, self._body, self._layout.root, self._machine, self._store.environ)
        self._event("Training code is in place.")
        for channel in (self._body.get("algorithm") or {}).get("inputs") or ():
            self._event(f"Training input {channel['name']} is in place.")
        say = self._log("worker-0").say
        tasks = install(execution, self._machine, self._store.directory, say, self._to_its_end, self._pause)
        if tasks is not execution.tasks:
            self._event("Python packages are installed.")
        if not self._store.begin(self._id):
            raise _ToEndError
        processes = {task.name: self._start(task) for task in tasks}
        self._event("Training started.")
        phase = self._wait(list(processes.values()), execution)
        for reader in self._readers:
            reader.join(timeout=5)
        for name, process in processes.items():
            self._log(name).say(f"Training end with return code: {process.returncode}")
            self._event(f"[{name}] Training finished. Exit code {process.returncode}.")
        why = ""
        for output in execution.outputs:
            try:
                copy_output(output)
                self._event(f"Training output {output.name} is copied.")
            except OSError as error:
                why = f"output {output.name} is not copied: {error}"
                self._say_error(why)
                phase = "Failed" if phase == "Completed" else phase
        return phase, [TaskStatus(name, process.returncode, why) for name, process in processes.items()]

    def _start(self, task: TaskProcess) -> subprocess.Popen[bytes]:
        process = task.start(subprocess.PIPE)
        self._started.append(process)
        reader = threading.Thread(target=self._log(task.name).copy, args=(process.stdout,), daemon=True)
        reader.start()
        self._readers.append(reader)
        return process

    def _to_its_end(self, task: TaskProcess) -> int:
        process = self._start(task)
        while (code := process.poll()) is None:
            self._pause()
        return code

    def _pause(self) -> None:
        """Wait a little before the job starts.

        Raises:
            _ToEndError: it was terminated or deleted.
        """
        self._look()
        if self._store.is_to_end(self._id, "Pending"):
            raise _ToEndError

    def _look(self) -> None:
        """Wait until a process has ended, or for the next check."""
        if select.select([self._woken], [], [], LOOK_S)[0]:
            os.read(self._woken, 1 << 12)

    def _wait(self, processes: list[subprocess.Popen[bytes]], execution: PreparedJob) -> str:
        """Wait for the end of a job, and end its remaining processes. Returns the final phase."""
        span = (self._body.get("spec") or {}).get("auto_stop")
        unit_s = 1.0 if span and span.get("time_unit") == "SECONDS" else 3600.0
        stop_after_s = float(span["duration"]) * unit_s if span else None
        began = next_note = next_sample = time.monotonic()
        next_copy, copying = began + COPY_S, threading.Thread()  # copying must not delay the job
        sampler = tree.Sampler(self._id)
        while True:
            now = time.monotonic()
            if now >= next_note:
                self._note_processes()
                next_note = now + NOTE_S
            if now >= next_sample:
                _append(self._layout.metrics, {"ts": time.time(), **sampler.sample()})
                next_sample = now + (SAMPLE_S if now - began >= NOTE_S else NOTE_S)
            codes = [process.poll() for process in processes]
            if any(codes):
                tree.end_all(self._id, grace_s=self._machine.failed_grace_s)
                phase = "Failed"
                break
            if all(code == 0 for code in codes):
                phase = "Completed"
                break
            if self._store.is_to_end(self._id) or (stop_after_s is not None and now - began >= stop_after_s):
                tree.end_all(self._id, grace_s=self._machine.stop_grace_s)
                phase = "Terminated"
                break
            if now >= next_copy and not copying.is_alive():
                copying = threading.Thread(target=_copy_meanwhile, args=(execution,), daemon=True)
                copying.start()
                next_copy = now + COPY_S
            self._look()
        tree.end_all(self._id, grace_s=0)
        if copying.ident is not None:
            copying.join()
        for process in processes:
            process.wait()
        return phase

    def _log(self, task: str) -> JobLog:
        if task not in self._logs:
            self._layout.root.mkdir(parents=True, exist_ok=True)
            self._logs[task] = JobLog(self._layout.log(task), self._machine.max_log_bytes)
        return self._logs[task]

    def _event(self, message: str, level: str = "Info") -> None:
        _append(
            self._layout.events, {"at_ms": time.time_ns() // 1_000_000, "level": level, "message": message}
        )

    def _say_error(self, text: str) -> None:
        self._log("worker-0").say(text)
        self._event(text, "Error")

    def _note_processes(self) -> None:
        """Record the processes of the job, and reap orphans that have ended."""
        own = {process.pid for process in self._started}
        for process in tree.descendants():
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if process.pid not in own and process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)
                elif (identity := ProcessIdentity.of(process)) not in self._seen:
                    self._seen.add(identity)
                    _append(self._layout.processes, {"process": identity})


def _copy_meanwhile(execution: PreparedJob) -> None:
    for output in execution.outputs:
        with contextlib.suppress(OSError):  # the last copy reports errors
            copy_output(output)


def _append(path: Path, line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), append_private(path) as file:
        file.write(json.dumps(line).encode() + b"\n")


def main() -> None:
    directory, job_id = Path(sys.argv[1]), sys.argv[2]
    with contextlib.suppress(OSError, AttributeError):
        # Adopt orphaned processes of the job, so that none escapes (Linux).
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    with ProcessStore(directory) as store:
        job = store.take_over(job_id)
        if job is not None:
            Supervisor(store, job).main()
