"""A review: what a change of the manifests means, as plain data.

`Review` crosses the process boundary (`review --json`), so it is a frozen model with a schema. Nothing in it
depends on the time or on where files are read: for the same two manifests it is the same byte for byte.
Source of the format: docs/cli.md, "Review".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from reconciler.core.lifecycle import ReplaceOrder
from reconciler.core.secret import show
from reconciler.core.values import FORMAT_VERSION, Change, Frozen, PlanWarning, Source
from reconciler.decide.plan import ACTIONS, CREATE_FIRST_SYMBOL, Action, ActionTraits, Denial, Reason


class ChangeKind(StrEnum):
    """What became of a key between the two manifests."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"


class ReviewedSide(Frozen):
    """One of the two manifests; stack and digest are null where it has no manifest at all."""

    name: str = Field(description="Directory or git revision, as it was given.")
    commit: str | None = Field(None, description="Id of the commit; null for a directory.")
    stack: str | None = Field(None, description="The ownership scope.")
    manifest_digest: str | None = Field(None, description="Digest over the files of the stack.")


class ReviewedJob(Frozen):
    """A key that differs, and what that means for its job."""

    key: str = Field(description="Name of the job in HEAD; of a removed one in BASE.")
    change: ChangeKind = Field(description="What became of the key.")
    action: Action = Field(description="What apply does, if the job of the key is active.")
    reason: Reason = Field(description="Reason, as a fixed word.")
    detail: str = Field("", description="Reason, for people.")
    formerly: str | None = Field(None, description="For renamed: the key in BASE.")
    sweep: str | None = Field(None, description="Entry whose matrix the job is a member of.")
    starts: str = Field("", description="For create: what the job takes and runs, for people.")
    changes: tuple[Change, ...] = Field((), description="Changed fields.")
    source: Source | None = Field(
        None, description="Location of the key in the manifest of HEAD; of a removed one in that of BASE."
    )

    replace_order: ReplaceOrder = Field(ReplaceOrder.TERMINATE_FIRST, exclude=True)

    @property
    def traits(self) -> ActionTraits:
        """What is known of this kind of action."""
        return ACTIONS[self.action]

    @property
    def symbol(self) -> str:
        """The sign that stands before the action in a text."""
        if self.action is Action.REPLACE and self.replace_order is ReplaceOrder.CREATE_FIRST:
            return CREATE_FIRST_SYMBOL
        return self.traits.symbol


class NodeCount(Frozen):
    """Nodes that the declared jobs take together, if all of them run."""

    before: int = Field(0, description="In BASE.")
    after: int = Field(0, description="In HEAD.")


class Nodes(NodeCount):
    """The nodes of all jobs, and of each flavor."""

    flavors: dict[str, NodeCount] = Field(default_factory=dict, description="By flavor, or pool.")


class ReviewSummary(Frozen):
    """How many keys of each kind."""

    added: int = 0
    removed: int = 0
    renamed: int = 0
    changed: int = 0
    unchanged: int = 0


class Review(Frozen):
    """What the change from BASE to HEAD means for the jobs of a stack."""

    format_version: str = Field(
        FORMAT_VERSION, pattern=r"^\d+\.\d+$", description="Version of the document format."
    )
    reconciler_version: str = Field(description="Version of reconciler that created it.")
    stack: str = Field(description="The ownership scope in HEAD.")
    target: str | None = Field(None, description="Name of the target for which the manifests were read.")
    base: ReviewedSide
    head: ReviewedSide
    summary: ReviewSummary
    actions: dict[Action, int] = Field(description="How many actions of each kind, if every job is active.")
    jobs: tuple[ReviewedJob, ...] = Field(description="Keys that differ, sorted.")
    settings: tuple[Change, ...] = Field((), description="Changes outside of jobs: targets, limits, …")
    nodes: Nodes
    denied: tuple[Denial, ...] = Field((), description="Changes that policies of HEAD deny.")
    warnings: tuple[PlanWarning, ...] = Field((), description="Warnings.")

    def document(self) -> dict[str, Any]:
        """The review as plain JSON data, as `review --json` shows it. No secret is in it."""
        document: dict[str, Any] = show(self.model_dump(mode="json"))
        return document

    @property
    def last_line(self) -> str:
        """The fixed last line, word by word as in docs/cli.md, "Review"."""
        counts = ", ".join(f"{number} {kind}" for kind, number in self.summary.model_dump().items())
        wanted = [f"{number} {ACTIONS[kind].summary}" for kind, number in self.actions.items() if number]
        return f"Review: {counts}." + (f" If active: {', '.join(wanted)}." if wanted else "")
