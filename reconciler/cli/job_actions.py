"""The actions of `jobs`: logs, wait, terminate, delete."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from reconciler.apply.waiter import JobWatch, watch_all
from reconciler.cli.console import confirm, console
from reconciler.cli.live import live_table
from reconciler.cli.progress import can_draw
from reconciler.core.observed import last_lines
from reconciler.core.phase import Operation
from reconciler.decide.outcome import WAIT_CODES, Goal, WaitEnd
from reconciler.errors import ExitCode, ServiceError, first_of
from reconciler.modelarts import jobs as service
from reconciler.render.text import render_lines
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.cli.context import TargetSession
    from reconciler.core.observed import ObservedJob
    from reconciler.modelarts.target import Connected


def print_log(
    session: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool
) -> None:
    log = service.read_log(session.target, job, task, console.redact)
    if log.text is None:
        _say_none(job, task)
    shown = log.text if log.text is None or lines is None else last_lines(log.text, lines)
    if as_json:
        console.document({"job": job.id, "task": task, "log": shown})
        return
    console.result(render_lines(shown or ""))
    if log.has_gap and lines is None:
        console.say("The beginning of the log is not shown: the service returns only its end.")


def stream_log(
    session: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool
) -> None:
    """Follow a log until the job has ended. With JSON each line is an object."""
    for number, part in enumerate(service.follow_log(session.target, job, task, console.redact)):
        job, text = part.job, part.text or ""
        if part.text is None and not number:
            _say_none(job, task)
        if part.has_gap and lines is None:
            console.say("Part of the log is not shown: the service returns only its end.")
        if lines is not None and not number:
            text = last_lines(text, lines)
        if as_json:
            for line in text.splitlines():
                console.document({"line": line}, indent=None)
        elif text:
            console.result(render_lines(text))
        if console.has_no_reader:
            break
    session.see(job)
    if job.phase is not None and job.phase.is_terminal:
        console.say(printable(f"{job.name} is {job.phase_text}."))


def _say_none(job: ObservedJob, task: str) -> None:
    console.say(printable(f"{job.name} has no log of {task} yet ({job.phase_text})."))


def say_end_of_log(target: Connected, job: ObservedJob, *, is_said: bool = True) -> list[str]:
    """Print the last lines of a job's log on stderr, and return them. Empty if it cannot be read."""
    try:
        log = service.read_log(target, job, service.first_task(job), console.redact)
    except ServiceError:
        return []
    lines = (log.text or "").splitlines()[-20:]
    if lines and is_said:
        console.say(printable(f"Last lines of the log of {job.name}:"))
        console.say("\n".join(printable(f"  {line}") for line in lines))
    return lines


def wait_for_all(
    session: TargetSession, jobs: Sequence[ObservedJob], goal: Goal, timeout_s: float | None, *, as_json: bool
) -> ExitCode:
    """Wait for all jobs, and show how each ended. Returns the exit code."""

    def say(job: ObservedJob, text: str, is_phase: bool) -> None:
        if not (is_phase and can_draw(sys.stderr)):  # otherwise a table shows it
            console.say(printable(f"{job.name}: {text}"))

    watches = [JobWatch(session.target.backend, job, goal, say) for job in jobs]
    gc.enable()  # disabled for short runs; a wait may last for days
    with live_table(session.target.clock, goal) as show:
        ends = watch_all(watches, session.target.clock, timeout_s, show)
    documents = []
    session.see(*(watch.job for watch in watches))
    for job, end in ((watch.job, end) for watch, end in zip(watches, ends, strict=True)):
        ran_s = job.ran_s(session.target.clock.now())
        if not as_json:
            ran = f" ({format_duration(round(ran_s))} elapsed)" if ran_s else ""
            word = "" if end is WaitEnd.REACHED else f"{end.value.replace('_', ' ')}: "
            console.result(printable(f"{word}{job.name} {job.id}: {job.phase_text}{ran}") + "\n")
        ended_badly = end is WaitEnd.ENDED_BADLY
        log = say_end_of_log(session.target, job, is_said=not as_json) if ended_badly else []
        head = {"id": job.id, "name": job.name, "phase": job.phase_text}
        documents.append({**head, "result": end.value, "duration_s": ran_s, "log": log})
    if as_json:
        console.document({"jobs": documents})
    return first_of(WAIT_CODES.get(end, ExitCode.DONE) for end in ends)


#: The outcome for one job: a word, and the error if any.
Ending = tuple["ObservedJob", str, ServiceError | None]


def terminate_all(
    session: TargetSession, jobs: Sequence[ObservedJob], *, yes: bool, force: bool, as_json: bool
) -> ExitCode:
    """Terminate jobs, and show the outcome for each. Returns the exit code.

    The marker is not changed: for its stack the job was terminated outside the manifest. The history records
    by whom.

    Raises:
        Refused: one of them may not be terminated, or it was not confirmed; nothing was sent.
    """
    service.check_allowed(jobs, Operation.TERMINATE, force=force)
    _ask("Terminate", jobs, yes=yes)
    call = partial(service.terminate, note=session.note_termination)
    return _report_endings(_call_each(session.target, jobs, call), as_json=as_json)


def delete_all(
    session: TargetSession, jobs: Sequence[ObservedJob], *, yes: bool, force: bool, as_json: bool
) -> ExitCode:
    """Delete the records of jobs, in batches, and show the outcome for each. Returns the exit code.

    Raises:
        Refused: one of them may not be deleted, or it was not confirmed; nothing was sent.
        NotSupported: this kind of target keeps its records.
    """
    deletion = session.target.deletion
    service.check_allowed(jobs, Operation.DELETE_RECORD, force=force)
    _ask("Delete the record of", jobs, yes=yes)
    call: Callable[[Connected, ObservedJob], str] = service.delete
    if len(jobs) > 1:
        try:
            deletion.delete_many({job.id: str(job.body.get("kind") or "job") for job in jobs})
        except ServiceError as failure:
            call = partial(service.check_deleted, failure)
        else:
            return _report_endings([(job, "deleting", None) for job in jobs], as_json=as_json)
    return _report_endings(_call_each(session.target, jobs, call), as_json=as_json)


def _ask(verb: str, jobs: Sequence[ObservedJob], *, yes: bool) -> None:
    if yes:
        return
    for job in jobs:
        console.say(printable(f"  {job.id}  {job.name}  {job.phase_text}"))
    confirm(f"{verb} {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}?")


def _call_each(
    target: Connected, jobs: Sequence[ObservedJob], call: Callable[[Connected, ObservedJob], str]
) -> list[Ending]:
    endings: list[Ending] = []
    for job in jobs:
        try:
            endings.append((job, call(target, job), None))
        except ServiceError as failure:
            endings.append((job, "failed", failure))
    return endings


def _report_endings(endings: Sequence[Ending], *, as_json: bool) -> ExitCode:
    if as_json:
        documents = []
        for job, word, failure in endings:
            error = failure and {name: getattr(failure, name) for name in ("code", "message", "request_id")}
            documents.append({"id": job.id, "name": job.name, "result": word, "error": error})
        console.document({"jobs": documents})
    else:
        width = max(len(word) for _, word, _ in endings)
        lines = (f"{word:<{width}}  {job.id}  {job.name}" for job, word, _ in endings)
        console.result("".join(printable(line) + "\n" for line in lines))
    failures = [failure for *_, failure in endings if failure]
    for failure in failures:
        console.diagnostics(failure.diagnostics)
    codes = [ExitCode(failure.exit_code) for failure in failures]
    if ExitCode.UNAUTHORIZED in codes:
        return ExitCode.UNAUTHORIZED
    return codes[0] if len(codes) == len(endings) else ExitCode.PARTIAL if codes else ExitCode.DONE
