"""What a search for jobs found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconciler.core.observed_job import ObservedJob, Unreadable

if TYPE_CHECKING:
    from reconciler.errors import ServiceError

#: A condition of a search: `key`, `operator` (between, like, in, not) and `value`, a list of text.
SearchFilter = Mapping[str, Any]


def named(name: str) -> SearchFilter:
    """Return the condition for a name; it also finds names that merely contain this one."""
    return {"key": "name", "operator": "like", "value": [name]}


@dataclass
class Listing:
    """What was read of a list. `problem` is the failure, or the words, that kept the rest from being read.

    `jobs` and `unreadable` are in the order of the list, each id once.
    """

    jobs: list[ObservedJob] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    problem: ServiceError | str | None = None
    requests: int = 0
