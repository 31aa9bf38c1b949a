"""The section `notify` of a manifest: where notifications of drift and of failed applies are sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field

from reconciler.core.drift_rule import IgnorableClass
from reconciler.core.fields.field_types import Strict
from reconciler.errors import Diagnostic, Location

APPLY_FAILED = "apply_failed"
#: A key that could not be read is no drift, and shows in the exit code and the metrics.
NotifyClass = Literal[IgnorableClass, "apply_failed"]
NOTIFY_CLASSES: tuple[str, ...] = get_args(NotifyClass)


class NotifyEntry(Strict):
    """One entry under `notify`."""

    url: Annotated[str, Field(min_length=1)] = Field(
        description="An Apprise URL; it is a secret, and never shown.", examples=["${var.slack}"]
    )
    on: Annotated[list[NotifyClass] | None, Field(min_length=1)] = Field(
        None,
        description="What is sent there: classes of drift, and apply_failed; default: all.",
        examples=[["failed", "missing"]],
    )


@dataclass(frozen=True)
class Destination:
    """Where something is told: an entry of `notify` whose URL has its value.

    `url` is None where it has none: `problem` says why. `place` is where the manifest has the URL, and `path`
    its key path.
    """

    url: str | None = field(repr=False)
    on: frozenset[str] = frozenset(NOTIFY_CLASSES)
    place: Location | None = None
    path: str = "notify"
    problem: Diagnostic | None = None

    @property
    def name(self) -> str:
        """What it is called where the URL must not be seen."""
        return f"notify at {self.place}" if self.place else "notify"
