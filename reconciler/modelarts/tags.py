"""The tags of jobs: given, taken off, and searched for.

Source: docs/modelarts.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.modelarts.content import MemoryBudget
from reconciler.modelarts.http import ServiceResponse
from reconciler.modelarts.models import Count, ResponseModel
from reconciler.modelarts.operations import OperationGroup, parsed
from reconciler.modelarts.retry import RetryPolicy

if TYPE_CHECKING:
    from reconciler.modelarts.backend import ModelArtsBackend

#: The service's limit: tags listed by one call.
TAG_PAGE = 1000


class Tag(ResponseModel):
    """A tag of a job or an engine."""

    key: str
    value: str = ""


class TagList(ResponseModel):
    """The tags of one job."""

    tags: tuple[Tag, ...] = ()


class TagValues(ResponseModel):
    """A key, and all values that jobs of the project give it."""

    key: str
    values: tuple[str, ...] = ()


class ProjectTags(ResponseModel):
    """All tags of a project."""

    tags: tuple[TagValues, ...] = ()


class TaggedJob(ResponseModel):
    """A job that was found by its tags."""

    resource_id: str
    resource_name: str = ""
    workspace_id: str = ""
    tags: tuple[Tag, ...] = ()
    resource_detail: Any = None


class TaggedJobs(ResponseModel):
    """A page of jobs that were found by their tags; `total_count` is how many there are."""

    resources: tuple[TaggedJob, ...] = ()
    total_count: Count = None


class TaggedCount(ResponseModel):
    """How many jobs have the tags."""

    total_count: int


class Tags(OperationGroup):
    """The tags of the jobs of one workspace; only on Huawei Cloud."""

    def __init__(self, backend: ModelArtsBackend) -> None:
        super().__init__(backend)
        self._tags = f"{self._root}/modelarts-training-job"

    def of_job(self, job_id: str) -> dict[str, str]:
        """Return the tags of a job."""
        found = parsed(TagList, self._get(self._tags_of(job_id)))
        return {tag.key: tag.value for tag in found.tags}

    def add(self, job_id: str, tags: Mapping[str, str]) -> None:
        """Give a job tags; a key that it has gets the new value."""
        body = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        self._backend.session.call(
            "POST", f"{self._tags_of(job_id)}/create", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def remove(self, job_id: str, keys: Iterable[str]) -> None:
        """Take tags off a job."""
        body = {"tags": [{"key": key} for key in keys]}
        self._backend.session.call(
            "DELETE", f"{self._tags_of(job_id)}/delete", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def of_project(self) -> dict[str, tuple[str, ...]]:
        """Return the values of all tags of the project, by key."""
        self._only_on_huawei("tags")
        found: dict[str, tuple[str, ...]] = {}
        offset = 0
        while True:
            answer = self._get(f"{self._tags}/tags", {"limit": TAG_PAGE, "offset": offset})
            page = parsed(ProjectTags, answer).tags
            fresh = {tag.key: tag.values for tag in page if tag.key not in found}
            found |= fresh
            if len(page) < TAG_PAGE or not fresh:
                return found
            offset += len(page)

    def find(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> tuple[TaggedJob, ...]:
        """Return all jobs of the workspace with these tags: all keys, for each one of its values.

        No value for a key means any. With `name` only jobs whose name holds that text; `without_any`
        finds those without a tag.
        """
        self._only_on_huawei("tags")
        asked = self._tag_search(tags, name, without_any)
        found: dict[str, TaggedJob] = {}
        offset, budget = 0, MemoryBudget()
        while True:
            query = {"limit": TAG_PAGE, "offset": offset}
            path = f"{self._tags}/resource-instances/filter"
            answer = self._ask(path, asked, query)
            budget.take(answer.content)
            page = parsed(TaggedJobs, answer).resources
            fresh = {job.resource_id: job for job in page if job.resource_id not in found}
            found |= fresh
            if len(page) < TAG_PAGE or not fresh:
                return tuple(found.values())
            offset += len(page)

    def count(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> int:
        """Return how many jobs `find` would find."""
        self._only_on_huawei("tags")
        asked = self._tag_search(tags, name, without_any)
        answer = self._ask(f"{self._tags}/resource-instances/count", asked)
        return parsed(TaggedCount, answer).total_count

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

    def _tags_of(self, job_id: str) -> str:
        self._only_on_huawei("tags")
        self._backend.path_of(job_id)
        return f"{self._tags}/{job_id}/tags"

    def _ask(
        self, path: str, body: Mapping[str, Any], query: Mapping[str, Any] | None = None
    ) -> ServiceResponse:
        """A search: a POST that changes nothing."""
        return self._backend.session.call("POST", path, body=body, query=query, repeat=RetryPolicy.SAFE)
