"""A backend that writes a line of the journal before and after each call that changes something."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from reconciler.core.observed import Observation, ObservedJob
from reconciler.core.plan import PlannedAction
from reconciler.core.ports import UNCERTAIN, Backend, Journal, ServiceFailure
from reconciler.core.record import Call, Step, StepEnd

_T = TypeVar("_T")


class Turn(Protocol):
    """The right to change something: so many actions have it at once."""

    def take(self) -> None:
        """Wait for it; what it raises ends or restarts the action, unsent."""
        ...

    def rest(self) -> None:
        """The call is answered: let others go on, if nothing else of the action has to follow at once."""
        ...


class JournaledBackend:
    """The calls of one action. What only reads is handed on as it is; what does not takes a turn."""

    def __init__(self, backend: Backend, journal: Journal, action: PlannedAction, turn: Turn) -> None:
        self._backend, self._journal, self._action, self._turn = backend, journal, action, turn

    def observe(
        self,
        names: Collection[str] | None = None,
        needs_absence: Callable[[Observation], bool] | None = None,
    ) -> Observation:
        """Read the workspace."""
        return self._backend.observe(names, needs_absence)

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
        self._between_lines(
            Step(self._action, Call.UPDATE, job_id), lambda: self._backend.update(job_id, changes)
        )

    def terminate(self, job_id: str) -> None:
        """Ask for the end of a job."""
        self._between_lines(
            Step(self._action, Call.TERMINATE, job_id), lambda: self._backend.terminate(job_id)
        )

    def _between_lines(self, step: Step, call: Callable[[], _T]) -> _T:
        line = self._journal.before(step)
        try:
            self._turn.take()
        except BaseException:
            self._journal.after(line, StepEnd(False, job=step.job, message="not sent"))
            raise
        try:
            result = call()
        except ServiceFailure as failure:
            is_certain = not isinstance(failure, UNCERTAIN)
            end = StepEnd(False, is_certain, step.job, failure.code, failure.message, failure.request_id)
            self._turn.rest()
            self._journal.after(line, end)
            raise
        self._turn.rest()
        job = result.id if isinstance(result, ObservedJob) else step.job
        self._journal.after(line, StepEnd(True, job=job))
        return result
