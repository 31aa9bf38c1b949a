"""What a saved plan has besides the plan: the options that shaped it, and what is needed to apply it."""

from __future__ import annotations

from pydantic import Field

from reconciler.core.settings import VariableSource
from reconciler.core.stack import Target
from reconciler.core.values import Frozen


class Refusal(Frozen):
    """A guard's refusal of the whole plan, as of when the plan was made."""

    what: str
    why: str = ""
    fix: str | None = None


class SavedOptions(Frozen):
    """The options that shaped the plan, and what is needed to apply it."""

    target: Target = Field(description="Target entry, expanded; must not contain a secret.")
    root: str = Field(description="Directory of the stack's root file, relative to the plan file.")
    records: str | None = Field(None, description="Record store, as given in the manifest.")
    only: tuple[str, ...] = Field((), description="Requested keys.")
    rerun: tuple[str, ...] = Field((), description="Keys requested to run again.")
    allow: tuple[str, ...] = Field((), description="Guards that were allowed to pass.")
    declared: dict[str, str] = Field(
        default_factory=dict, description='Declared keys, each with its sweep, or "".'
    )
    sources: dict[str, VariableSource] = Field(
        default_factory=dict, description="Source of each secret's value."
    )
    has_budget: bool = Field(False, description="Whether node-hours or cost of an apply are limited.")
    refusals: tuple[Refusal, ...] = Field((), description="Guards that refuse the whole plan.")
