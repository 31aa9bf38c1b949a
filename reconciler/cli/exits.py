"""Errors to text and exit code: the table of CLI.md 3, in one place."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from reconciler.cli.console import console
from reconciler.cli.running import Stopped
from reconciler.core.diagnostic import Diagnostic, ManifestInvalid, ReconcilerError, Refused, WrongUsage
from reconciler.core.printable import printable_lines

if TYPE_CHECKING:
    from reconciler.core.drift import DriftReport
    from reconciler.core.outcome import Result
    from reconciler.core.plan import Plan


class Exit(IntEnum):
    """How a run ended."""

    DONE = 0
    FAILED = 1
    CHANGES = 2
    REFUSED = 3
    STALE = 4
    PARTIAL = 5
    LOCKED = 6
    UNAUTHORIZED = 7
    UNKNOWN = 8
    TIMED_OUT = 9
    ENDED_BADLY = 10
    WRONG_USE = 64
    INVALID = 65
    OUR_FAULT = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


#: The signals that end a run in order; not every system has each.
SIGNALS: dict[int, Exit] = {
    number: code
    for name, code in (("SIGHUP", Exit.HUNG_UP), ("SIGINT", Exit.INTERRUPTED), ("SIGTERM", Exit.TERMINATED))
    if (number := getattr(signal, name, None)) is not None
}
_SIGNAL_WORDS = {Exit.HUNG_UP: "hung up", Exit.INTERRUPTED: "interrupted", Exit.TERMINATED: "terminated"}

#: Where several hold, the first of these.
PRECEDENCE = (
    Exit.HUNG_UP,
    Exit.INTERRUPTED,
    Exit.TERMINATED,
    Exit.OUR_FAULT,
    Exit.UNAUTHORIZED,
    Exit.LOCKED,
    Exit.STALE,
    Exit.PARTIAL,
    Exit.ENDED_BADLY,
    Exit.TIMED_OUT,
    Exit.UNKNOWN,
    Exit.INVALID,
    Exit.WRONG_USE,
    Exit.FAILED,
    Exit.REFUSED,
    Exit.CHANGES,
    Exit.DONE,
)


def first_of(codes: Iterable[Exit]) -> Exit:
    """The code that says the most, of those that hold; 0 if none does."""
    return min(codes, key=PRECEDENCE.index, default=Exit.DONE)


def of_plan(plan: Plan, *, detailed: bool) -> Exit:
    """The code of `plan`: unknown, refused, changes; conflicts and blocked keys only show in the plan."""
    if not plan.complete:
        return Exit.UNKNOWN
    if plan.refusals:
        return Exit.REFUSED
    return Exit.CHANGES if detailed and plan.to_execute else Exit.DONE


def of_result(plan: Plan, result: Result | None, signal: Exit | None = None) -> Exit:
    """The code of `apply` and `destroy`; without a result nothing was executed."""
    from reconciler.core.outcome import Status, WaitEnd

    codes = [Exit.DONE]
    if signal is not None:
        codes.append(signal)
    if result is not None and result.lost_lock:
        codes.append(Exit.LOCKED)
    if result is not None and result.faults:
        codes.append(_our_fault(result.faults[0]))
    if result is not None:
        ended = {outcome.status for outcome in result.outcomes}
        by_status = {
            Status.DENIED: Exit.UNAUTHORIZED,
            Status.FAILED: Exit.PARTIAL,
            Status.TIMED_OUT: Exit.PARTIAL,
            Status.UNKNOWN: Exit.UNKNOWN,
            Status.CONFLICT: Exit.REFUSED,
        }
        codes += [code for status, code in by_status.items() if status in ended]
        by_wait = {
            WaitEnd.ENDED_BADLY: Exit.ENDED_BADLY,
            WaitEnd.SUPERSEDED: Exit.ENDED_BADLY,
            WaitEnd.TIMED_OUT: Exit.TIMED_OUT,
            WaitEnd.BLOCKED: Exit.REFUSED,
        }
        codes += [by_wait[waited.end] for waited in result.waits if waited.end in by_wait]
        if any(outcome.action.traits.stands_in_the_way for outcome in result.outcomes):
            codes.append(Exit.REFUSED)
    if not plan.complete:
        codes.append(Exit.UNKNOWN)
    if plan.refusals or (result is None and plan.in_the_way):
        codes.append(Exit.REFUSED)
    return first_of(codes)


def of_drift(report: DriftReport) -> Exit:
    """The code of `drift`: a check that compared nothing proves nothing."""
    if report.has_unknown or not report.compared:
        return Exit.UNKNOWN
    return Exit.CHANGES if report.has_drifted else Exit.DONE


def of_error(error: ReconcilerError) -> Exit:
    """The code of a run that an error ended."""
    from reconciler.core.ports import Rejected, ServiceFailure, Unauthorized
    from reconciler.core.record import LockHeld, LockLost
    from reconciler.core.saved import StalePlan

    table: tuple[tuple[type[ReconcilerError], Exit], ...] = (
        (ManifestInvalid, Exit.INVALID),
        (WrongUsage, Exit.WRONG_USE),
        (Refused, Exit.REFUSED),
        (Unauthorized, Exit.UNAUTHORIZED),
        (LockHeld, Exit.LOCKED),
        (LockLost, Exit.LOCKED),
        (StalePlan, Exit.STALE),
        (Rejected, Exit.FAILED),
        (ServiceFailure, Exit.UNKNOWN),
    )
    return next((code for kind, code in table if isinstance(error, kind)), Exit.FAILED)


def of_exception(error: BaseException) -> Exit:
    """Show what ended a run, and return its code; never a traceback."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            return _of_signal(Exit.INTERRUPTED)
        case Stopped():
            return _of_signal(SIGNALS[error.number])
        case click.ClickException():
            _show_usage(error)
            return Exit.WRONG_USE
        case ReconcilerError():
            console.diagnostics(error.diagnostics)
            return of_error(error)
        case BrokenPipeError():
            # The reader has gone (`| head`); nobody is left to be told.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return Exit.DONE
        case OSError():
            what = error.strerror or type(error).__name__
            console.diagnostics([Diagnostic(what, path=str(error.filename or ""))])
            return Exit.FAILED
        case EOFError():
            console.diagnostics([Diagnostic("not confirmed", "the input ended")])
            return Exit.REFUSED
    return _our_fault(error)


def _of_signal(code: Exit) -> Exit:
    # A terminal shows ^C where the line was.
    is_on_its_own_line = console.log_format == "json" or code is not Exit.INTERRUPTED
    console.say(_SIGNAL_WORDS[code] if is_on_its_own_line else f"\n{_SIGNAL_WORDS[code]}")
    return code


def _show_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    if console.log_format == "json":
        fix = f"{context.command_path} --help" if context is not None else None
        console.diagnostics([Diagnostic(error.format_message(), fix=fix)])
        return
    if context is not None:
        console.say(context.get_usage())
        console.say(f"Try '{context.command_path} --help' for help.\n")
    console.say(f"error: {printable_lines(error.format_message())}")


def _our_fault(error: BaseException) -> Exit:
    """Write a report, without secrets, and say where it is."""
    import tempfile
    import traceback

    from reconciler.version import __version__

    report = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile(
        "w", prefix="reconciler-report-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"reconciler {__version__}, Python {sys.version}\n\n{console.redact(report)}")
    fix = f"please report it, with the file {file.name} (it holds no secrets)"
    console.diagnostics([Diagnostic("a fault of ours", type(error).__name__, fix)])
    return Exit.OUR_FAULT
