"""Which exit code says how a run ended.

Source: docs/cli.md, "Exit codes".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import ExitCode, first_of

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.plan import Plan


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
    from reconciler.decide.outcome import Status, WaitEnd

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
