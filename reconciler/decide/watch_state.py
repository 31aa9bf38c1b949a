"""What is known after so many checks: the last, the last that could compare, and counts. Nothing grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.decide.watch_check import CheckReport, CheckResult
from reconciler.decide.watch_schedule import is_recent


@dataclass(frozen=True, slots=True)
class WatchState:
    """What the next check and the metrics need of the past.

    `failures` is how many checks in a row have failed by now. `compared` is the result of the last check
    that could compare, `compared_at_s` when it ended, in seconds since 1970, and `compared_s` the same on the
    clock that never jumps. `by_exit_code` counts all checks, `notifications_failed` what could not be sent.
    """

    checks: int = 0
    failures: int = 0
    last: CheckReport | None = None
    compared: CheckResult | None = None
    compared_at_s: float | None = None
    compared_s: float | None = None
    plan: Mapping[str, int] | None = None
    by_exit_code: Mapping[int, int] = field(default_factory=dict)
    notifications_failed: int = 0

    def after(self, report: CheckReport, elapsed_s: float) -> WatchState:
        """What is known after one more check, which ended at `elapsed_s` of the clock that never jumps."""
        result = report.result
        counts = dict(self.by_exit_code)
        counts[result.exit_code] = counts.get(result.exit_code, 0) + 1
        state = replace(
            self,
            checks=report.number,
            failures=self.failures + 1 if result.has_failed else 0,
            last=report,
            plan=self.plan if result.plan is None else result.plan,
            by_exit_code=counts,
            notifications_failed=self.notifications_failed + result.notifications_failed,
        )
        if not result.has_compared:
            return state
        return replace(state, compared=result, compared_at_s=report.ended_at_s, compared_s=elapsed_s)

    def is_healthy(self, elapsed_s: float, every_s: float) -> bool:
        """Whether the last check that could compare is younger than three intervals."""
        return is_recent(self.compared_s, elapsed_s, every_s)
