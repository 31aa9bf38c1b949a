"""What is written down while a run goes on.

Source: docs/semantics.md, "Apply" and "Records".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.core.record import Call
from reconciler.core.stack import Declared

if TYPE_CHECKING:
    from reconciler.core.record import RunKind, Scope
    from reconciler.decide.outcome import Outcome
    from reconciler.decide.plan import PlannedAction


@dataclass(frozen=True)
class Step:
    """One call that is about to be made for an action. `declared` is that of the job it makes or changes."""

    action: PlannedAction
    call: Call
    job: str | None = None
    declared: Declared | None = None


@dataclass(frozen=True)
class StepEnd:
    """How the call ended. `is_certain`: whether it is known that it took effect, or did not."""

    ok: bool
    is_certain: bool = True
    job: str | None = None
    code: str = ""
    message: str = ""
    request_id: str = ""


@dataclass(frozen=True)
class Run:
    """One apply, destroy or drift check, as it begins."""

    scope: Scope
    kind: RunKind
    who: str
    where: str
    command: str
    commit: str
    plan_digest: str
    at_s: float


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, with what became of its actions."""

    at_s: float
    result: str
    summary: Mapping[str, int]
    outcomes: tuple[Outcome, ...] = ()


class Journal:
    """The lines of one run; this one keeps none. Safe to call from threads.

    In a store each method returns when its line is safe on disk.
    """

    #: Why lines that no call waits for could not be written; None if all were.
    problem: str | None = None

    def before(self, step: Step) -> int:
        """Write what is about to be asked; return the line's number.

        Raises:
            LockLost: the run no longer holds its lock, so the call must not be made.
            RecordsUnavailable: the line could not be written, so the call must not be made.
        """
        return 0

    def after(self, line: int, end: StepEnd) -> None:
        """Write how it went. A store that is unavailable by now is no failure of the call."""

    def outcome(self, outcome: Outcome, declared: Declared | None) -> None:
        """Write what became of an action; `declared` is that of the job it made or changed."""

    def end(self, ended: RunEnd) -> None:
        """Close the run."""
