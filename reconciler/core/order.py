"""The order in which a plan is carried out: what frees capacity comes before what needs it."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.core.plan import PlannedAction

Waves = list[list[PlannedAction]]


def waves(actions: Iterable[PlannedAction]) -> Waves:
    """Split the actions into waves; the actions of one wave are independent, and run side by side.

    First what only ends jobs, then what touches jobs in place, then what starts jobs; empty waves
    are left out.
    """
    frees: list[PlannedAction] = []
    in_place: list[PlannedAction] = []
    starts: list[PlannedAction] = []
    for action in actions:
        traits = action.traits
        if not traits.is_executed:
            continue
        wave = starts if traits.starts_a_job else frees if traits.stops_a_job else in_place
        wave.append(action)
    # A replace frees what it needs, so it goes before the creates that compete for it.
    starts.sort(key=lambda action: not action.traits.stops_a_job)
    return [wave for wave in (frees, in_place, starts) if wave]
