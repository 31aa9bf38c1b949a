"""Carries out a plan: in order, a bounded number of calls at once; one failure stops no other key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from reconciler.apply.create_checks import CreateChecks
from reconciler.apply.interruption import INTERRUPTED, outcome_of_interrupted
from reconciler.apply.journaled import CallsInFlight, JournaledBackend
from reconciler.apply.steps import Steps
from reconciler.core.fields.marks import Cloud
from reconciler.core.observed_job import ObservedJob
from reconciler.core.ports import Backend, Clock
from reconciler.core.record import LockLost
from reconciler.core.values import timestamp
from reconciler.decide.journal import Journal
from reconciler.decide.outcome import ApplyEvent, EventType, Outcome, Result, Status, skipped
from reconciler.decide.plan import Plan, PlannedAction, in_order, rank
from reconciler.errors import Interrupted
from reconciler.version import __version__

Listener = Callable[[ApplyEvent], None]

#: A look that is older is taken again, right before the call.
FRESH_FOR_S = 1.0
REFUSED = "the plan is refused by a guard"
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
        #: What was sent and is not answered yet, for whoever has to stop at once.
        self.in_flight = CallsInFlight()

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
            event = ApplyEvent.model_validate({"type": type_, "ts": ts, "sequence": self._sequence, **fields})
            with suppress(OSError, ValueError):
                self._listener(event)

    def begin(self, plan: Plan) -> None:
        """Tell which version begins with which plan."""
        self.tell(EventType.VERSION, reconciler_version=__version__, format_version=plan.format_version)
        self.tell(EventType.PLANNED, stack=plan.stack, applyable=plan.applyable, summary=plan.summary)

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


class ExecutionOptions(NamedTuple):
    """How many calls are made at once, how long each action waits, and what is checked before a create."""

    parallelism: int = 8
    timeout_s: float = 600.0
    checks: CreateChecks | None = None


DEFAULTS = ExecutionOptions()


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
        options: ExecutionOptions = DEFAULTS,
    ) -> None:
        self._backend, self._clock, self._cloud = backend, clock, cloud
        self._stream, self._stop, self._journal = stream, stop, journal
        self._options, self._parallelism = options, max(1, options.parallelism)
        self._faults: list[Exception] = []
        self._lost_lock = False
        #: Keys of which an action did not succeed: what comes after it would rest on it.
        self._held_up: set[str] = set()

    def run(self, plan: Plan) -> Result:
        """Do what can be done; conflict, blocked, deferred and unknown keys are skipped and reported.

        Of a plan that a guard refuses nothing is done at all.
        """
        actions = in_order(plan.actions)
        ended = self._run_all(plan, actions) if actions else []
        for outcome in skipped(action for action in plan.actions if action.traits.is_skipped):
            self._finish(outcome)
            ended.append(outcome)
        place_of = {id(action): place for place, action in enumerate(plan.actions)}
        return Result(
            tuple(sorted(ended, key=lambda outcome: place_of[id(outcome.action)])),
            interrupted=self._stop.is_set(),
            lost_lock=self._lost_lock,
            faults=tuple(self._faults),
        )

    def _run_all(self, plan: Plan, actions: Sequence[PlannedAction]) -> list[Outcome]:
        """Begin the actions one after the other, each in a thread, and return when all have ended.

        While as many calls as allowed are under way, others look whether they may be made, or write down
        how they went: neither must cost the time of a call. Who waits for a job leaves its thread out of
        the count, so that however many hang the others go on.
        """
        turns = Turns(self._parallelism, actions)
        threads = threading.Semaphore(3 * self._parallelism)
        last_of_key: dict[str, Future[Outcome]] = {}
        futures = []
        with ThreadPoolExecutor(len(actions), thread_name_prefix="apply") as pool:
            for place, action in enumerate(actions):
                threads.acquire()
                turn = _Turn(
                    turns, place, threads, self._stop, self._clock, partial(self._tell_start, action)
                )
                turn.is_kept = action.traits.stops_a_job
                before = last_of_key.get(action.key)
                last_of_key[action.key] = pool.submit(self._run, plan, turn, action, before)
                futures.append(last_of_key[action.key])
        return [future.result() for future in futures]

    def _run(self, plan: Plan, turn: _Turn, action: PlannedAction, before: Future[Outcome] | None) -> Outcome:
        try:
            if before is not None and not before.done():
                turn.pause()
                before.exception()  # waits for its end
            why_not = REFUSED if plan.refusals else INTERRUPTED if self._stop.is_set() else None
            if why_not is None and action.key in self._held_up:
                why_not = DEPENDS
            if why_not is None:
                return self._finish(self._do(plan.stack, turn, action))
            [outcome] = skipped([action], why_not)
            return self._finish(outcome)
        finally:
            turn.end()

    def _do(self, stack: str, turn: _Turn, action: PlannedAction) -> Outcome:
        backend = JournaledBackend(self._backend, self._journal, action, turn, self._stream.in_flight)
        steps = Steps(
            backend,
            self._clock,
            stack=stack,
            cloud=self._cloud,
            timeout_s=self._options.timeout_s,
            turn=turn,
            tell_progress=self._tell_progress,
            checks=self._options.checks,
        )
        job = action.before.id if action.before else None
        try:
            outcome = _with_fresh_looks(steps, action)
        except Interrupted:
            outcome = outcome_of_interrupted(action, backend.done, has_begun=turn.has_begun)
        except LockLost as lost:
            # Whoever holds the lock by now does the rest.
            self._lost_lock = True
            self._stop.set()
            outcome = Outcome(action, Status.FAILED, f"{lost}; nothing was sent", job=job)
        except Exception as fault:  # an internal error in one action must not stop the others
            self._faults.append(fault)
            outcome = Outcome(action, Status.FAILED, f"internal error: {type(fault).__name__}", job=job)
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
        detail = job.phase_text if job.name == action.key else f"{job.name} {job.phase_text}"
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
    """So many actions may change something at once, and they begin in order.

    What needs capacity begins when the terminations before it were sent; an action that waits for
    something lets the others pass.
    """

    def __init__(self, at_once: int, actions: Sequence[PlannedAction]) -> None:
        ranks = [rank(action) for action in actions]
        self._free = at_once
        self._has_begun = [False] * len(ranks)
        self._first = 0  # the first that has not begun
        self._to_free = {place for place, one in enumerate(ranks) if one.frees_capacity}
        self._needs_capacity = [one.needs_capacity for one in ranks]
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
        """Let another one be done meanwhile."""
        with self._changed:
            self._give_back(place)
            self._changed.notify_all()

    def freed(self, place: int) -> None:
        """Its termination was sent."""
        with self._changed:
            self._to_free.discard(place)
            self._changed.notify_all()

    def let_pass(self, place: int) -> None:
        """Nobody waits for it any more: it waits for something itself, or has ended."""
        with self._changed:
            self._begin(place)
            self._to_free.discard(place)
            self._give_back(place)
            self._changed.notify_all()

    def _give_back(self, place: int) -> None:
        if place in self._taken:
            self._taken.discard(place)
            self._free += 1


class _LookAgain(Exception):
    """The turn came late: what was seen before is not fresh any more."""


class _Turn:
    """The turn of one action: taken with each call that changes something.

    One that `is_kept` is kept from the first call on, until the termination was sent or the action waits:
    nothing comes between the mark and the end of a job. `threads` counts the thread of the action, until it
    waits.
    """

    def __init__(
        self,
        turns: Turns,
        place: int,
        threads: threading.Semaphore,
        stop: threading.Event,
        clock: Clock,
        tell_start: Callable[[], None],
    ) -> None:
        self._turns, self._place, self._threads = turns, place, threads
        self._stop, self._clock, self._tell_start = stop, clock, tell_start
        self._is_taken = self._is_uncounted = False
        self.has_begun = self.is_kept = False

    @property
    def is_interrupted(self) -> bool:
        """Whether the program is to stop."""
        return self._stop.is_set()

    def take(self) -> None:
        """Wait for the turn.

        Raises:
            Interrupted: the program is to stop; whatever the action has done, nothing more is sent.
            _LookAgain: it took so long that the action has to begin anew, with a look and a line of the
                journal, which would be refused if the lock was lost meanwhile. It keeps its turn.
        """
        waited_s = 0.0
        if not self._is_taken:
            asked_at_s = self._clock.now()
            self._turns.take(self._place)
            self._is_taken = True
            waited_s = self._clock.now() - asked_at_s
        if self._stop.is_set():
            raise Interrupted("it was not sent")
        self.begin()
        if waited_s > FRESH_FOR_S:
            raise _LookAgain

    def rest(self) -> None:
        """Let another action go on between two calls."""
        if self._is_taken and not self.is_kept:
            self._is_taken = False
            self._turns.rest(self._place)

    def freed(self) -> None:
        """A termination was sent."""
        self._turns.freed(self._place)
        self.is_kept = False
        self.rest()

    def pause(self) -> None:
        """Let everybody go on while the action waits for something."""
        self._is_taken = False
        self._turns.let_pass(self._place)
        if not self._is_uncounted:
            self._is_uncounted = True
            self._threads.release()

    def begin(self) -> None:
        """Say once that the action has begun."""
        if not self.has_begun:
            self.has_begun = True
            self._tell_start()

    def end(self) -> None:
        """Let the next one go on; doing so twice is no harm."""
        self.pause()
