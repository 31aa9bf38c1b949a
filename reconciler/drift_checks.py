"""Drift checks that are recorded: each is compared with the last one, and leaves what the next one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler import reconcile
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.values import timestamp
from reconciler.decide import exit_code
from reconciler.decide.drift import DriftReport, with_acceptance, with_comparison
from reconciler.decide.drift_check import (
    NO_CHECK,
    Drift,
    DriftClass,
    DriftId,
    FoundDrift,
    IgnoredBy,
    IgnoredDrift,
    LastCheck,
    compare,
    content_of,
)
from reconciler.decide.journal import RunEnd
from reconciler.decide.planner import PARTIAL_VIEW
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, WrongUsage

if TYPE_CHECKING:
    from reconciler.decide.drift_check import DriftComparison
    from reconciler.reconcile import CheckOptions, Context
    from reconciler.recording import Recording


class DriftUnknown(ReconcilerError):
    """Whether a key has drifted could not be read."""

    exit_code = ExitCode.UNKNOWN


def last_check(context: Context) -> LastCheck:
    """What earlier checks left; read before the service is.

    What somebody else finds and records while we read would look as if it were gone.
    """
    return context.recording.last_check(context.scope) if context.recording else NO_CHECK


def compared(
    report: DriftReport, last: LastCheck, context: Context, options: CheckOptions, at_s: float
) -> DriftReport:
    """Compare a report with the last check of its scope, and write the check down.

    Everything that stands counts as reported if the exit code says that there is drift, for then all of it is
    shown. One that could not judge every key says something else, so what it found is due in the next one.
    """
    recording = context.recording
    redact = recording.redact if recording else str
    found = [
        FoundDrift(entry, content_of(entry, redact), isinstance(entry, IgnoredDrift))
        for entry in (*report.drift, *report.ignored)
    ]
    destinations = context.loaded.destinations() if options.is_reported_later else ()
    notified = {name for one in destinations for name in one.on}
    comparison = compare(
        last, found, report.has_judged, at_s=at_s, remind_s=options.remind_s, notified=notified
    )
    report = with_comparison(report, comparison, since_last=options.since_last)
    if last.problem is not None and recording:
        recording.warn(f"{last.problem}; this check is not recorded")
    elif recording and options.is_recorded:
        is_reported = not options.is_reported_later and exit_code.of_drift(report) is ExitCode.CHANGES
        check = comparison.record(compared=report.compared > 0, is_reported=is_reported)
        ended = RunEnd(recording.clock.now(), report.word, counts_of(report, comparison))
        recording.record_check(context.scope, ended, report.manifest_digest, check)
    return report


def seen_since(drift: tuple[Drift, ...], recording: Recording | None, scope: Scope) -> tuple[Drift, ...]:
    """The same entries with when a check saw them first; none did where the store knows nothing of one."""
    if not drift or recording is None:
        return drift
    since = {one.id: timestamp(one.since_s) for one in recording.last_check(scope).standing}
    return tuple(one.model_copy(update={"since": since.get(DriftId.of(one))}) for one in drift)


def accept(context: Context, key: str, reason: str) -> DriftReport:
    """Look at a key, and write down that its present drift is known until it changes; return the report.

    Raises:
        WrongUsage: there is no such key, or it has no drift that counts.
        DriftUnknown: the key could not be read.
        RecordsUnavailable: the record store cannot be read or written.
    """
    recording = _recording_of(context)
    report = _drift_of(context, key)
    if report.comparison is not None and report.comparison.problem is not None:
        why = f"{report.comparison.problem}; without the records nothing can be accepted"
        raise RecordsUnavailable(Diagnostic("the history could not be read", why))
    if unknown := next((one for one in report.drift if one.class_ is DriftClass.UNKNOWN), None):
        raise DriftUnknown(Diagnostic("nothing was accepted", f"{key}: {unknown.detail}", "try again"))
    found = frozenset(DriftId.of(entry) for entry in report.drift)
    if not found:
        raise WrongUsage(Diagnostic("nothing to accept", _why_nothing(key, report)))
    _, acceptance = recording.accept(context.scope, report.manifest_digest, found, reason)
    assert acceptance is not None
    return with_acceptance(report, found, acceptance)


def remove_acceptance(context: Context, key: str) -> DriftReport:
    """Let the accepted drift of a key count again, and look at the key; return the report.

    Raises:
        WrongUsage: nothing of the key is accepted.
        RecordsUnavailable: the record store cannot be read or written.
    """
    recording = _recording_of(context)
    last = recording.last_check(context.scope)
    if last.problem is not None:
        raise RecordsUnavailable(Diagnostic("the history could not be read", last.problem))
    found = frozenset(one.id for one in last.standing if one.entry.key == key and one.acceptance)
    if not found:
        why, fix = f"nothing of {key} is accepted", "reconciler drift lists what is, under Ignored"
        raise WrongUsage(Diagnostic("nothing to remove", why, fix))
    recording.accept(context.scope, context.loaded.manifest_digest, found, None)
    # It is new for the next check, so this look is none.
    return _drift_of(context, key, reconcile.EVERY_DRIFT._replace(is_recorded=False))


def _drift_of(context: Context, key: str, options: CheckOptions | None = None) -> DriftReport:
    """Look at one key; that the others are out of view was asked for, and is no warning."""
    report = reconcile.drift(context._replace(only=(key,)), options or reconcile.EVERY_DRIFT)
    warnings = tuple(warning for warning in report.warnings if warning.what != PARTIAL_VIEW)
    return report.model_copy(update={"warnings": warnings})


def _recording_of(context: Context) -> Recording:
    assert context.recording is not None
    return context.recording


def _why_nothing(key: str, report: DriftReport) -> str:
    known = next(iter(report.ignored), None)
    if known is None:
        return f"{key} has no drift"
    if known.by is IgnoredBy.ACCEPT:
        return f"the drift of {key} is accepted already, since {known.accepted_at}"
    return f"the drift of {key} is ignored already, by a rule of drift.ignore"


def counts_of(report: DriftReport, comparison: DriftComparison) -> dict[str, int]:
    """What the history says of a check: how much of what, and what became of it since the last one."""
    counts = {name.value: count for name, count in report.summary.items() if count}
    found = {
        "ignored": len(report.ignored),
        "new": len(comparison.new),
        "changed": len(comparison.changed),
        "gone": len(comparison.gone),
    }
    return {
        **counts,
        **{name: count for name, count in found.items() if count},
        "pending": len(report.pending),
    }
