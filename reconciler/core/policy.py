"""A policy: an expression that warns of, or denies, what a plan would do."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from reconciler.core.fields.field_types import Choice, Strict
from reconciler.errors import Location

#: The kinds of actions that policies are asked about.
POLICY_ACTIONS = ("create", "update", "replace")


class Effect(StrEnum):
    """What follows if the expression of a policy is true."""

    DENY = "deny"
    WARN = "warn"


class PolicyEntry(Strict):
    """One entry under `policies`: exactly one of `deny` and `warn`."""

    choices = (Choice((Effect.DENY.value, Effect.WARN.value), is_required=True),)

    name: Annotated[str, Field(min_length=1, max_length=64)] = Field(
        description="Name of the policy; it is shown with what it denies.", examples=["eight-nodes-at-most"]
    )
    deny: Annotated[str | None, Field(min_length=1)] = Field(
        None,
        description="CEL expression over job, action, stack and target; true: the key is blocked.",
        examples=["job.spec.resource.node_count > 8"],
    )
    warn: Annotated[str | None, Field(min_length=1)] = Field(
        None,
        description="CEL expression over the same; true: the plan warns.",
        examples=['job.description == ""'],
    )
    message: str | None = Field(
        None,
        description="What people are told where the expression is true.",
        examples=["more than 8 nodes need the platform team"],
    )
    only: Annotated[list[Literal["create", "update", "replace"]] | None, Field(min_length=1)] = Field(
        None,
        description="Kinds of actions that it is asked about; default: all three.",
        examples=[["create", "replace"]],
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        self.check_choices()
        return self

    @property
    def effect(self) -> Effect:
        """Which of the two it is."""
        return Effect.WARN if self.deny is None else Effect.DENY


class Policy(NamedTuple):
    """A policy as it is asked. `only` are kinds of actions; `location` is the place of its expression."""

    name: str
    effect: Effect
    expression: str
    message: str = ""
    only: tuple[str, ...] = POLICY_ACTIONS
    location: Location | None = None

    @classmethod
    def of(cls, entry: PolicyEntry, location: Location | None = None) -> Policy:
        """Take over an entry of a manifest."""
        expression = entry.warn if entry.deny is None else entry.deny
        only = POLICY_ACTIONS if entry.only is None else tuple(entry.only)
        return cls(entry.name, entry.effect, expression or "", entry.message or "", only, location)
