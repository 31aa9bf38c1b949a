"""The service's other calls: watching a job, what the target offers, tags, deleting many records.

A reconciler does not need them; people do. What a cloud does not offer is refused here, unsent.

Source: docs/modelarts.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from reconciler.backends.http.content import MemoryBudget
from reconciler.backends.http.retry import RetryPolicy
from reconciler.backends.http.session import ServiceResponse
from reconciler.backends.modelarts import responses
from reconciler.backends.modelarts.backend import ModelArtsBackend
from reconciler.core.declared.marks import Cloud
from reconciler.core.ports import NotFound, Rejected

#: The service's limits: records deleted by one call, tags listed by one call.
BATCH = 100
TAG_PAGE = 1000
_NO_LOG_YET = frozenset({"ModelArts.2776", "ModelArts.2777", "ModelArts.2818"})

_T = TypeVar("_T")


class Operations:
    """The calls of one workspace, over the session of its backend."""

    def __init__(self, backend: ModelArtsBackend) -> None:
        self._backend = backend
        self._root = f"/v2/{backend.project_id}"
        self._tags = f"{self._root}/modelarts-training-job"

    # ── watching a job ─────────────────────────────────────────────────────────────────────────

    def events(
        self,
        job_id: str,
        *,
        offset: int | None = None,
        limit: int | None = None,
        order: str | None = None,
        level: str | None = None,
        pattern: str | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
        source: str | None = None,
    ) -> responses.Events:
        """Return a page of events. `limit` is 1 to 100 (50), `level` Info, Error or Warning.

        `start_time` and `end_time` go together, in RFC 3339. `source` (K8S, Job, Task) is known to Open
        Telekom Cloud only.

        Raises:
            Rejected: another cloud would ignore the `source`, so nothing was sent.
        """
        if source is not None and self._backend.cloud is not Cloud.OTC:
            raise Rejected("only Open Telekom Cloud supports filtering events by source")
        query = {
            "offset": offset,
            "limit": limit,
            "order": order,
            "level": level,
            "pattern": pattern,
            "start_time": start_time,
            "end_time": end_time,
            "source": source,
        }
        return _read(responses.Events, self._get(f"{self._job(job_id)}/events", query))

    def tasks(self, job_id: str, schedule_count: int | None = None) -> tuple[responses.Task, ...]:
        """Return the tasks of the nth scheduling (None: the last one), and where they ran."""
        self._only_on_huawei("tasks")
        answer = self._get(f"{self._job(job_id)}/tasks", {"schedule_count": schedule_count})
        return _read(tuple[responses.Task, ...], answer)

    def stages(self, job_id: str) -> responses.Stages:
        """Return the stages of each run."""
        self._only_on_huawei("stages")
        return _read(responses.Stages, self._get(f"{self._job(job_id)}/stages"))

    def log_preview(self, job_id: str, task_id: str) -> responses.LogPreview | None:
        """Return the end of a task's log, or None while there is none. A task is e.g. `worker-0`."""
        return self._read_or_wait(responses.LogPreview, f"{self._task(job_id, task_id)}/logs/preview")

    def log_url(self, job_id: str, task_id: str, *, download: bool = False) -> str | None:
        """Return a link to a task's whole log, or None while there is none."""
        kind = "application/octet-stream" if download else "text/plain"
        path = f"{self._task(job_id, task_id)}/logs/url"
        link = self._read_or_wait(responses.LogUrl, path, headers={"Content-Type": kind})
        return link.obs_url if link else None

    def log_lines(
        self,
        job_id: str,
        task_id: str,
        *,
        base_line: str | None = None,
        lines: int | None = None,
        order: str | None = None,
    ) -> responses.LogLines | None:
        """Return 1 to 500 (50) lines of a task's log from `base_line` on, or None while there is none."""
        self._only_on_huawei("logs by line")
        query = {"base_line": base_line, "lines": lines, "order": order}
        path = f"{self._job(job_id)}/logs/{_segment(task_id)}"
        return self._read_or_wait(responses.LogLines, path, query)

    def metrics(self, job_id: str, task_id: str) -> tuple[responses.Metric, ...] | None:
        """Return how busy a task's node was, minute by minute, or None while nobody knows."""
        path = f"{self._job(job_id)}/metrics/{_segment(task_id)}"
        found = self._read_or_wait(responses.Metrics, path)
        return found.metrics if found else None

    # ── what the target offers ─────────────────────────────────────────────────────────────────

    def flavors(self, flavor_type: str | None = None) -> tuple[responses.Flavor, ...]:
        """Return the flavors of the public pools, of one type (CPU, GPU, Ascend) or all."""
        return self.flavor_list(flavor_type).flavors

    def flavor_list(self, flavor_type: str | None = None) -> responses.Flavors:
        """Return the same with the number that there are."""
        answer = self._get(f"{self._root}/training-job-flavors", {"flavor_type": flavor_type})
        return _read(responses.Flavors, answer)

    def engines(self) -> tuple[responses.Engine, ...]:
        """Return the preset engines."""
        return self.engine_list().items

    def engine_list(self) -> responses.Engines:
        """Return the same with the number that there are."""
        return _read(responses.Engines, self._get(f"{self._root}/training-job-engines"))

    def quotas(self, resource: str | None = None, user_id: str | None = None) -> tuple[responses.Quota, ...]:
        """Return how many job records there may be, and are."""
        self._only_on_huawei("quotas")
        answer = self._get(f"{self._root}/training-quotas", {"resource": resource, "user_id": user_id})
        return _read(responses.Quotas, answer).quotas

    # ── tags ───────────────────────────────────────────────────────────────────────────────────

    def tags(self, job_id: str) -> dict[str, str]:
        """Return the tags of a job."""
        found = _read(responses.Tags, self._get(self._tags_of(job_id)))
        return {tag.key: tag.value for tag in found.tags}

    def add_tags(self, job_id: str, tags: Mapping[str, str]) -> None:
        """Give a job tags; a key that it has gets the new value."""
        body = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        self._backend.session.call(
            "POST", f"{self._tags_of(job_id)}/create", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def remove_tags(self, job_id: str, keys: Iterable[str]) -> None:
        """Take tags off a job."""
        body = {"tags": [{"key": key} for key in keys]}
        self._backend.session.call(
            "DELETE", f"{self._tags_of(job_id)}/delete", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def project_tags(self) -> dict[str, tuple[str, ...]]:
        """Return the values of all tags of the project, by key."""
        self._only_on_huawei("tags")
        found: dict[str, tuple[str, ...]] = {}
        offset = 0
        while True:
            answer = self._get(f"{self._tags}/tags", {"limit": TAG_PAGE, "offset": offset})
            page = _read(responses.ProjectTags, answer).tags
            fresh = {tag.key: tag.values for tag in page if tag.key not in found}
            found |= fresh
            if len(page) < TAG_PAGE or not fresh:
                return found
            offset += len(page)

    def tagged(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> tuple[responses.TaggedJob, ...]:
        """Return all jobs of the workspace with these tags: all keys, for each one of its values.

        No value for a key means any. With `name` only jobs whose name holds that text; `without_any`
        finds those without a tag.
        """
        self._only_on_huawei("tags")
        asked = self._tag_search(tags, name, without_any)
        found: dict[str, responses.TaggedJob] = {}
        offset, budget = 0, MemoryBudget()
        while True:
            query = {"limit": TAG_PAGE, "offset": offset}
            path = f"{self._tags}/resource-instances/filter"
            answer = self._ask(path, asked, query)
            budget.take(answer.content)
            page = _read(responses.TaggedJobs, answer).resources
            fresh = {job.resource_id: job for job in page if job.resource_id not in found}
            found |= fresh
            if len(page) < TAG_PAGE or not fresh:
                return tuple(found.values())
            offset += len(page)

    def count_tagged(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> int:
        """Return how many jobs `tagged` would find."""
        self._only_on_huawei("tags")
        asked = self._tag_search(tags, name, without_any)
        answer = self._ask(f"{self._tags}/resource-instances/count", asked)
        return _read(responses.TaggedCount, answer).total_count

    def _tag_search(
        self, tags: Mapping[str, Sequence[str]], name: str | None, without_any: bool
    ) -> dict[str, Any]:
        conditions = [{"key": key, "values": list(values)} for key, values in tags.items()]
        asked: dict[str, Any] = {"workspace_id": self._backend.workspace_id, "tags": conditions}
        if name is not None:
            asked["matches"] = [{"key": "resource_name", "value": name}]
        if without_any:
            asked["without_any_tag"] = True
        return asked

    # ── deleting ───────────────────────────────────────────────────────────────────────────────

    def delete_many(self, kind_by_id: Mapping[str, str]) -> None:
        """Delete the records of jobs, given with their `kind`; a hundred at once where the cloud can.

        Raises:
            NotFound: one of them does not exist. Those of earlier hundreds are deleted.
        """
        for job_id in kind_by_id:
            self._job(job_id)
        if self._backend.cloud is Cloud.OTC:
            for job_id in kind_by_id:
                self._backend.delete(job_id)
            return
        jobs = [{"kind": kind, "metadata": {"id": job_id}} for job_id, kind in kind_by_id.items()]
        for begin in range(0, len(jobs), BATCH):
            self._backend.session.call(
                "POST",
                f"{self._root}/training-jobs/batch-delete",
                body={"jobs": jobs[begin : begin + BATCH]},
                repeat=RetryPolicy.WITHOUT_EFFECT,
            )

    # ── inside ─────────────────────────────────────────────────────────────────────────────────

    def _job(self, job_id: str) -> str:
        return self._backend.path_of(job_id)

    def _task(self, job_id: str, task_id: str) -> str:
        return f"{self._job(job_id)}/tasks/{_segment(task_id)}"

    def _tags_of(self, job_id: str) -> str:
        self._only_on_huawei("tags")
        self._job(job_id)
        return f"{self._tags}/{job_id}/tags"

    def _get(
        self, path: str, query: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        return self._backend.session.call("GET", path, query=query, headers=headers, repeat=RetryPolicy.SAFE)

    def _ask(
        self, path: str, body: Mapping[str, Any], query: Mapping[str, Any] | None = None
    ) -> ServiceResponse:
        """A search: a POST that changes nothing."""
        return self._backend.session.call("POST", path, body=body, query=query, repeat=RetryPolicy.SAFE)

    def _read_or_wait(
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
        return None if answer.status == 204 else _read(shape, answer)

    def _only_on_huawei(self, what: str) -> None:
        if self._backend.cloud is Cloud.OTC:
            raise Rejected(f"Open Telekom Cloud does not support {what}")


def _segment(task_id: str) -> str:
    if not task_id or task_id.strip(".") == "":
        raise NotFound(f"{task_id!r} is not a valid task id")
    return quote(task_id, safe="")


def _read(shape: type[_T], answer: ServiceResponse) -> _T:
    try:
        read: _T = TypeAdapter(shape).validate_python(answer.json())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise answer.unreadable(f"{where or 'the answer'}: {first['msg']}") from None
    return read
