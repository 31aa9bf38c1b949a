"""The polling loop of actions, rollouts and `jobs wait`, with increasing intervals.

The clock is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from reconciler.core.observed import ObservedJob
from reconciler.decide.outcome import Goal, Waited, WaitEnd, judge_wait
from reconciler.decide.plan import Action
from reconciler.errors import UNCERTAIN, NotFound, ServiceError, Throttled, Unauthorized

if TYPE_CHECKING:
    from reconciler.core.ports import Backend, Clock


#: Polling intervals, in seconds: they double from the first to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
#: Interval of progress messages, in seconds.
PROGRESS_EVERY_S = 10.0
#: Maximum number of consecutive failures to read a job in `jobs wait`.
PATIENCE = 10


class Waitable(Protocol):
    """Something to wait for, in its last observed state."""

    @property
    def is_over(self) -> bool: ...

    def announce(self, pause_s: float) -> float:
        """Report the state before a pause. Returns the maximum length of the pause, in seconds."""
        ...

    def look(self) -> bool:
        """Observe the state. Returns True after progress, which resets the polling interval."""
        ...


def wait_for(
    waiting: Waitable,
    clock: Clock,
    timeout_s: float | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> bool:
    """Poll until the wait is over, interrupted, or `timeout_s` seconds have passed (None: no limit).

    Returns whether it is over.
    """
    until_s = None if timeout_s is None else clock.now() + timeout_s
    pause_s = FIRST_PAUSE_S
    while not (waiting.is_over or is_interrupted()):
        left_s = pause_s if until_s is None else until_s - clock.now()
        if left_s <= 0:
            break
        clock.sleep(min(pause_s, left_s, waiting.announce(pause_s)))
        pause_s = FIRST_PAUSE_S if waiting.look() else min(LONGEST_PAUSE_S, pause_s * 2)
    return waiting.is_over


class WaitingForJob:
    """A job that an action waits for. Progress is reported every ten seconds."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        job: ObservedJob,
        goal: Goal,
        tell_progress: Callable[[ObservedJob], None],
    ) -> None:
        self._backend, self._clock, self._goal, self._tell_progress = backend, clock, goal, tell_progress
        self._told_s = clock.now()
        self.job = job

    @property
    def is_over(self) -> bool:
        return judge_wait(self._goal, self.job.phase) is not WaitEnd.WAITING

    def announce(self, _: float) -> float:
        now_s = self._clock.now()
        if now_s - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = now_s
            self._tell_progress(self.job)
        return self._told_s + PROGRESS_EVERY_S - now_s

    def look(self) -> bool:
        # Transient failures are retried until the timeout.
        with suppress(*UNCERTAIN, Throttled):
            self.job = self._backend.details(self.job.id)
        return False


# --- jobs wait

#: Receives a job, a message about it, and whether the message is its phase.
WatchListener = Callable[[ObservedJob, str, bool], None]


class JobWatch:
    """A job of `jobs wait`, in its last observed state, and the state of the wait."""

    def __init__(self, backend: Backend, job: ObservedJob, goal: Goal, listener: WatchListener) -> None:
        self._backend, self._goal, self._listener = backend, goal, listener
        self._failures = 0
        self.job = job
        self._is_gone = False
        listener(job, job.phase_text, True)

    @property
    def end(self) -> WaitEnd:
        return WaitEnd.GONE if self._is_gone else judge_wait(self._goal, self.job.phase)

    def look(self) -> None:
        """Observe the job.

        Raises:
            Unauthorized: the account may not read the job.
            ServiceError: it could not be read several times in a row.
        """
        try:
            job = self._backend.details(self.job.id)
        except NotFound:
            self._is_gone = True
            self._listener(self.job, "its record no longer exists", False)
        except ServiceError as failure:
            self._failures += 1
            if self._failures >= PATIENCE or isinstance(failure, Unauthorized):
                raise
            self._listener(self.job, f"cannot be read at the moment: {failure.message}", False)
        else:
            self._failures = 0
            if job.phase_text != self.job.phase_text:
                self._listener(job, f"{self.job.phase_text} -> {job.phase_text}", True)
            self.job = job


class _AllOf:
    """All jobs of one wait."""

    def __init__(self, watches: Sequence[JobWatch], show: Callable[[tuple[Waited, ...]], None]) -> None:
        self._watches, self._show = watches, show

    @property
    def is_over(self) -> bool:
        return all(watch.end is not WaitEnd.WAITING for watch in self._watches)

    def announce(self, pause_s: float) -> float:
        rows = []
        for watch in self._watches:
            end = WaitEnd.WAITING if watch.end is WaitEnd.GONE else watch.end
            rows.append(Waited(watch.job.name, Action.KEEP, end, job=watch.job))
        self._show(tuple(rows))
        return pause_s

    def look(self) -> bool:
        for watch in self._watches:
            if watch.end is WaitEnd.WAITING:
                watch.look()
        return False


def watch_all(
    watches: Sequence[JobWatch],
    clock: Clock,
    timeout_s: float | None,
    show: Callable[[tuple[Waited, ...]], None] = lambda _: None,
) -> list[WaitEnd]:
    """Wait for jobs, at most `timeout_s` seconds (None: no limit). Returns how each wait ended.

    Raises:
        Unauthorized: the account may not read the job.
        ServiceError: a job could not be read several times in a row.
    """
    wait_for(_AllOf(watches, show), clock, timeout_s)
    return [WaitEnd.TIMED_OUT if watch.end is WaitEnd.WAITING else watch.end for watch in watches]
