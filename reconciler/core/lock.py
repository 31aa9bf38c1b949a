"""The lock of a stack on a target: who holds it, and what may happen to whoever wants it.

Source: docs/concepts/crash-safety.md, "Apply".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.errors import ExitCode, ReconcilerError


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: a person or a CI user, on which machine, with which command."""

    who: str
    where: str
    command: str
    since_s: float
    expires_s: float
    #: The store's own name for this hold of the lock, and no other; for `break_lock`, never shown.
    hold: str = field(default="", repr=False, compare=False)


class LockHeld(ReconcilerError):
    """Another process holds the lock."""

    exit_code = ExitCode.LOCKED


class LockLost(ReconcilerError):
    """The lease of our lock ran out, or somebody broke it: nothing more may be sent."""

    exit_code = ExitCode.LOCKED
