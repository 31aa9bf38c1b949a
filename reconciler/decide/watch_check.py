"""What one check found, as a value that crosses from the process of the check to the one that watches.

Source: docs/watch.md, "Output".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from reconciler.core.values import Frozen, timestamp
from reconciler.errors import ExitCode

#: The check did its work; that something has drifted, or that a guard refused, is an answer.
SUCCESSES = frozenset({ExitCode.DONE, ExitCode.CHANGES, ExitCode.REFUSED})
#: What each of these is shown of: the rest is counted.
MOST_SHOWN = 20


class CheckResult(Frozen):
    """What one check found and did. Entries of drift are as `drift --json` has them, without secrets."""

    exit_code: int = Field(description="Exit code that the check would have as a command of its own.")
    stack: str = ""
    target: str = ""
    has_compared: bool = Field(False, description="Whether something could be compared.")
    summary: dict[str, int] = Field(default_factory=dict, description="Drift found, by class.")
    ignored: dict[str, int] = Field(default_factory=dict, description="Drift that is known, by class.")
    new: tuple[dict[str, Any], ...] = Field((), description="Drift that the last check did not find.")
    changed: tuple[dict[str, Any], ...] = Field((), description="Drift that is another than it was.")
    gone: tuple[dict[str, Any], ...] = Field((), description="Drift that the last check found.")
    plan: dict[str, int] | None = Field(None, description="With --apply: actions of the plan, by kind.")
    applied: str = Field("", description="With --apply: what became of the plan, for people.")
    problem: str = Field("", description="Why the check failed, for people.")
    is_shown: bool = Field(False, description="Whether the process of the check has shown that on stderr.")
    notifications_failed: int = Field(0, description="Notifications that could not be sent.")
    partly_delivered: dict[str, tuple[tuple[str, str, str], ...]] | None = Field(
        None, description="Drift that only some URLs were sent, by the digest of the URL; null: not known."
    )

    @property
    def has_failed(self) -> bool:
        """Whether the check did not do its work."""
        return self.exit_code not in SUCCESSES


class CheckReport(Frozen):
    """A check as `watch --json` prints it: its number, from 1, when it ended, and its result."""

    type: Literal["check"] = "check"
    number: int
    ended_at_s: float
    duration_s: float
    result: CheckResult

    def document(self) -> dict[str, Any]:
        """One line of `watch --json`; what there is nothing to say of is left out behind `gone`."""
        result = self.result
        document: dict[str, Any] = {
            "type": self.type,
            "ts": timestamp(self.ended_at_s),
            "number": self.number,
            "exit_code": result.exit_code,
            "summary": result.summary,
            "new": list(result.new),
            "gone": list(result.gone),
        }
        more = {
            "changed": list(result.changed),
            "plan": result.plan,
            "applied": result.applied,
            "problem": result.problem,
        }
        return document | {name: value for name, value in more.items() if value}


def out_of_time(limit: str) -> CheckResult:
    """The result of a check that was ended because it took too long."""
    problem = f"the check was ended after {limit}; raise --check-timeout to give it more time"
    return CheckResult(exit_code=ExitCode.UNKNOWN, problem=problem)


def ended_early(status: int) -> CheckResult:
    """The result of a check whose process ended without one: `status` is what the system says of it."""
    problem = f"the process of the check ended without a result (wait status {status})"
    return CheckResult(exit_code=ExitCode.INTERNAL_ERROR, problem=problem)
