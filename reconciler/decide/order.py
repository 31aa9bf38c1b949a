"""The order in which a plan is carried out: what frees capacity comes before what needs it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from reconciler.core.lifecycle import ReplaceOrder
from reconciler.decide.plan import PlannedAction


class Rank(IntEnum):
    """What an action does to the capacity that others want; the lower begins first."""

    ENDS = 0
    IN_PLACE = 1
    ENDS_AND_STARTS = 2
    STARTS = 3

    @property
    def frees_capacity(self) -> bool:
        """Whether what needs capacity is sent only after its termination was."""
        return self in (Rank.ENDS, Rank.ENDS_AND_STARTS)

    @property
    def needs_capacity(self) -> bool:
        """Whether it is not sent before what frees capacity was."""
        return self is Rank.STARTS


def rank(action: PlannedAction) -> Rank:
    """The rank of an action. With `create_first` a replace needs capacity before it frees any."""
    traits = action.traits
    if not traits.starts_a_job:
        return Rank.ENDS if traits.stops_a_job else Rank.IN_PLACE
    frees_first = traits.stops_a_job and action.replace_order is ReplaceOrder.TERMINATE_FIRST
    return Rank.ENDS_AND_STARTS if frees_first else Rank.STARTS


def in_order(actions: Iterable[PlannedAction]) -> list[PlannedAction]:
    """The actions that are executed, in the order in which they begin; of one key each waits for the last."""
    executed = [action for action in actions if action.traits.is_executed]
    # Of those that start a job a replace, which ends one, too, comes first.
    return sorted(executed, key=lambda action: (rank(action), not action.traits.stops_a_job))
