"""What a target reports of a job beside its phase: the end of a log, events, metrics.

Shapes only: each kind of target brings its own values, and what it reports beyond them is shown as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict


class Report(Protocol):
    """Something that a target reported, e.g. a pydantic model."""

    def model_dump(self, *, mode: str = ..., exclude_unset: bool = ...) -> dict[str, Any]:
        """All of it as plain data."""
        ...


class LogEnd(Protocol):
    """The end of a log. `full_size` is the size of the whole log in bytes, None where that is not said."""

    @property
    def content(self) -> str: ...

    @property
    def full_size(self) -> int | None: ...


class JobEvent(Report, Protocol):
    """Something that happened to a job; `time` is text, as the target writes it."""

    @property
    def time(self) -> str: ...

    @property
    def level(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def message(self) -> str: ...


class EventPage(Protocol):
    """Some of the events of a job."""

    @property
    def events(self) -> Sequence[JobEvent]: ...


class NodeMetric(Report, Protocol):
    """Utilization of a node: one value per minute, in percent; None where there is none."""

    @property
    def metric(self) -> str: ...

    @property
    def value(self) -> Sequence[float | None]: ...


class EventQuery(TypedDict, total=False):
    """Which events of a job are asked for. `limit` is 1 to 100 (50), `level` Info, Error or Warning.

    `start_time` and `end_time` go together, in RFC 3339. `source` is K8S, Job or Task.
    """

    offset: int | None
    limit: int | None
    order: str | None
    level: str | None
    pattern: str | None
    start_time: str | None
    end_time: str | None
    source: str | None
