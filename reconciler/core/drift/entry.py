"""One entry of a drift report: what is not as it was left, and what waits to be applied.

Source: docs/drift.md.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from reconciler.core.planning.plan import Change, Frozen, Source


class DriftClass(StrEnum):
    """Class of drift."""

    MISSING = "missing"
    FAILED = "failed"
    TERMINATED = "terminated"
    MODIFIED = "modified"
    DUPLICATE = "duplicate"
    ORPHANED = "orphaned"
    UNOWNED = "unowned"
    STUCK = "stuck"
    UNKNOWN = "unknown"


class Drift(Frozen):
    """One thing that is not as it was left."""

    key: str = Field(description="Name of the job in the manifest.")
    class_: DriftClass = Field(alias="class", description="Class of drift.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What was found, for people.")
    since: str | None = Field(
        None, description="Since when, RFC 3339 in UTC, as far as the service reports it."
    )
    changes: tuple[Change, ...] = Field(
        (),
        description="For modified: each field as it was last applied, or is declared, and as it is now; "
        "omitted for other classes.",
    )
    source: Source | None = Field(None, exclude=True, description="Location of the key in the manifest.")


class Pending(Frozen):
    """A key whose manifest is ahead of the service: not drift."""

    key: str = Field(description="Name of the job in the manifest.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What is yet to be applied, for people.")
