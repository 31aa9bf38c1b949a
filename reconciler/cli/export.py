"""Jobs of a target as a manifest: which are meant, and what cannot be exported."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler import errors
from reconciler.adoption import export_jobs
from reconciler.cli.console import console
from reconciler.cli.context import TargetSession, say_gaps
from reconciler.cli.progress import reading
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import ACTIVE, Phase
from reconciler.errors import Diagnostic, ExitCode
from reconciler.manifest.export import ExportedStack
from reconciler.modelarts.jobs import JobFilters, search_jobs

#: The phases of the jobs that are worth declaring: what runs, and what has been done.
USUAL_PHASES = tuple(sorted(phase.value for phase in (ACTIVE | {Phase.COMPLETED}) - {Phase.TERMINATING}))
#: The jobs that are to be exported, and how well they could be read.
JobSelection = tuple[list[ObservedJob], list[ExitCode]]


# --- which jobs


def named_jobs(session: TargetSession, names: Sequence[str]) -> JobSelection:
    """The jobs that arguments mean, owned by a stack or not; one that cannot be found hides no other.

    Raises:
        Unauthorized: the account may not read them.
    """
    jobs: list[ObservedJob] = []
    codes: list[ExitCode] = []
    for name in names:
        try:
            jobs.append(session.find(name))
        except errors.Unauthorized:
            raise
        except errors.ServiceError as failure:
            console.diagnostics(failure.diagnostics)
            codes.append(ExitCode(failure.exit_code))
    return jobs, codes


def unmanaged_jobs(session: TargetSession, filters: JobFilters) -> JobSelection:
    """The jobs that no stack owns."""
    with reading():
        listing = search_jobs(session.target.search, filters, session.clock.now(), order="asc")
    unmanaged = [job for job in listing.jobs if job.marker is None]
    if owned := len(listing.jobs) - len(unmanaged):
        are = "1 job that a stack owns is" if owned == 1 else f"{owned} jobs that a stack owns are"
        console.say(f"{are} left out; name a job to export it all the same.")
    return unmanaged, [say_gaps(listing)]


# --- from jobs to a manifest


def exported(session: TargetSession, found: JobSelection) -> tuple[ExportedStack, ExitCode]:
    """The manifest of the jobs, and the exit code: stderr has said what is not in it."""
    jobs, codes = found
    result, problems, notes = export_jobs(session.loaded, session.target, jobs, console.redact)
    if problems or notes:
        console.diagnostics([*problems, *notes])
    return result, errors.first_of([*codes, ExitCode.UNKNOWN if problems else ExitCode.DONE])


def manifest_text(result: ExportedStack, head: Sequence[str]) -> str:
    """The manifest as it may be written; a name that is a secret stands there hidden, and stderr says so."""
    text = result.text(head)
    if console.redact(text) != text:
        why = "a name holds a value that is known to be secret, and stands there as (sensitive)"
        fix = "edit the manifest before you use it"
        console.diagnostics([Diagnostic("a secret is hidden", why, fix, severity=errors.Severity.WARNING)])
    return console.clean(text)
