"""The jobs of a process target: those of the emulated service, with a slot, a supervisor and a result each.

A row of `runs` says who answers for a job: whoever claims it for a free slot, then its supervisor. Claims
are made in one transaction, so that no two make the same and no more jobs run than there are slots; one whose
owner has died is taken back, or ended as Abnormal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from reconciler.emulator import Durations, Job, Store
from reconciler.emulator.lifecycle import ENDED, RunOutcome
from reconciler.emulator.store import METRICS, JobEvent
from reconciler.processes import tree
from reconciler.processes.execution import Layout, Machine
from reconciler.processes.tree import ProcessIdentity

_TABLE = """
CREATE TABLE IF NOT EXISTS runs (
    job_id TEXT PRIMARY KEY, machine TEXT NOT NULL,
    owner_pid INTEGER, owner_started_s REAL, is_claim INTEGER NOT NULL DEFAULT 0,
    result TEXT
) WITHOUT ROWID"""
#: No phase of a job ends by the clock here.
_NEVER_S = 1e12
_ACTIVE = ("Creating", "Pending", "Running", "Terminating")


class TaskStatus(NamedTuple):
    """How one process of a job ended: negative is the number of a signal, None that it never began."""

    task: str
    exit_code: int | None
    message: str = ""


class SupervisedJob(NamedTuple):
    """What a supervisor takes over: the create request, and what the target says of this machine."""

    job: Job
    machine: Machine


class ProcessStore(Store):
    """The jobs of a process target. `directory` holds their database and their files."""

    time_units = ("HOURS", "SECONDS")

    def __init__(self, directory: Path, machine: Machine | None = None) -> None:
        self.directory = directory
        self.machine = machine or Machine()
        durations = Durations(creating=0, pending=_NEVER_S, running=_NEVER_S, terminating=_NEVER_S)
        super().__init__(directory / "jobs.sqlite3", durations=durations, noise=False, user_name=_user_name())
        self.database.run(_TABLE)

    def _outcome(self, body: Mapping[str, Any]) -> RunOutcome:
        return RunOutcome(round(_NEVER_S * 1000), "Completed")

    # ── what the service does ──────────────────────────────────────────────────────────────────

    def create(self, project: str, body: dict[str, Any]) -> Job:
        with self.database.transaction(write=True):
            job = super().create(project, body)
            values = (job.id, json.dumps(self.machine._asdict()))
            self.database.run("INSERT INTO runs (job_id, machine) VALUES (?, ?)", values)
        self.start_due()
        return self.get(project, job.id)

    def terminate(self, project: str, job_id: str) -> Job:
        self.take_back()
        with self.database.transaction(write=True):
            job = super().terminate(project, job_id)
            row = self.database.one("SELECT owner_pid FROM runs WHERE job_id = ?", (job_id,))
            return job if row and row["owner_pid"] else self.set_phase(job_id, "Terminated")

    def _job(self, row: Any, now: int) -> Job:
        job = super()._job(row, now)
        if job.life.phase not in ENDED:
            return job
        found = self.database.one("SELECT result FROM runs WHERE job_id = ?", (job.id,))
        statuses = json.loads(found["result"] or "[]") if found else []
        return EndedJob(
            **{name: getattr(job, name) for name in Job.__dataclass_fields__}, statuses=tuple(statuses)
        )

    # ── what a job reports ─────────────────────────────────────────────────────────────────────

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

        def values(name: str) -> list[float]:
            found = [sample.get(known.get(name, "")) for sample in samples]
            return [-1 if value is None else value for value in found]

        return {name: values(name) for name in METRICS}

    def events(self, job: Job) -> list[JobEvent]:
        own = [
            JobEvent(line["at_ms"], line["level"], line["message"])
            for line in _read_lines(self.layout(job.id).events)
        ]
        return sorted([*super().events(job), *own], key=lambda event: event.at_ms)

    # ── slots ──────────────────────────────────────────────────────────────────────────────────

    def layout(self, job_id: str) -> Layout:
        return Layout(self.directory / job_id)

    def start_due(self) -> None:
        """Start a supervisor for each job that finds a slot: the highest priority first, then the oldest."""
        self.take_back()
        for job_id in self._claim():
            _start_supervisor(self.directory, job_id)

    def take_back(self) -> None:
        """Undo claims of those who died before a supervisor began; end what a dead one left behind."""
        for row in self._owned():
            owner = ProcessIdentity(row["owner_pid"], row["owner_started_s"])
            if owner.is_alive:
                continue
            if row["is_claim"]:
                self.database.run(f"{_FREE} AND owner_pid = ? AND is_claim = 1", (row["job_id"], owner.pid))
                continue
            known = [
                ProcessIdentity(*one["process"]) for one in _read_lines(self.layout(row["job_id"]).processes)
            ]
            tree.end_all(row["job_id"], tree.with_descendants(known), grace_s=0)
            with self.database.transaction(write=True):
                if self.find(row["job_id"]).life.phase not in ENDED:
                    self._end(row["job_id"], "Abnormal", [])

    def _owned(self) -> list[Any]:
        marks = ", ".join("?" * len(_ACTIVE))
        # The marks are those of this function; the values are bound.
        sql = f"SELECT runs.* FROM runs JOIN jobs ON id = job_id WHERE phase IN ({marks})"  # noqa: S608
        return self.database.all(f"{sql} AND owner_pid IS NOT NULL", _ACTIVE)

    def _claim(self) -> list[str]:
        me = ProcessIdentity.own()
        with self._write(lives=True):
            free = self.machine.slots - len(self._owned())
            waiting = self.database.all(
                "SELECT job_id FROM runs JOIN jobs ON id = job_id "
                "WHERE owner_pid IS NULL AND phase = 'Pending' "
                "ORDER BY CAST(priority AS INTEGER) DESC, seq LIMIT ?",
                (max(0, free),),
            )
            claimed = [str(row["job_id"]) for row in waiting]
            for job_id in claimed:
                self._own(job_id, me, is_claim=True)
        return claimed

    def _own(self, job_id: str, owner: ProcessIdentity, *, is_claim: bool) -> None:
        self.database.run(
            "UPDATE runs SET owner_pid = ?, owner_started_s = ?, is_claim = ? WHERE job_id = ?",
            (owner.pid, owner.started_s, int(is_claim), job_id),
        )

    # ── what a supervisor says ─────────────────────────────────────────────────────────────────

    def take_over(self, job_id: str) -> SupervisedJob | None:
        """Answer for a job that was claimed; None if it is not, or no more, to be run."""
        with self.database.transaction(write=True):
            row = self.database.one("SELECT * FROM runs WHERE job_id = ?", (job_id,))
            if row is None or not row["is_claim"]:
                return None
            self._own(job_id, ProcessIdentity.own(), is_claim=False)
            stored = json.loads(row["machine"])
        return SupervisedJob(self.find(job_id), Machine(**{**stored, "inherit": tuple(stored["inherit"])}))

    def __enter__(self) -> ProcessStore:
        return self

    def is_to_end(self, job_id: str) -> bool:
        row = self.database.one("SELECT phase FROM jobs WHERE id = ?", (job_id,))
        return row is None or row["phase"] != "Running"

    def begin(self, job_id: str) -> bool:
        """Say that a job runs, unless it is to end already."""
        with self.database.transaction(write=True):
            if self.find(job_id).life.phase != "Pending":
                return False
            self.set_phase(job_id, "Running")
            return True

    def finish(self, job_id: str, phase: str, statuses: Iterable[TaskStatus]) -> None:
        """Say how a job ended; its slot is free then."""
        with self.database.transaction(write=True):
            if self.database.one("SELECT 1 FROM jobs WHERE id = ?", (job_id,)):
                self._end(job_id, phase, statuses)
        self._remove_old()

    def _end(self, job_id: str, phase: str, statuses: Iterable[TaskStatus]) -> None:
        self.set_phase(job_id, phase)
        result = json.dumps([status._asdict() for status in statuses])
        self.database.run("UPDATE runs SET result = ? WHERE job_id = ?", (result, job_id))

    def _remove_old(self) -> None:
        """Remove the directories of ended jobs beyond the last that are kept; their records stay."""
        ended = self.database.all("SELECT id FROM jobs WHERE ended_ms > 0 ORDER BY ended_ms DESC")
        for row in ended[self.machine.keep :]:
            shutil.rmtree(self.layout(row["id"]).root, ignore_errors=True)


_DETACHED = """\
import os
if os.fork():
    os._exit(0)
from reconciler.processes.supervisor import main
main()
"""
_FREE = "UPDATE runs SET owner_pid = NULL, owner_started_s = NULL, is_claim = 0 WHERE job_id = ?"


class EndedJob(Job):
    """A job that has ended, with the exit codes of its processes."""

    def __init__(self, *, statuses: tuple[Mapping[str, Any], ...], **fields: Any) -> None:
        super().__init__(**fields)
        object.__setattr__(self, "_statuses", statuses)

    @property
    def status(self) -> dict[str, Any]:
        statuses: tuple[Mapping[str, Any], ...] = self.__dict__["_statuses"]
        return {**super().status, **({"task_statuses": [dict(one) for one in statuses]} if statuses else {})}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines; the last may be cut off while it is written."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _start_supervisor(directory: Path, job_id: str) -> None:
    """Start a process that outlives this one, and gets nothing of its environment but what jobs may have."""
    package = str(Path(__file__).parents[2])
    with ProcessStore(directory) as store:
        row = store.database.one("SELECT machine FROM runs WHERE job_id = ?", (job_id,))
    inherit = json.loads(row["machine"])["inherit"]
    environment = {name: os.environ[name] for name in inherit if name in os.environ}
    environment["PYTHONPATH"] = package
    layout = Layout(directory / job_id)
    layout.root.mkdir(parents=True, exist_ok=True)
    with (layout.root / "supervisor.log").open("ab") as log:
        # It forks at once and its parent ends, so that nobody has to wait for it.
        subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-c", _DETACHED, str(directory), job_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=layout.root,
            start_new_session=True,
            check=True,
        )


def _user_name() -> str:
    try:
        return psutil.Process().username()
    except (psutil.Error, KeyError):
        return "local"
