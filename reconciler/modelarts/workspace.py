"""One workspace of the ModelArts v2 API as a place where jobs live: what `core.ports.Backend` asks for.

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
#: Paths that look like a job's.
_NOT_IDS = frozenset({"batch-delete", "autosearch"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})
#: The service's limit: records deleted by one call.
BATCH = 100
#: Fields of the search that Open Telekom Cloud does not know: it would ignore them.
HUAWEI_ONLY = ("tags", "host_ips", "train_type", "unified_jobs")


class Workspace:
    """One workspace of one project; safe to call from threads. `reading` is entered when it is read.

    A call about a job that does not exist raises `NotFound`.
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
        """What the credentials are and where they were found, without a secret."""
        return f"{self.session.credentials.what}, from {self.session.credentials.source}"

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if it sent no date."""
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
        """Read the workspace, the oldest job first: all of it, or what a plan for these `names` needs.

        With names, the answer holds at least every active job and every job whose name begins with one of
        them, and is whole only if it had to be: if the rest cost no more, or `needs_absence` says of
        the partial answer that a decision rests on a job not being there.
        A failure half-way is in `problem`, beside the jobs that were read before it.

        Raises:
            Unauthorized: the account may not read it.
        """
        with self.reading() as report_count:
            fetch = partial(self._page, report_count=report_count)
            return observe(fetch, self._reader, names, needs_absence)

    def find(self, name: str) -> list[ObservedJob]:
        """Return the jobs with exactly this name, case aside.

        Raises:
            UnreadableAnswer: the list moved, or an entry that may be the job cannot be read.
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
        """Read the jobs of the workspace that match, the oldest first; failures are in the answer.

        A filter is the service's own: `key`, `operator` (between, like, in, not), `value` (a list of text).
        `more` are other fields of its search: `tags`, `host_ips`, `train_type`, `group_by`. With a `limit`
        reading stops after the page on which so many `wanted` jobs are reached.

        Raises:
            Unauthorized: the account may not read it.
            NotSupported: the cloud does not know one of these fields; nothing was sent.
        """
        fields = {"sort_by": sort_by, "order": order, **more}
        for field in HUAWEI_ONLY:
            if self.cloud is Cloud.OTC and fields.get(field) not in (None, "", [], ()):
                raise NotSupported(f"Open Telekom Cloud does not support searching by {field}")
        fetch = partial(self._page, filters=filters, fields=fields)
        return self._reader.read(fetch, limit=limit, wanted=wanted)

    def _is_ours(self, job: ObservedJob) -> bool:
        # A cloud whose search does not know workspaces would show those of other people.
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
        """Ask whether the name is held; None on a cloud that has no such call."""
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
            NotFound: there is none with that id.
            UnreadableAnswer: the answer is not about this job, or lacks what we need.
        """
        answer = self.session.call("GET", self.path_of(job_id), repeat=RetryPolicy.SAFE)
        job = _job(answer)
        if job.id != job_id:
            raise answer.unreadable(f"requested job {job_id}, but got a different one")
        return job

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job; sent once, never repeated. `body` without a workspace gets the target's.

        Raises:
            NameTaken: a job of that name exists, seen or not.
            Unanswered, UnreadableAnswer, ServerError: whether there is a job now is not known.
        """
        metadata = {"workspace_id": self.workspace_id, **body.get("metadata", {})}
        sent = {**body, "metadata": metadata}
        return _job(self.session.call("POST", f"{self._root}/training-jobs", body=sent, changes=True))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change fields of a job: `description`, and what the cloud lets one change beside it."""
        self.session.call(
            "PUT", self.path_of(job_id), body=dict(changes), repeat=RetryPolicy.SAFE, changes=True
        )

    def terminate(self, job_id: str) -> None:
        """Ask for the end of a job; it is Terminating from then on.

        Raises:
            WrongPhase: it has ended, or its phase just changed: read it again.
        """
        # A second one finds the job Terminating, and is refused (WrongPhase): the caller reads again.
        path, body = f"{self.path_of(job_id)}/actions", {"action_type": "terminate"}
        self.session.call("POST", path, body=body, repeat=RetryPolicy.SAFE, changes=True)

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It is gone some time later, when `details` raises `NotFound`."""
        self.session.call("DELETE", self.path_of(job_id), repeat=RetryPolicy.WITHOUT_EFFECT, changes=True)

    def delete_many(self, kind_by_id: Mapping[str, str]) -> None:
        """Delete the records of jobs, given with their `kind`; a hundred at once where the cloud can.

        Raises:
            NotFound: one of them does not exist. Those of earlier hundreds are deleted.
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
            )

    def path_of(self, job_id: str) -> str:
        """Return the path of a job.

        Raises:
            NotFound: this cannot be a job's id; as a path it would mean something else.
        """
        if not re.fullmatch(_ID, job_id) or job_id in _NOT_IDS:
            raise NotFound(f"{job_id!r} is not a valid job id")
        return f"{self._root}/training-jobs/{job_id}"


def _job(answer: ServiceResponse) -> ObservedJob:
    job = read_job(answer.json())
    if isinstance(job, Unreadable):
        raise answer.unreadable(job.why)
    return job
