"""Confirming a plan and carrying it out under the lock: what apply and destroy share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from reconciler.apply.executor import EventStream
from reconciler.cli import exit_codes
from reconciler.cli.final_outputs import final_outputs
from reconciler.cli.options import OutputSpec
from reconciler.cli.output import requested_outputs, show_plan, show_result
from reconciler.cli.terminal.confirmation import confirm
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.interrupts import Interrupt, in_flight_words, interruptible
from reconciler.cli.terminal.progress import json_lines, progress
from reconciler.cli.terminal.wait_table import live_table
from reconciler.cli.wait import show_end_of_log
from reconciler.core.record import RunKind, Scope
from reconciler.core.values import FORMAT_VERSION
from reconciler.decide import exit_code
from reconciler.decide.outcome import EventType, Result, WaitEnd
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Plan
from reconciler.decide.wait import Goal
from reconciler.errors import Diagnostic, ReconcilerError, Refused
from reconciler.modelarts import clock
from reconciler.reconcile import Context, notify_apply
from reconciler.recording import StackLock
from reconciler.render.lines import render_warnings
from reconciler.rollout import Rollout
from reconciler.version import __version__


class ApplyRequest(NamedTuple):
    """What the person who carries a plan out asked for. `goal` is what to wait for in the end.

    `on_confirmed` is what else is done, when nothing stands between the plan and its first call any more.
    `digest` is that of the saved plan, if it is one.
    """

    question: str
    kind: RunKind
    outputs: Sequence[OutputSpec]
    as_json: bool
    yes: bool
    timeout_s: float
    goal: Goal | None = None
    on_confirmed: Callable[[], None] | None = None
    digest: str = ""

    @property
    def tells_events(self) -> bool:
        """Whether the lines on stdout are events."""
        return OutputSpec("json", None) in requested_outputs(self.outputs, as_json=self.as_json)


@contextmanager
def nothing_done(asked: ApplyRequest) -> Iterator[None]:
    """Where getting ready fails, say as the last event that nothing was done: readers wait for it."""
    try:
        yield
    except BaseException as error:
        if asked.tells_events:
            with json_lines() as listener:
                stream = EventStream(clock.SystemClock(), listener)
                stream.tell(EventType.VERSION, reconciler_version=__version__, format_version=FORMAT_VERSION)
                stream.complete(message=_words_of(error))
        raise


def _words_of(error: BaseException) -> str:
    if isinstance(error, ReconcilerError):
        return "; ".join(diagnostic.what for diagnostic in error.diagnostics)
    return "interrupted" if not isinstance(error, Exception) else "a system error"


class HeldLock(NamedTuple):
    """The lock of a stack, in our hands, and how we are interrupted."""

    interrupt: Interrupt
    lock: StackLock


def hold_lock(cleanup: ExitStack, context: Context, interrupt: Interrupt, *more: Scope) -> HeldLock:
    """Take the lock of the stack, to be let go by `cleanup`; losing it interrupts what is being done.

    `more` are other scopes whose locks are held, too. All who hold several take them in the same order, so
    that none waits for one who waits for it.

    Raises:
        LockHeld: another process holds it.
        RecordsUnavailable: the store of the lock is unavailable, and nobody said to go on without.
    """
    assert context.recording is not None
    scopes = sorted({context.scope, *more})
    locks = {scope: context.recording.lock(scope, interrupt.lock_lost) for scope in scopes}
    for lock in locks.values():
        # First what lets it go: a signal may come between the two.
        cleanup.callback(lock.release)
        lock.take()
    return HeldLock(interrupt, locks[context.scope])


def carry_out(
    context: Context,
    plan: Plan,
    asked: ApplyRequest,
    hold: HeldLock,
    allowances: Allowances = NO_ALLOWANCES,
) -> int:
    """Show the plan, ask, do it, and say what became of it. Returns the exit code.

    With JSON on stdout the lines there are events; the plan is then shown in files only.
    """
    specs = requested_outputs(asked.outputs, as_json=asked.as_json)
    if asked.tells_events:
        specs = [spec for spec in specs if spec.file is not None]
    interrupt = hold.interrupt
    result: Result | None = None
    with json_lines() if asked.tells_events else progress(plan) as listener:
        stream = EventStream(context.target.clock, listener)
        stream.begin(plan)
        interrupt.in_flight = lambda: stream.in_flight.names
        interrupt.last_words = lambda: stream.complete(message=in_flight_words(stream.in_flight.names))
        try:
            show_plan(plan, specs, digest=asked.digest)
            if asked.tells_events:
                _say_warnings(plan)
            _confirm(plan, asked)
            listener.begin()
            result = _execute(context, plan, asked, stream, hold, allowances)
        except ReconcilerError as error:
            if interrupt.exit not in exit_codes.SIGNALS.values():
                raise
            console.diagnostics(error.diagnostics)
        finally:
            # Readers wait for this line, also where somebody said no.
            stream.complete(result, plan.refusals[0].what if plan.refusals else None)
    if result is not None:
        if plan.applyable or result.waits:
            show_result(result, plan, specs, context.target.clock.now(), digest=asked.digest)
        _show_what_became(context, result)
        if asked.kind is RunKind.APPLY:
            final_outputs.notifications_failed += notify_apply(context, plan, result)
    return exit_code.of_result(plan, result, interrupt.exit)


def _say_warnings(plan: Plan) -> None:
    """Say on stderr what no event says."""
    for line in render_warnings(plan.warnings, console.style(sys.stderr)):
        console.say(line, "warning")


def _show_what_became(context: Context, result: Result) -> None:
    """Show how the logs of jobs that ended badly end, and an internal error, if there is any."""
    if not result.interrupted:
        _show_ends_of_logs(context, result)
    for fault in result.faults[:1]:
        exit_codes.report_fault(fault)


def _show_ends_of_logs(context: Context, result: Result) -> None:
    """Show the last lines of the log of each job that was waited for and ended badly."""
    badly = [w.job for w in result.waits if w.end is WaitEnd.ENDED_BADLY and w.job is not None]
    if not badly:
        return
    for job in badly:
        show_end_of_log(context.target, job)


def _execute(
    context: Context,
    plan: Plan,
    asked: ApplyRequest,
    stream: EventStream,
    hold: HeldLock,
    allowances: Allowances,
) -> Result:
    interrupt = hold.interrupt
    if asked.goal is not None:
        gc.enable()  # a run is spared it while it is short; a wait may last for days
    # Where the events are on the terminal, a table would be in their way.
    is_drawn = not (asked.tells_events and sys.stdout.isatty())
    with interruptible(interrupt), live_table(context.target.clock, asked.goal, is_drawn=is_drawn) as show:
        rollout = Rollout(
            context,
            asked.kind,
            stream,
            interrupt.stop,
            asked.timeout_s,
            allowances,
            asked.goal,
            show,
            hold.lock,
        )
        return rollout.run(plan)


def _confirm(plan: Plan, asked: ApplyRequest) -> None:
    """Ask where something would be done, and do what precedes the first call.

    Raises:
        Refused: it is not confirmed.
    """
    if (plan.applyable or asked.on_confirmed) and not asked.yes:
        _check_it_was_shown()
        confirm(asked.question)
    if asked.on_confirmed:
        asked.on_confirmed()


def _check_it_was_shown() -> None:
    """Nobody is asked about a plan that could not be shown.

    Raises:
        Refused: nobody reads stdout.
    """
    if console.has_no_reader:
        why = "the plan could not be shown: stdout is closed; nothing was changed"
        raise Refused(Diagnostic("not confirmed", why, "keep stdout open, or add --yes"))
