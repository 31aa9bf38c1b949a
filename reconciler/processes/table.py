"""The jobs of a process target: those of the emulator, with slots, supervisors and results.

A row of `runs` names the owner of a job: the process that claims it for a free slot, then its supervisor,
then none. Claims are made in a transaction, so that a job is claimed once and never more jobs run than there
are slots. If the owner has died, the claim is taken back, or the job becomes Abnormal. If a job is deleted
while it runs, its row stays until its processes have ended and the slot is free.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from reconciler.emulator import Durations, Job, Store, StoreError
from reconciler.emulator.lifecycle import ENDED, RunOutcome
from reconciler.emulator.search import SearchRequest
from reconciler.emulator.store import METRICS, JobEvent, JobPage
from reconciler.files import append_private
from reconciler.processes import tree
from reconciler.processes.execution import Layout, Machine
from reconciler.processes.tree import ProcessIdentity

_TABLE = """
CREATE TABLE IF NOT EXISTS runs (
    job_id TEXT PRIMARY KEY, machine TEXT NOT NULL,
    owner_pid INTEGER, owner_started TEXT, is_claim INTEGER NOT NULL DEFAULT 0,
    result TEXT
) WITHOUT ROWID"""
#: The number of slots, from the manifest that was used last.
_SLOTS = "CREATE TABLE IF NOT EXISTS slots (one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL)"
_OF_JOB = "job_id = ?"
_FREE = f"UPDATE runs SET owner_pid = NULL, owner_started = NULL, is_claim = 0 WHERE {_OF_JOB}"  # noqa: S608
#: Phases never end by the emulator's clock.
_NEVER_S = 1e12


class TaskStatus(NamedTuple):
    """The exit code of a process of a job. Negative: a signal. None: it never started."""

    task: str
    exit_code: int | None
    message: str = ""


class ProcessStore(Store):
    """The jobs of a process target. `directory` holds their database and files.

    New jobs run with the settings of `machine` and the variables that these inherit from `environ`. In a
    supervisor both are those of its job.
    """

    time_units = ("HOURS", "SECONDS")

    def __init__(
        self, directory: Path, machine: Machine | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.directory = directory
        self.machine = machine or Machine()
        self.environ = environ
        durations = Durations(creating=0, pending=_NEVER_S, running=_NEVER_S, terminating=_NEVER_S)
        super().__init__(directory / "jobs.sqlite3", durations=durations, noise=False, user_name=_user_name())
        for statement in (_TABLE, _SLOTS):
            self.database.run(statement)
        if machine is not None:
            self.set_slots(machine.slots)

    def _outcome(self, body: Mapping[str, Any]) -> RunOutcome:
        return RunOutcome(round(_NEVER_S * 1000), "Completed")

    # ── operations of the service ──────────────────────────────────────────────────────────────

    def create(self, project: str, body: dict[str, Any]) -> Job:
        with self.database.transaction(write=True):
            job = super().create(project, body)
            # Stored, because another process may start the job.
            environ = {name: self.environ[name] for name in self.machine.inherit if name in self.environ}
            values = (job.id, json.dumps({**self.machine._asdict(), "environ": environ}))
            self.database.run("INSERT INTO runs (job_id, machine) VALUES (?, ?)", values)
        return self.get(project, job.id)

    def get(self, project: str, job_id: str) -> Job:
        self.start_due()
        return super().get(project, job_id)

    def search(self, project: str, search: SearchRequest) -> JobPage:
        self.start_due()
        return super().search(project, search)

    def terminate(self, project: str, job_id: str) -> Job:
        self.take_back()
        with self.database.transaction(write=True):
            job = super().terminate(project, job_id)
            row = self.database.one("SELECT owner_pid FROM runs WHERE job_id = ?", (job_id,))
            return job if row and row["owner_pid"] else self.set_phase(job_id, "Terminated")

    def restart(self, project: str, job_id: str) -> Job:
        with self.database.transaction(write=True):
            super().restart(project, job_id)
            self.database.run("UPDATE runs SET result = NULL WHERE job_id = ?", (job_id,))
            shutil.rmtree(self.layout(job_id).root, ignore_errors=True)
        return self.get(project, job_id)

    def delete(self, project: str, *job_ids: str) -> None:
        super().delete(project, *job_ids)
        for job_id in job_ids:
            self._forget(job_id, f"{_OF_JOB} AND owner_pid IS NULL")  # otherwise its supervisor does

    def _forget(self, job_id: str, which: str = _OF_JOB) -> None:
        # The conditions are those of this module; the value is bound.
        if self.database.run(f"DELETE FROM runs WHERE {which}", (job_id,)):  # noqa: S608
            shutil.rmtree(self.layout(job_id).root, ignore_errors=True)

    def _job(self, row: Any, now: int) -> Job:
        job = super()._job(row, now)
        if job.life.phase not in ENDED:
            return job
        found = self.database.one("SELECT result FROM runs WHERE job_id = ?", (job.id,))
        return EndedJob(**vars(job), statuses=json.loads(found["result"] or "[]") if found else [])

    # ── logs, metrics, events ──────────────────────────────────────────────────────────────────

    def log(self, job: Job, task: str, most: int | None = None) -> tuple[bytes, int]:
        try:
            with self.layout(job.id).log(task).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most) if most is not None else 0)
                return file.read(), size
        except OSError:
            gone = b"the files of this job are not kept any more\n" if job.life.ended_ms else b""
            return gone, len(gone)

    def metrics(self, job: Job, task: str) -> dict[str, list[float]]:
        samples = _read_lines(self.layout(job.id).metrics)
        known = {"cpuUsage": "cpu", "memUsage": "memory", "gpuUtil": "gpu", "gpuMemUsage": "gpu_memory"}
        found = {name: [sample.get(known.get(name, "")) for sample in samples] for name in METRICS}
        return {name: [-1 if one is None else one for one in values] for name, values in found.items()}

    def events(self, job: Job) -> list[JobEvent]:
        own = [
            JobEvent(line["at_ms"], line["level"], line["message"])
            for line in _read_lines(self.layout(job.id).events)
        ]
        return sorted([*own, *super().events(job)], key=lambda event: event.at_ms)

    # ── slots ──────────────────────────────────────────────────────────────────────────────────

    def layout(self, job_id: str) -> Layout:
        return Layout(self.directory / job_id)

    def set_slots(self, number: int) -> None:
        self.database.run("INSERT OR REPLACE INTO slots VALUES (1, ?)", (number,))

    def start_due(self) -> None:
        """Start supervisors for the jobs that get a slot: by priority, then by age."""
        self.take_back()
        claimed = self._claim()
        try:
            for row in claimed:
                self._start(row["job_id"], json.loads(row["machine"])["environ"])
        except BaseException:  # an interrupt: release the claims of this process, which may live on
            for row in claimed:
                self.database.run(f"{_FREE} AND owner_pid = ? AND is_claim", (row["job_id"], os.getpid()))
            raise

    def _start(self, job_id: str, environ: Mapping[str, str]) -> None:
        try:
            self._hand_over(job_id, _start_supervisor(self.directory, job_id, environ))
        except (OSError, subprocess.SubprocessError) as error:
            why = f"its supervisor did not start: {error}"
            self.finish(job_id, "Abnormal", [TaskStatus("worker-0", None, why)])

    def take_back(self) -> None:
        """Take back claims of dead processes, and end the jobs of dead supervisors."""
        for row in self._owned():
            job_id, owner = row["job_id"], ProcessIdentity(row["owner_pid"], row["owner_started"])
            if owner.is_alive:
                continue
            if not row["is_claim"]:
                lines = _read_lines(self.layout(job_id).processes)
                known = [ProcessIdentity(*line["process"]) for line in lines]
                tree.end_all(job_id, partial(tree.with_descendants, known), grace_s=0)
            with self.database.transaction(write=True):
                held = (job_id, owner.pid, row["is_claim"])
                if not self.database.run(f"{_FREE} AND owner_pid = ? AND is_claim = ?", held):
                    continue  # done by another process
                phase = self.database.one("SELECT phase FROM jobs WHERE id = ?", (job_id,))
                if phase is None:
                    self._forget(job_id)
                elif not row["is_claim"]:
                    self._end(job_id, "Abnormal", [])
                elif phase[0] == "Terminating":
                    self._end(job_id, "Terminated", [])

    def _owned(self) -> list[Any]:
        return self.database.all("SELECT * FROM runs WHERE owner_pid IS NOT NULL")

    def _claim(self) -> list[Any]:
        """Claim the jobs that may start, and return their rows."""
        due = (
            "SELECT runs.* FROM runs JOIN jobs ON id = job_id "
            "WHERE owner_pid IS NULL AND phase IN ('Creating', 'Pending') "
            "ORDER BY MAX(1, CAST(priority AS INTEGER)) DESC, seq LIMIT ?"  # none is 1, as on the service
        )
        if not self.database.one(due, (1,)):
            return []
        me = ProcessIdentity.own()
        with self._write(lives=True):
            slots = self.database.one("SELECT number FROM slots")
            claimed = self.database.all(due, (max(0, slots[0] - len(self._owned())) if slots else 0,))
            for row in claimed:
                self._own(row["job_id"], me, is_claim=True)
        return claimed

    def _own(self, job_id: str, owner: ProcessIdentity, *, is_claim: bool) -> None:
        self.database.run(
            "UPDATE runs SET owner_pid = ?, owner_started = ?, is_claim = ? WHERE job_id = ?",
            (*owner, int(is_claim), job_id),
        )

    def _hand_over(self, job_id: str, pid: int) -> None:
        """Make a supervisor the owner of its job. This process may outlive it."""
        try:
            supervisor = ProcessIdentity.of(psutil.Process(pid))
        except psutil.Error:
            supervisor = ProcessIdentity(pid, "")  # it has already ended
        with self.database.transaction(write=True):
            claim = "SELECT 1 FROM runs WHERE job_id = ? AND owner_pid = ? AND is_claim = 1"
            if self.database.one(claim, (job_id, os.getpid())):
                self._own(job_id, supervisor, is_claim=False)

    # ── calls of supervisors ───────────────────────────────────────────────────────────────────

    def take_over(self, job_id: str) -> Job | None:
        """Take over a claimed job. None if it must not run any more."""
        with self.database.transaction(write=True):
            row = self.database.one("SELECT * FROM runs WHERE job_id = ?", (job_id,))
            if row is None or not (row["is_claim"] or row["owner_pid"] == os.getpid()):
                return None
            self._own(job_id, ProcessIdentity.own(), is_claim=False)
            if self.is_deleted(job_id):
                self._forget(job_id)
                return None
            job = self.find(job_id)
        stored = json.loads(row["machine"])
        self.environ = stored.pop("environ")
        self.machine = Machine(**stored)
        return job

    def is_deleted(self, job_id: str) -> bool:
        return self.database.one("SELECT 1 FROM jobs WHERE id = ?", (job_id,)) is None

    def is_to_end(self, job_id: str, phase: str = "Running") -> bool:
        """Whether a job has to end: it was terminated or deleted, or the database was.

        A database that cannot be read at the moment does not end it.
        """
        try:
            (self.directory / "jobs.sqlite3").stat()
            row = self.database.one("SELECT phase FROM jobs WHERE id = ?", (job_id,))
        except FileNotFoundError:
            return True
        except (OSError, StoreError):
            return False
        return row is None or row["phase"] != phase

    def begin(self, job_id: str) -> bool:
        """Record that a job is running, unless it has to end."""
        with self.database.transaction(write=True):
            if self.is_deleted(job_id) or self.find(job_id).life.phase != "Pending":
                return False
            self.set_phase(job_id, "Running")
            return True

    def finish(self, job_id: str, phase: str, statuses: Iterable[TaskStatus]) -> None:
        """Record the end of a job, which frees its slot.

        Removes the directories of older ended jobs, but not their records.
        """
        with self.database.transaction(write=True):
            if self.is_deleted(job_id):
                self._forget(job_id)
            else:
                self._end(job_id, phase, statuses)
        ended = self.database.all("SELECT id FROM jobs WHERE ended_ms > 0 ORDER BY ended_ms DESC")
        for row in ended[self.machine.keep :]:
            shutil.rmtree(self.layout(row["id"]).root, ignore_errors=True)

    def _end(self, job_id: str, phase: str, statuses: Iterable[TaskStatus]) -> None:
        self.set_phase(job_id, phase)
        result = json.dumps([status._asdict() for status in statuses])
        self.database.run("UPDATE runs SET result = ? WHERE job_id = ?", (result, job_id))
        self.database.run(_FREE, (job_id,))


_DETACHED = """\
import os
if pid := os.fork():
    os.write(1, b"%d" % pid)
    os._exit(0)
os.dup2(2, 1)
from reconciler.processes.supervisor import main
main()
"""


@dataclass(frozen=True)
class EndedJob(Job):
    """An ended job, with the exit codes of its processes."""

    statuses: Sequence[Mapping[str, Any]] = ()

    @property
    def status(self) -> dict[str, Any]:
        return {**super().status, **({"task_statuses": self.statuses} if self.statuses else {})}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, the last of which may be incomplete."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def _start_supervisor(directory: Path, job_id: str, environ: Mapping[str, str]) -> int:
    """Start a supervisor that outlives this process, with the variables in `environ`. Returns its pid."""
    environment = {**environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    directory = directory.absolute()
    layout = Layout(directory / job_id)
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with append_private(layout.root / "supervisor.log") as log:
        # It forks immediately, so that it is not our child.
        started = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", _DETACHED, str(directory), job_id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=layout.root,
            start_new_session=True,
            check=True,
        )
    return int(started.stdout)


def _user_name() -> str:
    try:
        return psutil.Process().username()
    except (psutil.Error, KeyError):
        return "local"
