"""Drift checks that are recorded: each is compared with the last one, and leaves what the next one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.core import exit_code
from reconciler.core.drift.check import NO_CHECK, content_of
from reconciler.core.drift.comparison import FoundDrift, compare
from reconciler.core.drift.entry import IgnoredDrift
from reconciler.core.drift.report import DriftReport, with_comparison
from reconciler.core.exit_code import ExitCode
from reconciler.core.record import RunEnd, Scope

if TYPE_CHECKING:
    from reconciler.core.drift.comparison import DriftComparison
    from reconciler.reconcile import CheckOptions
    from reconciler.recording import Recording


def compared(
    report: DriftReport, recording: Recording | None, scope: Scope, options: CheckOptions, at_s: float
) -> DriftReport:
    """Compare a report with the last check of its scope, and write the check down.

    Everything that stands counts as reported if the exit code says that there is drift, for then all of it is
    shown. One that could not judge every key says something else, so what it found is due in the next one.
    """
    redact = recording.redact if recording else str
    found = [
        FoundDrift(entry, content_of(entry, redact), isinstance(entry, IgnoredDrift))
        for entry in (*report.drift, *report.ignored)
    ]
    last = recording.last_check(scope) if recording else NO_CHECK
    comparison = compare(last, found, report.has_judged, at_s=at_s, remind_s=options.remind_s)
    report = with_comparison(report, comparison, since_last=options.since_last)
    if last.problem is not None and recording:
        recording.warn(f"{last.problem}; this check is not recorded")
    elif recording:
        is_reported = options.is_always_reported or exit_code.of_drift(report) is ExitCode.CHANGES
        check = comparison.record(compared=report.compared > 0, is_reported=is_reported)
        ended = RunEnd(recording.clock.now(), report.word, counts_of(report, comparison))
        recording.record_check(scope, ended, report.manifest_digest, check)
    return report


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
