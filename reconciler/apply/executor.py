"""Carries out a plan: in waves, a bounded number of actions at once, one failure stopping no other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from reconciler.apply.steps import Steps
from reconciler.core.marks import Cloud
from reconciler.core.observed import ObservedJob
from reconciler.core.order import waves
from reconciler.core.outcome import Event, EventType, Outcome, Result, Status, skipped
from reconciler.core.plan import Plan, PlannedAction, timestamp
from reconciler.core.ports import Backend, Clock

Listener = Callable[[Event], None]

INTERRUPTED = "interrupted before it began"
REFUSED = "a guard refuses the plan"


class EventStream:
    """Numbers the events of one apply, and hands them on one at a time."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self._clock, self._listener = clock, listener
        # A signal handler may tell something while its own thread is telling.
        self._lock = threading.RLock()
        self._sequence = 0

    def tell(self, type_: EventType, **fields: object) -> None:
        """Tell what happened. A listener that has gone away (`| head`, a full disk) stops nothing."""
        with self._lock:
            self._sequence += 1
            ts = timestamp(self._clock.now())
            event = Event.model_validate({"type": type_, "ts": ts, "sequence": self._sequence, **fields})
            with suppress(OSError, ValueError):
                self._listener(event)


def execute(
    plan: Plan,
    backend: Backend,
    clock: Clock,
    *,
    cloud: Cloud,
    stream: EventStream,
    stop: threading.Event,
    parallelism: int = 8,
    timeout_s: float = 600.0,
) -> Result:
    """Do what can be done; conflict, blocked, deferred and unknown keys are skipped and reported.

    Once `stop` is set no new action begins; the ones in flight finish and are recorded. Of a plan that
    a guard refuses nothing is done at all.
    """

    def tell_progress(action: PlannedAction, job: ObservedJob) -> None:
        detail = f"{job.name} is {job.phase_text}"
        stream.tell(
            EventType.ACTION_PROGRESS, key=action.key, action=action.action, job=job.id, detail=detail
        )

    steps = Steps(
        backend, clock, stack=plan.stack, cloud=cloud, timeout_s=timeout_s, tell_progress=tell_progress
    )

    faults: list[Exception] = []

    def run(action: PlannedAction) -> Outcome:
        if plan.refusals or stop.is_set():
            [outcome] = skipped([action], REFUSED if plan.refusals else INTERRUPTED)
        else:
            job = action.before.id if action.before else None
            stream.tell(EventType.ACTION_STARTED, key=action.key, action=action.action, job=job)
            try:
                outcome = steps.run(action)
            except Exception as fault:  # a fault of ours in one action must not stop the others
                faults.append(fault)
                outcome = Outcome(action, Status.FAILED, f"a fault of ours: {type(fault).__name__}", job=job)
        _tell(stream, outcome)
        return outcome

    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max_workers=max(1, parallelism), thread_name_prefix="apply") as pool:
        for wave in waves(plan.actions):
            outcomes += pool.map(run, wave)
    for outcome in skipped(a for a in plan.actions if a.traits.is_skipped):
        _tell(stream, outcome)
        outcomes.append(outcome)
    order = {id(action): place for place, action in enumerate(plan.actions)}
    outcomes.sort(key=lambda outcome: order[id(outcome.action)])
    return Result(tuple(outcomes), interrupted=stop.is_set(), faults=tuple(faults))


def _tell(stream: EventStream, outcome: Outcome) -> None:
    fields: dict[str, object] = {
        "key": outcome.action.key,
        "action": outcome.action.action,
        "job": outcome.job,
        "detail": outcome.detail,
    }
    if outcome.status is Status.SKIPPED:
        stream.tell(EventType.ACTION_SKIPPED, **fields)
    elif outcome.status is Status.DONE:
        stream.tell(EventType.ACTION_COMPLETED, **fields)
    else:
        fields |= {"code": outcome.code, "message": outcome.message or outcome.detail}
        stream.tell(EventType.ACTION_FAILED, **fields, request_id=outcome.request_id)
