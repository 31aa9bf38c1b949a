"""The exit codes, and which of them says how a run ended. `ReconcilerError.exit_code` is one.

Source: docs/cli.md, "Exit codes".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.core.drift.report import DriftReport
    from reconciler.core.outcome import Result
    from reconciler.core.planning.plan import Plan


class ExitCode(IntEnum):
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
    WRONG_USAGE = 64
    INVALID = 65
    INTERNAL_ERROR = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


#: Where several hold, the first of these.
PRECEDENCE = (
    ExitCode.HUNG_UP,
    ExitCode.INTERRUPTED,
    ExitCode.TERMINATED,
    ExitCode.INTERNAL_ERROR,
    ExitCode.UNAUTHORIZED,
    ExitCode.LOCKED,
    ExitCode.STALE,
    ExitCode.PARTIAL,
    ExitCode.ENDED_BADLY,
    ExitCode.TIMED_OUT,
    ExitCode.UNKNOWN,
    ExitCode.INVALID,
    ExitCode.WRONG_USAGE,
    ExitCode.FAILED,
    ExitCode.REFUSED,
    ExitCode.CHANGES,
    ExitCode.DONE,
)


#: The run did what it was asked for; that there are changes, or that a guard refused, is an answer.
SUCCESSES = frozenset({ExitCode.DONE, ExitCode.CHANGES, ExitCode.REFUSED})


def first_of(codes: Iterable[ExitCode]) -> ExitCode:
    """The code that says the most, of those that hold; 0 if none does."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.DONE)


def of_plan(plan: Plan, *, detailed: bool) -> ExitCode:
    """The code of `plan`: unknown, refused, changes.

    What a guard, a policy or pre-flight blocks counts as refused; conflicts and other blocked keys only show.
    """
    if not plan.complete:
        return ExitCode.UNKNOWN
    if plan.refusals or plan.blocked:
        return ExitCode.REFUSED
    return ExitCode.CHANGES if detailed and plan.to_execute else ExitCode.DONE


def of_result(plan: Plan, result: Result | None, signal: ExitCode | None = None) -> ExitCode:
    """The code of `apply` and `destroy`; without a result nothing was executed."""
    codes = [] if result is None else _codes_of(result)
    if signal is not None:
        codes.append(signal)
    if not plan.complete:
        codes.append(ExitCode.UNKNOWN)
    if plan.refusals or (result is None and plan.in_the_way):
        codes.append(ExitCode.REFUSED)
    return first_of(codes)


def _codes_of(result: Result) -> list[ExitCode]:
    """Every code that holds for what was executed, and for what was waited for."""
    from reconciler.core.outcome import Status, WaitEnd

    by_status = {
        Status.DENIED: ExitCode.UNAUTHORIZED,
        Status.FAILED: ExitCode.PARTIAL,
        Status.TIMED_OUT: ExitCode.PARTIAL,
        Status.UNKNOWN: ExitCode.UNKNOWN,
        Status.CONFLICT: ExitCode.REFUSED,
    }
    by_wait = {
        WaitEnd.ENDED_BADLY: ExitCode.ENDED_BADLY,
        WaitEnd.SUPERSEDED: ExitCode.ENDED_BADLY,
        WaitEnd.TIMED_OUT: ExitCode.TIMED_OUT,
        WaitEnd.BLOCKED: ExitCode.REFUSED,
    }
    codes = [by_status.get(outcome.status, ExitCode.DONE) for outcome in result.outcomes]
    codes += [by_wait.get(waited.end, ExitCode.DONE) for waited in result.waits]
    if result.lost_lock:
        codes.append(ExitCode.LOCKED)
    if result.faults:
        codes.append(ExitCode.INTERNAL_ERROR)
    if any(outcome.action.traits.stands_in_the_way for outcome in result.outcomes):
        codes.append(ExitCode.REFUSED)
    return codes


def of_drift(report: DriftReport) -> ExitCode:
    """The code of `drift`: a check that compared nothing proves nothing.

    Neither does one that is to say what is new, and does not know what was there before.
    """
    if report.has_unknown or not report.compared or report.cannot_compare:
        return ExitCode.UNKNOWN
    return ExitCode.CHANGES if report.is_due else ExitCode.DONE
