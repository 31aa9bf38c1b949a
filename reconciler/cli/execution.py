"""Confirming a plan, carrying it out under the lock, and reporting what happens meanwhile."""

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
from reconciler.cli.output import (
    OutputSpec,
    digest_for_github,
    final_outputs,
    requested_outputs,
    show,
    show_plan,
)
from reconciler.cli.progress import BusyLine, can_draw, display
from reconciler.connection import RecordOptions, connect_target, records_url
from reconciler.core.addresses import file_url
from reconciler.core.past import RunKind
from reconciler.core.record import Scope
from reconciler.core.values import FORMAT_VERSION
from reconciler.decide.outcome import ApplyEvent, EventType, Goal, Result, WaitEnd, exit_code_of
from reconciler.decide.plan import ACTIONS, NO_ALLOWANCES, Action, Allowances, Plan
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, Refused
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
_ENDS = frozenset({EventType.ACTION_COMPLETED, EventType.ACTION_FAILED, EventType.ACTION_SKIPPED})
#: Where lines stay, waiting is worth one of them each minute, in seconds.
PROGRESS_EVERY_S = 60.0


class JsonLines:
    def begin(self) -> None:
        """Nobody is asked any more, so that nothing drawn hides a question."""

    def __call__(self, event: ApplyEvent) -> None:
        console.document(event.document(), indent=None)


class Lines(JsonLines):
    """One line per event on stderr. Waiting is told where something changed, once a minute at most."""

    def __init__(self) -> None:
        self._state_by_key: dict[str, str] = {}
        self._changed: dict[str, ApplyEvent] = {}
        self._told_at_s = float("-inf")

    def __call__(self, event: ApplyEvent) -> None:
        key = event.key or ""
        if event.type in _WORDS:
            # What ended is told by this line, and is no change of a wait any more.
            self._changed.pop(key, None)
            if event.action is not Action.BLOCKED:  # the plan says why
                console.say(_event_line(event))
        if event.type is not EventType.ACTION_PROGRESS:
            return
        # A span of time within a text grows by itself.
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
    """A line on the terminal that counts jobs, with what is being done beside it."""

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
            # A job counts once, when its last action has ended; what is done for it later counts no more.
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
        if event.type is EventType.ACTION_FAILED:
            self._failed.add(key)
        elif event.type is EventType.ACTION_COMPLETED:
            self._failed.discard(key)
        if event.type in _WORDS or event.type is EventType.ACTION_PROGRESS:
            failed = f", {len(self._failed)} failed" if self._failed else ""
            # When all are done there is only waiting, which a table shows.
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
    """Events for people: drawn on a terminal only, and where it is text that is wanted."""
    with ExitStack() as drawn:
        yield _Counting(plan, drawn) if can_draw(sys.stderr) else Lines()


class ApplyRequest(NamedTuple):
    """What the person who carries a plan out asked for. `goal` is what to wait for in the end.

    `on_confirmed` is what else is done, when nothing stands between the plan and its first call any more.
    `digest` is that of the plan, if it is a saved one or a workflow is to know it.
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
def nothing_done(asked: ApplyRequest) -> Iterator[None]:
    """Where getting ready fails, say as the last event that nothing was done: readers wait for it."""
    try:
        yield
    except BaseException as error:
        if asked.tells_events:
            stream = EventStream(clock.SystemClock(), JsonLines())
            stream.tell(EventType.VERSION, reconciler_version=__version__, format_version=FORMAT_VERSION)
            words = "a system error" if isinstance(error, Exception) else "interrupted"
            if isinstance(error, ReconcilerError):
                words = "; ".join(diagnostic.what for diagnostic in error.diagnostics)
            stream.complete(message=words)
        raise


def hold_lock(cleanup: ExitStack, context: Context, interrupt: Interrupt, *more: Scope) -> StackLock:
    """Take the lock of the stack, to be let go by `cleanup`; losing it interrupts what is being done.

    `more` are other scopes whose locks are held, too. All who hold several take them in the same order, so
    that none waits for one who waits for it.

    Raises:
        LockHeld: another process holds it.
        RecordsUnavailable: the store of the lock is unavailable, and nobody said to go on without.
    """
    scopes = sorted({context.scope, *more})
    locks = {scope: context.recording.lock(scope, interrupt.lock_lost) for scope in scopes}
    for lock in locks.values():
        # First what lets it go: a signal may come between the two.
        cleanup.callback(lock.release)
        lock.take_in_time()
    return locks[context.scope]


def change(
    asked: ApplyRequest,
    make_plan: Callable[[Context], Plan],
    allowances: Allowances = NO_ALLOWANCES,
    *,
    offline: bool = False,
    **options: Unpack[StackOptions],
) -> int:
    """Open the stack, take its lock, make a plan under it, and carry that out. Returns the exit code."""
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), handled_by(interrupt.abort):
            context = cleanup.enter_context(opened(offline=offline, stop=interrupt.stop, **options))
            context = context.to_apply()
            lock = hold_lock(cleanup, context, interrupt)
            plan = make_plan(context)
            digest = digest_for_github(plan, context, allowances, options["records"], asked.outputs)
            asked = asked._replace(digest=digest)
        return carry_out(context, plan, asked, interrupt, lock, allowances)


def confirm_shown(question: str) -> None:
    """Ask about what stands on stdout.

    Raises:
        Refused: nobody says yes, or nobody reads stdout.
    """
    if console.has_no_reader:
        why = "the plan could not be shown: stdout is closed; nothing was changed"
        raise Refused(Diagnostic("not confirmed", why, "keep stdout open, or add --yes"))
    confirm(question)


def carry_out(
    context: Context,
    plan: Plan,
    asked: ApplyRequest,
    interrupt: Interrupt,
    lock: StackLock,
    allowances: Allowances = NO_ALLOWANCES,
) -> int:
    """Show the plan, ask, do it, and say what became of it. Returns the exit code.

    With JSON on stdout the lines there are events; the plan is then shown in files only.
    """
    specs = requested_outputs(asked.outputs)
    if asked.tells_events:
        specs = [spec for spec in specs if spec.file is not None]
    result: Result | None = None
    with nullcontext(JsonLines()) if asked.tells_events else progress(plan) as listener:
        stream = EventStream(context.target.clock, listener)
        stream.begin(plan)
        interrupt.last_words = lambda: stream.complete(message=STOPPED)
        try:
            show_plan(plan, specs, digest=asked.digest)
            if asked.tells_events:
                for line in render_warnings(plan.warnings, console.style(sys.stderr)):
                    console.say(line, "warning")  # no event says it
            if (plan.applyable or asked.on_confirmed) and not asked.yes:
                confirm_shown(asked.question)
            if asked.on_confirmed:
                asked.on_confirmed()
            listener.begin()
            if asked.goal is not None:
                gc.enable()  # a run is spared it while it is short; a wait may last for days
            # Where the events are on the terminal, a table would be in their way.
            drawn = live_table(
                context.target.clock, asked.goal, is_drawn=not (asked.tells_events and sys.stdout.isatty())
            )
            with interruptible(interrupt), drawn as show_waits:
                how = (asked.timeout_s, allowances, asked.goal, show_waits, lock)
                result = Rollout(context, asked.kind, stream, interrupt.stop, *how).run(plan)
        except ReconcilerError as error:
            if interrupt.exit not in exits.SIGNALS.values():
                raise
            console.diagnostics(error.diagnostics)
        finally:
            # Readers wait for this line, also where somebody said no.
            stream.complete(result, plan.refusals[0].what if plan.refusals else None)
    if result is not None:
        if plan.applyable or result.waits:
            view = View(at_s=context.target.clock.now(), digest=asked.digest, plan=plan)
            show(Content.RESULT, result, specs, view, before=(Content.PLAN, plan))
        for waited in result.waits if not result.interrupted else ():
            if waited.end is WaitEnd.ENDED_BADLY and waited.job is not None:
                say_end_of_log(context.target, waited.job)
        for fault in result.faults[:1]:
            exits.report_fault(fault)
        if asked.kind is RunKind.APPLY:
            final_outputs.notifications_failed += notify_apply(context, plan, result)
    return exit_code_of(plan, result, interrupt.exit)


def apply_saved(
    file: Path,
    asked: ApplyRequest,
    *,
    approved: str | None,
    with_preflight: bool = True,
    **options: Unpack[StackOptions],
) -> int:
    """Carry a saved plan out. No manifest is read, so the values of its secrets are what `options` say.

    Raises:
        StalePlan: something moved, the plan was made for another place or by another version, or another
            one was approved.
        ManifestInvalid: the file is no plan, or a secret in it has no value now.
    """
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), handled_by(interrupt.abort):
            read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=True)
            final_outputs.about(read.plan.stack, read.plan.target.name)
            read.check_approved(approved)
            values = SecretSources(
                dict(options["variables"]), list(options["var_files"]), os.environ, console.redact.learn
            )
            plan, shaped_by, loaded = read.resolve(values), read.options, read.as_loaded()
            run_by, given = runtime(interrupt.stop), options["records"]
            url = records_url(shaped_by.target, given, lambda: read.records_url(values, loaded.root), run_by)
            if url is not None and url != given and not asked.yes:
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
        return carry_out(context, plan, asked._replace(digest=read.digest), interrupt, lock)


def _confirm_store(url: str, address: str | None, root: Path) -> None:
    """Ask about a store that is not the stack's own: the file beside its root file, or what --records says.

    It is asked before anything connects to the store, for that may send a password there.

    Raises:
        Refused: nobody says yes.
    """
    if url == file_url(str(root / RECORD_DIRECTORY / DATABASE)):
        return
    shown = printable(console.redact(shown_address(address or "")))
    if not has_terminal():
        why = f"the records are in {shown}, not in the stack's own store; no terminal to ask on"
        fix = "add --yes if this is correct, or pass the store: --records URL"
        raise Refused(Diagnostic("not confirmed", why, fix))
    console.say(f"The plan keeps its records in {shown}, which is not the stack's own store.")
    confirm("Use that store?")


# --- a signal while actions are carried out


STOPPED = "stopped immediately; the next plan shows the outcome of calls in flight"
#: A reader that takes nothing any more keeps us no longer than that, in seconds.
_LAST_WORDS_S = 1.0


class Interrupt:
    """Whether the program was asked to stop, and by which signal.

    When it has to stop at once it takes away what is drawn on the terminal, and says its `last_words`.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.exit: ExitCode | None = None
        self.last_words: Callable[[], None] = lambda: None
        self._being_said: list[_thread.LockType] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal while actions are carried out."""
        code = SIGNALS[number]
        if self.exit in SIGNALS.values():
            self._stop_at_once(code)
        self.exit = code
        self.stop.set()
        # From a thread of its own: the signal may have come in the middle of a line, or of a table.
        said = "interrupted: finishing the actions in flight; interrupt again to stop immediately"
        self._being_said.append(_in_thread(lambda: console.say(said)))

    def abort(self, number: int, frame: FrameType | None) -> None:
        """Take a signal while nothing has been begun: threads that wait end, and nothing is done.

        Raises:
            Stopped: always.
        """
        self.exit = SIGNALS[number]
        self.stop.set()
        raise Stopped(number)

    def _stop_at_once(self, code: ExitCode) -> NoReturn:
        """Say the last words from a thread of their own: whoever waits for the reader must not hold us."""

        def say() -> None:
            with suppress(BaseException):
                # Not by way of sys.stderr: what lives on the terminal may hold it.
                os.write(2, console.line(STOPPED))
            with suppress(BaseException):  # the reader has gone
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
        """Wait until what was begun to be said is said, for as long as somebody may listen."""
        for is_said in self._being_said:
            is_said.acquire(timeout=_LAST_WORDS_S)
        self._being_said.clear()

    def lock_lost(self) -> None:
        """Somebody else may hold the lock by now: begin nothing more."""
        if self.exit is None:
            self.exit = ExitCode.LOCKED
        self.stop.set()
        console.say(
            "error: the lock was lost: its lease expired, or it was broken; no new actions will start",
            "error",
        )


def _in_thread(say: Callable[[], None]) -> _thread.LockType:
    """Say something in a thread; the lock is free once that is done.

    Not by `threading`: its own locks may be held by what the signal interrupted.
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
