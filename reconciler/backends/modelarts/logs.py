"""What a job reports: its logs, events, metrics, tasks and stages.

Source: docs/modelarts.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

from reconciler.backends.modelarts import responses
from reconciler.backends.modelarts.operation_group import OperationGroup, parsed
from reconciler.core.declared.marks import Cloud
from reconciler.core.observed.reports import EventQuery
from reconciler.core.ports import NotFound, NotSupported, Rejected

_NO_LOG_YET = frozenset({"ModelArts.2776", "ModelArts.2777", "ModelArts.2818"})

_T = TypeVar("_T")


class Logs(OperationGroup):
    """What the jobs of one workspace report. A task is e.g. `worker-0`."""

    def events(self, job_id: str, **query: Unpack[EventQuery]) -> responses.Events:
        """Return a page of events, the first fifty unless `limit` and `offset` say otherwise.

        `source` is known to Open Telekom Cloud only.

        Raises:
            NotSupported: another cloud would ignore the `source`, so nothing was sent.
        """
        if query.get("source") is not None and self._backend.cloud is not Cloud.OTC:
            raise NotSupported("only Open Telekom Cloud supports filtering events by source")
        return parsed(responses.Events, self._get(f"{self._backend.path_of(job_id)}/events", query))

    def tasks(self, job_id: str, schedule_count: int | None = None) -> tuple[responses.Task, ...]:
        """Return the tasks of the nth scheduling (None: the last one), and where they ran."""
        self._only_on_huawei("tasks")
        answer = self._get(f"{self._backend.path_of(job_id)}/tasks", {"schedule_count": schedule_count})
        return parsed(tuple[responses.Task, ...], answer)

    def stages(self, job_id: str) -> responses.Stages:
        """Return the stages of each run."""
        self._only_on_huawei("stages")
        return parsed(responses.Stages, self._get(f"{self._backend.path_of(job_id)}/stages"))

    def preview(self, job_id: str, task: str) -> responses.LogPreview | None:
        """Return the end of a task's log, or None while there is none. A task is e.g. `worker-0`."""
        return self._if_any(responses.LogPreview, f"{self._task(job_id, task)}/logs/preview")

    def url(self, job_id: str, task: str, *, download: bool = False) -> str | None:
        """Return a link to a task's whole log, or None while there is none."""
        kind = "application/octet-stream" if download else "text/plain"
        path = f"{self._task(job_id, task)}/logs/url"
        link = self._if_any(responses.LogUrl, path, headers={"Content-Type": kind})
        return link.obs_url if link else None

    def lines(
        self,
        job_id: str,
        task: str,
        *,
        base_line: str | None = None,
        lines: int | None = None,
        order: str | None = None,
    ) -> responses.LogLines | None:
        """Return 1 to 500 (50) lines of a task's log from `base_line` on, or None while there is none."""
        self._only_on_huawei("logs by line")
        query = {"base_line": base_line, "lines": lines, "order": order}
        path = f"{self._backend.path_of(job_id)}/logs/{_segment(task)}"
        return self._if_any(responses.LogLines, path, query)

    def metrics(self, job_id: str, task: str) -> tuple[responses.Metric, ...] | None:
        """Return how busy a task's node was, minute by minute, or None while nobody knows."""
        path = f"{self._backend.path_of(job_id)}/metrics/{_segment(task)}"
        found = self._if_any(responses.Metrics, path)
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
