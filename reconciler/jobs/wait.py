"""Waiting for jobs: one look at each, again and again, until every one is judged or the time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconciler.core.goal import Goal, Judged, judge
from reconciler.core.outcome import ENDS, Waited, WaitEnd
from reconciler.core.planning.plan import Action
from reconciler.core.ports import NotFound, ServiceError, Unauthorized

if TYPE_CHECKING:
    from reconciler.core.observed.job import ObservedJob
    from reconciler.core.ports import Backend, Clock

#: Seconds between two looks: soon at first, for jobs that are short.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 15.0
#: So many looks in a row at one job may fail before we give up.
PATIENCE = 10

#: Told of a job, what there is to say of it, and whether that is its phase.
WatchListener = Callable[["ObservedJob", str, bool], None]


class JobWatch:
    """One job that is waited for: as it was last seen, and how its wait stands."""

    def __init__(self, backend: Backend, job: ObservedJob, goal: Goal, listener: WatchListener) -> None:
        self._backend, self._goal, self._listener = backend, goal, listener
        self._failures = 0
        self.job = job
        self.is_gone = False
        listener(job, job.phase_text, True)

    @property
    def judged(self) -> Judged:
        """What the last look says."""
        return judge(self._goal, self.job.phase)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.is_gone or self.judged is not Judged.WAITING

    def look(self) -> None:
        """See how the job is now.

        Raises:
            Unauthorized: nobody may look any more.
            ServiceError: it could not be read, several times in a row.
        """
        try:
            job = self._backend.details(self.job.id)
        except NotFound:
            self.is_gone = True
            self._listener(self.job, "its record no longer exists", False)
        except Unauthorized:
            raise
        except ServiceError as failure:
            self._failures += 1
            if self._failures >= PATIENCE:
                raise
            self._listener(self.job, f"cannot be read at the moment: {failure.message}", False)
        else:
            self._failures = 0
            if job.phase_text != self.job.phase_text:
                self._listener(job, f"{self.job.phase_text} -> {job.phase_text}", True)
            self.job = job

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


def watch_all(
    watches: Sequence[JobWatch],
    clock: Clock,
    timeout_s: float | None,
    show: Callable[[tuple[Waited, ...]], None] = lambda _: None,
) -> None:
    """Look at the jobs until each wait is over, or `timeout_s` seconds have passed (None: without end).

    Raises:
        Unauthorized: nobody may look any more.
        ServiceError: a job could not be read, several times in a row.
    """
    until_s = None if timeout_s is None else clock.now() + timeout_s
    wait_s = FIRST_WAIT_S
    while open_ := [watch for watch in watches if not watch.is_over]:
        show(tuple(watch.as_waited() for watch in watches))
        left_s = wait_s if until_s is None else until_s - clock.now()
        if left_s <= 0:
            break
        clock.sleep(min(wait_s, left_s))
        wait_s = min(LONGEST_WAIT_S, wait_s * 1.5)
        for watch in open_:
            watch.look()
