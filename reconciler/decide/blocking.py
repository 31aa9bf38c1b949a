"""Blocking keys of a plan: nothing of them is done, what needs them waits, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.cost import total_cost
from reconciler.decide.dependencies import wait_for_blocked
from reconciler.decide.plan import Denial, PlannedAction, PreflightFinding, Reason, count, lost_sum
from reconciler.errors import Diagnostic


class Block(NamedTuple):
    """What blocks a key: its reason, the name of the guard, policy or finding, and why, for people."""

    reason: Reason
    by: str
    detail: str


class CatalogCheck(NamedTuple):
    """What pre-flight found of a plan, and what it warns of."""

    found: tuple[PreflightFinding, ...]
    warnings: tuple[PlanWarning, ...] = ()


def blocks_of_denials(denied: Iterable[Denial]) -> dict[str, list[Block]]:
    """What blocks each key that a policy denies."""
    blocks: dict[str, list[Block]] = {}
    for one in denied:
        detail = f"denied by {one.policy}" + (f": {one.explanation}" if one.message or one.problem else "")
        blocks.setdefault(one.key, []).append(Block(Reason.DENIED, one.policy, detail))
    return blocks


def blocks_of_findings(found: Iterable[PreflightFinding]) -> dict[str, list[Block]]:
    """What blocks each key of which pre-flight found something."""
    blocks: dict[str, list[Block]] = {}
    for one in found:
        way_out = f"; {one.fix}" if one.fix else ""
        detail = f"pre-flight: {one.detail}{way_out}"
        blocks.setdefault(one.key, []).append(Block(Reason.PREFLIGHT, one.reason.value, detail))
    return blocks


def block(
    actions: Iterable[PlannedAction], blocks: Mapping[str, Sequence[Block]], stack: Stack
) -> list[PlannedAction]:
    """Return the actions with these keys blocked, whole, and what needs one of them deferred."""
    if not blocks:
        return [*actions]
    return [_held(_blocked(action, blocks.get(action.key, ())), blocks, stack) for action in actions]


def sums_of(actions: Sequence[PlannedAction], refusals: Sequence[Diagnostic]) -> dict[str, Any]:
    """What a plan says of its actions together, and whether it may be applied: fields of `Plan`."""
    return {
        "actions": tuple(actions),
        "summary": count(actions),
        "lost_node_hours": lost_sum(actions),
        "cost": total_cost(actions),
        "refusals": tuple(refusals),
        "applyable": any(action.traits.is_executed for action in actions) and not refusals,
    }


def _blocked(action: PlannedAction, blocks: Sequence[Block]) -> PlannedAction:
    if not blocks or not action.traits.is_executed:
        return action
    names = tuple(dict.fromkeys(one.by for one in blocks))
    return action.block(blocks[0].reason, names, "; ".join(one.detail for one in blocks))


def _held(action: PlannedAction, blocks: Mapping[str, Sequence[Block]], stack: Stack) -> PlannedAction:
    """The action; a create or replace that needs a blocked key waits for it."""
    desired = stack.find(action.key)
    if desired is None or not action.traits.starts_a_job:
        return action
    needed = [key for key in desired.needs if key in blocks]
    return wait_for_blocked(action, needed) if needed else action
