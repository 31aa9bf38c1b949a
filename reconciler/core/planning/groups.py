"""Actions as they are shown: the same change on many jobs is one group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.core.planning.plan import PlannedAction, Reason, lost_sum, node_hours

#: The same change on so many jobs is shown once (docs/cli.md, "Text output").
FOLDED_FROM = 5


@dataclass(frozen=True, slots=True)
class Group:
    """Actions of one kind, for one reason, with the same changes; mostly it is one action."""

    actions: tuple[PlannedAction, ...]

    @property
    def first(self) -> PlannedAction:
        """The one that stands for all of them."""
        return self.actions[0]

    @property
    def is_folded(self) -> bool:
        """Whether it stands for several jobs."""
        return len(self.actions) > 1

    @property
    def explanation(self) -> str:
        """Why, for people: of several jobs, the sum of what is lost."""
        lost = lost_sum(self.actions)
        if self.is_folded and self.first.reason is Reason.WOULD_LOSE_WORK:
            at_stake = sum(node_hours(action.elapsed, action.nodes) for action in self.actions)
            return self.first.would_lose(spell_work(at_stake))
        if self.is_folded and lost:
            return f"{self.first.detail}; discards {spell_work(lost)} of work"
        return self.first.explanation


def spell_work(hours: float) -> str:
    """Say node-hours for people, small amounts as node-seconds."""
    return f"{hours:.1f} node-hours" if hours >= 0.1 else f"{hours * 3600:.0f} node-seconds"


def fold(actions: Iterable[PlannedAction]) -> list[Group]:
    """Put actions with the same change together, where they are many; each group where its first one was."""
    actions = list(actions)
    looks = [_look(action) for action in actions]
    many = {look for look, count in Counter(looks).items() if look is not None and count >= FOLDED_FROM}
    found: dict[object, list[PlannedAction]] = {}
    for place, (action, look) in enumerate(zip(actions, looks, strict=True)):
        found.setdefault(look if look in many else place, []).append(action)
    return [Group(tuple(members)) for members in found.values()]


def _look(action: PlannedAction) -> str | None:
    """What is shown of an action beside its key and what grows with time; None where nothing changes."""
    if not action.changes:
        return None
    changes = [change.model_dump(mode="json") for change in action.changes]
    shown = [action.symbol, action.action, action.reason, action.detail, action.starts, changes]
    return json.dumps([*shown, action.rerun_of is not None])
