"""Jobs that are waited for: how each was last seen, and how its wait stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.apply.waiter import wait_for
from reconciler.decide.goal import Goal, judge
from reconciler.decide.outcome import Waited, WaitEnd
from reconciler.decide.plan import Action
from reconciler.errors import NotFound, ServiceError, Unauthorized

if TYPE_CHECKING:
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import Backend, Clock

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
        self._is_gone = False
        listener(job, job.phase_text, True)

    @property
    def end(self) -> WaitEnd:
        """How its wait stands, by the last look."""
        return WaitEnd.GONE if self._is_gone else judge(self._goal, self.job.phase)

    def look(self) -> None:
        """See how the job is now.

        Raises:
            Unauthorized: nobody may look any more.
            ServiceError: it could not be read, several times in a row.
        """
        try:
            job = self._backend.details(self.job.id)
        except NotFound:
            self._is_gone = True
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
        end = WaitEnd.WAITING if self._is_gone else self.end
        return Waited(self.job.name, Action.KEEP, end, job=self.job)


@dataclass(frozen=True)
class _AllOf:
    """All the jobs that one command waits for; see `apply.waiter.Waitable`."""

    watches: Sequence[JobWatch]
    show: Callable[[tuple[Waited, ...]], None]

    @property
    def _open(self) -> list[JobWatch]:
        return [watch for watch in self.watches if watch.end is WaitEnd.WAITING]

    @property
    def is_over(self) -> bool:
        return not self._open

    def announce(self, pause_s: float) -> float:
        self.show(tuple(watch.as_waited() for watch in self.watches))
        return pause_s

    def look(self) -> bool:
        for watch in self._open:
            watch.look()
        return False


def watch_all(
    watches: Sequence[JobWatch],
    clock: Clock,
    timeout_s: float | None,
    show: Callable[[tuple[Waited, ...]], None] = lambda _: None,
) -> list[WaitEnd]:
    """Look at the jobs until each wait is over, or `timeout_s` seconds have passed (None: without end).

    Returns how each wait ended.

    Raises:
        Unauthorized: nobody may look any more.
        ServiceError: a job could not be read, several times in a row.
    """
    wait_for(_AllOf(watches, show), clock, timeout_s)
    return [WaitEnd.TIMED_OUT if watch.end is WaitEnd.WAITING else watch.end for watch in watches]
