"""Jobs of a target as a manifest: which are meant, and what cannot be exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler import errors
from reconciler.cli.console import console
from reconciler.cli.context import TargetSession, learn_tokens, say_gaps
from reconciler.cli.progress import reading
from reconciler.core.observed import ObservedJob
from reconciler.core.phase import ACTIVE, Phase
from reconciler.decide.actions import adopt_command
from reconciler.errors import Diagnostic, ExitCode
from reconciler.manifest.export import ExportedStack, export_stack
from reconciler.modelarts.jobs import JobFilters, search_jobs
from reconciler.reconcile import read_details
from reconciler.text import printable

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
    found_jobs, codes = found
    job_by_id = {job.id: job for job in found_jobs}
    details = read_details(session.target.backend, [*job_by_id])
    jobs = [job for job in details.values() if isinstance(job, ObservedJob)]
    for job in jobs:
        learn_tokens(job)
        session.shown(job)  # what a stack declares sensitive is known from then on
    target, identity = session.declared_target, session.target.identity
    if target.traits.has_address and not target.project_id:
        target = target.model_copy(update={"project_id": identity.project_id})
    result = export_stack(
        session.loaded.stack.name,
        identity.name,
        target,
        jobs,
        is_secret=lambda text: console.redact(text) != text,
        learn=console.redact.learn,
    )
    problems, gone = [], []
    for job_id, failure in details.items():
        name = job_by_id[job_id].name
        if isinstance(failure, errors.NotFound):
            gone.append(_warning("a job is gone", f"{name} was deleted meanwhile"))
        elif isinstance(failure, errors.ServiceError):
            problems.append(_warning("a job cannot be read", f"{name}: {failure.message}"))
    problems += [_warning("a job cannot be declared", f"{one.job.name}: {one.why}") for one in result.skipped]
    if notes := [*problems, *gone, *_losses(result)]:
        console.diagnostics(notes)
    return result, errors.first_of([*codes, ExitCode.UNKNOWN if problems else ExitCode.DONE])


def manifest_text(result: ExportedStack, head: Sequence[str]) -> str:
    """The manifest as it may be written; a name that is a secret stands there hidden, and stderr says so."""
    text = result.text(head)
    if console.redact(text) != text:
        why = "a name holds a value that is known to be secret, and stands there as (sensitive)"
        console.diagnostics([_warning("a secret is hidden", why, fix="edit the manifest before you use it")])
    return console.clean(text)


def _losses(result: ExportedStack) -> Iterator[Diagnostic]:
    for entry in result.unmatched:
        why = f"apply would create {entry.key} beside {entry.job.name}, which is no name of this key"
        fix = f"before anything is applied, {adopt_command(entry.key, entry.job.id)}"
        yield _warning("not in conflict with its job", why, f"jobs.{entry.key}", fix)
    for entry in result.entries:
        for path, why in entry.omissions:
            yield _warning("not exported as it is", why, f"jobs.{entry.key}.{path}")
    if result.unreported:
        why = f"the service does not report {', '.join(result.unreported)}"
        yield _warning("fields not reported", why, fix="add them if the jobs have them")


def _warning(what: str, why: str, path: str = "", fix: str | None = None) -> Diagnostic:
    return Diagnostic(what, printable(why), fix, path=path, severity=errors.Severity.WARNING)
