"""Waiting for jobs: one look at each, again and again, until every one is judged or the time is up."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reconciler.cli.console import console
from reconciler.cli.live import can_draw, live_table
from reconciler.cli.watching import end_of_log
from reconciler.core.exit_code import ExitCode, first_of
from reconciler.core.goal import Goal, Judged, judge
from reconciler.core.outcome import ENDS, Waited, WaitEnd
from reconciler.core.plan import Action
from reconciler.core.ports import NotFound, ServiceFailure, Unauthorized
from reconciler.core.printable import printable

if TYPE_CHECKING:
    from reconciler.backends.modelarts import ModelArtsBackend
    from reconciler.cli.calling import Called
    from reconciler.core.observed import ObservedJob

#: Seconds between two looks: soon at first, for jobs that are short.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 15.0
#: So many looks in a row at one job may fail before we give up.
PATIENCE = 10
LOG_LINES = 20


class _Watch:
    """One job that is waited for: as it was last seen, and how its wait stands."""

    def __init__(self, there: Called, job: ObservedJob, goal: Goal) -> None:
        self._there, self._goal = there, goal
        self._failures = 0
        self.job = job
        self.is_gone = False
        self._say_phase(job.phase_text)

    @property
    def judged(self) -> Judged:
        return judge(self._goal, self.job.phase)

    @property
    def is_over(self) -> bool:
        return self.is_gone or self.judged is not Judged.WAITING

    def look(self) -> None:
        """See how the job is now.

        Raises:
            Unauthorized: nobody may look any more.
            ServiceFailure: it could not be read, several times in a row.
        """
        try:
            job = self._there.backend.details(self.job.id)
        except NotFound:
            self.is_gone = True
            self._say("its record is gone")
        except Unauthorized:
            raise
        except ServiceFailure as failure:
            self._failures += 1
            if self._failures >= PATIENCE:
                raise
            self._say(f"cannot be read just now: {failure.message}")
        else:
            self._failures = 0
            if job.phase_text != self.job.phase_text:
                self._say_phase(f"{self.job.phase_text} -> {job.phase_text}")
            self.job = job

    def _say_phase(self, text: str) -> None:
        """Say it where no table shows it."""
        if not can_draw(sys.stderr):
            self._say(text)

    def _say(self, text: str) -> None:
        console.say(printable(f"{self.job.name}: {text}"))

    def as_waited(self) -> Waited:
        """The same, as a row of the table that is shown meanwhile."""
        end = WaitEnd.WAITING if self.is_gone else ENDS[self.judged]
        return Waited(self.job.name, Action.KEEP, end, job=self.job)

    @property
    def result(self) -> str:
        """The word for how the wait ended."""
        if self.is_gone:
            return "gone"
        return "timed_out" if self.judged is Judged.WAITING else self.judged.value


_EXITS = {
    Judged.REACHED.value: ExitCode.DONE,
    Judged.ENDED_BADLY.value: ExitCode.ENDED_BADLY,
    "timed_out": ExitCode.TIMED_OUT,
    "gone": ExitCode.UNKNOWN,
}


def wait_for_all(
    there: Called, jobs: Sequence[ObservedJob], goal: Goal, timeout_s: float | None, *, as_json: bool
) -> ExitCode:
    """Wait for every job, however the others end; show how each ended. Returns the exit code."""
    clock = there.clock
    watches = [_Watch(there, job, goal) for job in jobs]
    until_s = None if timeout_s is None else clock.now() + timeout_s
    wait_s = FIRST_WAIT_S
    gc.enable()  # a run is spared it while it is short; a wait may last for days
    with live_table(clock, goal) as show:
        while open_ := [watch for watch in watches if not watch.is_over]:
            show(tuple(watch.as_waited() for watch in watches))
            left_s = wait_s if until_s is None else until_s - clock.now()
            if left_s <= 0:
                break
            clock.sleep(min(wait_s, left_s))
            wait_s = min(LONGEST_WAIT_S, wait_s * 1.5)
            for watch in open_:
                watch.look()
    _report(there, watches, as_json=as_json)
    return first_of(_EXITS[watch.result] for watch in watches)


def _report(there: Called, watches: Sequence[_Watch], *, as_json: bool) -> None:
    from reconciler.core.duration import spell

    documents = []
    for watch in watches:
        job, ran_s = watch.job, watch.job.ran_s(there.clock.now())
        log = end_of_log(there.backend, job, LOG_LINES) if watch.result == Judged.ENDED_BADLY else []
        document = {
            "id": job.id,
            "name": job.name,
            "phase": job.phase_text,
            "result": watch.result,
            "duration_s": ran_s,
            "log": log,
        }
        documents.append(document)
        if not as_json:
            ran = f", ran {spell(round(ran_s))}" if ran_s else ""
            word = watch.result.replace("_", " ")
            console.result(printable(f"{word}: {job.name} ({job.id}) is {job.phase_text}{ran}") + "\n")
            _say_log(job, log)
    if as_json:
        console.document({"jobs": documents})


def show_end_of_log(backend: ModelArtsBackend, job: ObservedJob) -> None:
    """Say the last lines of a job's log, if it has one."""
    _say_log(job, end_of_log(backend, job, LOG_LINES))


def _say_log(job: ObservedJob, log: Sequence[str]) -> None:
    if log:
        console.say(printable(f"The end of the log of {job.name}:"))
        console.say("\n".join(printable(f"  {line}") for line in log))
