"""What `jobs` does: logs, waiting, terminating and deleting."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from reconciler.apply.waiter import JobWatch, watch_all
from reconciler.cli.console import confirm, console
from reconciler.cli.progress import can_draw, live_table
from reconciler.core.observed import last_lines
from reconciler.core.phase import Operation
from reconciler.decide.outcome import WaitEnd
from reconciler.decide.wait import Goal
from reconciler.errors import ExitCode, ServiceError, first_of
from reconciler.modelarts.jobs import (
    check_allowed,
    check_deleted,
    delete,
    first_task,
    follow_log,
    read_log,
    terminate,
)
from reconciler.render.text import render_lines
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.cli.context import TargetSession
    from reconciler.core.observed import ObservedJob
    from reconciler.modelarts.operations import Metric
    from reconciler.modelarts.target import Connected


def print_url(there: TargetSession, job: ObservedJob, task: str, *, as_json: bool) -> None:
    """Print a link to the whole log."""
    url = there.target.logs.url(job.id, task, download=True)
    if as_json:
        console.document({"job": job.id, "task": task, "url": url})
    elif url is not None:
        console.result(printable(url) + "\n")
    if url is None:
        _say_none(job, task)


def print_log(there: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool) -> None:
    """Print the end of a log."""
    log = read_log(there.target, job, task, console.redact)
    if log.text is None:
        _say_none(job, task)
    shown = log.text or ""
    shown = shown if lines is None else last_lines(shown, lines)
    if as_json:
        console.document({"job": job.id, "task": task, "log": None if log.text is None else shown})
        return
    console.result(render_lines(shown))
    if log.has_gap and lines is None:
        console.say("The beginning of the log is not shown; use --url for a link to the whole log.")


def stream_log(
    there: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool
) -> None:
    """Print a log as it grows, until the job has ended. With JSON each line is an object."""
    for number, part in enumerate(follow_log(there.target, job, task, console.redact)):
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
    if job.phase is not None and job.phase.is_terminal:
        console.say(printable(f"{job.name} is {job.phase_text}."))


def end_of_log(target: Connected, job: ObservedJob) -> list[str]:
    """The last lines of a job's log; none where it cannot be read."""
    try:
        log = read_log(target, job, first_task(job), console.redact)
    except ServiceError:
        return []
    return (log.text or "").splitlines()[-LOG_LINES:]


def say_log(job: ObservedJob, log: Sequence[str]) -> None:
    """Say the last lines of a job's log, if there are any."""
    if log:
        console.say(printable(f"Last lines of the log of {job.name}:"))
        console.say("\n".join(printable(f"  {line}") for line in log))


def metric_row(metric: Metric) -> tuple[str, ...]:
    """One metric in numbers: last, mean and largest value, and for how many minutes there is one."""
    values = [value for value in metric.value if value is not None]
    if not values:
        return metric.metric, "", "", "", "0"
    mean = sum(values) / len(values)
    return metric.metric, f"{values[-1]:.0f}", f"{mean:.0f}", f"{max(values):.0f}", str(len(values))


def _say_none(job: ObservedJob, task: str) -> None:
    console.say(printable(f"{job.name} has no log of {task} yet ({job.phase_text})."))


LOG_LINES = 20

_EXITS = {
    WaitEnd.REACHED: ExitCode.DONE,
    WaitEnd.ENDED_BADLY: ExitCode.ENDED_BADLY,
    WaitEnd.TIMED_OUT: ExitCode.TIMED_OUT,
    WaitEnd.GONE: ExitCode.UNKNOWN,
}


def wait_for_all(
    there: TargetSession, jobs: Sequence[ObservedJob], goal: Goal, timeout_s: float | None, *, as_json: bool
) -> ExitCode:
    """Wait for every job, however the others end; show how each ended. Returns the exit code."""

    def say(job: ObservedJob, text: str, is_phase: bool) -> None:
        if not (is_phase and can_draw(sys.stderr)):  # a table shows it
            console.say(printable(f"{job.name}: {text}"))

    watches = [JobWatch(there.target.backend, job, goal, say) for job in jobs]
    gc.enable()  # a run is spared it while it is short; a wait may last for days
    with live_table(there.clock, goal) as show:
        ends = watch_all(watches, there.clock, timeout_s, show)
    documents = []
    for job, end in ((watch.job, end) for watch, end in zip(watches, ends, strict=True)):
        ran_s = job.ran_s(there.clock.now())
        log = end_of_log(there.target, job) if end is WaitEnd.ENDED_BADLY else []
        head = {"id": job.id, "name": job.name, "phase": job.phase_text}
        documents.append({**head, "result": end.value, "duration_s": ran_s, "log": log})
        if not as_json:
            ran = f" ({format_duration(round(ran_s))} elapsed)" if ran_s else ""
            word = "" if end is WaitEnd.REACHED else f"{end.value.replace('_', ' ')}: "
            console.result(printable(f"{word}{job.name} {job.id}: {job.phase_text}{ran}") + "\n")
            say_log(job, log)
    if as_json:
        console.document({"jobs": documents})
    return first_of(_EXITS[end] for end in ends)


class Ending(NamedTuple):
    """What became of one job: a word, and the failure if there was one."""

    job: ObservedJob
    word: str
    failure: ServiceError | None = None


def terminate_all(
    there: TargetSession, jobs: Sequence[ObservedJob], *, yes: bool, force: bool, as_json: bool
) -> ExitCode:
    """Terminate jobs, and say what became of each. Returns the exit code.

    The marker is left as it is: to its stack, the job was terminated outside the manifest, and the history
    has by whom.

    Raises:
        Refused: one of them may not be terminated, or nobody agreed; nothing was sent.
    """
    check_allowed(jobs, Operation.TERMINATE, force=force)
    _ask("Terminate", jobs, yes=yes)
    call = partial(terminate, note=there.note_termination)
    return _report_endings([_tried(there.target, job, call) for job in jobs], as_json=as_json)


def delete_all(
    there: TargetSession, jobs: Sequence[ObservedJob], *, yes: bool, force: bool, as_json: bool
) -> ExitCode:
    """Delete the records of jobs, several by one call, and say what became of each. Returns the exit code.

    Raises:
        Refused: one of them may not be deleted, or nobody agreed; nothing was sent.
        NotSupported: this kind of target keeps its records.
    """
    deletion = there.target.deletion
    check_allowed(jobs, Operation.DELETE_RECORD, force=force)
    _ask("Delete the record of", jobs, yes=yes)
    call: Callable[[Connected, ObservedJob], str] = delete
    if len(jobs) > 1:
        try:
            deletion.delete_many({job.id: str(job.body.get("kind") or "job") for job in jobs})
        except ServiceError as failure:
            call = partial(check_deleted, failure)
        else:
            return _report_endings([Ending(job, "deleting") for job in jobs], as_json=as_json)
    return _report_endings([_tried(there.target, job, call) for job in jobs], as_json=as_json)


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


def _report_endings(endings: Sequence[Ending], *, as_json: bool) -> ExitCode:
    if as_json:
        documents = []
        for job, word, failure in endings:
            error = failure and {name: getattr(failure, name) for name in ("code", "message", "request_id")}
            documents.append({"id": job.id, "name": job.name, "result": word, "error": error})
        console.document({"jobs": documents})
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
