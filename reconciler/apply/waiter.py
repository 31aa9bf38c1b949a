"""The one loop that waits: apply between two calls, a rollout for its goal, and `jobs wait`.

It looks again and again, soon at first and then less often, until what is waited for is over. Time is that
of the clock that it is handed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from reconciler.core.observed_job import ObservedJob
from reconciler.core.ports import Backend, Clock
from reconciler.decide.goal import Goal, judge
from reconciler.decide.outcome import WaitEnd
from reconciler.errors import UNCERTAIN, Throttled

#: Seconds between two looks: they double from the first to the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
#: How often it is told, in seconds, that something is still waited for.
PROGRESS_EVERY_S = 10.0


class Waitable(Protocol):
    """Something that is waited for, as it was seen last."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        ...

    def announce(self, pause_s: float) -> float:
        """Tell how it stands before a pause of so many seconds; return how long the pause may be at most."""
        ...

    def look(self) -> bool:
        """See how it is now; True if it was moved on, so that the next look is soon again."""
        ...


def wait_for(
    waiting: Waitable,
    clock: Clock,
    timeout_s: float | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> bool:
    """Look until it is over; return whether it is, when `timeout_s` seconds have passed (None: without end).

    Once it `is_interrupted` nobody pauses or looks any more.
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
    """One job that is waited for; what goes on is told every ten seconds."""

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
        """Whether the goal is reached or out of reach."""
        return judge(self._goal, self.job.phase) is not WaitEnd.WAITING

    def announce(self, _: float) -> float:
        """Tell the progress when it is time; return how long it is until the next time."""
        now_s = self._clock.now()
        if now_s - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = now_s
            self._tell_progress(self.job)
        return self._told_s + PROGRESS_EVERY_S - now_s

    def look(self) -> bool:
        """Read the job; what cannot be read now is looked at once more, until the time is up."""
        with suppress(*UNCERTAIN, Throttled):
            self.job = self._backend.details(self.job.id)
        return False
