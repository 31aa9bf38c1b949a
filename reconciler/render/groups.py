"""What is shown of many jobs at once: the same thing about five jobs or more is one group.

What is shown of an item decides (its look), and people can always ask for each item by itself (`-v`).
Documents for programs are never folded. Source: docs/reference/cli.md, "Text output".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.core.values import Change, node_hours
from reconciler.decide.plan import ACTIONS, FOLDED_FROM, PlannedAction, Reason, lost_sum, spell_work
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.core.values import PlanWarning
    from reconciler.decide.review import ReviewedJob

_Item = TypeVar("_Item")
_Acting = TypeVar("_Acting", PlannedAction, "ReviewedJob")
#: The parts of a name between hyphens, each with all that stands there in some name.
_Word = tuple[tuple[str, ...], ...]


def in_order_for_people(items: Iterable[_Acting]) -> list[_Acting]:
    """What ends work first; what is of one kind stays in its order."""
    return sorted(items, key=lambda item: ACTIONS[item.action].place)


def fold_alike(
    items: Iterable[_Item],
    look: Callable[[_Item], Hashable],
    place: Callable[[_Item], int] = lambda _: 0,
    *,
    is_folded: bool = True,
) -> list[tuple[_Item, ...]]:
    """Put items of one look together, where they are many; each group where its first one was.

    Within a group they are in the order of their places.
    """
    items = list(items)
    looks = [look(item) if is_folded else None for item in items]
    many = {one for one, count in Counter(looks).items() if is_folded and count >= FOLDED_FROM}
    found: dict[object, list[_Item]] = {}
    for number, (item, one) in enumerate(zip(items, looks, strict=True)):
        found.setdefault(one if one in many else number, []).append(item)
    return [tuple(sorted(members, key=place)) for members in found.values()]


def place_in(keys: Iterable[str]) -> Callable[[Any], int]:
    """Where an item stands among some keys; behind all of them, if its key is none."""
    places = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return lambda item: places.get(item.key, len(places))


def without_name(text: str, key: str) -> str:
    """Words about the job of a key as they would be about the job of any other key."""
    if key not in text:  # a pattern for each of many keys is slow to compile
        return text
    return re.sub(rf"(?<![\w-]){re.escape(key)}(?:-r\d+)?(?![\w-])", "the job", text)


def in_braces(names: Iterable[str]) -> list[str]:
    """Names as a shell's braces write them, those of a sweep in as few words as there are blocks.

    What the braces of a word expand to are names of the list, each once, and no others.
    """
    words: list[_Word] = [tuple((part,) for part in name.split("-")) for name in dict.fromkeys(names)]
    for place in reversed(range(max(map(len, words), default=0))):
        alike: dict[object, list[_Word]] = {}
        for word in words:
            rest = (len(word), word[:place], word[place + 1 :]) if len(word) > 1 else word
            alike.setdefault(rest, []).append(word)
        words = [
            (*word[:place], tuple(part for other in same for part in other[place]), *word[place + 1 :])
            if len(same) > 1
            else word
            for same in alike.values()
            for word in same[:1]
        ]
    return [
        "-".join(parts[0] if len(parts) == 1 else "{" + ",".join(parts) + "}" for parts in word)
        for word in words
    ]


def said_once(warnings: Iterable[PlanWarning], declared: Iterable[str] = ()) -> Iterator[PlanWarning]:
    """Those that say the same of several keys as one of all of these, in the order of the manifest."""
    keys_by_warning: dict[PlanWarning, list[PlanWarning]] = {}
    for one in warnings:
        keys_by_warning.setdefault(one.model_copy(update={"key": None}), []).append(one)
    for warning, alike in keys_by_warning.items():
        keys = [one.key for one in sorted(alike, key=place_in(declared)) if one.key]
        yield warning.model_copy(update={"key": ", ".join(in_braces(keys)) or None})


def look_of_changes(changes: Iterable[Change]) -> str:
    """What is shown of changed fields."""
    return json.dumps([change.model_dump(mode="json") for change in changes])


def look_of_action(action: PlannedAction) -> Hashable:
    """What is shown of an action beside its key, what it starts and what grows with time."""
    shown = (action.symbol, action.action, action.reason, action.detail, action.ended_badly)
    return (*shown, action.next_run, look_of_changes(action.changes), action.rerun_of is not None)


def explain_group(actions: Sequence[PlannedAction]) -> str:
    """Why, for people: of several jobs of one look, the sum of what is lost."""
    first, is_folded, lost = actions[0], len(actions) > 1, lost_sum(actions)
    if is_folded and first.reason is Reason.WOULD_LOSE_WORK:
        return first.would_lose(spell_work(sum(node_hours(one.elapsed, one.nodes) for one in actions)))
    if is_folded and lost:
        return f"{first.detail}; discards {spell_work(lost)} of work"
    if is_folded:  # each runs the work of another key again
        first = first.model_copy(update={"rerun_of_key": None})
    if len(first.waits_for) < FOLDED_FROM:
        return first.explanation
    return first.explanation.replace(", ".join(first.waits_for), few(first.waits_for))
