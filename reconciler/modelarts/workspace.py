"""A workspace of the ModelArts v2 API, as a `core.ports.Backend`.

Source: docs/reference/modelarts.md, "Calls", "Search", "Updates" and "Names".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Listing, Observation, ObservedJob, SearchFilter, Unreadable, named
from reconciler.errors import NotFound, NotSupported, Rejected, ServiceError, Unauthorized, UnreadableAnswer
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.http import ServiceResponse, ServiceSession
from reconciler.modelarts.observe import (
    PAGE_SIZE,
    NeedsAbsence,
    PageReader,
    SearchPage,
    observe,
    page_of,
    read_job,
)

if TYPE_CHECKING:
    from reconciler.core.ports import ReadingListener


_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}"
#: Paths of calls that look like those of a job.
_NOT_IDS = frozenset({"batch-delete", "autosearch"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
#: The service's limit of records deleted by one call.
BATCH = 100
#: Search fields that Open Telekom Cloud would ignore.
HUAWEI_ONLY = ("tags", "host_ips", "train_type", "unified_jobs")


class Workspace:
    """One workspace of one project. Thread-safe. `reading` is entered while it is read.

    Calls about a job that does not exist raise `NotFound`.
    """

    reading: ReadingListener = staticmethod(lambda: nullcontext(lambda _: None))

    def __init__(
        self, session: ServiceSession, project_id: str, workspace_id: str = "0", cloud: Cloud = Cloud.HUAWEI
    ) -> None:
        self.session = session
        self.project_id = project_id
        self.workspace_id = workspace_id
        self.cloud = cloud
        self._root = f"/v2/{project_id}"
        self._search_path = f"{self._root}/training-job-searches"
        self._reader = PageReader(self._is_ours)

    @property
    def endpoint(self) -> str:
        return self.session.endpoint

    @property
    def credentials_origin(self) -> str:
        """The kind and source of the credentials, without secrets."""
        return f"{self.session.credentials.what}, from {self.session.credentials.source}"

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds. None if it sent no date."""
        return self.session.skew_s

    def close(self) -> None:
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def observe(
        self, names: Collection[str] | None = None, needs_absence: NeedsAbsence | None = None
    ) -> Observation:
        """Read the workspace, oldest job first: all of it, or what a plan for these `names` needs.

        With names, the observation contains at least every active job and every job whose name begins with
        one of them. It is complete only if a scan is cheaper, or if `needs_absence` says that a decision
        rests on the absence of a job. After a failure, `problem` describes it, and the jobs read so far are
        kept.

        Raises:
            Unauthorized: the account may not read it.
        """
        with self.reading() as report_count:
            fetch = partial(self._page, report_count=report_count)
            return observe(fetch, self._reader, names, needs_absence)

    def find(self, name: str) -> list[ObservedJob]:
        """Return the jobs with exactly this name, ignoring case.

        Raises:
            UnreadableAnswer: the list kept changing, or an entry that may be the job cannot be read.
            ServiceError: the list could not be read to its end.
        """
        listing = self.search([named(name)])
        if isinstance(listing.problem, ServiceError):
            raise listing.problem
        if listing.problem:
            raise UnreadableAnswer(f"{listing.problem}: cannot tell whether {name} exists")
        wanted = name.casefold()
        for entry in listing.unreadable:
            if entry.name is None or entry.name.casefold() == wanted:
                raise UnreadableAnswer(f"a list entry that may be {name} cannot be read: {entry.why}")
        return [job for job in listing.jobs if job.name.casefold() == wanted]

    def search(
        self,
        filters: Sequence[SearchFilter] = (),
        *,
        order: str = "asc",
        sort_by: str = "create_time",
        more: Mapping[str, Any] = _NOTHING,
        limit: int | None = None,
        wanted: Callable[[ObservedJob], bool] = lambda _: True,
    ) -> Listing:
        """Read the matching jobs of the workspace, oldest first. Failures are in the listing.

        Filters are the service's own: `key`, `operator` (between, like, in, not), `value` (a list of texts).
        `more` are other fields of the search: `tags`, `host_ips`, `train_type`, `group_by`. With a `limit`
        reading stops after the page on which that many `wanted` jobs are reached.

        Raises:
            Unauthorized: the account may not read the workspace.
            NotSupported: the cloud does not support one of these fields; nothing was sent.
        """
        fields = {"sort_by": sort_by, "order": order, **more}
        for field in HUAWEI_ONLY:
            if self.cloud is Cloud.OTC and fields.get(field) not in (None, "", [], ()):
                raise NotSupported(f"Open Telekom Cloud does not support searching by {field}")
        fetch = partial(self._page, filters=filters, fields=fields)
        return self._reader.read(fetch, limit=limit, wanted=wanted)

    def _is_ours(self, job: ObservedJob) -> bool:
        # A search may ignore the workspace, and return jobs of others.
        workspace_id = job.body["metadata"].get("workspace_id")
        return not isinstance(workspace_id, str) or workspace_id in {"", self.workspace_id}

    def _page(
        self,
        offset: int,
        filters: Sequence[SearchFilter],
        fields: Mapping[str, Any] = _NOTHING,
        report_count: Callable[[int], None] = lambda _: None,
    ) -> SearchPage:
        body: dict[str, Any] = {
            "offset": offset,
            "limit": PAGE_SIZE,
            "sort_by": "create_time",
            "order": "asc",
            "workspace_id": self.workspace_id,
            **fields,
        }
        if filters:
            body["filters"] = list(filters)
        answer = self.session.call("POST", self._search_path, body=body, repeat=RetryPolicy.SAFE)
        page = page_of(answer.json(), answer.requests, answer.seconds)
        if isinstance(page, str):
            raise answer.unreadable(page)
        report_count(len(page.items))
        return page

    def name_is_taken(self, name: str) -> bool | None:
        """Ask the service whether a name is taken. None on a cloud without that call."""
        if self.cloud is Cloud.OTC:
            return None
        query = {"job_name": name, "workspace_id": self.workspace_id}
        try:
            path = f"{self._root}/training-job-names"
            answer = self.session.call("GET", path, query=query, repeat=RetryPolicy.SAFE)
        except Unauthorized:
            raise
        except Rejected as refusal:
            if refusal.status in {404, 405}:
                return None
            raise
        body = answer.json()
        taken = body.get("is_duplicate") if isinstance(body, dict) else None
        if not isinstance(taken, bool):
            raise answer.unreadable("is_duplicate is missing or neither true nor false")
        return taken

    def details(self, job_id: str) -> ObservedJob:
        """Read one job.

        Raises:
            NotFound: there is no such job.
            UnreadableAnswer: the response is about another job, or lacks a required field.
        """
        answer = self.session.call("GET", self.path_of(job_id), repeat=RetryPolicy.SAFE)
        job = _job(answer)
        if job.id != job_id:
            raise answer.unreadable(f"requested job {job_id}, but got a different one")
        return job

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job. Never retried. `body` gets the target's workspace unless it has one.

        Raises:
            NameTaken: a job of that name exists, visible or not.
            Unanswered, UnreadableAnswer, ServerError: it is unknown whether the job was created.
        """
        metadata = {"workspace_id": self.workspace_id, **body.get("metadata", {})}
        sent = {**body, "metadata": metadata}
        return _job(self.session.call("POST", f"{self._root}/training-jobs", body=sent, changes=True))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Update `description` and other mutable fields of a job."""
        self.session.call(
            "PUT", self.path_of(job_id), body=dict(changes), repeat=RetryPolicy.SAFE, changes=True
        )

    def terminate(self, job_id: str) -> None:
        """Terminate a job. It is Terminating afterwards.

        Raises:
            WrongPhase: it has ended, or its phase has just changed: read it again.
        """
        # Safe to retry: the second request is refused with WrongPhase.
        path, body = f"{self.path_of(job_id)}/actions", {"action_type": "terminate"}
        self.session.call("POST", path, body=body, repeat=RetryPolicy.SAFE, changes=True)

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It disappears some time later, when `details` raises `NotFound`."""
        self.session.call("DELETE", self.path_of(job_id), repeat=RetryPolicy.WITHOUT_EFFECT, changes=True)

    def delete_many(self, kind_by_id: Mapping[str, str]) -> None:
        """Delete the records of jobs, given with their `kind`, in batches if the cloud supports that.

        Raises:
            NotFound: one of them does not exist. Earlier batches are deleted.
        """
        for job_id in kind_by_id:
            self.path_of(job_id)
        if self.cloud is Cloud.OTC:
            for job_id in kind_by_id:
                self.delete(job_id)
            return
        jobs = [{"kind": kind, "metadata": {"id": job_id}} for job_id, kind in kind_by_id.items()]
        for begin in range(0, len(jobs), BATCH):
            self.session.call(
                "POST",
                f"{self._root}/training-jobs/batch-delete",
                body={"jobs": jobs[begin : begin + BATCH]},
                repeat=RetryPolicy.WITHOUT_EFFECT,
                changes=True,
            )

    def path_of(self, job_id: str) -> str:
        """Return the path of a job.

        Raises:
            NotFound: this cannot be the id of a job, and would be the path of another call.
        """
        if not re.fullmatch(_ID, job_id) or job_id in _NOT_IDS:
            raise NotFound(f"{job_id!r} is not a valid job id")
        return f"{self._root}/training-jobs/{job_id}"


def _job(answer: ServiceResponse) -> ObservedJob:
    job = read_job(answer.json())
    if isinstance(job, Unreadable):
        raise answer.unreadable(job.why)
    return job
