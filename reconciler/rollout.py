"""Carrying a plan out, and waiting for what it started: apply with all that comes after the calls.

Waiting is the loop once more: look, decide, do what became possible. So a retry that is due, or a job
whose upstream has completed, is started by the same rules as by the next apply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.core.goal import Goal, judge
from reconciler.core.observed import ObservedJob
from reconciler.core.outcome import ENDS, EventType, Outcome, Result, Waited, WaitEnd
from reconciler.core.plan import Action, Plan, PlannedAction, Reason, count
from reconciler.core.planner import NO_OPTIONS, Look, Options
from reconciler.core.record import Ended, RunKind
from reconciler.reconcile import Context
from reconciler.recording import plan_digest

if TYPE_CHECKING:
    from reconciler.core.ports import Journal

#: Seconds between two looks: they grow from the first to the last.
FIRST_LOOK_S, LAST_LOOK_S = 1.0, 15.0
PROGRESS_EVERY_S = 10.0

Show = Callable[[tuple[Waited, ...]], None]


@dataclass
class Rollout:
    """One apply: what it is told and where, how long it waits, and what it waits for in the end."""

    context: Context
    kind: RunKind
    stream: EventStream
    stop: threading.Event
    timeout_s: float = 600.0
    options: Options = NO_OPTIONS
    goal: Goal | None = None
    show: Show = lambda _: None

    def run(self, plan: Plan) -> Result:
        """Carry a plan out, wait for the goal if there is one, and close the record."""
        journal = self._begin(plan) if plan.applyable or (self.goal and not plan.refusals) else None
        result = self._apply(plan, journal)
        if self.goal is not None and not (result.interrupted or plan.refusals):
            result = _Wait(self, plan, journal, self.goal).until_the_end(result)
        if journal is not None:
            now_s = self.context.target.clock.now()
            journal.end(Ended(now_s, result.word, result.summary, result.outcomes))
            if journal.problem and (recording := self.context.recording):
                recording.warn(f"not everything could be recorded: {journal.problem}")
        return result

    def _begin(self, plan: Plan) -> Journal | None:
        recording = self.context.recording
        if recording is None:
            return None
        return recording.begin(self.context.scope, self.kind, plan_digest(plan))

    def _apply(self, plan: Plan, journal: Journal | None) -> Result:
        return reconcile.apply(
            self.context, plan, self.stream, self.stop, timeout_s=self.timeout_s, journal=journal
        )


@dataclass
class _Timer:
    """How long a key has been waited for, as what it is: another job or another hindrance starts it anew."""

    what: object
    since_s: float


@dataclass
class _Wait:
    """The wait of one apply."""

    rollout: Rollout
    plan: Plan
    journal: Journal | None
    goal: Goal
    _timers: dict[str, _Timer] = field(default_factory=dict)
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)

    def until_the_end(self, result: Result) -> Result:
        """Look again and again, until nothing is left to wait for."""
        clock, stop = self.rollout.context.target.clock, self.rollout.stop
        keys = {a.key for a in self.plan.actions if _is_waited_for(a)}
        failed = {o.action.key for o in result.outcomes if o.status not in ("done", "skipped")}
        pause_s = FIRST_LOOK_S
        while True:
            plan, look = self._look()
            due = [a for a in plan.actions if a.key in keys - failed and a.traits.starts_a_job]
            if due and not plan.refusals and not stop.is_set():
                more = self.rollout._apply(_only(plan, due), self.journal)
                failed |= {o.action.key for o in more.outcomes if o.status != "done"}
                result = _joined(result, more)
                pause_s = FIRST_LOOK_S
                continue
            waits = self._judged([a for a in plan.actions if a.key in keys], look)
            self._tell(waits)
            self.rollout.show(waits)
            is_over = all(waited.end is not WaitEnd.WAITING for waited in waits)
            if is_over or stop.is_set():
                blocked = [o for o in _newly_blocked(plan, keys) if o.action.key not in failed]
                result = _joined(result, Result(tuple(blocked)))
                return replace(result, waits=waits, interrupted=stop.is_set())
            clock.sleep(min(pause_s, *self._until_due(plan, clock.now())))
            pause_s = min(LAST_LOOK_S, pause_s * 1.5)

    def _look(self) -> tuple[Plan, Look]:
        """What is there now, and what the rules make of it; a saved plan has no manifest to ask."""
        context = self.rollout.context
        if context.loaded.stack.whole or context.loaded.stack.jobs:
            return reconcile.plan_with_look(context, self.rollout.options)
        _, look = reconcile.observe(context)
        return _as_seen(self.plan, look), look

    def _until_due(self, plan: Plan, now_s: float) -> list[float]:
        return [LAST_LOOK_S, *(max(0.1, a.due_s - now_s) for a in plan.actions if a.due_s is not None)]

    def _judged(self, actions: Iterable[PlannedAction], look: Look) -> tuple[Waited, ...]:
        """How the wait for each key stands: by its own action, the first of the key."""
        own: dict[str, PlannedAction] = {}
        for action in actions:
            if action.action is not Action.TERMINATE:
                own.setdefault(action.key, action)
        waits = [self._judge(action, _job_of(action, look)) for action in own.values()]
        # Who waits for another key has time as long as that one is waited for.
        others = {
            w.key for w in waits if w.end is WaitEnd.WAITING and own[w.key].reason is not Reason.NEEDS_PENDING
        }
        return tuple(self._in_time(waited, own[waited.key], bool(others)) for waited in waits)

    def _judge(self, action: PlannedAction, job: ObservedJob | None) -> Waited:
        end = WaitEnd.WAITING
        if action.traits.stands_in_the_way:
            end = WaitEnd.BLOCKED
        elif action.reason is Reason.AGED_OUT:
            end = WaitEnd.REACHED
        elif action.action not in (Action.DEFER, Action.UNKNOWN):
            phase = job.phase if job else None
            end = ENDS[judge(self.goal, phase)]
        return Waited(action.key, action.action, end, action.detail, job)

    def _in_time(self, waited: Waited, action: PlannedAction, others_are_open: bool) -> Waited:
        if waited.end is not WaitEnd.WAITING:
            return waited
        now_s = self.rollout.context.target.clock.now()
        waits_for_others = action.reason is Reason.NEEDS_PENDING and others_are_open
        what = (waited.job.id if waited.job else None, action.action, waits_for_others and now_s)
        timer = self._timers.get(waited.key)
        if timer is None or timer.what != what:
            timer = self._timers[waited.key] = _Timer(what, now_s)
        is_late = now_s - timer.since_s >= self.rollout.timeout_s
        return replace(waited, end=WaitEnd.TIMED_OUT) if is_late else waited

    def _tell(self, waits: Iterable[Waited]) -> None:
        """Say of each key how it is, when that changes, and every ten seconds."""
        now_s = self.rollout.context.target.clock.now()
        for waited in waits:
            said = waited.describe(now_s)
            phase = waited.job.phase_text if waited.job else said
            told, at_s = self._told.get(waited.key, ("", 0.0))
            is_open = waited.end is WaitEnd.WAITING
            if told == phase and (not is_open or now_s - at_s < PROGRESS_EVERY_S):
                continue
            self._told[waited.key] = (phase, now_s)
            job = waited.job.id if waited.job else None
            self.rollout.stream.tell(
                EventType.ACTION_PROGRESS, key=waited.key, action=waited.action, job=job, detail=said
            )


def _is_waited_for(action: PlannedAction) -> bool:
    """What is declared is waited for; what ends is not."""
    return action.action is not Action.TERMINATE and action.reason is not Reason.PROTECTION_RELEASED


def _only(plan: Plan, actions: list[PlannedAction]) -> Plan:
    return plan.model_copy(update={"actions": tuple(actions), "summary": count(actions)})


def _joined(first: Result, more: Result) -> Result:
    """The later word on a key takes the place of the earlier one."""
    again = {outcome.action.key for outcome in more.outcomes}
    kept = [o for o in first.outcomes if not (o.action.key in again and o.action.traits.is_skipped)]
    return replace(
        first,
        outcomes=(*kept, *more.outcomes),
        faults=(*first.faults, *more.faults),
        interrupted=more.interrupted,
    )


def _newly_blocked(plan: Plan, keys: set[str]) -> list[Outcome]:
    from reconciler.core.outcome import skipped

    return skipped(a for a in plan.actions if a.key in keys and a.traits.stands_in_the_way)


def _job_of(action: PlannedAction, look: Look) -> ObservedJob | None:
    if action.before is None:
        return None
    views = [look.view(key) for key in (action.key, action.formerly) if key]
    found = (r.job for view in views for r in view.owned if r.job.id == action.before.id)
    return next(found, None)


def _as_seen(plan: Plan, look: Look) -> Plan:
    """A saved plan's keys as they are now: each is kept, with its newest job."""
    from reconciler.core.draft import before_of

    actions = []
    for action in plan.actions:
        if action.traits.is_executed or action.action is Action.KEEP:
            owned = look.view(action.key).owned
            kept = {"action": Action.KEEP, "before": before_of(owned[-1]) if owned else None}
            actions.append(action.model_copy(update=kept))
    return _only(plan, actions)
