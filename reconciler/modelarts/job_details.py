"""The details of many jobs, as far as they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import NotFound, ServiceError, Unauthorized

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import Backend

_AT_ONCE = 8


class UnreadJob(NamedTuple):
    """A job whose details could not be read."""

    job: ObservedJob
    failure: ServiceError


class Details(NamedTuple):
    """Jobs as their details show them, those that could not be read, and those that are gone by now."""

    jobs: tuple[ObservedJob, ...]
    unread: tuple[UnreadJob, ...] = ()
    gone: tuple[ObservedJob, ...] = ()


def read_details(backend: Backend, jobs: Sequence[ObservedJob]) -> Details:
    """Read the details of each job, in the order of the jobs.

    Raises:
        Unauthorized: the account may not read them.
    """

    def read(job: ObservedJob) -> ObservedJob | ServiceError:
        try:
            return backend.details(job.id)
        except Unauthorized:
            raise
        except ServiceError as failure:
            return failure

    with ThreadPoolExecutor(max_workers=max(1, min(_AT_ONCE, len(jobs)))) as pool:
        answers = list(pool.map(read, jobs))
    read_jobs, unread, gone = [], [], []
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, NotFound):
            gone.append(job)
        elif isinstance(answer, ServiceError):
            unread.append(UnreadJob(job, answer))
        else:
            read_jobs.append(answer)
    return Details(tuple(read_jobs), tuple(unread), tuple(gone))
