"""One entry of a drift report: what is not as it was left, and what waits to be applied.

Source: docs/drift.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from reconciler.core.values import Change, Frozen, Source


class DriftClass(StrEnum):
    """Class of drift."""

    MISSING = "missing"
    FAILED = "failed"
    TERMINATED = "terminated"
    MISSED = "missed"
    MODIFIED = "modified"
    DUPLICATE = "duplicate"
    ORPHANED = "orphaned"
    UNOWNED = "unowned"
    STUCK = "stuck"
    UNKNOWN = "unknown"


#: Beside a reference pydantic leaves out the description of a field, or not, by the model it builds first.
_PublishedClass = Annotated[
    DriftClass, WithJsonSchema({"type": "string", "enum": [one.value for one in DriftClass]})
]


class Drift(Frozen):
    """One thing that is not as it was left."""

    key: str = Field(description="Name of the job in the manifest.")
    class_: _PublishedClass = Field(alias="class", description="Class of drift.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What was found, for people.")
    since: str | None = Field(
        None,
        description="When a check first saw it, RFC 3339 in UTC: this one, if no earlier one is recorded; "
        "of why null, if none is.",
    )
    changes: tuple[Change, ...] = Field(
        (),
        description="For modified: each field as it was last applied, or is declared, and as it is now; "
        "omitted for other classes.",
    )
    began_at: str | None = Field(
        None, description="When it happened, RFC 3339 in UTC; null: neither service nor history says so."
    )
    node_hours: float | None = Field(
        None,
        description="Node-hours that it has cost: thrown away by a failed or terminated revision, or used so "
        "far by jobs that nothing declares; null: it costs none, or the service says too little.",
    )
    fix: str | None = Field(None, description="What to do about it: a command to run, or an edit to make.")
    source: Source | None = Field(None, exclude=True, description="Location of the key in the manifest.")
    others: tuple[str, ...] = Field(
        (), exclude=True, description="Ids of the other jobs that it is about, sorted."
    )


class IgnoredBy(StrEnum):
    """What says that a drift is known."""

    RULE = "rule"
    ACCEPT = "accept"


class IgnoredDrift(Drift):
    """Drift that is known: a rule of the manifest ignores it, or somebody accepted it."""

    by: IgnoredBy = Field(description="rule: drift.ignore of the manifest; accept: the command accept.")
    reason: str = Field("", description="Why, as the rule or whoever accepted it says.")
    until: str | None = Field(None, description="Last day of the rule, in UTC; null: it has no end.")
    rule: Source | None = Field(None, description="Location of the rule in the manifest.")
    who: str | None = Field(None, description="Who accepted it.")
    accepted_at: str | None = Field(None, description="When it was accepted, RFC 3339 in UTC.")


class Pending(Frozen):
    """A key whose manifest is ahead of the service: not drift."""

    key: str = Field(description="Name of the job in the manifest.")
    job: str | None = Field(None, description="Id of the job, or null if there is none.")
    detail: str = Field("", description="What is yet to be applied, for people.")
