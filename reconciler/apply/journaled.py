"""The calls of one action: each is scheduled, and written to the journal before and after."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from reconciler.apply.catalog import CreateChecks
from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import ObservedJob
from reconciler.core.past import Call
from reconciler.core.ports import Backend, Clock
from reconciler.decide.outcome import Journal, Step, StepEnd
from reconciler.decide.plan import PlannedAction, Reason
from reconciler.errors import UNCERTAIN, Interrupted, ServiceError

_T = TypeVar("_T")
#: Updates that make a job a revision of the key.
_TAKES_IN = frozenset({Reason.ADOPTED, Reason.STACK_RENAMED})
#: An older observation is repeated right before the call, in seconds.
FRESH_FOR_S = 1.0


class Terms(NamedTuple):
    """What all actions of an apply share. Each waits at most `timeout_s` seconds.

    Once `stop` is set, calls that change something are not sent. `checks` compares the create of a replace
    with the catalog before the old job is terminated. `prepare` uploads code before a job is started, and
    calls its argument before a long wait, to let other actions continue.
    """

    backend: Backend
    clock: Clock
    cloud: Cloud
    stop: threading.Event
    journal: Journal
    timeout_s: float
    checks: CreateChecks | None
    prepare: Callable[[PlannedAction, Callable[[], object]], object] = lambda action, pause: None


class Scheduler:
    """Limits the number of actions that change something concurrently, and keeps their order.

    Actions that need capacity begin after the terminations before them were sent; an action that waits lets
    others pass. The next actions make their checks ahead, so that no slot is idle, but late enough that their
    observations are still fresh. `now_s` may be any clock.
    """

    def __init__(
        self, at_once: int, actions: Sequence[PlannedAction], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once = self._free = at_once
        self._has_begun = [False] * len(actions)
        self._first = 0  # the first action that has not begun
        self._to_free = {place for place, one in enumerate(actions) if one.frees_capacity}
        self._needs_capacity = [one.needs_capacity for one in actions]
        self._guard = threading.Lock()
        #: Waiting actions, each with a lock to wait on.
        self._waiting: dict[int, threading.Lock] = {}
        self._is_next_due = threading.Condition(self._guard)
        self._now_s = now_s
        #: When an action began its checks, and when it took its slot.
        self._looking: dict[int, float] = {}
        self._taken: dict[int, float] = {}
        self._ahead = 0  # the number of actions that have started, but not begun
        #: Recent durations of the checks and of the calls; None before the first.
        self._look_s: float | None = None
        self._turn_s: float | None = None

    def start(self, place: int) -> None:
        """Wait until an action should begin its checks."""
        with self._guard:
            while (early_s := self._early_s()) > 0:
                self._is_next_due.wait(min(early_s, threading.TIMEOUT_MAX))
            self._ahead += 1
            self._looking[place] = self._now_s()

    def _early_s(self) -> float:
        """By how many seconds the next checks would be too early for the slot that they are for."""
        rounds, nth = divmod(self._ahead - self._free, self._at_once)
        if rounds < 0:
            return 0.0
        if rounds > 1 or self._look_s is None or (rounds and self._turn_s is None):
            return math.inf
        look_s = self._look_s
        turn_s = look_s if self._turn_s is None else self._turn_s
        now_s = self._now_s()
        # Assume that free slots will have been taken by then.
        since_s = [*sorted(self._taken.values()), *[now_s] * self._free][nth]
        return max(now_s, since_s + turn_s) + rounds * turn_s - now_s - look_s - FRESH_FOR_S / 2

    def take(self, place: int) -> None:
        """Wait for a free slot, and until every earlier action has begun, passed or ended."""
        turn = threading.Lock()
        turn.acquire()
        with self._guard:
            if (since_s := self._looking.pop(place, None)) is not None:
                self._look_s = self._recent(self._look_s, since_s)
            self._waiting[place] = turn
            self._give_turns()
        turn.acquire()

    def rest(self, place: int, *, has_freed: bool = False, lets_pass: bool = False) -> None:
        """Release the slot.

        `has_freed` means that the termination was sent, which frees capacity; `lets_pass` that the action
        waits for something, or has ended.
        """
        with self._guard:
            if lets_pass:
                self._begin(place)
            if has_freed or lets_pass:
                self._to_free.discard(place)
            if (since_s := self._taken.pop(place, None)) is not None:
                self._turn_s = self._recent(self._turn_s, since_s)
                self._free += 1
            self._give_turns()

    def _give_turns(self) -> None:
        while (
            self._free and (place := next(filter(self._may_begin, sorted(self._waiting)), None)) is not None
        ):
            self._begin(place)
            self._taken[place] = self._now_s()
            self._free -= 1
            self._waiting.pop(place).release()
        if self._early_s() < math.inf:
            self._is_next_due.notify()

    def _recent(self, mean_s: float | None, since_s: float) -> float:
        took_s = self._now_s() - since_s
        return took_s if mean_s is None else mean_s + (took_s - mean_s) / self._at_once

    def _may_begin(self, place: int) -> bool:
        if self._has_begun[place]:  # it takes its slot again
            return True
        is_held = self._needs_capacity[place] and self._to_free
        return place <= self._first and not is_held

    def _begin(self, place: int) -> None:
        if not self._has_begun[place]:
            self._has_begun[place] = True
            self._looking.pop(place, None)
            self._ahead -= 1
        while self._first < len(self._has_begun) and self._has_begun[self._first]:
            self._first += 1


class StaleObservation(Exception):
    """The slot came so late that the observation is no longer fresh."""


class JournaledBackend:
    """A `core.ports.Backend` for one action. Calls that change something take a slot of the scheduler.

    An action that terminates a job keeps its slot from the first call until the termination was sent or it
    waits, so that nothing comes between marking and terminating the job. `done` are the successful calls.
    """

    def __init__(
        self,
        terms: Terms,
        action: PlannedAction,
        place: int,
        scheduler: Scheduler,
        tell_start: Callable[[], None],
    ) -> None:
        self._terms, self._backend, self._journal = terms, terms.backend, terms.journal
        self._action, self._place, self._scheduler = action, place, scheduler
        self._tell_start = tell_start
        self._is_taken = self.has_begun = False
        self._is_kept = action.traits.stops_a_job
        self.done: list[Call] = []
        self.observe, self.find = terms.backend.observe, terms.backend.find
        self.name_is_taken, self.details = terms.backend.name_is_taken, terms.backend.details

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds. None if it sent no date."""
        return getattr(self._backend, "skew_s", None)

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        step = Step(self._action, Call.CREATE, declared=self._action.declared)
        return self._between_lines(step, lambda: self._backend.create(body))

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        # This call makes a revision, so the journal needs its declaration in case of a crash.
        declared = self._action.declared if self._action.reason in _TAKES_IN else None
        step = Step(self._action, Call.UPDATE, job_id, declared)
        self._between_lines(step, lambda: self._backend.update(job_id, changes))

    def terminate(self, job_id: str) -> None:
        step = Step(self._action, Call.TERMINATE, job_id)
        self._between_lines(step, lambda: self._backend.terminate(job_id))
        self._is_kept = self._is_taken = False
        self._scheduler.rest(self._place, has_freed=True)

    def _between_lines(self, step: Step, call: Callable[[], _T]) -> _T:
        line = self._journal.before(step)
        try:
            self._take_turn()
        except BaseException:
            self._journal.after(line, StepEnd(False, job=step.job, message="not sent"))
            raise
        try:
            result = call()
        except ServiceError as failure:
            is_certain = not isinstance(failure, UNCERTAIN)
            end = StepEnd(False, is_certain, step.job, failure.code, failure.message, failure.request_id)
            self._rest()
            self._journal.after(line, end)
            raise
        self.done.append(step.call)
        self._rest()
        job = result.id if isinstance(result, ObservedJob) else step.job
        self._journal.after(line, StepEnd(True, job=job))
        return result

    def _take_turn(self) -> None:
        """Wait for a slot.

        Raises:
            Interrupted: a stop was requested; nothing more is sent.
            StaleObservation: the wait was so long that the action must start again with its checks and a new
                line of the journal, which fails if the lock was lost. It keeps its slot.
        """
        waited_s = 0.0
        if not self._is_taken:
            asked_at_s = self._terms.clock.now()
            self._scheduler.take(self._place)
            self._is_taken = True
            waited_s = self._terms.clock.now() - asked_at_s
        if self._terms.stop.is_set():
            raise Interrupted("it was not sent")
        self.begin()
        if waited_s > FRESH_FOR_S:
            raise StaleObservation

    def _rest(self) -> None:
        if self._is_taken and not self._is_kept:
            self._is_taken = False
            self._scheduler.rest(self._place)

    def pause(self) -> None:
        """Release the slot while the action waits, or after its end. Idempotent."""
        self._is_taken = False
        self._scheduler.rest(self._place, lets_pass=True)

    def begin(self) -> None:
        """Report once that the action has begun."""
        if not self.has_begun:
            self.has_begun = True
            self._tell_start()
