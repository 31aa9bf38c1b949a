"""What is shown of many jobs at once: the same thing about five jobs or more is one group.

One mechanism for every text: what is shown of an item decides (its look), and people can always ask for each
item by itself (`-v`). Documents for programs are never folded. Source: docs/cli.md, "Text output".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from reconciler.core.values import Change, node_hours
from reconciler.decide.plan import Action, PlannedAction, Reason, lost_sum

#: The same change on so many jobs is shown once (docs/cli.md, "Text output").
FOLDED_FROM = 5
#: What stands in the words about several jobs where the name of one would.
_ANY_JOB = "the job"

#: The order for people: what ends work first, then what stands in the way.
ACTION_ORDER = (
    Action.TERMINATE,
    Action.REPLACE,
    Action.CONFLICT,
    Action.BLOCKED,
    Action.UNKNOWN,
    Action.UPDATE,
    Action.CREATE,
    Action.DEFER,
    Action.KEEP,
)

_Item = TypeVar("_Item")
#: The parts of a name between hyphens, each with all that stands there in some name.
_Word = tuple[tuple[str, ...], ...]


class _HasAction(Protocol):
    @property
    def action(self) -> Action: ...


_Acting = TypeVar("_Acting", bound=_HasAction)


def in_order_for_people(items: Iterable[_Acting]) -> list[_Acting]:
    """What ends work first; what is of one kind stays in its order."""
    return sorted(items, key=lambda item: ACTION_ORDER.index(item.action))


def fold_alike(
    items: Iterable[_Item], look: Callable[[_Item], Hashable | None], *, is_folded: bool = True
) -> list[tuple[_Item, ...]]:
    """Put items of one look together, where they are many; each group where its first one was.

    An item whose look is None stands for itself.
    """
    items = list(items)
    looks = [look(item) if is_folded else None for item in items]
    many = {one for one, count in Counter(looks).items() if one is not None and count >= FOLDED_FROM}
    found: dict[object, list[_Item]] = {}
    for place, (item, one) in enumerate(zip(items, looks, strict=True)):
        found.setdefault(one if one in many else place, []).append(item)
    return [tuple(members) for members in found.values()]


def without_name(text: str, key: str) -> str:
    """Words about the job of a key as they would be about the job of any other key."""
    return re.sub(rf"(?<![\w-]){re.escape(key)}(?:-r\d+)?(?![\w-])", _ANY_JOB, text)


def few(names: Sequence[str], most: int = 3) -> str:
    """Name the first of several, and say how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def is_one_sweep(places: Iterable[object]) -> bool:
    """Whether keys are members of one sweep: all of them stand in one place of the manifest."""
    found = set(places)
    return len(found) == 1 and None not in found


def in_braces(names: Iterable[str]) -> list[str]:
    """The names of members of a sweep, as a shell's braces write them, in as few words as there are blocks.

    What the braces of a word expand to are names of the list, each once, and no others.
    """
    words: list[_Word] = [tuple((part,) for part in name.split("-")) for name in dict.fromkeys(names)]
    for place in reversed(range(max(map(len, words), default=0))):
        words = _united(words, place)
    return ["-".join(map(_braced, word)) for word in words]


def _united(words: Iterable[_Word], place: int) -> list[_Word]:
    """Put words together that differ at one place only."""
    found: dict[object, list[_Word]] = {}
    for word in words:
        found.setdefault((len(word), word[:place], word[place + 1 :]), []).append(word)
    return [_union(same, place) for same in found.values()]


def _union(words: Sequence[_Word], place: int) -> _Word:
    first = words[0]
    if len(words) == 1:
        return first
    return (*first[:place], tuple(part for word in words for part in word[place]), *first[place + 1 :])


def _braced(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "{" + ",".join(parts) + "}"


def look_of_changes(changes: Iterable[Change]) -> str:
    """What is shown of changed fields."""
    return json.dumps([change.model_dump(mode="json") for change in changes])


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
        # Each runs the work of another key again.
        first = self.first.model_copy(update={"rerun_of_key": None}) if self.is_folded else self.first
        if len(first.waits_for) < FOLDED_FROM:
            return first.explanation
        return first.explanation.replace(", ".join(first.waits_for), few(first.waits_for))

    @property
    def is_harmless(self) -> bool:
        """Whether nothing is lost if a person does not read each key: no job ends, and none needs help."""
        return is_harmless(self.first.action) and not self.first.ended_badly


def is_harmless(action: Action) -> bool:
    """Whether an action of that kind ends no job and needs nobody's help."""
    return action in (Action.CREATE, Action.UPDATE, Action.KEEP, Action.DEFER)


def spell_work(hours: float) -> str:
    """Say node-hours for people, small amounts as node-seconds."""
    return f"{hours:.1f} node-hours" if hours >= 0.1 else f"{hours * 3600:.0f} node-seconds"


def fold(actions: Iterable[PlannedAction]) -> list[Group]:
    """Put actions with the same change together, where they are many; each group where its first one was."""
    return [Group(members) for members in fold_alike(actions, look_of_action)]


def look_of_action(action: PlannedAction) -> Hashable | None:
    """What is shown of an action beside its key, what it starts and what grows with time.

    Creates without a change belong together if they are members of one sweep: they stand in one place of a
    file.
    """
    sweep = None
    if action.action is Action.CREATE and not action.changes:
        if action.source is None:
            return None
        sweep = action.source
    shown = (action.symbol, action.action, action.reason, action.detail, action.ended_badly)
    return (*shown, action.next_run, look_of_changes(action.changes), action.rerun_of is not None, sweep)
