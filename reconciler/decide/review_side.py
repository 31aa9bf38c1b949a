"""One side of a review: a manifest that was read, or the place where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.stack import Stack, Target
from reconciler.core.values import PlanWarning
from reconciler.decide.review_report import ReviewedSide


@dataclass(frozen=True, slots=True)
class Side:
    """A manifest as far as a review compares it; `stack` is None where there is none at all.

    `file_prefix` is what the names of its files begin with in messages; in a document they are without it.
    `records` is the address of the record store as it may be shown; `policy_target` is what policies see of
    the target that it was read for, as far as it is known without the service.
    """

    head: ReviewedSide
    stack: Stack | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    default_target: str | None = None
    records: str | None = None
    policy_target: Mapping[str, Any] = field(default_factory=dict)
    file_prefix: str = ""
    warnings: tuple[PlanWarning, ...] = ()
