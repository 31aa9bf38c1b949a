"""`jobs wait`: what is shown while jobs are waited for, and how each wait ended."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reconciler.apply.waiter import JobWatch, watch_all
from reconciler.cli.logs import end_of_log
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.wait_table import can_draw, live_table
from reconciler.core.ports import SupportsLogs
from reconciler.decide.outcome import WaitEnd
from reconciler.decide.wait import Goal
from reconciler.errors import ExitCode, first_of
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.cli.service_session import TargetSession
    from reconciler.core.observed_job import ObservedJob
    from reconciler.modelarts.target import Connected

LOG_LINES = 20

_EXITS = {
    WaitEnd.REACHED: ExitCode.DONE,
    WaitEnd.ENDED_BADLY: ExitCode.ENDED_BADLY,
    WaitEnd.TIMED_OUT: ExitCode.TIMED_OUT,
    WaitEnd.GONE: ExitCode.UNKNOWN,
}


def _say(job: ObservedJob, text: str, is_phase: bool) -> None:
    """Say it; a phase only where no table shows it."""
    if not (is_phase and can_draw(sys.stderr)):
        console.say(printable(f"{job.name}: {text}"))


def wait_for_all(
    there: TargetSession, jobs: Sequence[ObservedJob], goal: Goal, timeout_s: float | None, *, as_json: bool
) -> ExitCode:
    """Wait for every job, however the others end; show how each ended. Returns the exit code."""
    watches = [JobWatch(there.target.backend, job, goal, _say) for job in jobs]
    gc.enable()  # a run is spared it while it is short; a wait may last for days
    with live_table(there.clock, goal) as show:
        ends = watch_all(watches, there.clock, timeout_s, show)
    _report(there, [(watch.job, end) for watch, end in zip(watches, ends, strict=True)], as_json=as_json)
    return first_of(_EXITS[end] for end in ends)


def _report(there: TargetSession, ended: Sequence[tuple[ObservedJob, WaitEnd]], *, as_json: bool) -> None:
    documents = []
    for job, end in ended:
        ran_s = job.ran_s(there.clock.now())
        log = _end_of_log(there.target, job) if end is WaitEnd.ENDED_BADLY else []
        document = {
            "id": job.id,
            "name": job.name,
            "phase": job.phase_text,
            "result": end.value,
            "duration_s": ran_s,
            "log": log,
        }
        documents.append(document)
        if not as_json:
            ran = f" ({format_duration(round(ran_s))} elapsed)" if ran_s else ""
            word = "" if end is WaitEnd.REACHED else f"{end.value.replace('_', ' ')}: "
            console.result(printable(f"{word}{job.name} {job.id}: {job.phase_text}{ran}") + "\n")
            _say_log(job, log)
    if as_json:
        console.document({"jobs": documents})


def show_end_of_log(target: Connected, job: ObservedJob) -> None:
    """Say the last lines of a job's log, if it has one."""
    _say_log(job, _end_of_log(target, job))


def _end_of_log(target: Connected, job: ObservedJob) -> list[str]:
    return end_of_log(target.backend.logs, job, LOG_LINES) if isinstance(target.backend, SupportsLogs) else []


def _say_log(job: ObservedJob, log: Sequence[str]) -> None:
    if log:
        console.say(printable(f"Last lines of the log of {job.name}:"))
        console.say("\n".join(printable(f"  {line}") for line in log))
