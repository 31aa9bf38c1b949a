"""Confirms a plan, applies it under the lock, and reports progress."""

from __future__ import annotations

import _thread
import gc
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Unpack

from reconciler import reconcile
from reconciler.apply.executor import EventStream
from reconciler.cli import exits
from reconciler.cli.console import confirm, console, has_terminal
from reconciler.cli.context import opened, runtime
from reconciler.cli.exits import SIGNALS, Stopped, handled_by
from reconciler.cli.job_actions import say_end_of_log
from reconciler.cli.live import live_table
from reconciler.cli.output import OutputSpec, final_outputs, requested_outputs, save_plan, show, show_plan
from reconciler.cli.progress import BusyLine, can_draw, display
from reconciler.connection import RecordOptions, connect_target, records_url
from reconciler.core.addresses import file_url
from reconciler.core.past import RunKind
from reconciler.core.record import Scope
from reconciler.core.values import FORMAT_VERSION
from reconciler.decide.outcome import ApplyEvent, EventType, Goal, Result, WaitEnd, exit_code_of
from reconciler.decide.plan import ACTIONS, NO_ALLOWANCES, Action, Allowances, Plan
from reconciler.errors import LOCK_LOST, Diagnostic, ExitCode, ReconcilerError, Refused
from reconciler.files import RECORD_DIRECTORY, remove_temporary_files
from reconciler.manifest.saved_secrets import SecretSources, shown_address
from reconciler.modelarts import clock
from reconciler.plan_file import check_preconditions, check_target, read_plan
from reconciler.reconcile import Context, notify_apply
from reconciler.records.recording import DATABASE, StackLock
from reconciler.render import Content, View
from reconciler.render.text import render_warnings
from reconciler.rollout import Rollout
from reconciler.text import printable
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.cli.context import StackOptions

_WORDS = {
    EventType.ACTION_STARTED: "started",
    EventType.ACTION_COMPLETED: "succeeded",
    EventType.ACTION_FAILED: "failed",
    EventType.ACTION_SKIPPED: "skipped",
}
_ENDS = _WORDS.keys() - {EventType.ACTION_STARTED}
#: Interval between progress lines about the same wait, if lines are not redrawn.
PROGRESS_EVERY_S = 60.0


class JsonLines:
    def begin(self) -> None:
        """Start drawing: the confirmation has been given, so nothing hides the prompt."""

    def __call__(self, event: ApplyEvent) -> None:
        console.document(event.document(), indent=None)


class Lines(JsonLines):
    """One line per event on stderr; for a wait one per change, at most once a minute."""

    def __init__(self) -> None:
        self._state_by_key: dict[str, str] = {}
        self._changed: dict[str, ApplyEvent] = {}
        self._told_at_s = float("-inf")

    def __call__(self, event: ApplyEvent) -> None:
        key = event.key or ""
        if event.type in _WORDS:
            # This line reports the end, so it is not reported as a change of the wait as well.
            self._changed.pop(key, None)
            if event.action is not Action.BLOCKED:  # the plan shows why
                console.say(_event_line(event))
        if event.type is not EventType.ACTION_PROGRESS:
            return
        # Durations always change.
        state = re.sub(r"\d+(\.\d+)? (s|min|h|d)\b", "", event.detail or "")
        if self._state_by_key.get(key) != state or key in self._changed:
            self._state_by_key[key] = state
            self._changed[key] = event
        now_s = datetime.fromisoformat(event.ts).timestamp()
        if self._changed and now_s - self._told_at_s >= PROGRESS_EVERY_S:
            self._told_at_s = now_s
            first, *more = self._changed.values()
            self._changed.clear()
            console.say(_event_line(first) + (f", and {len(more)} more" if more else ""))


class _Counting(JsonLines):
    """A line on the terminal that counts finished jobs and shows the current action."""

    def __init__(self, plan: Plan, drawn: ExitStack) -> None:
        self._drawn = drawn
        self._open = Counter(action.key for action in plan.to_execute)
        self._total = len(self._open)
        self._failed: set[str] = set()
        self.line = BusyLine(f"0 of {self._total} jobs done")

    def begin(self) -> None:
        self._drawn.enter_context(display.part(self.line, sys.stderr))

    def __call__(self, event: ApplyEvent) -> None:
        key = event.key or ""
        if event.type in _ENDS and key in self._open:
            # A job counts once, when its last action has ended, even if it gets further actions later.
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        if event.type is EventType.ACTION_FAILED:
            self._failed.add(key)
        elif event.type is EventType.ACTION_COMPLETED:
            self._failed.discard(key)
        if event.type in _WORDS or event.type is EventType.ACTION_PROGRESS:
            failed = f", {len(self._failed)} failed" if self._failed else ""
            # After the last action only the wait is left, which a table shows.
            doing = f"  {_event_line(event)}" if self._open else ""
            self.line.text = f"{self._total - len(self._open)} of {self._total} jobs done{failed}{doing}"


def _event_line(event: ApplyEvent) -> str:
    why = event.message or event.detail or ""
    verb = event.action.value if event.action else ""
    if event.type is EventType.ACTION_PROGRESS:
        return printable(f"{event.key}: {why}")
    if event.type is EventType.ACTION_SKIPPED and event.action and ACTIONS[event.action].is_skipped:
        word = "not started" if event.action is Action.DEFER else verb
        return printable(f"{event.key}: {word}, {why}")
    return printable(f"{verb} {event.key}: {_WORDS[event.type]}" + (f", {why}" if why else ""))


@contextmanager
def progress(plan: Plan) -> Iterator[JsonLines]:
    """Yield a listener that shows events: drawn on a terminal, else as lines."""
    with ExitStack() as drawn:
        yield _Counting(plan, drawn) if can_draw(sys.stderr) else Lines()


class ApplyRequest(NamedTuple):
    """The options of an apply. `goal` is what to wait for after the actions.

    `on_confirmed` runs after the confirmation, before the first call. `digest` is that of a saved plan, or
    one for the outputs of a workflow.
    """

    question: str
    kind: RunKind
    outputs: Sequence[OutputSpec]
    yes: bool
    timeout_s: float
    goal: Goal | None = None
    on_confirmed: Callable[[], None] | None = None
    digest: str = ""

    @property
    def tells_events(self) -> bool:
        return OutputSpec("json", None) in self.outputs


@contextmanager
def report_early_failure(request: ApplyRequest) -> Iterator[None]:
    """If preparation fails, still emit the final event, which readers of `--json` wait for."""
    try:
        yield
    except BaseException as error:
        if request.tells_events:
            stream = EventStream(clock.SystemClock(), JsonLines())
            stream.emit(EventType.VERSION, reconciler_version=__version__, format_version=FORMAT_VERSION)
            words = "a system error" if isinstance(error, Exception) else "interrupted"
            if isinstance(error, ReconcilerError):
                words = "; ".join(diagnostic.what for diagnostic in error.diagnostics)
            stream.complete(message=words)
        raise


def hold_lock(cleanup: ExitStack, context: Context, interrupt: Interrupt, *more: Scope) -> StackLock:
    """Take the lock of the stack, released by `cleanup`. Losing it interrupts the apply.

    `more` are further scopes to lock. Locks are always taken in the same order, to avoid deadlocks.

    Raises:
        LockHeld: another process holds it.
        RecordsUnavailable: the record store is unavailable, and `--without-records` was not given.
    """
    scopes = sorted({context.scope, *more})
    locks = {scope: context.recording.lock(scope, interrupt.lock_lost) for scope in scopes}
    for lock in locks.values():
        # Registered before the lock is taken: a signal may arrive in between.
        cleanup.callback(lock.release)
        lock.take_in_time()
    return locks[context.scope]


def change(
    request: ApplyRequest,
    make_plan: Callable[[Context], Plan],
    allowances: Allowances = NO_ALLOWANCES,
    *,
    offline: bool = False,
    **options: Unpack[StackOptions],
) -> int:
    """Open the stack, plan while holding its lock, and apply the plan. Returns the exit code."""
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with report_early_failure(request), handled_by(interrupt.abort):
            context = cleanup.enter_context(opened(offline=offline, stop=interrupt.stop, **options))
            context = context.to_apply()
            lock = hold_lock(cleanup, context, interrupt)
            plan = make_plan(context)
            digest = save_plan(plan, context, allowances, options["records"], request.outputs)
        return carry_out(context, plan, request._replace(digest=digest), interrupt, lock, allowances)


def confirm_shown(question: str) -> None:
    """Ask for confirmation of what was printed on stdout.

    Raises:
        Refused: it is not confirmed, or stdout is closed.
    """
    if console.has_no_reader:
        why = "the plan could not be shown: stdout is closed; nothing was changed"
        raise Refused(Diagnostic("not confirmed", why, "keep stdout open, or add --yes"))
    confirm(question)


def carry_out(
    context: Context,
    plan: Plan,
    request: ApplyRequest,
    interrupt: Interrupt,
    lock: StackLock,
    allowances: Allowances = NO_ALLOWANCES,
) -> int:
    """Show the plan, ask, apply it, and show the result. Returns the exit code.

    With JSON on stdout its lines are events, and the plan goes to files only.
    """
    specs = requested_outputs(request.outputs)
    if request.tells_events:
        specs = [spec for spec in specs if spec.file is not None]
    result: Result | None = None
    # A saved plan has no manifest, from which the wait would start what is deferred.
    will_start = (
        request.goal and context.loaded.stack.jobs and plan.summary[Action.DEFER] and not plan.refusals
    )
    with nullcontext(JsonLines()) if request.tells_events else progress(plan) as listener:
        stream = EventStream(context.target.clock, listener)
        stream.begin(plan)
        interrupt.last_words = lambda: stream.complete(message=STOPPED)
        try:
            show_plan(plan, specs, digest=request.digest)
            if request.tells_events:
                for line in render_warnings(plan.warnings, console.style(sys.stderr)):
                    console.say(line, "warning")  # there is no event for it
            if not request.yes and (plan.applyable or will_start or request.on_confirmed):
                confirm_shown(request.question)
            if request.on_confirmed:
                request.on_confirmed()
            listener.begin()
            if request.goal is not None:
                gc.enable()  # disabled for short runs; a wait may last for days
            # A table would be mixed up with events on the same terminal.
            is_drawn = not (request.tells_events and sys.stdout.isatty())
            drawn = live_table(context.target.clock, request.goal, is_drawn=is_drawn)
            with interruptible(interrupt), drawn as show_waits:
                how = (request.timeout_s, allowances, request.goal, show_waits, lock)
                result = Rollout(context, request.kind, stream, interrupt.stop, *how).run(plan)
        except ReconcilerError as error:
            if interrupt.exit not in exits.SIGNALS.values():
                raise
            console.diagnostics(error.diagnostics)
        finally:
            # Readers wait for this event, even after a refusal.
            stream.complete(result, plan.refusals[0].what if plan.refusals else None)
    if result is not None:
        if plan.applyable or result.waits:
            view = View(at_s=context.target.clock.now(), digest=request.digest, plan=plan)
            show(Content.RESULT, result, specs, view, before=(Content.PLAN, plan))
        for waited in result.waits if not result.interrupted else ():
            if waited.end is WaitEnd.ENDED_BADLY and waited.job is not None:
                say_end_of_log(context.target, waited.job)
        for fault in result.faults[:1]:
            exits.report_fault(fault)
        if request.kind is RunKind.APPLY:
            final_outputs.notifications_failed += notify_apply(context, plan, result)
    return exit_code_of(plan, result, interrupt.exit)


def apply_saved(
    file: Path,
    request: ApplyRequest,
    *,
    approved: str | None,
    with_preflight: bool = True,
    **options: Unpack[StackOptions],
) -> int:
    """Apply a saved plan. No manifest is read; the values of secrets come from `options`.

    Raises:
        StalePlan: the service has changed, the plan is for another target or version, or another plan was
            approved.
        ManifestInvalid: the file is not a valid plan, or one of its secrets has no value.
    """
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with report_early_failure(request), handled_by(interrupt.abort):
            read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=True)
            final_outputs.about(read.plan.stack, read.plan.target.name)
            read.check_approved(approved)
            values = SecretSources(
                dict(options["variables"]), list(options["var_files"]), os.environ, console.redact.add_secrets
            )
            plan, shaped_by, loaded = read.resolve(values), read.options, read.as_loaded()
            run_by, given = runtime(interrupt.stop), options["records"]
            url = records_url(shaped_by.target, given, lambda: read.records_url(values, loaded.root), run_by)
            if url is not None and url != given and not request.yes:
                _confirm_store(url, shaped_by.records, loaded.root)
            how = RecordOptions.of(options, url)
            context = cleanup.enter_context(
                connect_target(loaded, plan.target.name, shaped_by.target, url, run_by, how)
            )
            context = context._replace(only=shaped_by.only, parallelism=options["parallelism"]).to_apply()
            check_target(context, plan)
            lock = hold_lock(cleanup, context, interrupt)
            check_preconditions(context, plan)
            plan = reconcile.preflight(context, plan) if with_preflight else plan
        return carry_out(context, plan, request._replace(digest=read.digest), interrupt, lock)


def _confirm_store(url: str, address: str | None, root: Path) -> None:
    """Ask about a record store that is neither the stack's own file nor given by `--records`.

    Asked before connecting, because that may send a password to the store.

    Raises:
        Refused: it is not confirmed.
    """
    if url == file_url(str(root / RECORD_DIRECTORY / DATABASE)):
        return
    shown = printable(console.redact(shown_address(address or "")))
    if not has_terminal():
        why = f"the records are in {shown}, not in the stack's own store; no terminal to ask for confirmation"
        fix = "add --yes if this is correct, or pass the store: --records URL"
        raise Refused(Diagnostic("not confirmed", why, fix))
    console.say(f"The plan keeps its records in {shown}, which is not the stack's own store.")
    confirm("Use that store?")


# --- signals during an apply


STOPPED = "stopped immediately; the next plan shows the outcome of calls in flight"
#: Time limit for the last output if its reader hangs.
_LAST_WORDS_S = 1.0


class Interrupt:
    """Handles signals during an apply: the first requests a stop, the second exits.

    Before it exits it clears what is drawn on the terminal and writes `last_words`.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit: ExitCode | None = None
        self.last_words: Callable[[], None] = lambda: None
        self._being_said: list[_thread.LockType] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal while actions are executed."""
        code = SIGNALS[number]
        if self.exit in SIGNALS.values():
            self._stop_at_once(code)
        self.exit = code
        self.stop.set()
        # On a thread, because the signal may have interrupted output.
        message = "interrupted: finishing the actions in flight; interrupt again to stop immediately"
        self._being_said.append(_in_thread(lambda: console.say(message)))

    def abort(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal before the first action: end waiting threads, and do nothing.

        Raises:
            Stopped: always.
        """
        self.exit = SIGNALS[number]
        self.stop.set()
        raise Stopped(number)

    def _stop_at_once(self, code: ExitCode) -> NoReturn:
        """Write the last output on a thread, so that a hanging reader cannot block the exit."""

        def say() -> None:
            with suppress(BaseException):
                # Bypasses sys.stderr, whose lock may be held.
                os.write(2, console.line(STOPPED))
            with suppress(BaseException):  # the reader has exited
                self.last_words()
                sys.stdout.flush()

        try:
            _in_thread(display.end).acquire(timeout=_LAST_WORDS_S / 2)
            for descriptor in (1, 2) if display.was_drawn else ():
                with suppress(OSError):
                    if os.isatty(descriptor):
                        os.write(descriptor, b"\x1b[?25h")  # shows the cursor
            _in_thread(say).acquire(timeout=_LAST_WORDS_S)
        finally:
            remove_temporary_files()
            os._exit(code)

    def finish_speaking(self) -> None:
        """Wait for pending output, with a time limit."""
        for is_said in self._being_said:
            is_said.acquire(timeout=_LAST_WORDS_S)
        self._being_said.clear()

    def lock_lost(self) -> None:
        """Start no more actions: somebody else may hold the lock."""
        if self.exit is None:
            self.exit = ExitCode.LOCKED
        self.stop.set()
        console.say(f"error: {LOCK_LOST}", "error")


def _in_thread(say: Callable[[], None]) -> _thread.LockType:
    """Write something on a thread. The returned lock is released afterwards.

    Does not use `threading`, whose locks the interrupted code may hold.
    """
    is_said = _thread.allocate_lock()
    is_said.acquire()

    def run() -> None:
        try:
            with suppress(BaseException):
                say()
        finally:
            is_said.release()

    _thread.start_new_thread(run, ())
    return is_said


@contextmanager
def interruptible(interrupt: Interrupt) -> Iterator[None]:
    with handled_by(interrupt.handle):
        try:
            yield
        finally:
            interrupt.finish_speaking()
