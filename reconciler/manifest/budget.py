"""How much a manifest may come to once its expressions and defaults stand in every job.

Ten lines can say a variable of a megabyte a thousand times, and `defaults` stand in each of ten thousand
jobs. What comes of it is reckoned before it is made, like what aliases stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: So many bytes, as estimated, may come of expressions and of defaults in the jobs of all targets.
MAX_EXPANDED = 150_000_000
#: The same for the values of variables, and for all that is no job: targets, records, notifications.
MAX_SETTINGS = 10_000_000
#: What a member of a sweep takes, beside what comes of its expressions, and what a key that a job names.
MEMBER, LINK = 4_000, 200
#: What a value takes beside its text.
_VALUE = 100


class BudgetExceeded(Exception):
    """There is more than anybody means."""


@dataclass
class ExpansionBudget:
    """What is left for one manifest, on whatever target it is read; one that was exceeded stays so."""

    limit: int = field(default_factory=lambda: MAX_EXPANDED)
    spent: int = 0
    _sizes: dict[int, tuple[Any, int]] = field(default_factory=dict, repr=False)

    def spend(self, amount: int) -> None:
        """Take note of so many bytes.

        Raises:
            BudgetExceeded: this is too much.
        """
        self.spent += amount
        if self.spent > self.limit:
            raise BudgetExceeded

    @property
    def is_exceeded(self) -> bool:
        """Whether there was too much."""
        return self.spent > self.limit

    def size_of(self, value: Any) -> int:
        """Estimate the bytes of plain data; what was asked for before is known."""
        if not isinstance(value, dict | list):
            return _VALUE + (len(value) if isinstance(value, str) else 0)
        # The value is kept with its size, so that its id is never another one's.
        if id(value) not in self._sizes:
            self._sizes[id(value)] = value, measure(value)
        return self._sizes[id(value)][1]


def measure(tree: Any) -> int:
    """Estimate the bytes of plain data."""
    size, waiting = 0, [tree]
    while waiting:
        value = waiting.pop()
        size += _VALUE
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(map(len, value))
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return size


def settings_budget() -> ExpansionBudget:
    """What there is for variables, and for all that is no job."""
    return ExpansionBudget(MAX_SETTINGS)
