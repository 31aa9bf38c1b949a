"""The calls about jobs, with typed questions and answers: what a program wants that calls the service itself.

A plan reads a thousand jobs and looks at a few fields of each; it does without these models.

Source: docs/modelarts.md, "Calls", "Search" and "Updates".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from reconciler.core.body import create_body, with_identity
from reconciler.core.fields.desired import JobBody
from reconciler.core.fields.marks import Cloud
from reconciler.core.observed_job import Unreadable
from reconciler.errors import NotSupported, ServiceError, UnreadableAnswer
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.job_models import JobPage, ReportedJob
from reconciler.modelarts.job_parser import find_oddity
from reconciler.modelarts.paging import page_of
from reconciler.modelarts.request_models import ActionBody, Search, SearchBody, UpdateBody

_EVERY_JOB = Search()


class Found(tuple[ReportedJob, ...]):
    """The jobs that a search found; `unreadable` are those that lack an id, a name or a phase."""

    unreadable: tuple[Unreadable, ...]

    def __new__(cls, jobs: Iterable[ReportedJob] = (), unreadable: Iterable[Unreadable] = ()) -> Self:
        """Put the two together."""
        found = super().__new__(cls, jobs)
        found.unreadable = tuple(unreadable)
        return found


class Jobs:
    """The jobs of one workspace, over the session of its backend."""

    def __init__(self, backend: ModelArtsBackend) -> None:
        self._backend = backend

    def create(self, name: str, job: JobBody) -> ReportedJob:
        """Create a job, described as below a key of a manifest, in the target's workspace.

        It is asked once, never repeated, and belongs to no stack.

        Raises:
            NameTaken: a job of that name exists, seen or not.
            Unanswered, UnreadableAnswer, ServerError: whether there is a job now is not known.
        """
        body = with_identity(
            create_body(job.model_dump(exclude_unset=True)),
            name=name,
            workspace_id=self._backend.workspace_id,
            description=job.description or "",
        )
        return ReportedJob.of(self._backend.create(body))

    def search(self, search: Search = _EVERY_JOB, limit: int | None = None) -> Found:
        """Return the jobs that match, the oldest first unless `search` says otherwise; pages are turned here.

        With a `limit` no page is read beyond the one that reaches it. Entries that cannot be read hide no
        others: they are in the answer's `unreadable`.

        Raises:
            UnreadableAnswer: the list moved.
            NotSupported: the cloud does not know what is asked; then nothing was sent.
        """
        asked = search.conditions()
        listing = self._backend.search(asked.pop("filters", ()), more=asked, limit=limit)
        if isinstance(listing.problem, ServiceError):
            raise listing.problem
        if listing.problem:
            raise UnreadableAnswer(listing.problem)
        jobs, unreadable = listing.jobs[:limit], list(listing.unreadable)
        oddities = {job.id: oddity for job in jobs if (oddity := find_oddity(dict(job.body)))}
        unreadable += [
            Unreadable(f"it contains {oddities[job.id]}", job.name, job.id)
            for job in jobs
            if job.id in oddities
        ]
        return Found((ReportedJob.of(job) for job in jobs if job.id not in oddities), unreadable)

    def page(self, search: SearchBody) -> JobPage:
        """Return one page, as the service cuts it; of the target's workspace, if none is named.

        Raises:
            UnreadableAnswer: it is not a list of jobs.
        """
        body = {"workspace_id": self._backend.workspace_id, **search.body()}
        answer = self._backend.ask_for_page(body)
        told: Any = answer.json()
        page = page_of(told)
        if isinstance(page, str):
            raise answer.unreadable(page)
        if not all(isinstance(item, dict) for item in page.items):
            raise answer.unreadable("a list entry is not an object")
        if oddity := next(filter(None, map(find_oddity, page.items)), None):
            raise answer.unreadable(f"a list entry contains {oddity}")
        return JobPage.model_validate(told)

    def details(self, job_id: str) -> ReportedJob:
        """Return all that the service tells of a job.

        Raises:
            NotFound: there is none with that id.
        """
        job = self._backend.details(job_id)
        if oddity := find_oddity(dict(job.body)):
            raise UnreadableAnswer(f"the job contains {oddity}")
        return ReportedJob.of(job)

    def update(self, job_id: str, changes: UpdateBody) -> None:
        """Change fields of a job; on Open Telekom Cloud its description only.

        Raises:
            NotFound: there is no such job.
        """
        body = changes.body()
        if self._backend.cloud is Cloud.OTC and body.keys() - {"description"}:
            raise NotSupported("Open Telekom Cloud can change only the description of a job")
        self._backend.update(job_id, body)

    def terminate(self, job_id: str) -> ReportedJob:
        """Ask for the end of a job; return it, Terminating.

        Raises:
            WrongPhase: it has ended, or its phase just changed: read it again.
            NotFound: there is no such job.
        """
        answer = self._backend.act(job_id, ActionBody(action_type="terminate").body())
        told = answer.json()
        if not isinstance(told, dict):
            raise answer.unreadable("the response is not a job")
        return ReportedJob.model_validate(told)

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It is gone some time later, when `details` raises `NotFound`.

        Raises:
            NotFound: there is no such job.
        """
        self._backend.delete(job_id)
