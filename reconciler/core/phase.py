"""The phases of a training job, and what may be done in each, as data.

Nothing that `RULES` forbids is ever sent to the service.

Source: docs/semantics.md, "Phases"; docs/modelarts.md, "Phases".
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """The level-1 status of a job."""

    CREATING = "Creating"
    PENDING = "Pending"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATED = "Terminated"
    ABNORMAL = "Abnormal"

    @property
    def is_active(self) -> bool:
        """Whether the job still holds, or may come to hold, resources."""
        return self in ACTIVE

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, until the service restarts it."""
        return self in TERMINAL

    @property
    def ended_badly(self) -> bool:
        """Whether the job ended by a failure (a termination is judged apart)."""
        return self in {Phase.FAILED, Phase.ABNORMAL}


ACTIVE = frozenset({Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING})
TERMINAL = frozenset(Phase) - ACTIVE

# The service's documents call the queue by several names.
_ALIASES = {"Waiting": Phase.PENDING, "Awaiting": Phase.PENDING, "等待中": Phase.PENDING}
_BY_TEXT = {phase.value.casefold(): phase for phase in Phase} | {
    text.casefold(): phase for text, phase in _ALIASES.items()
}


def parse_phase(text: str) -> Phase | None:
    """Return the phase that the service means, or None for one that this table does not know."""
    return _BY_TEXT.get(text.casefold())


class Operation(StrEnum):
    """What can be asked of a job that exists."""

    TERMINATE = "terminate"
    UPDATE_DESCRIPTION = "update description"
    UPDATE_PRIORITY = "update priority"
    DELETE_RECORD = "delete record"
    CREATE_NEXT = "create next revision"


class Legality(NamedTuple):
    """Whether an operation is legal; if not, `why`, and `legal_when` says what would make it legal."""

    allowed: bool
    why: str = ""
    legal_when: str = ""

    def __bool__(self) -> bool:
        return self.allowed


YES = Legality(True)


def _no(why: str, legal_when: str) -> Legality:
    return Legality(False, why, legal_when)


class PhaseRules(NamedTuple):
    """One row of the table: where a phase leads, and the verdict on each operation in it."""

    expected_next: frozenset[Phase]
    verdicts: dict[Operation, Legality]


_NOT_PENDING = _no("the service changes the priority of queued jobs only", "while the job is Pending")
_STILL_ACTIVE_DELETE = _no("the job is active; its record is its history", "once the job has ended")
_STILL_ACTIVE_CREATE = _no("active: two revisions would run at once", "once the job has ended")
_ENDING = _no("already terminating", "never: once it has ended there is nothing to terminate")
_WAIT = _no("wait: the job is being terminated", "once the job has ended")
_ENDED = _no("nothing to terminate: the job has ended", "only if the service restarts it")


def _active(*expected_next: Phase, priority: Legality) -> PhaseRules:
    return PhaseRules(
        frozenset(expected_next),
        {
            Operation.TERMINATE: YES,
            Operation.UPDATE_DESCRIPTION: YES,
            Operation.UPDATE_PRIORITY: priority,
            Operation.DELETE_RECORD: _STILL_ACTIVE_DELETE,
            Operation.CREATE_NEXT: _STILL_ACTIVE_CREATE,
        },
    )


_ENDED_RULES = PhaseRules(
    # The service's own `restart` gives an ended job, with the same id and name, back to the queue.
    frozenset({Phase.CREATING, Phase.PENDING}),
    {
        Operation.TERMINATE: _ENDED,
        Operation.UPDATE_DESCRIPTION: YES,
        Operation.UPDATE_PRIORITY: _NOT_PENDING,
        Operation.DELETE_RECORD: YES,
        Operation.CREATE_NEXT: YES,
    },
)

RULES: dict[Phase, PhaseRules] = {
    Phase.CREATING: _active(
        Phase.PENDING, Phase.RUNNING, Phase.TERMINATING, Phase.FAILED, Phase.ABNORMAL, priority=_NOT_PENDING
    ),
    Phase.PENDING: _active(
        Phase.CREATING, Phase.RUNNING, Phase.TERMINATING, Phase.FAILED, Phase.ABNORMAL, priority=YES
    ),
    Phase.RUNNING: _active(
        # Re-scheduling and the restarts of fault tolerance queue a running job again: no error.
        Phase.PENDING,
        Phase.CREATING,
        Phase.COMPLETED,
        Phase.FAILED,
        Phase.TERMINATING,
        Phase.TERMINATED,
        Phase.ABNORMAL,
        priority=_NOT_PENDING,
    ),
    Phase.TERMINATING: PhaseRules(
        frozenset({Phase.TERMINATED, Phase.COMPLETED, Phase.FAILED, Phase.ABNORMAL}),
        {
            Operation.TERMINATE: _ENDING,
            Operation.UPDATE_DESCRIPTION: _WAIT,
            Operation.UPDATE_PRIORITY: _WAIT,
            Operation.DELETE_RECORD: _WAIT,
            Operation.CREATE_NEXT: _WAIT,
        },
    ),
    Phase.COMPLETED: _ENDED_RULES,
    Phase.FAILED: _ENDED_RULES,
    Phase.TERMINATED: _ENDED_RULES,
    Phase.ABNORMAL: _ENDED_RULES,
}

_UNKNOWN_PHASE = _no("the phase is unknown to this version", "with a newer reconciler that knows it")


def may(operation: Operation, phase: Phase | None) -> Legality:
    """Say whether `operation` is legal on a job in `phase`; None is a phase that nobody knows."""
    return _UNKNOWN_PHASE if phase is None else RULES[phase].verdicts[operation]
