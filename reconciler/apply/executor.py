"""Executes the actions of a plan in order, with bounded concurrency. A failure does not stop other keys.

After a stop request no new action begins; those in flight finish and are recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from reconciler.apply.journaled import JournaledBackend, Scheduler, StaleObservation, Terms
from reconciler.apply.steps import Steps
from reconciler.core.observed import ObservedJob
from reconciler.core.past import Call
from reconciler.core.ports import Clock
from reconciler.core.values import timestamp
from reconciler.decide.outcome import ApplyEvent, EventType, Outcome, Result, Status, skipped
from reconciler.decide.plan import Plan, PlannedAction, in_order
from reconciler.errors import Interrupted, LockLost
from reconciler.version import __version__

Listener = Callable[[ApplyEvent], None]

INTERRUPTED = "interrupted before it started"
WITHOUT_EFFECT = "interrupted; nothing was changed"
REFUSED = "the plan is refused by a guard"
DEPENDS = "an earlier action of the same key did not succeed"


class EventStream:
    """Numbers the events of an apply, and passes them on one at a time."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self._clock, self._listener = clock, listener
        # Reentrant: an outcome is stored and emitted in one step.
        self._lock = threading.RLock()
        self._sequence = 0
        self._outcomes: dict[str, list[Outcome]] = {}
        self._is_complete = False

    def emit(self, type_: EventType, **fields: object) -> None:
        """Emit an event. Errors of the listener (`| head`, a full disk) are ignored."""
        with self._lock:
            if self._is_complete:
                return  # the final event has been emitted
            self._sequence += 1
            ts = timestamp(self._clock.now())
            event = ApplyEvent.model_validate({"type": type_, "ts": ts, "sequence": self._sequence, **fields})
            with suppress(OSError, ValueError):
                self._listener(event)

    def begin(self, plan: Plan) -> None:
        self.emit(EventType.VERSION, reconciler_version=__version__, format_version=plan.format_version)
        self.emit(EventType.PLANNED, stack=plan.stack, applyable=plan.applyable, summary=plan.summary)

    def outcome(self, outcome: Outcome) -> None:
        action = outcome.action
        fields: dict[str, object] = {"key": action.key, "action": action.action}
        fields |= {"job": outcome.job, "detail": outcome.detail}
        with self._lock:
            of_key = self._outcomes.get(action.key, [])
            if action.traits.is_executed:
                # An action that was skipped at first has been executed now.
                of_key = [earlier for earlier in of_key if not earlier.action.traits.is_skipped]
            self._outcomes[action.key] = [*of_key, outcome]
            if outcome.status is Status.SKIPPED:
                self.emit(EventType.ACTION_SKIPPED, **fields)
            elif outcome.status is Status.DONE:
                self.emit(EventType.ACTION_COMPLETED, **fields)
            else:
                fields |= {"code": outcome.code, "message": outcome.message or outcome.detail}
                self.emit(EventType.ACTION_FAILED, **fields, request_id=outcome.request_id)

    def complete(self, result: Result | None = None, message: str | None = None) -> None:
        """Emit the final event, from the result or else from the outcomes so far.

        `message` says why the apply did not begin.
        """
        with self._lock:
            ended = result or Result(tuple(one for of_key in self._outcomes.values() for one in of_key))
            waits = [waited.document() for waited in ended.waits] or None
            self.emit(EventType.APPLY_COMPLETED, summary=ended.summary, message=message, waits=waits)
            self._is_complete = True


class Execution:
    """An apply with at most `parallelism` concurrent calls."""

    def __init__(self, terms: Terms, stream: EventStream, parallelism: int = 8) -> None:
        self._terms, self._stream, self._parallelism = terms, stream, max(1, parallelism)
        self._faults: list[Exception] = []
        self._lost_lock = False
        #: Keys with a failed action: further actions of the key depend on it.
        self._failed_keys: set[str] = set()

    def run(self, plan: Plan) -> Result:
        """Execute what can be executed; all other actions are skipped, as all are if a guard refuses."""
        actions = in_order(plan.actions)
        ended = self._run_all(plan, actions) if actions else []
        for outcome in skipped(action for action in plan.actions if action.traits.is_skipped):
            self._finish(outcome)
            ended.append(outcome)
        place_of = {id(action): place for place, action in enumerate(plan.actions)}
        return Result(
            tuple(sorted(ended, key=lambda outcome: place_of[id(outcome.action)])),
            interrupted=self._terms.stop.is_set(),
            lost_lock=self._lost_lock,
            faults=tuple(self._faults),
        )

    def _run_all(self, plan: Plan, actions: Sequence[PlannedAction]) -> list[Outcome]:
        """Start the actions in order, each on a thread, and wait until all have ended.

        Checks before a call and writing its outcome do not count as calls, so that they do not delay others.
        Neither do waits for jobs, so that hanging ones block nothing.
        """
        scheduler = Scheduler(self._parallelism, actions)
        last_of_key: dict[str, Future[Outcome]] = {}
        futures = []
        with ThreadPoolExecutor(len(actions), thread_name_prefix="apply") as pool:
            for place, action in enumerate(actions):
                scheduler.start(place)
                tell_start = partial(self._tell_start, action)
                backend = JournaledBackend(self._terms, action, place, scheduler, tell_start)
                future = pool.submit(self._run, plan, backend, action, last_of_key.get(action.key))
                last_of_key[action.key] = future
                futures.append(future)
        return [future.result() for future in futures]

    def _run(
        self, plan: Plan, backend: JournaledBackend, action: PlannedAction, before: Future[Outcome] | None
    ) -> Outcome:
        try:
            if before is not None and not before.done():
                backend.pause()
                before.exception()  # wait for its end
            why_not = REFUSED if plan.refusals else INTERRUPTED if self._terms.stop.is_set() else None
            if why_not is None and action.key in self._failed_keys:
                why_not = DEPENDS
            if why_not is None:
                outcome = self._do(plan.stack, backend, action)
            else:
                [outcome] = skipped([action], why_not)
        finally:
            backend.pause()
        if outcome.status is not Status.SKIPPED:
            backend.begin()
        return self._finish(outcome)

    def _do(self, stack: str, backend: JournaledBackend, action: PlannedAction) -> Outcome:
        def tell_progress(job: ObservedJob) -> None:
            backend.begin()  # the action may wait before its first call
            detail = job.phase_text if job.name == action.key else f"{job.name} {job.phase_text}"
            of_action = {"key": action.key, "action": action.action, "job": job.id, "detail": detail}
            self._stream.emit(EventType.ACTION_PROGRESS, **of_action)

        steps = Steps(action, backend, self._terms, stack, tell_progress)
        try:
            while True:
                with suppress(StaleObservation):
                    return steps.run()
        except Interrupted:
            return _outcome_of_interrupted(action, backend.done, has_begun=backend.has_begun)
        except LockLost as lost:
            # The new holder of the lock does the rest.
            self._lost_lock = True
            self._terms.stop.set()
            return Outcome(action, Status.FAILED, f"{lost}; nothing was sent", job=action.job_id)
        except Exception as fault:  # an internal error in one action must not stop the others
            self._faults.append(fault)
            return Outcome(
                action, Status.FAILED, f"internal error: {type(fault).__name__}", job=action.job_id
            )

    def _finish(self, outcome: Outcome) -> Outcome:
        if outcome.action.traits.is_executed and outcome.status is not Status.DONE:
            self._failed_keys.add(outcome.action.key)
        self._terms.journal.outcome(outcome, outcome.action.declared)
        self._stream.outcome(outcome)
        return outcome

    def _tell_start(self, action: PlannedAction) -> None:
        fields = {"key": action.key, "action": action.action, "job": action.job_id}
        self._stream.emit(EventType.ACTION_STARTED, **fields)


def _outcome_of_interrupted(action: PlannedAction, done: Collection[Call], *, has_begun: bool) -> Outcome:
    """The outcome of an action that was interrupted between its calls; `done` are the completed ones.

    It is skipped if it changed nothing, and done if only the final check is missing. Otherwise it is
    interrupted, its detail has the progress, and the next plan continues from there.
    """
    if not done:
        return skipped([action], WITHOUT_EFFECT if has_begun else INTERRUPTED)[0]
    is_only_to_end = action.traits.stops_a_job and not action.traits.starts_a_job
    if is_only_to_end and Call.TERMINATE in done:
        return Outcome(action, Status.DONE, "its termination was requested", job=action.job_id)
    old = action.before.name if action.before else action.key
    new = action.after.name if action.after else action.key
    if Call.CREATE in done:
        how_far = f"{new} was created, {old} was not terminated"
    elif Call.TERMINATE in done:
        how_far = f"{old} was terminated, {new} was not created"
    elif action.traits.stops_a_job:
        how_far = f"{old} was marked as stopped, but not terminated"
    else:
        how_far = f"{old} was updated, but not verified"
    detail = f"interrupted: {how_far}; the next apply completes it"
    return Outcome(action, Status.INTERRUPTED, detail, job=action.job_id, message=detail)
