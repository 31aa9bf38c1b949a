"""What a job reports: its logs, events, metrics, tasks and stages.

Source: docs/modelarts.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

from pydantic import AliasChoices, Field, model_validator

from reconciler.core.fields.marks import Cloud
from reconciler.core.job_reports import EventQuery
from reconciler.errors import NotFound, NotSupported, Rejected
from reconciler.modelarts.models import Count, Lenient, Number, ResponseModel
from reconciler.modelarts.operations import OperationGroup, parsed

_NO_LOG_YET = frozenset({"ModelArts.2776", "ModelArts.2777", "ModelArts.2818"})

_T = TypeVar("_T")


class Event(ResponseModel):
    """Something that happened to a job. `time` is text, as the service writes it."""

    time: str = ""
    level: str = ""
    message: str = ""
    source: str = ""


class Events(ResponseModel):
    """A page of events; `total` is how many there are."""

    total: Count = None
    limit: Count = None
    offset: Count = None
    order: str = ""
    start_time: str = ""
    end_time: str = ""
    events: tuple[Event, ...] = ()


class Task(Lenient):
    """A task of a job, and where it ran."""

    task: str = ""
    ip: str = ""
    host_ip: str = ""
    schedule_count: Count = None


class SubStage(ResponseModel):
    """A step within a stage."""

    name: str = ""
    en_message: str = ""
    zh_message: str = ""
    create_time: str = ""


class Stage(ResponseModel):
    """A stage of a run: scheduling, preparing, running or end."""

    job_id: str = ""
    name: str = ""
    en_message: str = ""
    zh_message: str = ""
    start_time: str = ""
    end_time: str = ""
    stage_order: Count = None
    sub_stages: tuple[SubStage, ...] = ()


class RunResponse(ResponseModel):
    """One run of a job; a job that was restarted has several."""

    record_order: Count = None
    stages: tuple[Stage, ...] = ()


class Stages(ResponseModel):
    """The runs of a job."""

    total_count: Count = None
    running_records: tuple[RunResponse, ...] = ()


class LogPreview(ResponseModel):
    """The end of a log, at most 5 MB; sizes in bytes."""

    # It was named `context` before March 2022.
    content: str = Field("", validation_alias=AliasChoices("content", "context"))
    current_size: Count = None
    full_size: Count = None


class LogUrl(ResponseModel):
    """A link to a whole log; it lives five minutes, and whoever has it can read the log."""

    obs_url: str


class LogLines(ResponseModel):
    """Some lines of a log."""

    start_line: str = ""
    end_line: str = ""
    lines: Count = None
    content: str = ""


class Metric(ResponseModel):
    """One value per minute, in percent; None where there is none (the service says -1)."""

    metric: str = ""
    value: tuple[Number, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _minus_one_is_none(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("value"), list):
            return {**value, "value": [None if v in (-1, "-1") else v for v in value["value"]]}
        return value


class Metrics(ResponseModel):
    """All metrics of a task."""

    metrics: tuple[Metric, ...] = ()


class Logs(OperationGroup):
    """What the jobs of one workspace report. A task is e.g. `worker-0`."""

    def events(self, job_id: str, **query: Unpack[EventQuery]) -> Events:
        """Return a page of events, the first fifty unless `limit` and `offset` say otherwise.

        `source` is known to Open Telekom Cloud only.

        Raises:
            NotSupported: another cloud would ignore the `source`, so nothing was sent.
        """
        if query.get("source") is not None and self._backend.cloud is not Cloud.OTC:
            raise NotSupported("only Open Telekom Cloud supports filtering events by source")
        return parsed(Events, self._get(f"{self._backend.path_of(job_id)}/events", query))

    def tasks(self, job_id: str, schedule_count: int | None = None) -> tuple[Task, ...]:
        """Return the tasks of the nth scheduling (None: the last one), and where they ran."""
        self._only_on_huawei("tasks")
        answer = self._get(f"{self._backend.path_of(job_id)}/tasks", {"schedule_count": schedule_count})
        return parsed(tuple[Task, ...], answer)

    def stages(self, job_id: str) -> Stages:
        """Return the stages of each run."""
        self._only_on_huawei("stages")
        return parsed(Stages, self._get(f"{self._backend.path_of(job_id)}/stages"))

    def preview(self, job_id: str, task: str) -> LogPreview | None:
        """Return the end of a task's log, or None while there is none. A task is e.g. `worker-0`."""
        return self._if_any(LogPreview, f"{self._task(job_id, task)}/logs/preview")

    def url(self, job_id: str, task: str, *, download: bool = False) -> str | None:
        """Return a link to a task's whole log, or None while there is none."""
        kind = "application/octet-stream" if download else "text/plain"
        path = f"{self._task(job_id, task)}/logs/url"
        link = self._if_any(LogUrl, path, headers={"Content-Type": kind})
        return link.obs_url if link else None

    def lines(
        self,
        job_id: str,
        task: str,
        *,
        base_line: str | None = None,
        lines: int | None = None,
        order: str | None = None,
    ) -> LogLines | None:
        """Return 1 to 500 (50) lines of a task's log from `base_line` on, or None while there is none."""
        self._only_on_huawei("logs by line")
        query = {"base_line": base_line, "lines": lines, "order": order}
        path = f"{self._backend.path_of(job_id)}/logs/{_segment(task)}"
        return self._if_any(LogLines, path, query)

    def metrics(self, job_id: str, task: str) -> tuple[Metric, ...] | None:
        """Return how busy a task's node was, minute by minute, or None while nobody knows."""
        path = f"{self._backend.path_of(job_id)}/metrics/{_segment(task)}"
        found = self._if_any(Metrics, path)
        return found.metrics if found else None

    def _task(self, job_id: str, task: str) -> str:
        return f"{self._backend.path_of(job_id)}/tasks/{_segment(task)}"

    def _if_any(
        self,
        shape: type[_T],
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _T | None:
        """Return what was told, or None where the service says that it is too early."""
        try:
            answer = self._get(path, query, headers)
        except Rejected as refusal:
            if refusal.code in _NO_LOG_YET:
                return None
            raise
        return None if answer.status == 204 else parsed(shape, answer)


def _segment(task: str) -> str:
    if not task or task.strip(".") == "":
        raise NotFound(f"{task!r} is not a valid task id")
    return quote(task, safe="")
