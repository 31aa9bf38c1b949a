"""What may be done with single jobs by hand, and the calls that do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.core.phase import Operation, may
from reconciler.errors import Diagnostic, NotFound, Refused, ServiceError, WrongPhase

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob
    from reconciler.modelarts.target import Connected


def check_allowed(jobs: Sequence[ObservedJob], operation: Operation, *, force: bool) -> None:
    """See that all of these jobs may be terminated, or their records deleted.

    Raises:
        Refused: one of them may not, for it is protected, or a stack owns it and `force` is not given.
    """
    problems = [problem for job in jobs for problem in _problems(job, operation, force=force)]
    if problems:
        raise Refused(*problems)


def _problems(job: ObservedJob, operation: Operation, *, force: bool) -> Iterator[Diagnostic]:
    marker = job.marker
    if marker is not None and marker.protected and operation is Operation.TERMINATE:
        yield Diagnostic(
            "the job is protected",
            f"{job.name} is {marker.key} of stack {marker.stack}, and its marker says protected",
            f"set protect: false under lifecycle of {marker.key}, and apply",
        )
    elif marker is not None and not force:
        yield Diagnostic(
            "the job is owned by a stack",
            f"{job.name} is r{marker.revision} of {marker.key} in stack {marker.stack}",
            f"change {marker.key} in the manifest, and apply; or add --force",
        )
    verdict = may(operation, job.phase)
    if not verdict:
        yield Diagnostic(
            f"cannot {operation.value}",
            f"{job.name} is {job.phase_text}: {verdict.why}; legal {verdict.legal_when}",
        )


def terminate(target: Connected, job: ObservedJob, note: Callable[[ObservedJob], None]) -> str:
    """Ask for the end of a job; return a word for how it stands then. `note` writes down that we did."""
    try:
        target.backend.terminate(job.id)
        note(job)
    except WrongPhase:
        # It moved since it was checked; if it has ended, that is what was wanted.
        now = target.backend.details(job.id)
        if may(Operation.TERMINATE, now.phase):
            raise
        return now.phase_text.lower()
    return "terminating"


def delete(target: Connected, job: ObservedJob) -> str:
    """Delete the record of a job; return a word for how it stands then."""
    try:
        target.deletion.delete(job.id)
    except ServiceError as failure:
        return delete_unless(failure)(target, job)
    return "deleting"


def delete_unless(failure: ServiceError) -> Callable[[Connected, ObservedJob], str]:
    """After a failure: a record that is not there any more is deleted, whoever did it."""

    def look(target: Connected, job: ObservedJob) -> str:
        try:
            target.backend.details(job.id)
        except NotFound:
            return "deleted"
        raise failure

    return look
