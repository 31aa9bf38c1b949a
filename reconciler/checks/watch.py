"""One check of a watch: what has drifted and, where changes are to be applied, the plan and its apply.

Source: docs/watch.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconciler import reconcile
from reconciler.apply.executor import EventStream, Listener
from reconciler.core.record import RunKind
from reconciler.decide import exit_code
from reconciler.decide.blockers import blockers
from reconciler.decide.outcome import Result
from reconciler.decide.plan import Plan
from reconciler.decide.watch_window import Window, closes_at, local_text, opens_at
from reconciler.errors import Diagnostic, ExitCode, first_of
from reconciler.reconcile import Context
from reconciler.rollout import Rollout


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """When changes may be applied, and how many: no windows are any time, no number any number.

    `timeout_s` is how long each action may wait for its job.
    """

    windows: tuple[Window, ...] = ()
    max_actions: int | None = None
    timeout_s: float = 600.0


class Hooks(NamedTuple):
    """What a check tells of its apply, and how it is stopped.

    `begin_to_apply` is told, before the first change, for how many seconds changes may be made (None: without
    limit). Once `stop` is set no call that changes anything is sent. `listener` takes the events, `refused`
    what a guard has said.
    """

    stop: threading.Event
    begin_to_apply: Callable[[float | None], None]
    listener: Listener
    refused: Callable[[Sequence[Diagnostic]], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the plan of a check: its exit code, its counts by kind, and words for people.

    `plan` is the one that was carried out, and `result` what became of it; None where nothing was begun.
    """

    code: ExitCode
    words: str
    plan: Plan
    result: Result | None = None

    @property
    def summary(self) -> dict[str, int]:
        """How many actions of each kind the plan has."""
        return {action.value: count for action, count in self.plan.summary.items()}


def apply_within(context: Context, limits: ApplyLimits, hooks: Hooks) -> Applied:
    """Plan, and apply what may be applied now: inside a window, past no guard, not more than so many actions.

    Raises:
        LockHeld: somebody else holds the lock of the stack.
        RecordsUnavailable: the history cannot be read, so nothing is applied.
    """
    recording = context.recording
    assert recording is not None
    clock = recording.clock  # that of the target may be the emulator's own
    if _is_closed(limits, clock.now()):
        return _outside(reconcile.plan(context), limits, clock.now())
    lost = threading.Event()

    def lose_lock() -> None:
        lost.set()
        hooks.stop.set()

    context = context._replace(is_applied=True)
    with recording.lock(context.scope, lose_lock) as lock:
        plan = limited(reconcile.plan(context), limits.max_actions)
        if found := blockers(plan):
            hooks.refused(found)
        now_s = clock.now()
        if _is_closed(limits, now_s):
            return _outside(plan, limits, now_s)
        if not plan.applyable:
            Rollout(context, RunKind.APPLY, _stream(context, hooks), hooks.stop).run(plan)
            blocked = f", {len(plan.blocked)} blocked" if plan.blocked else ""
            words = f"refused: {plan.refusals[0].what}" if plan.refusals else f"nothing to apply{blocked}"
            return Applied(exit_code.of_result(plan, None), words, plan)
        closes_s = closes_at(limits.windows, now_s)
        hooks.begin_to_apply(None if closes_s is None else closes_s - now_s)
        stream = _stream(context, hooks)
        stream.begin(plan)
        rollout = Rollout(context, RunKind.APPLY, stream, hooks.stop, limits.timeout_s, lock=lock)
        result = rollout.run(plan)
    return _applied(plan, result, ExitCode.LOCKED if lost.is_set() else None)


def limited(plan: Plan, max_actions: int | None) -> Plan:
    """The plan, refused if it has more actions than may be carried out at once."""
    count = len(plan.to_execute)
    if max_actions is None or count <= max_actions:
        return plan
    why = f"the plan has {count} actions; --max-actions allows {max_actions}"
    fix = "read the plan with `reconciler plan`, then run `reconciler apply` yourself or raise --max-actions"
    refusal = Diagnostic("too many actions", why, fix)
    return plan.model_copy(update={"refusals": (*plan.refusals, refusal), "applyable": False})


def _stream(context: Context, hooks: Hooks) -> EventStream:
    return EventStream(context.target.clock, hooks.listener)


def _is_closed(limits: ApplyLimits, now_s: float) -> bool:
    return bool(limits.windows) and closes_at(limits.windows, now_s) is None


def _outside(plan: Plan, limits: ApplyLimits, now_s: float) -> Applied:
    """What a plan says outside of every window: it is shown, and waits."""
    opens = local_text(limits.windows, opens_at(limits.windows, now_s))
    count = len(plan.to_execute)
    waiting = f"{count} {'action waits' if count == 1 else 'actions wait'}" if count else "nothing to apply"
    return Applied(exit_code.of_plan(plan, detailed=False), f"{waiting}; the window opens {opens}", plan)


def _applied(plan: Plan, result: Result, lock: ExitCode | None) -> Applied:
    codes = [exit_code.of_result(plan, result, lock)]
    if result.interrupted:
        codes.append(ExitCode.PARTIAL)
    counts = ", ".join(f"{count} {name}" for name, count in result.summary.items() if count)
    words = f"stopped before the end: {counts}" if result.interrupted else f"applied: {counts}"
    return Applied(first_of(codes), words, plan, result)
