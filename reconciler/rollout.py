"""Execute a plan, and wait for what it started.

Waiting runs the same loop again: observe, decide, do what has become possible. So a retry that is due, or a
job whose upstream has completed, is started by the same rules as by the next apply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.apply.waiter import LONGEST_PAUSE_S, PROGRESS_EVERY_S, wait_for
from reconciler.core.observed import ObservedJob
from reconciler.core.past import RunKind
from reconciler.core.phase import Phase, parse_phase
from reconciler.core.ports import Clock
from reconciler.core.record import RecordsUnavailable
from reconciler.core.stack import Stack
from reconciler.decide.actions import before_of
from reconciler.decide.key_state import Snapshot
from reconciler.decide.outcome import (
    EventType,
    Followed,
    Goal,
    Journal,
    Result,
    RunEnd,
    Status,
    Superseded,
    Waited,
    WaitEnd,
    judge_followed,
    judge_wait,
    may_start,
    skipped,
)
from reconciler.decide.plan import NO_ALLOWANCES, Action, Allowances, Plan, PlannedAction, Reason, count
from reconciler.decide.planner import guarded_plan
from reconciler.errors import LockHeld, NotFound, ReconcilerError, ServiceError
from reconciler.reconcile import Context, observe
from reconciler.records.recording import StackLock, plan_digest
from reconciler.text import few

Show = Callable[[tuple[Waited, ...]], None]


@dataclass
class Rollout:
    """One apply: its context, its timeout, and the goal to wait for.

    `lock` is held at the beginning, and released while the rollout only waits.
    """

    context: Context
    kind: RunKind
    stream: EventStream
    stop: threading.Event
    timeout_s: float = 600.0
    allowances: Allowances = NO_ALLOWANCES
    goal: Goal | None = None
    show: Show = lambda _: None
    lock: StackLock | None = None

    def run(self, plan: Plan) -> Result:
        """Execute a plan, wait for the goal if there is one, and close the record."""
        recording, scope = self.context.recording, self.context.scope
        if self.kind is RunKind.APPLY and not plan.refusals:
            # Even if there is nothing to do: a key may have moved elsewhere.
            recording.declare(scope, self.context.loaded.declared)
            recording.rename(scope, plan.actions)
        journal = None
        if plan.applyable or (self.goal and not plan.refusals):
            journal = recording.begin(scope, self.kind, plan_digest(plan))
        result = self._apply(plan, journal)
        if self.goal is not None and not (result.interrupted or plan.refusals):
            if self.lock is not None:
                self.lock.release()
            wait = _Wait(self, plan, journal, self.goal, result)
            try:
                result = wait.run_to_end()
            except ReconcilerError:  # e.g. access was revoked; record what was done
                self._end(journal, wait.result)
                raise
        self._end(journal, result)
        if journal is None:
            is_refused = plan.refusals or plan.blocked
            word = "unknown" if not plan.complete else "refused" if is_refused else "nothing to do"
            ended = RunEnd(recording.clock.now(), word, result.summary, result.outcomes)
            recording.note(scope, self.kind, ended, plan_digest(plan))
        return result

    def _end(self, journal: Journal | None, result: Result) -> None:
        if journal is not None:
            recording = self.context.recording
            # Runs are timed by the clock of the records; the target may have another.
            now_s = recording.clock.now()
            journal.end(RunEnd(now_s, result.word, result.summary, result.outcomes))
            if journal.problem:
                recording.warn(f"not everything could be recorded: {journal.problem}")

    def _apply(self, plan: Plan, journal: Journal | None) -> Result:
        return reconcile.apply(
            self.context, plan, self.stream, self.stop, timeout_s=self.timeout_s, journal=journal
        )


@dataclass
class _Wait:
    """The wait of one apply. `result` is its result so far; keys in `failed` are not tried again.

    It follows one revision of each key, the one that the plan kept or created, and starts only what the plan
    announced. The lock is held only during a further step. Keys in `_over` are settled: superseded or
    completed.
    """

    rollout: Rollout
    plan: Plan
    journal: Journal | None
    goal: Goal
    result: Result
    failed: set[str] = field(default_factory=set)
    #: What a key waits for, and since when; a change restarts the timeout.
    _timers: dict[str, tuple[object, float]] = field(default_factory=dict)
    _last_reported: dict[str, tuple[tuple[str, WaitEnd], float]] = field(default_factory=dict)
    _over: dict[str, Waited] = field(default_factory=dict)
    _unseen: set[str] = field(default_factory=set)
    #: Requested reruns that are not started yet.
    _rerun: set[str] = field(init=False)
    _is_held_up: bool = False
    _newest: Plan = field(init=False)
    _waits: tuple[Waited, ...] | None = None

    def __post_init__(self) -> None:
        own = _own_actions(self.plan, {action.key for action in self.plan.actions})
        self._keys = own.keys()
        self._followed = {key: Followed.of(action) for key, action in own.items()}
        self._newest = self.plan
        self._rerun = {
            key
            for key in self.rollout.context.rerun_keys & own.keys()
            if own[key].reason is Reason.RERUN_REQUESTED or _waits_to_rerun(own[key])
        }
        self._note(self.result)

    @property
    def _clock(self) -> Clock:
        return self.rollout.context.target.clock

    @property
    def _stack(self) -> Stack:
        return self.rollout.context.loaded.stack

    @property
    def _has_manifest(self) -> bool:
        return bool(self._stack.whole or self._stack.jobs)

    @property
    def _own(self) -> dict[str, PlannedAction]:
        return _own_actions(self._newest, self._keys)

    def run_to_end(self) -> Result:
        self.look()
        wait_for(self, self._clock, is_interrupted=self.rollout.stop.is_set)
        if self._waits is None:
            self.look()  # stopped during the last step
        self.announce(0.0)
        ended_elsewhere = {key for key, waited in self._over.items() if waited.end is WaitEnd.SUPERSEDED}
        open_keys = self._keys - self.failed - ended_elsewhere
        blocked = skipped(a for a in self._newest.actions if a.key in open_keys and a.traits.needs_attention)
        self.result = _merged(self.result, Result(tuple(blocked)))
        return replace(self.result, waits=self._waits or (), interrupted=self.rollout.stop.is_set())

    def look(self) -> bool:
        """Observe all keys, and do what is due under the lock. Returns whether anything was done.

        If another process holds the lock, or the store is unavailable, the next look tries again.
        """
        self._newest, snapshot = self._plan_again()
        stop = self.rollout.stop
        if self._due(self._newest, snapshot) and not stop.is_set():
            try:
                with self.rollout.lock or nullcontext():
                    self._newest, snapshot = self._plan_again(is_to_act=True)
                    due = self._due(self._newest, snapshot)
                    if due and not self._newest.refusals and not stop.is_set():
                        further = self.rollout._apply(_only(self._newest, due), self.journal)
                        self._is_held_up = False
                        self._note(further)
                        self.result = _merged(self.result, further)
                        self._waits = None  # a new job may not be listed at once
                        return True
                    self._is_held_up = snapshot.memory.problem is not None
            except (LockHeld, RecordsUnavailable) as refusal:
                if not self._is_held_up:
                    self.rollout.context.recording.warn(f"{refusal}; retrying until it is released")
                self._is_held_up = True
        self._waits = self._judge_all(self._own, snapshot)
        return False

    @property
    def is_over(self) -> bool:
        return self._waits is not None and all(one.end is not WaitEnd.WAITING for one in self._waits)

    def announce(self, pause_s: float) -> float:
        """Report the state of each key; return the pause, cut short by the next due time or timeout."""
        if self._waits is None:
            return pause_s
        self._report(self._waits, pause_s)
        self.rollout.show(self._waits)
        due = [action.due_s for action in self._own.values() if action.due_s is not None]
        due += [since_s + self.rollout.timeout_s for _, since_s in self._timers.values()]
        now_s = self._clock.now()
        return min(pause_s, LONGEST_PAUSE_S, *(at_s - now_s for at_s in due if at_s > now_s))

    def _note(self, result: Result) -> None:
        """Follow created revisions from now on; failed keys are not tried again, for whatever reason."""
        for outcome in result.outcomes:
            action = outcome.action
            if outcome.status not in (Status.DONE, Status.SKIPPED):
                self.failed.add(action.key)
            if action.traits.starts_a_job and outcome.status is not Status.SKIPPED:
                self._rerun.discard(action.key)
            if action.traits.starts_a_job and action.key in self._followed:
                followed = self._followed[action.key]._replace(after=action.after)
                if outcome.status is Status.DONE:
                    followed = Followed(outcome.job, after=action.after)
                self._followed[action.key] = followed

    def _due(self, plan: Plan, snapshot: Snapshot) -> list[PlannedAction]:
        """Return what to start now: due retries, and deferred starts. Updates what is followed first."""
        own = _own_actions(plan, self._keys)
        self._unseen.clear()
        for key, action in own.items():
            if key not in self._over and key not in self.failed:
                self._follow_on(key, action, snapshot)
        return [action for action in own.values() if self._is_due(action)]

    def _follow_on(self, key: str, action: PlannedAction, snapshot: Snapshot) -> None:
        """Follow what was announced; stop waiting for what was ended or replaced elsewhere."""
        desired = self._stack.find(key)
        owned = snapshot.view_of(key, action.former_keys).owned
        verdict = judge_followed(self._followed[key], action, owned, desired.digest if desired else None)
        verdict = verdict or self._verdict_on_unseen(key, action)
        if verdict is None:
            self._unseen.add(key)
        elif isinstance(verdict, Followed):
            self._followed[key] = verdict
        else:
            job = verdict.revision.job if verdict.revision else None
            self._over[key] = Waited(key, action.action, WaitEnd.SUPERSEDED, verdict.why, job)

    def _verdict_on_unseen(self, key: str, action: PlannedAction) -> Followed | Superseded | None:
        """Read the job itself: the list may lag, or the job may not be ours any more."""
        job_id = self._followed[key].job
        assert job_id is not None
        try:
            job = self.rollout.context.target.backend.details(job_id)
        except NotFound:
            if action.action in (Action.KEEP, Action.DEFER):  # decided by its record in the history
                return self._followed[key]
            return Superseded(None, f"the record of job {job_id} no longer exists")
        except ServiceError:
            return None
        marker = job.marker
        is_ours = marker is not None and marker.stack == self.plan.stack
        if is_ours and marker is not None and marker.key in (key, *action.former_keys):
            return None
        return Superseded(None, f"{job.name} no longer carries our marker")

    def _plan_again(self, *, is_to_act: bool = False) -> tuple[Plan, Snapshot]:
        """Observe and plan again; a saved plan has no manifest to plan from.

        Unless `is_to_act`, an unreadable history only makes keys unknown.
        """
        context = self.rollout.context
        context = context._replace(is_applied=is_to_act, rerun=tuple(self._rerun))
        if self._has_manifest:
            proposed = reconcile.propose(context, self.rollout.allowances)
            plan = guarded_plan(proposed)
            return reconcile.describe_code(context, plan) if is_to_act else plan, proposed.snapshot
        _, snapshot = observe(context, context.plan_context())
        return _observed_plan(self.plan, snapshot), snapshot

    def _is_due(self, action: PlannedAction) -> bool:
        is_over = action.key in self.failed or action.key in self._over
        return not is_over and may_start(self._followed[action.key], action)

    # --- the state of each wait

    def _judge_all(self, own: Mapping[str, PlannedAction], snapshot: Snapshot) -> tuple[Waited, ...]:
        """Judge the wait for each key by its own action, after those that it needs."""
        waits: dict[str, Waited | None] = {}

        def judge_key(key: str) -> Waited | None:
            if key not in waits and key in own:
                action = self._planned_state(own[key], snapshot)
                desired = self._stack.find(key)
                owned = snapshot.view_of(key, action.former_keys).owned
                job = next((one.job for one in owned if one.job.id == action.job_id), None)
                needs = desired.needs if desired else ()
                is_kept = action.traits.keeps_the_job and self._followed[key].is_deferred
                if is_kept and job is not None and not job.is_active:
                    # A rerun was announced, but its upstream did not complete.
                    needed = {one: judge_key(one) for one in needs}
                    missing = [
                        n for n, one in needed.items() if one is None or one.end is not WaitEnd.REACHED
                    ]
                    if missing:
                        stays = f"{job.name} stays {job.phase_text}"
                        why = f"not run again, since {few(missing)} did not complete; {stays}"
                        action = action.without_effect(Action.BLOCKED, Reason.NEEDS_FAILED, why)
                is_held = action.reason is Reason.NEEDS_PENDING
                waits_for = needs if is_held else action.waits_for
                upstream = [judge_key(one) for one in waits_for if one in own]
                in_view = is_held and len(upstream) == len(needs)
                waits[key] = self._judge(action, job, upstream, needs_in_view=in_view)
            return waits.get(key)

        return tuple(waited for key in own if (waited := judge_key(key)) is not None)

    def _planned_state(self, action: PlannedAction, snapshot: Snapshot) -> PlannedAction:
        """Return the action; one that was not announced is left to the next apply, and the job is kept."""
        followed, starts = self._followed[action.key], action.traits.starts_a_job
        owned = snapshot.view_of(action.key, action.former_keys).owned
        revision = next((one for one in owned if one.job.id == followed.job), None)
        if revision is None or not followed.is_kept or followed.job != action.rests_on:
            return action
        has_completed = revision.job.phase is Phase.COMPLETED
        is_rerun = starts and (action.reason is Reason.UPSTREAM_NEWER or action.scheduled_for is not None)
        is_held_back = action.reason in (Reason.NEEDS_PENDING, Reason.NEEDS_FAILED) and not starts
        if not (is_rerun or (has_completed and (is_held_back or action.action is Action.CREATE))):
            return action
        kept = action.without_effect(Action.KEEP, action.reason, f"{action.detail}, by the next apply")
        return kept.model_copy(update={"before": before_of(revision)})

    def _judge(
        self,
        action: PlannedAction,
        job: ObservedJob | None,
        upstream: Sequence[Waited | None],
        *,
        needs_in_view: bool,
    ) -> Waited | None:
        """Judge one wait; None if its action failed and there is no job to wait for."""
        key = action.key
        if key in self._over:
            return self._over[key]
        if key in self.failed and (action.traits.starts_a_job or job is None):
            return None
        is_upstream_open = any(map(_may_settle, upstream))
        is_held_up = self._is_held_up or self.rollout.stop.is_set()
        if key in self._unseen or (is_held_up and self._is_due(action)):
            end = WaitEnd.WAITING
        elif action.traits.keeps_the_job:
            # The history has the end of a job that aged out.
            end = judge_wait(self.goal, job.phase if job else parse_phase(action.aged_out_as or ""))
        elif action.action is Action.UNKNOWN:
            end = WaitEnd.WAITING
        elif action.action is not Action.DEFER or not self._has_manifest:
            end = WaitEnd.BLOCKED
        else:
            # Hopeless if no needed key can be settled any more; one out of view may be.
            is_hopeless = upstream and needs_in_view and not is_upstream_open
            end = WaitEnd.BLOCKED if is_hopeless else WaitEnd.WAITING
        if end is not WaitEnd.WAITING or is_upstream_open:
            # No timeout while an upstream key is waited for, or runs.
            self._timers.pop(key, None)
        else:
            what, now_s = (job.id if job else None, action.action), self._clock.now()
            timer = self._timers.get(key)
            # A failed observation does not restart the timeout.
            if timer is None or (timer[0] != what and action.action is not Action.UNKNOWN):
                timer = self._timers[key] = what, now_s
            if now_s - timer[1] >= self.rollout.timeout_s:
                end = WaitEnd.TIMED_OUT
        waited = Waited(key, action.action, end, action.explanation, job)
        if end is WaitEnd.REACHED and job is not None and not job.is_active:
            self._over[key] = waited
        return waited

    def _report(self, waits: Iterable[Waited], pause_s: float) -> None:
        """Report the state of each key when it changes, and every ten seconds while it is waited for."""
        now_s = self._clock.now()
        for waited in waits:
            summary = waited.describe(now_s)
            state = (waited.job.phase_text if waited.job else summary, waited.end)
            reported, at_s = self._last_reported.get(waited.key, (None, 0.0))
            is_open = waited.end is WaitEnd.WAITING
            if reported == state and (not is_open or now_s + pause_s - at_s <= PROGRESS_EVERY_S):
                continue
            self._last_reported[waited.key] = (state, now_s)
            job = waited.job.id if waited.job else None
            self.rollout.stream.emit(
                EventType.ACTION_PROGRESS, key=waited.key, action=waited.action, job=job, detail=summary
            )


def _waits_to_rerun(action: PlannedAction) -> bool:
    """Whether the action waits to create the next revision after an ended job."""
    waits = action.reason in (Reason.NEEDS_PENDING, Reason.WAITS_FOR_TURN) and action.before is None
    return waits and bool(action.follows or action.aged_out_as)


def _may_settle(waited: Waited | None) -> bool:
    """Whether a needed key may still be settled: it is waited for, or runs."""
    if waited is None:
        return False
    runs_on = waited.end is WaitEnd.REACHED and waited.job is not None and waited.job.is_active
    return waited.end is WaitEnd.WAITING or runs_on


def _own_actions(plan: Plan, keys: Collection[str]) -> dict[str, PlannedAction]:
    """Return the action on each key's latest revision, without those on its other revisions.

    Actions that terminate a job, or are blocked from doing so, are left out: there is nothing to wait for.
    """
    other_reasons = {Reason.SUPERSEDED, Reason.RENAMED, Reason.PROTECTION_RELEASED}
    return {
        a.key: a
        for a in plan.actions
        if a.key in keys and a.reason not in other_reasons
        if Action.TERMINATE not in (a.action, a.blocked_action)
    }


def _only(plan: Plan, actions: list[PlannedAction]) -> Plan:
    return plan.model_copy(update={"actions": tuple(actions), "summary": count(actions)})


def _merged(first: Result, more: Result) -> Result:
    """Merge results; later outcomes of a key, or of one of its revisions, replace earlier ones."""
    repeated = {outcome.action.key for outcome in more.outcomes}
    created = {(o.action.key, o.action.after) for o in more.outcomes if o.action.traits.starts_a_job}
    kept = [
        o
        for o in first.outcomes
        if not (o.action.key in repeated and o.action.traits.is_skipped)
        and (o.action.key, o.action.after) not in created
    ]
    return replace(
        first,
        outcomes=(*kept, *more.outcomes),
        faults=(*first.faults, *more.faults),
        interrupted=more.interrupted,
        lost_lock=first.lost_lock or more.lost_lock,
    )


def _observed_plan(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return a saved plan's actions as keeps of the jobs that were kept or created since, or blocks."""
    actions = []
    for action in plan.actions:
        owned = snapshot.view_of(action.key, action.former_keys).owned
        if action.traits.starts_a_job:
            number = action.after.revision if action.after else 0
            newest = owned[-1] if owned and owned[-1].number >= number else None
            action = action.model_copy(update={"action": Action.KEEP, "before": before_of(newest)})
        elif action.traits.keeps_the_job:
            kept = next((one for one in owned if one.job.id == action.job_id), None)
            # A failed job may have been retried elsewhere.
            has_failed = kept is not None and kept.job.phase is not None and kept.job.phase.ended_badly
            before = before_of(owned[-1]) if has_failed else action.before
            action = action.model_copy(update={"action": Action.KEEP, "before": before})
        actions.append(action)
    return _only(plan, actions)
