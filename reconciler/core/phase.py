"""The phases of a training job, and what may be done in each, as data.

What `RULES` forbids is never sent to the service.

Source: docs/concepts/revisions.md, "Phases"; docs/reference/modelarts.md, "Phases".
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
        """Whether the job holds resources, or may come to hold them."""
        return self in ACTIVE

    @property
    def is_live(self) -> bool:
        """Whether the job is active, and not ending."""
        return self in ACTIVE and self is not Phase.TERMINATING

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, until the service restarts it."""
        return self in TERMINAL

    @property
    def ended_badly(self) -> bool:
        """Whether the job failed. Terminations are judged elsewhere."""
        return self in {Phase.FAILED, Phase.ABNORMAL}


ACTIVE = frozenset({Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING})
TERMINAL = frozenset(Phase) - ACTIVE

# The service's documents have several names for the queue.
_ALIASES = {"Waiting": Phase.PENDING, "Awaiting": Phase.PENDING, "等待中": Phase.PENDING}
_BY_TEXT = {phase.value.casefold(): phase for phase in Phase} | {
    text.casefold(): phase for text, phase in _ALIASES.items()
}


def parse_phase(text: str) -> Phase | None:
    """Return the phase of a status text, or None if it is unknown to this version."""
    return _BY_TEXT.get(text.casefold())


def phase_named(text: str) -> Phase:
    """Return the phase that a user named, in any case, also by an alias from the service's documents.

    Raises:
        ValueError: there is no such phase.
    """
    phase = parse_phase(text)
    if phase is None:
        raise ValueError(f'"{text}" is not one of {", ".join(Phase)}')
    return phase


class Operation(StrEnum):
    """Operations on an existing job."""

    TERMINATE = "terminate"
    UPDATE_DESCRIPTION = "update description"
    UPDATE_PRIORITY = "update priority"
    DELETE_RECORD = "delete record"
    CREATE_NEXT = "create next revision"


class Legality(NamedTuple):
    """Whether an operation is legal; if not, `why`, and `legal_when` it would be."""

    allowed: bool
    why: str = ""
    legal_when: str = ""

    def __bool__(self) -> bool:
        return self.allowed


YES = Legality(True)


def _no(why: str, legal_when: str) -> Legality:
    return Legality(False, why, legal_when)


class PhaseRules(NamedTuple):
    """A row of the table: the phases that may follow, and the verdict on each operation."""

    expected_next: frozenset[Phase]
    verdicts: dict[Operation, Legality]


_NOT_PENDING = _no("the service changes the priority of queued jobs only", "while the job is Pending")
_STILL_ACTIVE_DELETE = _no("the record of an active job cannot be deleted", "once the job has ended")
_STILL_ACTIVE_CREATE = _no("active: two revisions would run at once", "once the job has ended")
_ENDING = _no("already terminating", "never: an ended job cannot be terminated")
_WAIT = _no("wait: the job is being terminated", "once the job has ended")
_ENDED = _no("nothing to terminate: the job has ended", "only if the service restarts it")


def _rules(expected_next: set[Phase], *verdicts: Legality) -> PhaseRules:
    return PhaseRules(frozenset(expected_next), dict(zip(Operation, verdicts, strict=True)))


_BEFORE_RUNNING = {Phase.RUNNING, Phase.TERMINATING, Phase.FAILED, Phase.ABNORMAL}
_ACTIVE_RECORD = (_STILL_ACTIVE_DELETE, _STILL_ACTIVE_CREATE)
#: The service's own `restart` puts an ended job back into the queue, with the same id and name.
_ENDED_RULES = _rules({Phase.CREATING, Phase.PENDING}, _ENDED, YES, _NOT_PENDING, YES, YES)

#: The verdicts are in the order of `Operation`.
RULES: dict[Phase, PhaseRules] = {
    Phase.CREATING: _rules({Phase.PENDING, *_BEFORE_RUNNING}, YES, YES, _NOT_PENDING, *_ACTIVE_RECORD),
    Phase.PENDING: _rules({Phase.CREATING, *_BEFORE_RUNNING}, YES, YES, YES, *_ACTIVE_RECORD),
    # Rescheduling and fault-tolerance restarts queue a running job again; this is not an error.
    Phase.RUNNING: _rules(set(Phase) - {Phase.RUNNING}, YES, YES, _NOT_PENDING, *_ACTIVE_RECORD),
    Phase.TERMINATING: _rules(set(TERMINAL), _ENDING, _WAIT, _WAIT, _WAIT, _WAIT),
    **{phase: _ENDED_RULES for phase in Phase if phase in TERMINAL},
}

_UNKNOWN_PHASE = _no("the phase is unknown to this version", "with a newer reconciler that knows it")


def may(operation: Operation, phase: Phase | None) -> Legality:
    """Return whether `operation` is legal on a job in `phase`; None is an unknown phase."""
    return _UNKNOWN_PHASE if phase is None else RULES[phase].verdicts[operation]
