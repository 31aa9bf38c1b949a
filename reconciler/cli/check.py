"""One check of `reconciler watch`, in the process that is made for it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler import reconcile
from reconciler.checks.process import StopRequested, Work
from reconciler.checks.watch import Applied, ApplyLimits, Hooks, apply_within
from reconciler.cli import exit_codes
from reconciler.cli.context import opened
from reconciler.cli.final_outputs import OutputSpec
from reconciler.cli.output import show_drift
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.progress import lines
from reconciler.cli.terminal.reading import reading
from reconciler.decide import exit_code
from reconciler.decide.drift_report import DriftReport
from reconciler.decide.watch_check import CheckResult
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, Severity, first_of
from reconciler.notify import NOTHING_NOTIFIED, Notified
from reconciler.reconcile import CheckOptions, Context, notify_apply, notify_drift
from reconciler.render.json import redacted


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What to check: the options of the stack, files to be written, and limits where changes are applied."""

    stack: Mapping[str, Any]
    remind_s: float
    files: tuple[OutputSpec, ...] = ()
    limits: ApplyLimits | None = None
    notified: Notified = NOTHING_NOTIFIED


def run_check(request: CheckRequest, work: Work) -> None:
    """Check, tell the result, and do what comes after it. Nothing is raised but `StopRequested`."""
    gc.disable()  # the process is short
    try:
        with (
            reading.silenced(),
            opened(offline=request.limits is None, stop=work.stop, **request.stack) as context,
        ):
            _check(context, request, work)
    except StopRequested:
        raise
    except BaseException as error:
        if work.is_given_up:  # a library made another error of it
            raise StopRequested from None
        code = exit_codes.of_exception(error)
        if work.has_sent_result:  # what comes afterwards changes nothing of it
            work.send_more({"notifications_failed": 1})
            return
        work.send_result(_as_message(CheckResult(exit_code=code, problem=_words_of(error), is_shown=True)))


def _check(context: Context, request: CheckRequest, work: Work) -> None:
    report = reconcile.drift(context, CheckOptions(remind_s=request.remind_s, is_reported_later=True))
    unwritten = _write(report, request.files)
    if not report.complete:
        _show_what_was_not_read(report)
    attempt = _apply(context, request.limits, work) if request.limits else _Attempt()
    work.send_result(_as_message(_result(report, attempt, unwritten)))
    notified = notify_drift(context, report, request.notified)
    failed = notified.failed
    if attempt.applied is not None and attempt.applied.result is not None:
        failed += notify_apply(context, attempt.applied.plan, attempt.applied.result)
    partly_delivered = {digest: sorted(ids) for digest, ids in notified.partly_delivered.items()}
    work.send_more({"notifications_failed": failed, "partly_delivered": partly_delivered})


def _show_what_was_not_read(report: DriftReport) -> None:
    """Write to stderr why a check could not judge everything: its line says only that."""
    console.diagnostics(
        Diagnostic(warning.what, warning.why, warning.fix, severity=Severity.WARNING)
        for warning in report.warnings
    )


class _Unwritten(NamedTuple):
    """Why a report could not be written to its files: an exit code, and words for people."""

    code: ExitCode
    words: str


def _write(report: DriftReport, files: tuple[OutputSpec, ...]) -> _Unwritten | None:
    """Write the report to its files. What cannot be written is shown, and hides nothing of the drift."""
    try:
        show_drift(report, files)
    except (OSError, ReconcilerError) as error:
        return _Unwritten(exit_codes.of_exception(error), f"the report was not written: {_words_of(error)}")
    return None


class _Attempt(NamedTuple):
    """What became of the apply of a check: it was carried out or not, or it could not even be planned."""

    applied: Applied | None = None
    error: ReconcilerError | None = None

    @property
    def codes(self) -> list[ExitCode]:
        """The exit code that it would have."""
        if self.error is not None:
            return [ExitCode(self.error.exit_code)]
        return [self.applied.code] if self.applied else []

    @property
    def words(self) -> str:
        """What became of it, for people."""
        if self.error is not None:
            return f"not applied: {_words_of(self.error)}"
        return self.applied.words if self.applied else ""


def _result(report: DriftReport, attempt: _Attempt, unwritten: _Unwritten | None) -> CheckResult:
    codes = [exit_code.of_drift(report), *attempt.codes, *([unwritten.code] if unwritten else [])]
    applied = attempt.applied
    comparison = report.comparison
    assert comparison is not None
    document = report.model_copy(
        update={
            "since_last": True,
            "new": comparison.new,
            "changed": comparison.changed,
            "gone": comparison.gone,
        }
    ).document()
    problems = [] if report.complete else ["not everything could be read"]
    if comparison.problem is not None:
        problems = [f"not compared with the last check: {comparison.problem}"]
        codes.append(ExitCode.UNKNOWN)
    if unwritten is not None:
        problems.append(unwritten.words)
    return CheckResult(
        exit_code=first_of(codes),
        stack=report.stack,
        target=report.target.name,
        has_compared=bool(report.compared),
        summary={name.value: count for name, count in report.summary.items()},
        ignored=dict(Counter(entry.class_.value for entry in report.ignored)),
        new=tuple(document["new"]),
        changed=tuple(document["changed"]),
        gone=tuple(document["gone"]),
        plan=applied.summary if applied else None,
        applied=attempt.words,
        problem="; ".join(problems),
        is_shown=report.complete,
    )


def _apply(context: Context, limits: ApplyLimits, work: Work) -> _Attempt:
    """Apply what may be applied. What stands in the way is shown, and hides nothing of the drift."""
    hooks = Hooks(work.stop, work.begin_to_apply, lines(), console.diagnostics)
    try:
        return _Attempt(apply_within(context, limits, hooks))
    except ReconcilerError as error:
        console.diagnostics(error.diagnostics)
        return _Attempt(error=error)


def _as_message(result: CheckResult) -> Mapping[str, Any]:
    message: Mapping[str, Any] = redacted(result.model_dump(mode="json"), console.redact)
    return message


def _words_of(error: BaseException) -> str:
    if isinstance(error, ReconcilerError):
        return "; ".join(one.what for one in error.diagnostics[:3])
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "internal error" if isinstance(error, Exception) else "interrupted"
