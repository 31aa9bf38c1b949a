"""What a job is waited for to be, and what its phase says about the wait."""

from __future__ import annotations

from enum import StrEnum

from reconciler.core.phase import Phase
from reconciler.decide.outcome import WaitEnd


class Goal(StrEnum):
    """What a job is waited for to be."""

    RUNNING = "running"
    COMPLETED = "completed"
    ENDED = "ended"


_BADLY = frozenset({Phase.FAILED, Phase.ABNORMAL})

#: Goal → the phases that reach it, and the ends after which it is out of reach.
GOALS: dict[Goal, tuple[frozenset[Phase], frozenset[Phase]]] = {
    # A short job may be over before anybody looks.
    Goal.RUNNING: (frozenset({Phase.RUNNING, Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    Goal.COMPLETED: (frozenset({Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    # Whoever waits for the end of a job that he terminates has what he wanted.
    Goal.ENDED: (frozenset({Phase.COMPLETED, Phase.TERMINATED}), _BADLY),
}


def judge(goal: Goal, phase: Phase | None) -> WaitEnd:
    """Say how the wait stands; a phase that nobody knows (None) decides nothing."""
    reached, badly = GOALS[goal]
    if phase in reached:
        return WaitEnd.REACHED
    return WaitEnd.ENDED_BADLY if phase in badly else WaitEnd.WAITING
