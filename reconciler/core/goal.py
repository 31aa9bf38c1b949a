"""What one may wait for, and what each phase says about it."""

from __future__ import annotations

from enum import StrEnum

from reconciler.core.observed.phase import Phase


class Goal(StrEnum):
    """What a job is waited for to be."""

    RUNNING = "running"
    COMPLETED = "completed"
    ENDED = "ended"


class Judged(StrEnum):
    """How a wait for one job stands."""

    WAITING = "waiting"
    REACHED = "reached"
    ENDED_BADLY = "ended_badly"


_BADLY = frozenset({Phase.FAILED, Phase.ABNORMAL})

#: Goal → the phases that reach it, and the ends after which it is out of reach.
GOALS: dict[Goal, tuple[frozenset[Phase], frozenset[Phase]]] = {
    # A short job may be over before anybody looks.
    Goal.RUNNING: (frozenset({Phase.RUNNING, Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    Goal.COMPLETED: (frozenset({Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    # Whoever waits for the end of a job that he terminates has what he wanted.
    Goal.ENDED: (frozenset({Phase.COMPLETED, Phase.TERMINATED}), _BADLY),
}


def judge(goal: Goal, phase: Phase | None) -> Judged:
    """Say how the wait stands; a phase that nobody knows (None) decides nothing."""
    reached, badly = GOALS[goal]
    if phase in reached:
        return Judged.REACHED
    return Judged.ENDED_BADLY if phase in badly else Judged.WAITING
