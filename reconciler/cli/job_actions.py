"""Terminating and deleting jobs by hand: all are checked, somebody is asked, then all are tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from reconciler.cli.terminal.confirmation import confirm
from reconciler.cli.terminal.console import console
from reconciler.core.phase import Operation
from reconciler.errors import ExitCode, ServiceError
from reconciler.modelarts.jobs import check_allowed, check_deleted, delete, terminate
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob
    from reconciler.modelarts.target import Connected


class Ending(NamedTuple):
    """What became of one job: a word, and the failure if there was one."""

    job: ObservedJob
    word: str
    failure: ServiceError | None = None


def terminate_all(
    target: Connected,
    jobs: Sequence[ObservedJob],
    note: Callable[[ObservedJob], None],
    *,
    yes: bool,
    force: bool,
    as_json: bool,
) -> ExitCode:
    """Terminate jobs, and say what became of each. Returns the exit code.

    The marker is left as it is: to its stack, the job was terminated outside the manifest, and the history
    has by whom (`note`).

    Raises:
        Refused: one of them may not be terminated, or nobody agreed; nothing was sent.
    """
    check_allowed(jobs, Operation.TERMINATE, force=force)
    _ask("Terminate", jobs, yes=yes)
    return _report([_tried(target, job, partial(terminate, note=note)) for job in jobs], as_json=as_json)


def delete_all(
    target: Connected, jobs: Sequence[ObservedJob], *, yes: bool, force: bool, as_json: bool
) -> ExitCode:
    """Delete the records of jobs, several by one call, and say what became of each. Returns the exit code.

    Raises:
        Refused: one of them may not be deleted, or nobody agreed; nothing was sent.
        NotSupported: this kind of target keeps its records.
    """
    deletion = target.deletion
    check_allowed(jobs, Operation.DELETE_RECORD, force=force)
    _ask("Delete the record of", jobs, yes=yes)
    if len(jobs) > 1:
        try:
            deletion.delete_many({job.id: _kind(job) for job in jobs})
        except ServiceError as failure:
            endings = [_tried(target, job, partial(check_deleted, failure)) for job in jobs]
        else:
            endings = [Ending(job, "deleting") for job in jobs]
    else:
        endings = [_tried(target, job, delete) for job in jobs]
    return _report(endings, as_json=as_json)


def _ask(verb: str, jobs: Sequence[ObservedJob], *, yes: bool) -> None:
    if yes:
        return
    for job in jobs:
        console.say(printable(f"  {job.id}  {job.name}  {job.phase_text}"))
    confirm(f"{verb} {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}?")


def _tried(target: Connected, job: ObservedJob, call: Callable[[Connected, ObservedJob], str]) -> Ending:
    try:
        return Ending(job, call(target, job))
    except ServiceError as failure:
        return Ending(job, "failed", failure)


def _report(endings: Sequence[Ending], *, as_json: bool) -> ExitCode:
    if as_json:
        console.document({"jobs": [_document(ending) for ending in endings]})
    else:
        width = max(len(ending.word) for ending in endings)
        lines = (f"{e.word:<{width}}  {e.job.id}  {e.job.name}" for e in endings)
        console.result("".join(printable(line) + "\n" for line in lines))
    failures = [ending.failure for ending in endings if ending.failure]
    for failure in failures:
        console.diagnostics(failure.diagnostics)
    if not failures:
        return ExitCode.DONE
    codes = [ExitCode(failure.exit_code) for failure in failures]
    if ExitCode.UNAUTHORIZED in codes:
        return ExitCode.UNAUTHORIZED
    return ExitCode.PARTIAL if len(failures) < len(endings) else codes[0]


def _document(ending: Ending) -> dict[str, object]:
    failure = ending.failure
    error = failure and {
        "code": failure.code,
        "message": failure.message,
        "request_id": failure.request_id,
    }
    return {"id": ending.job.id, "name": ending.job.name, "result": ending.word, "error": error}


def _kind(job: ObservedJob) -> str:
    return str(job.body.get("kind") or "job")
