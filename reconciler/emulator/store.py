"""The jobs of the emulated service, in SQLite.

A job is read as of now, whatever its row says, so that its phase agrees with the clock. Rows are updated many
at once: before a search by phase, and otherwise after a minute. The response about a job is stored when the
job is created or changed, and no call reads all jobs unless it has to, so calls stay fast with many jobs.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from reconciler.emulator import catalog, lifecycle, responses
from reconciler.emulator.database import EmulatorClock, JobDatabase, SharedClock
from reconciler.emulator.lifecycle import Durations, Life, LifecycleStep
from reconciler.emulator.schemas import ApiError, dump_json, value_at
from reconciler.emulator.search import Condition, SearchRequest

Body = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One stored job as of `now_ms`. `is_variant`: it is returned in the other form of `responses`."""

    id: str
    project: str
    workspace_id: str
    name: str
    create_ms: int
    node_count: int
    reserved_hours: int
    life: Life
    now_ms: int
    head: str
    tail: str
    body_text: str
    is_variant: bool = False

    @property
    def body(self) -> Body:
        """The create request as it was sent, with later updates."""
        return dict(json.loads(self.body_text))

    @property
    def status(self) -> dict[str, Any]:
        """The status, as the service returns it."""
        status = responses.status(self.life, self.node_count, self.now_ms, self.reserved_hours)
        return responses.vary_status(status) if self.is_variant else status

    @property
    def text(self) -> str:
        return self.head + dump_json(self.status) + self.tail


LIFE = ("phase", "secondary", "steps", "started_ms", "ended_ms", "held_ms", "past")
"""The columns that a life is read from."""


def read_life(row: Any) -> Life:
    columns: dict[str, Any] = {name: row[name] for name in LIFE}
    return Life(**columns | {"steps": _steps(row["steps"]), "past": _steps(row["past"])})


@lru_cache(maxsize=4096)
def _steps(text: str) -> tuple[LifecycleStep, ...]:
    return tuple(LifecycleStep(*step) for step in json.loads(text))


def life_columns(life: Life) -> dict[str, Any]:
    columns = {name: getattr(life, name) for name in (*LIFE, "next_ms")}
    return columns | {"steps": dump_json(life.steps), "past": dump_json(life.past)}


MAX_ROW_LAG_MS = 60_000
"""How far a row may stay behind the life of its job, in emulated time, where no search is about phases."""
USER_ID = "0e1d2c3b4a5968778695a4b3c2d1e0f1"
DEFAULT_QUOTA = 10_000


LOG = b"emulator: jobs are pretended, so there is no log\n"
METRICS = ("cpuUsage", "memUsage", "gpuUtil", "gpuMemUsage", "npuUtil", "npuMemUsage")
_MESSAGES = {
    "Creating": "Training job created.",
    "Pending": "Training job is queuing for resources.",
    "Running": "Training job started running.",
    "Terminating": "Training job is being terminated.",
    "Terminated": "Training job terminated.",
    "Completed": "Training job completed.",
    "Failed": "Training job failed.",
    "Abnormal": "Training job is abnormal.",
}
_LEVELS = {"Failed": "Error", "Abnormal": "Error", "Terminating": "Warning"}


class JobEvent(NamedTuple):
    """Something that happened to a job. `level` is Info, Warning or Error."""

    at_ms: int
    level: str
    message: str

    @classmethod
    def of(cls, step: LifecycleStep) -> JobEvent:
        message = _MESSAGES.get(step.phase, f"Training job is {step.phase}.")
        return cls(step.at_ms, _LEVELS.get(step.phase, "Info"), message)


@dataclass(frozen=True)
class JobPage:
    """One page of a search. `total`: all jobs of the project; `count`: all that match."""

    jobs: list[Job]
    total: int
    count: int


class Store:
    """Jobs in a SQLite file that threads and processes may share, or in memory.

    `clock` defaults to the file's own clock, which runs `speed` times as fast as real time (None: as
    fast as before, at first 1). `quota` is the number of jobs per project, finished ones included.
    `unreported` are paths of fields that the service keeps and does not echo (`spec.notification`).

    A method that is given the id of a job raises `ApiError` 2775 where there is none.
    """

    #: In what `auto_stop` may be said.
    time_units: tuple[str, ...] = ("HOURS",)

    def __init__(
        self,
        path: str | Path = ":memory:",
        *,
        clock: EmulatorClock | None = None,
        speed: float | None = None,
        durations: Durations | None = None,
        quota: int = DEFAULT_QUOTA,
        noise: bool = True,
        user_name: str = "emulator",
        unreported: tuple[str, ...] = (),
    ) -> None:
        self.unreported = unreported
        self.database = JobDatabase(path)
        try:
            self.clock: EmulatorClock = clock if clock is not None else SharedClock(self.database, speed)
        except BaseException:
            self.database.close()
            raise
        self.durations = durations or Durations()
        self.quota = quota
        self.noise = noise
        self.user_name = user_name

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── what the service does ──────────────────────────────────────────────────────────────────

    def create(self, project: str, body: Body) -> Job:
        """Keep a new job; the body has been validated.

        Raises:
            ApiError: the name is taken (2751), the quota is used up (2815), or the experiment is not
                there (2842): one that was only named is made with its first job.
        """
        metadata = body["metadata"]
        outcome = self._outcome(body)
        with self._write() as now:
            newest = self.database.one("SELECT create_ms, seq FROM jobs ORDER BY seq DESC LIMIT 1")
            create_ms = max(now, newest[0]) if newest else now
            if self.count(project) >= self.quota:
                raise ApiError("ModelArts.2815", f"The quota of job-num, {self.quota}, is used up.")
            experiment_id = value_at(metadata, "training_experiment_reference.id")
            # That it is not empty is said for the index, which has no job without an experiment.
            known = "SELECT 1 FROM jobs WHERE project = ? AND experiment_id = ? AND experiment_id != ''"
            if experiment_id and self.database.one(known, (project, experiment_id)) is None:
                raise ApiError("ModelArts.2842", f"Training experiment (ID: {experiment_id}) not found.")
            job_id = responses.nth_id(str(uuid.uuid4()), newest[1] + 1 if newest else 1)
            life = Life("", "").set_phase("Creating", None, create_ms, self.durations, outcome)
            row = life_columns(life)
            row |= {
                "id": job_id,
                "project": project,
                "workspace_id": metadata.get("workspace_id") or "0",
                "name": metadata["name"],
                "name_key": metadata["name"].lower(),
                "create_ms": create_ms,
                "user_id": USER_ID,
                "user_name": self.user_name,
            } | self._body_columns(body, job_id, create_ms)
            columns = ", ".join(row)
            marks = ", ".join(f":{column}" for column in row)
            try:
                # The columns are those of this module; the values are bound.
                self.database.run(f"INSERT INTO jobs ({columns}) VALUES ({marks})", row)  # noqa: S608
            except sqlite3.IntegrityError:
                raise ApiError(
                    "ModelArts.2751", f"The training job name {metadata['name']} already exists."
                ) from None
            return self._job(row, now)

    def get(self, project: str, job_id: str) -> Job:
        now = self._catch_up()
        return self._read(project, job_id, now)

    def search(self, project: str, search: SearchRequest) -> JobPage:
        """Return one page of the jobs that match, ordered by create time, then by order of creation."""
        now = self._catch_up(lives=any(condition.is_about_life for condition in search.conditions))
        where = " AND ".join(["project = ?", "workspace_id = ?", *(c.sql for c in search.conditions)])
        values = (project, search.workspace_id, *(v for c in search.conditions for v in c.values))
        direction = "DESC" if search.descending else "ASC"
        # Those that match are found by their condition, and sorted; without one, the index has the order.
        place = "+seq" if search.conditions else "seq"
        # The conditions are built from the table of filter keys; the values are bound.
        counting = f"SELECT count(*) FROM jobs WHERE {where}"  # noqa: S608
        if all(condition.is_counted for condition in search.conditions):
            counting = f"SELECT coalesce(sum(jobs), 0) FROM counts WHERE {where}"  # noqa: S608
        picking = (
            f"SELECT * FROM jobs WHERE seq IN (SELECT seq FROM jobs WHERE {where} "  # noqa: S608
            f"ORDER BY {place} {direction} LIMIT ? OFFSET ?) ORDER BY seq {direction}"
        )
        with self.database.transaction():
            total = self.count(project)
            count = self.database.one(counting, values)[0]
            skipped = min(search.skipped, (1 << 63) - 1)
            rows = self.database.all(picking, (*values, search.limit, skipped))
        return JobPage([self._job(row, now) for row in rows], total, count)

    def change(self, project: str, job_id: str, change: Callable[[Job, Body], object]) -> Job:
        """Change the body of a job in one step; `change` edits it, or refuses."""
        with self._write() as now:
            job = self._read(project, job_id, now)
            body = job.body
            change(job, body)
            self._update_row(job_id, self._body_columns(body, job_id, job.create_ms))
            return self._read(project, job_id, now)

    def terminate(self, project: str, job_id: str) -> Job:
        """Begin to stop a job.

        Raises:
            ApiError: its phase does not allow it (2796).
        """
        return self._change_life(job_id, lambda job, now: job.life.terminate(now, self.durations), project)

    def restart(self, project: str, job_id: str) -> Job:
        """Begin a job anew that has ended.

        Raises:
            ApiError: its phase does not allow it (2813).
        """
        return self._change_life(
            job_id, lambda job, now: job.life.restart(now, self.durations, self._outcome(job.body)), project
        )

    def delete(self, project: str, *job_ids: str) -> None:
        """Delete jobs with their records, all or none."""
        with self._write() as now:
            for job_id in job_ids:
                self._read(project, job_id, now)
            gone_ms = now + round(self.durations.deleting * 1000)
            for job_id in job_ids:
                # A second delete does not start the wait again.
                self.database.run(
                    "UPDATE jobs SET delete_ms = coalesce(delete_ms, ?) WHERE id = ?", (gone_ms, job_id)
                )
            self._delete_due(now)

    def is_taken(self, project: str, workspace_id: str, name: str) -> bool:
        """Say whether a name is in use; names that differ in case only are the same."""
        self._catch_up()
        sql = "SELECT 1 FROM jobs WHERE project = ? AND workspace_id = ? AND name_key = ?"
        return self.database.one(sql, (project, workspace_id, name.lower())) is not None

    def count(self, project: str) -> int:
        sql = "SELECT coalesce(sum(jobs), 0) FROM counts WHERE project = ?"
        return int(self.database.one(sql, (project,))[0])

    def tag(self, project: str, job_id: str, values_by_key: Mapping[str, str]) -> None:
        """Give a job tags; a key that is there gets the new value."""
        with self._write() as now:
            self._read(project, job_id, now)
            for key, value in values_by_key.items():
                self.database.run("INSERT OR REPLACE INTO tags VALUES (?, ?, ?)", (job_id, key, value))

    def untag(self, project: str, job_id: str, keys: Iterable[str]) -> None:
        """Take tags from a job."""
        with self._write() as now:
            self._read(project, job_id, now)
            for key in keys:
                self.database.run("DELETE FROM tags WHERE job_id = ? AND key = ?", (job_id, key))

    def tags(self, project: str, job_id: str) -> dict[str, str]:
        self.get(project, job_id)
        return dict(map(tuple, self.database.all("SELECT key, value FROM tags WHERE job_id = ?", (job_id,))))

    def tag_values(self, project: str) -> dict[str, list[str]]:
        """Return the values that each key has anywhere in a project."""
        self._catch_up()
        sql = "SELECT DISTINCT key, value FROM tags JOIN jobs ON id = job_id WHERE project = ? ORDER BY 1, 2"
        values_by_key: dict[str, list[str]] = {}
        for key, value in self.database.all(sql, (project,)):
            values_by_key.setdefault(key, []).append(value)
        return values_by_key

    def tagged(self, project: str, *conditions: Condition) -> list[Job]:
        """Return the jobs of a project that meet conditions, newest first."""
        now = self._catch_up()
        where = " AND ".join(["project = ?", *(condition.sql for condition in conditions)])
        values = (project, *(value for condition in conditions for value in condition.values))
        # The conditions are built from a table of this package; the values are bound.
        rows = self.database.all(f"SELECT * FROM jobs WHERE {where} ORDER BY seq DESC", values)  # noqa: S608
        return [self._job(row, now) for row in rows]

    # ── what a job reports; a store whose jobs really run says more ────────────────────────────

    def log(self, job: Job, task: str, most: int | None = None) -> tuple[bytes, int]:
        """Return the end of a task's log, at most `most` bytes of it, and the size of all of it in bytes."""
        return LOG, len(LOG)

    def metrics(self, job: Job, task: str) -> dict[str, list[float]]:
        """Return the values of each of `METRICS`, oldest first: here one for each minute, and none known."""
        return {name: [-1] * (job.status["duration"] // 60_000 + 1) for name in METRICS}

    def events(self, job: Job) -> list[JobEvent]:
        """Return what happened to a job, oldest first."""
        return [JobEvent.of(step) for step in job.life.past]

    # ── what a test may do to it ───────────────────────────────────────────────────────────────

    def jobs(self) -> list[Job]:
        now = self._catch_up()
        return [self._job(row, now) for row in self.database.all("SELECT * FROM jobs ORDER BY seq")]

    def find(self, job_id: str) -> Job:
        """Return a job of any project."""
        now = self._catch_up()
        return self._read(None, job_id, now)

    def set_phase(self, job_id: str, phase: str, secondary: str | None = None) -> Job:
        """Put a job into a phase, any text; from a known phase it lives on as usual."""

        return self._change_life(
            job_id,
            lambda job, now: job.life.set_phase(
                phase, secondary, now, self.durations, self._outcome(job.body)
            ),
        )

    def _outcome(self, body: Body) -> lifecycle.RunOutcome:
        return lifecycle.run_outcome(body, self.durations)

    def hold(self, job_id: str) -> Job:
        """Keep a job in its phase until `release`."""
        return self._change_life(job_id, lambda job, now: job.life.hold(now))

    def release(self, job_id: str) -> Job:
        """Let a held job go on from where it was."""
        return self._change_life(job_id, lambda job, now: job.life.release(now))

    def edit(self, job_id: str, mutate: Callable[[Body], object]) -> Job:
        """Change the stored body of a job without validation."""

        return self.change(self.find(job_id).project, job_id, lambda _, body: mutate(body))

    # ── transactions and rows ──────────────────────────────────────────────────────────────────

    @contextmanager
    def _write(self, *, lives: bool = False) -> Iterator[int]:
        """Yield the present inside a write; jobs that are deleted by now are gone. See `_catch_up`."""
        with self.database.transaction(write=True):
            now = self.clock.now_ms()
            self._delete_due(now)
            if self._is_step_due(now if lives else now - MAX_ROW_LAG_MS):
                # The columns are those of this module; the value is bound.
                due = f"SELECT id, {', '.join(LIFE)} FROM jobs WHERE next_ms <= ?"  # noqa: S608
                for row in self.database.all(due, (now,)):
                    self._update_row(row["id"], life_columns(read_life(row).at(now)))
            if isinstance(self.clock, SharedClock):
                self.clock.record_reached(now)
            yield now

    def _catch_up(self, *, lives: bool = False) -> int:
        """Return the present; jobs deleted by then are gone, and with `lives` every row is current."""
        now = self.clock.now_ms()
        gone = self.database.one("SELECT 1 FROM jobs WHERE delete_ms <= ? LIMIT 1", (now,)) is not None
        if gone or self._is_step_due(now if lives else now - MAX_ROW_LAG_MS):
            with self._write(lives=lives) as later:
                return later
        return now

    def _is_step_due(self, now: int) -> bool:
        return self.database.one("SELECT 1 FROM jobs WHERE next_ms <= ? LIMIT 1", (now,)) is not None

    def _delete_due(self, now: int) -> None:
        self.database.run("DELETE FROM jobs WHERE delete_ms <= ?", (now,))

    def _change_life(
        self, job_id: str, change: Callable[[Job, int], Life], project: str | None = None
    ) -> Job:
        with self._write() as now:
            job = self._read(project, job_id, now)
            self._update_row(job_id, life_columns(change(job, now)))
            return self._read(None, job_id, now)

    def _update_row(self, job_id: str, columns: Mapping[str, Any]) -> None:
        assignments = ", ".join(f"{column} = ?" for column in columns)
        # The columns are those of this module; the values are bound.
        self.database.run(f"UPDATE jobs SET {assignments} WHERE id = ?", (*columns.values(), job_id))  # noqa: S608

    def _read(self, project: str | None, job_id: str, now: int) -> Job:
        row = self.database.one("SELECT * FROM jobs WHERE id = ?", (job_id,))
        if row is None or project not in {None, row["project"]}:
            # 400, not 404.
            raise ApiError("ModelArts.2775", f"Training job (ID: {job_id}) not found.")
        return self._job(row, now)

    def _job(self, row: Any, now: int) -> Job:
        same = ("id", "project", "workspace_id", "name", "create_ms", "node_count", "reserved_hours")
        columns: dict[str, Any] = {name: row[name] for name in (*same, "head", "tail")}
        is_variant = self.noise and responses.is_variant(row["id"])
        life = read_life(row).at(now)
        job = Job(**columns, life=life, now_ms=now, body_text=row["body"], is_variant=is_variant)
        if row["noisy"] == self.noise:
            return job
        # The file was written by a store with the other setting.
        columns = self._body_columns(job.body, job.id, job.create_ms)
        return dataclasses.replace(job, head=columns["head"], tail=columns["tail"])

    def _body_columns(self, body: Body, job_id: str, create_ms: int) -> dict[str, Any]:
        """Return the columns that hold a body, its response, and what a search may ask of it."""
        response = responses.job(
            body, job_id, create_ms, self.user_name, noise=self.noise, unreported=self.unreported
        )
        head, tail = responses.around_status(response)
        algorithm_id = value_at(body, "algorithm.id") or ""
        pool_id = value_at(body, "spec.resource.pool_id") or ""
        experiment = value_at(body, "metadata.training_experiment_reference")
        return {
            "kind": body["kind"],
            "node_count": responses.node_count(body),
            "fine_tuned": int(bool(body.get("train_type") or body.get("ftjob_config"))),
            "algorithm_id": algorithm_id,
            "algorithm_name": catalog.algorithm(algorithm_id)["name"] if algorithm_id else "",
            "runtime_type": value_at(body, "spec.runtime_type") or "production",
            "pool_id": pool_id,
            "experiment_id": responses.experiment_id(experiment) or "",
            "priority": str(value_at(body, "spec.schedule_policy.priority") or ("1" if pool_id else "")),
            "reserved_hours": value_at(body, "spec.reserved_time.duration") or 0,
            "body": dump_json(body),
            "noisy": int(self.noise),
            "head": head,
            "tail": tail,
        }
