"""A backend that writes a line of the journal before and after each call that changes something."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from reconciler.core.observed_job import Observation, ObservedJob
from reconciler.core.ports import Backend, SupportsClockSkew
from reconciler.core.record import Call
from reconciler.decide.journal import Journal, Step, StepEnd
from reconciler.decide.plan import PlannedAction, Reason
from reconciler.errors import UNCERTAIN, ServiceError

_T = TypeVar("_T")
#: Updates that make a job a revision of the key.
_TAKES_IN = frozenset({Reason.ADOPTED, Reason.STACK_RENAMED})


class Turn(Protocol):
    """The right to change something: so many actions have it at once."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the program is to stop: nothing more is sent that changes anything."""
        ...

    def take(self) -> None:
        """Wait for it; what it raises ends or restarts the action, unsent."""
        ...

    def freed(self) -> None:
        """A termination was sent: what needs the capacity may be sent from now on."""
        ...

    def pause(self) -> None:
        """The action is about to wait for something: nobody waits for the action meanwhile."""
        ...

    def rest(self) -> None:
        """The call is answered: let others go on, if nothing else of the action has to follow at once."""
        ...


class CallsInFlight:
    """The calls that were sent and are not answered yet; safe to use from threads and signal handlers."""

    def __init__(self) -> None:
        self._calls: dict[object, str] = {}

    @contextmanager
    def of(self, step: Step) -> Iterator[None]:
        """Count a call while it is under way."""
        action, mark = step.action, object()
        is_new = step.call is Call.CREATE or action.before is None
        about = action.after if is_new else action.before
        self._calls[mark] = f"{step.call} {about.name if about else action.key}"
        try:
            yield
        finally:
            del self._calls[mark]

    @property
    def names(self) -> list[str]:
        """Each call by what it asks for: `create train-r2`."""
        return sorted(self._calls.copy().values())


class JournaledBackend:
    """The calls of one action. What only reads is handed on as it is; what does not takes a turn.

    `done` are the calls that were answered with success; `in_flight` is told of those that are not answered.
    """

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        action: PlannedAction,
        turn: Turn,
        in_flight: CallsInFlight | None = None,
    ) -> None:
        self._backend, self._journal, self._action, self._turn = backend, journal, action, turn
        self._in_flight = in_flight or CallsInFlight()
        self.done: list[Call] = []

    def observe(
        self,
        names: Collection[str] | None = None,
        needs_absence: Callable[[Observation], bool] | None = None,
    ) -> Observation:
        """Read the workspace."""
        return self._backend.observe(names, needs_absence)

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if it told no time."""
        return self._backend.skew_s if isinstance(self._backend, SupportsClockSkew) else None

    def find(self, name: str) -> list[ObservedJob]:
        """Look a name up."""
        return self._backend.find(name)

    def name_is_taken(self, name: str) -> bool | None:
        """Ask whether a name is held."""
        return self._backend.name_is_taken(name)

    def details(self, job_id: str) -> ObservedJob:
        """Read one job."""
        return self._backend.details(job_id)

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job."""
        step = Step(self._action, Call.CREATE, declared=self._action.declared)
        return self._between_lines(step, lambda: self._backend.create(body))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change fields of a job."""
        # A revision that is made by this call: who dies after it has told what was declared.
        declared = self._action.declared if self._action.reason in _TAKES_IN else None
        step = Step(self._action, Call.UPDATE, job_id, declared)
        self._between_lines(step, lambda: self._backend.update(job_id, changes))

    def terminate(self, job_id: str) -> None:
        """Ask for the end of a job."""
        self._between_lines(
            Step(self._action, Call.TERMINATE, job_id), lambda: self._backend.terminate(job_id)
        )
        self._turn.freed()

    def _between_lines(self, step: Step, call: Callable[[], _T]) -> _T:
        line = self._journal.before(step)
        try:
            self._turn.take()
        except BaseException:
            self._journal.after(line, StepEnd(False, job=step.job, message="not sent"))
            raise
        try:
            with self._in_flight.of(step):
                result = call()
        except ServiceError as failure:
            is_certain = not isinstance(failure, UNCERTAIN)
            end = StepEnd(False, is_certain, step.job, failure.code, failure.message, failure.request_id)
            self._turn.rest()
            self._journal.after(line, end)
            raise
        self.done.append(step.call)
        self._turn.rest()
        job = result.id if isinstance(result, ObservedJob) else step.job
        self._journal.after(line, StepEnd(True, job=job))
        return result
