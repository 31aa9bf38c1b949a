"""Which job an argument means: a key of the stack, an id, or a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from reconciler.core.listing import named as name_filter
from reconciler.core.observed_job import Observation
from reconciler.core.ownership import sort_by_key
from reconciler.core.ports import SupportsSearch
from reconciler.core.selection import suggest_key
from reconciler.decide.key_state import Snapshot, newest
from reconciler.errors import Diagnostic, NotFound, Rejected, ServiceError, WrongUsage

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ownership import KeyView
    from reconciler.core.ports import Backend
    from reconciler.core.stack import Stack
    from reconciler.modelarts.target import Connected


def find_job(
    stack: Stack, target: Connected, named: str, say: Callable[[str], None] = lambda _: None
) -> ObservedJob:
    """Return the job that an argument means: a key's newest revision, else the job of this id or name.

    A key goes before a name, which another revision of it may have. Case counts for nothing in names.

    Raises:
        NotFound: there is none.
        WrongUsage: there are several of that name.
        ServiceError: the workspace could not be read, so nobody knows which revision is the newest.
    """
    backend = target.backend
    is_declared = named in stack.whole or named in stack.jobs
    if is_declared or not _is_uuid(named):
        job = _by_key(stack, backend, named, is_declared=is_declared)
        if job is not None:
            return job
    ways = (_by_id, _by_name) if _is_uuid(named) else (_by_name, _by_id)
    job = next((found for way in ways if (found := way(backend, named))), None)
    if job is None and is_declared:
        why = f"stack {stack.name} owns no job of key {named!r}, and no job has that id or name"
        raise NotFound(why, fix="reconciler status lists the keys")
    if job is None:
        raise NotFound(
            f"workspace {target.identity.workspace_id} has no job with the id or the name {named!r}, "
            f"and stack {stack.name} no such key",
            fix=suggest_key(named, stack.whole) or "reconciler jobs list shows the jobs",
        )
    if is_declared:
        say(f"{named} is a key without a job of the stack; using {job.id}, which has that name.")
    return job


def _by_key(stack: Stack, backend: Backend, key: str, *, is_declared: bool) -> ObservedJob | None:
    """The newest revision of a key that is declared, or owned; None if there is none.

    Of a key that is not declared only the names that it gives its jobs are looked for. A declared one
    may own a job of another name (it was adopted, or the key renamed): its absence takes a full scan.
    """
    if not is_declared and not _owns_by_name(stack, backend, key):
        return None
    desired = stack.find(key)
    keys = frozenset({key, *(desired.formerly if desired else ())})

    def look_at(seen: Observation) -> KeyView:
        return Snapshot(sort_by_key(seen, stack.name, keys)).view(key, desired)

    def owns_nothing(seen: Observation) -> bool:
        return is_declared and not look_at(seen).owned

    seen = backend.observe(keys, owns_nothing)
    view = look_at(seen)
    if view.unreadable or (seen.problem is not None and (view.owned or is_declared)):
        why = view.unreadable[0].why if view.unreadable else seen.problem
        raise ServiceError(f"{why}: cannot tell which revision of {key} is the newest")
    latest = newest(view, None if desired is None or desired.is_absent else desired)
    return latest.job if latest else None


def _owns_by_name(stack: Stack, backend: Backend, key: str) -> bool:
    """Whether the stack owns a job that is a revision of this key, and has its name."""
    if isinstance(backend, SupportsSearch):
        jobs: Iterable[ObservedJob] = backend.search([name_filter(key)]).jobs
    else:
        jobs = backend.observe({key}).jobs
    markers = (job.marker for job in jobs)
    return any(marker and (marker.stack, marker.key) == (stack.name, key) for marker in markers)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _by_id(backend: Backend, named: str) -> ObservedJob | None:
    try:
        return backend.details(named)
    except NotFound:
        return None
    except Rejected:
        # The service may say of a text that is no id that it is malformed.
        if _is_uuid(named):
            raise
        return None


def _by_name(backend: Backend, named: str) -> ObservedJob | None:
    jobs = backend.find(named)
    if len(jobs) > 1:
        jobs = [job for job in jobs if job.name == named] or jobs
    if len(jobs) > 1:
        ids = ", ".join(f"{job.name} is {job.id}" for job in jobs)
        raise WrongUsage(Diagnostic("ambiguous job name", ids, "give the id of the job"))
    return jobs[0] if jobs else None
