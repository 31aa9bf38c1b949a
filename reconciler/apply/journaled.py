"""The calls of one action: each waits for its turn, and is made between two lines of the journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.core.observed import ObservedJob
from reconciler.core.record import Call
from reconciler.decide.outcome import Journal, Step, StepEnd
from reconciler.decide.plan import PlannedAction, Reason
from reconciler.errors import UNCERTAIN, Interrupted, ServiceError

if TYPE_CHECKING:
    from reconciler.core.ports import Backend, Clock


_T = TypeVar("_T")
#: Updates that make a job a revision of the key.
_TAKES_IN = frozenset({Reason.ADOPTED, Reason.STACK_RENAMED})
#: A look that is older is taken again, right before the call.
FRESH_FOR_S = 1.0


class Scheduler:
    """Lets so many actions change something at once, in their order.

    What needs capacity begins when the terminations before it were sent; an action that waits for
    something lets the others pass.
    """

    def __init__(self, at_once: int, actions: Sequence[PlannedAction]) -> None:
        self._free = at_once
        self._has_begun = [False] * len(actions)
        self._first = 0  # the first that has not begun
        self._to_free = {place for place, one in enumerate(actions) if one.frees_capacity}
        self._needs_capacity = [one.needs_capacity for one in actions]
        self._taken: set[int] = set()
        self._changed = threading.Condition()

    def take(self, place: int) -> None:
        """Wait until one more may be done, and every action before this one has begun, passed or ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 and self._may_begin(place))
            self._begin(place)
            self._taken.add(place)
            self._free -= 1
            self._changed.notify_all()

    def _may_begin(self, place: int) -> bool:
        if self._has_begun[place]:  # and only takes another turn
            return True
        return place <= self._first and not (self._needs_capacity[place] and self._to_free)

    def _begin(self, place: int) -> None:
        self._has_begun[place] = True
        while self._first < len(self._has_begun) and self._has_begun[self._first]:
            self._first += 1

    def rest(self, place: int) -> None:
        with self._changed:
            self._give_back(place)
            self._changed.notify_all()

    def release_capacity(self, place: int) -> None:
        """Let those begin that waited for the termination of this action, which was sent."""
        with self._changed:
            self._to_free.discard(place)
            self._changed.notify_all()

    def let_pass(self, place: int) -> None:
        """Let all others pass: this one waits for something itself, or has ended."""
        with self._changed:
            self._begin(place)
            self._to_free.discard(place)
            self._give_back(place)
            self._changed.notify_all()

    def _give_back(self, place: int) -> None:
        if place in self._taken:
            self._taken.discard(place)
            self._free += 1


class StaleObservation(Exception):
    """The turn came late: what was seen before is not fresh any more."""


class Turn:
    """The right of one action to change something: taken with each call that does.

    One that `is_kept` is kept from the first call on, until the termination was sent or the action waits:
    nothing comes between the mark and the end of a job. `threads` counts the thread of the action, until it
    waits.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        place: int,
        threads: threading.Semaphore,
        stop: threading.Event,
        clock: Clock,
        tell_start: Callable[[], None],
        *,
        is_kept: bool,
    ) -> None:
        self._scheduler, self._place, self._threads = scheduler, place, threads
        self._stop, self._clock, self._tell_start = stop, clock, tell_start
        self._is_taken = self._is_uncounted = False
        self.has_begun, self._is_kept = False, is_kept

    @property
    def is_interrupted(self) -> bool:
        return self._stop.is_set()

    def take(self) -> None:
        """Wait for the turn.

        Raises:
            Interrupted: the program is to stop; whatever the action has done, nothing more is sent.
            StaleObservation: it took so long that the action has to begin anew, with a look and a line of
                the journal, which would be refused if the lock was lost meanwhile. It keeps its turn.
        """
        waited_s = 0.0
        if not self._is_taken:
            asked_at_s = self._clock.now()
            self._scheduler.take(self._place)
            self._is_taken = True
            waited_s = self._clock.now() - asked_at_s
        if self._stop.is_set():
            raise Interrupted("it was not sent")
        self.begin()
        if waited_s > FRESH_FOR_S:
            raise StaleObservation

    def rest(self) -> None:
        if self._is_taken and not self._is_kept:
            self._is_taken = False
            self._scheduler.rest(self._place)

    def terminated(self) -> None:
        """Let go of the turn, and of the capacity that a termination freed: it was sent."""
        self._scheduler.release_capacity(self._place)
        self._is_kept = False
        self.rest()

    def pause(self) -> None:
        """Let everybody go on while the action waits for something, or has ended; idempotent."""
        self._is_taken = False
        self._scheduler.let_pass(self._place)
        if not self._is_uncounted:
            self._is_uncounted = True
            self._threads.release()

    def begin(self) -> None:
        """Say once that the action has begun."""
        if not self.has_begun:
            self.has_begun = True
            self._tell_start()


class CallsInFlight:
    """The calls that were sent and are not answered yet; safe to use from threads and signal handlers."""

    def __init__(self) -> None:
        self._calls: dict[object, str] = {}

    @contextmanager
    def of(self, step: Step) -> Iterator[None]:
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
    """A `core.ports.Backend` for one action: what only reads is the backend's own, the rest takes a turn.

    `done` are the calls that were answered with success; `in_flight` those that are not answered yet.
    """

    def __init__(
        self, backend: Backend, journal: Journal, action: PlannedAction, turn: Turn, in_flight: CallsInFlight
    ) -> None:
        self._backend, self._journal, self._action, self._turn = backend, journal, action, turn
        self._in_flight = in_flight
        self.done: list[Call] = []
        self.observe, self.find = backend.observe, backend.find
        self.name_is_taken, self.details = backend.name_is_taken, backend.details

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if it sent no date."""
        return getattr(self._backend, "skew_s", None)

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        step = Step(self._action, Call.CREATE, declared=self._action.declared)
        return self._between_lines(step, lambda: self._backend.create(body))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        # This call makes a revision: after a crash the journal has what was declared.
        declared = self._action.declared if self._action.reason in _TAKES_IN else None
        step = Step(self._action, Call.UPDATE, job_id, declared)
        self._between_lines(step, lambda: self._backend.update(job_id, changes))

    def terminate(self, job_id: str) -> None:
        step = Step(self._action, Call.TERMINATE, job_id)
        self._between_lines(step, lambda: self._backend.terminate(job_id))
        self._turn.terminated()

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
