"""Carries out a plan: in waves, a bounded number of actions at once; one failure stops no other key."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from reconciler.apply.create_checks import CreateChecks
from reconciler.apply.journaled import JournaledBackend
from reconciler.apply.steps import Ended, Steps
from reconciler.core.marks import Cloud
from reconciler.core.observed import ObservedJob
from reconciler.core.order import waves
from reconciler.core.outcome import Event, EventType, Outcome, Result, Status, skipped
from reconciler.core.plan import Plan, PlannedAction, timestamp
from reconciler.core.ports import Backend, Clock, Journal
from reconciler.core.record import LockLost

Listener = Callable[[Event], None]

#: A look that is older is taken again, right before the call.
FRESH_FOR_S = 1.0
INTERRUPTED = "interrupted before it began"
REFUSED = "a guard refuses the plan"
DEPENDS = "an earlier action of the same key did not succeed"


class EventStream:
    """Numbers the events of one apply, and hands them on one at a time."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self._clock, self._listener = clock, listener
        # Reentrant: an outcome is remembered and told in one step.
        self._lock = threading.RLock()
        self._sequence = 0
        self._outcomes: dict[str, list[Outcome]] = {}
        self._is_complete = False

    @property
    def so_far(self) -> Result:
        """What became of the actions that have ended."""
        with self._lock:
            return Result(tuple(outcome for of_key in self._outcomes.values() for outcome in of_key))

    def tell(self, type_: EventType, **fields: object) -> None:
        """Tell what happened. A listener that has gone away (`| head`, a full disk) stops nothing."""
        with self._lock:
            if self._is_complete:
                return  # what goes on while the program stops at once comes too late
            self._sequence += 1
            ts = timestamp(self._clock.now())
            event = Event.model_validate({"type": type_, "ts": ts, "sequence": self._sequence, **fields})
            with suppress(OSError, ValueError):
                self._listener(event)

    def outcome(self, outcome: Outcome) -> None:
        """Tell what became of an action, and remember it."""
        with self._lock:
            self._remember(outcome)
            self._tell_outcome(outcome)

    def complete(self, result: Result | None = None, message: str | None = None) -> None:
        """Tell how it ended, by its result or else by what is known so far: nothing is told after that.

        `message` says what kept it from beginning.
        """
        with self._lock:
            ended = result or self.so_far
            waits = [waited.document() for waited in ended.waits] or None
            self.tell(EventType.APPLY_COMPLETED, summary=ended.summary, message=message, waits=waits)
            self._is_complete = True

    def _tell_outcome(self, outcome: Outcome) -> None:
        fields: dict[str, object] = {
            "key": outcome.action.key,
            "action": outcome.action.action,
            "job": outcome.job,
            "detail": outcome.detail,
        }
        if outcome.status is Status.SKIPPED:
            self.tell(EventType.ACTION_SKIPPED, **fields)
        elif outcome.status is Status.DONE:
            self.tell(EventType.ACTION_COMPLETED, **fields)
        else:
            fields |= {"code": outcome.code, "message": outcome.message or outcome.detail}
            self.tell(EventType.ACTION_FAILED, **fields, request_id=outcome.request_id)

    def _remember(self, outcome: Outcome) -> None:
        of_key = self._outcomes.get(outcome.action.key, [])
        if outcome.action.traits.is_executed:
            # What was put off when it was looked at first has been done now.
            of_key = [earlier for earlier in of_key if not earlier.action.traits.is_skipped]
        self._outcomes[outcome.action.key] = [*of_key, outcome]


class Execution:
    """What the actions of one apply share: where they are done, who is told, and when to stop.

    Once `stop` is set no new action begins; the ones in flight finish and are recorded.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        *,
        cloud: Cloud,
        stream: EventStream,
        stop: threading.Event,
        journal: Journal,
        parallelism: int = 8,
        timeout_s: float = 600.0,
        checks: CreateChecks | None = None,
    ) -> None:
        self._backend, self._clock, self._cloud = backend, clock, cloud
        self._checks = checks
        self._stream, self._stop, self._journal = stream, stop, journal
        self._parallelism, self._timeout_s = max(1, parallelism), timeout_s
        self._faults: list[Exception] = []
        self._lost_lock = False
        #: Keys of which an action did not succeed: what comes after it would rest on it.
        self._held_up: set[str] = set()

    def run(self, plan: Plan) -> Result:
        """Do what can be done; conflict, blocked, deferred and unknown keys are skipped and reported.

        Of a plan that a guard refuses nothing is done at all.
        """
        outcomes: list[Outcome] = []
        # While as many calls as allowed are under way, others look whether they may be made, or write down
        # how they went: neither must cost the time of a call.
        with ThreadPoolExecutor(3 * self._parallelism, thread_name_prefix="apply") as pool:
            for wave in waves(plan.actions):
                turns = Turns(self._parallelism, len(wave))
                outcomes += pool.map(partial(self._run, plan, turns), range(len(wave)), wave)
        for outcome in skipped(action for action in plan.actions if action.traits.is_skipped):
            self._finish(outcome)
            outcomes.append(outcome)
        order = {id(action): place for place, action in enumerate(plan.actions)}
        outcomes.sort(key=lambda outcome: order[id(outcome.action)])
        return Result(
            tuple(outcomes),
            interrupted=self._stop.is_set(),
            lost_lock=self._lost_lock,
            faults=tuple(self._faults),
        )

    def _run(self, plan: Plan, turns: Turns, place: int, action: PlannedAction) -> Outcome:
        why_not = REFUSED if plan.refusals else INTERRUPTED if self._stop.is_set() else None
        if why_not is None and action.key in self._held_up:
            why_not = DEPENDS
        if why_not is not None:
            [outcome] = skipped([action], why_not)
            turns.end(place)
        else:
            outcome = self._do(plan.stack, turns, place, action)
        return self._finish(outcome)

    def _do(self, stack: str, turns: Turns, place: int, action: PlannedAction) -> Outcome:
        # A replace is one action from the end of the old job to the new one: nothing may come between.
        is_one = action.traits.stops_a_job and action.traits.starts_a_job
        tell_start = partial(self._tell_start, action)
        turn = _Turn(turns, place, self._stop, self._clock, tell_start, is_kept=is_one)
        steps = Steps(
            JournaledBackend(self._backend, self._journal, action, turn),
            self._clock,
            stack=stack,
            cloud=self._cloud,
            timeout_s=self._timeout_s,
            tell_progress=self._tell_progress,
            checks=self._checks,
        )
        job = action.before.id if action.before else None
        try:
            outcome = _with_fresh_looks(steps, action)
        except LockLost as lost:
            # Whoever holds the lock by now does the rest.
            self._lost_lock = True
            self._stop.set()
            outcome = Outcome(action, Status.FAILED, f"{lost}; nothing was sent", job=job)
        except Exception as fault:  # a fault of ours in one action must not stop the others
            self._faults.append(fault)
            outcome = Outcome(action, Status.FAILED, f"a fault of ours: {type(fault).__name__}", job=job)
        finally:
            turn.end()
        if outcome.status is not Status.SKIPPED:
            turn.begin()
        return outcome

    def _finish(self, outcome: Outcome) -> Outcome:
        if outcome.action.traits.is_executed and outcome.status is not Status.DONE:
            self._held_up.add(outcome.action.key)
        self._journal.outcome(outcome, outcome.action.declared)
        self._stream.outcome(outcome)
        return outcome

    def _tell_start(self, action: PlannedAction) -> None:
        job = action.before.id if action.before else None
        self._stream.tell(EventType.ACTION_STARTED, key=action.key, action=action.action, job=job)

    def _tell_progress(self, action: PlannedAction, job: ObservedJob) -> None:
        detail = f"{job.name} is {job.phase_text}"
        self._stream.tell(
            EventType.ACTION_PROGRESS, key=action.key, action=action.action, job=job.id, detail=detail
        )


def _with_fresh_looks(steps: Steps, action: PlannedAction) -> Outcome:
    while True:
        try:
            return steps.run(action)
        except _LookAgain:
            continue


class Turns:
    """So many actions of a wave may change something at once, and they begin in the order of the wave."""

    def __init__(self, at_once: int, count: int) -> None:
        self._free = at_once
        self._open = deque(range(count))
        self._taken: set[int] = set()
        self._changed = threading.Condition()

    def take(self, place: int) -> None:
        """Wait until one more may be done, and every action before this one has begun or ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 and self._may_begin(place))
            if self._open and self._open[0] == place:
                self._open.popleft()
            self._taken.add(place)
            self._free -= 1
            self._changed.notify_all()

    def _may_begin(self, place: int) -> bool:
        # Those before the first open one have begun, and only take another turn.
        return not self._open or place <= self._open[0]

    def rest(self, place: int) -> None:
        """Let another one be done meanwhile."""
        with self._changed:
            self._taken.discard(place)
            self._free += 1
            self._changed.notify_all()

    def end(self, place: int) -> None:
        """The action has ended, with or without a turn."""
        with self._changed:
            if place in self._taken:
                self._taken.discard(place)
                self._free += 1
            elif place in self._open:
                self._open.remove(place)
            self._changed.notify_all()


class _LookAgain(Exception):
    """The turn came late: what was seen before is not fresh any more."""


class _Turn:
    """The turn of one action: taken with each call that changes something; `is_kept` until it ends."""

    def __init__(
        self,
        turns: Turns,
        place: int,
        stop: threading.Event,
        clock: Clock,
        tell_start: Callable[[], None],
        *,
        is_kept: bool,
    ) -> None:
        self._turns, self._place, self._is_kept = turns, place, is_kept
        self._stop, self._clock, self._tell_start = stop, clock, tell_start
        self._is_taken = self._has_begun = False

    def take(self) -> None:
        """Wait for the turn. An action that has begun is finished, whatever happens.

        Raises:
            Ended: we were interrupted before it began.
            _LookAgain: it took so long that the action has to begin anew, with a look and a line of the
                journal, which would be refused if the lock was lost meanwhile. It keeps its turn.
        """
        if self._is_taken:
            return
        asked_at_s = self._clock.now()
        self._turns.take(self._place)
        self._is_taken = True
        if self._stop.is_set() and not self._has_begun:
            raise Ended(Status.SKIPPED, INTERRUPTED)
        self.begin()
        if self._clock.now() - asked_at_s > FRESH_FOR_S:
            raise _LookAgain

    def rest(self) -> None:
        """Let another action go on, if this one can be left alone between two calls."""
        if self._is_taken and not self._is_kept:
            self._is_taken = False
            self._turns.rest(self._place)

    def begin(self) -> None:
        """Say once that the action has begun."""
        if not self._has_begun:
            self._has_begun = True
            self._tell_start()

    def end(self) -> None:
        """Let the next one go on."""
        self._turns.end(self._place)
