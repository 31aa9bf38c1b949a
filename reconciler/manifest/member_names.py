"""The keys of the members of a sweep: how values are spelled in them, and which key a text means."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from reconciler.core.identity import key_problem
from reconciler.core.scalar import is_boolean, plain, scalar_text
from reconciler.manifest.expression_problems import NotExpanded
from reconciler.manifest.expressions import Expander
from reconciler.manifest.merge import MergedEntry

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]")


def value_text(value: Any) -> str:
    """A value as it stands in the key of a member: numbers in their shortest decimal form."""
    number = plain(value)
    if isinstance(number, int | float) and not is_boolean(value):
        text = _decimal(number)
    else:
        text = str(scalar_text(number))
    return _NOT_IN_NAMES.sub("_", text)


def value_texts(combination: Mapping[str, Any]) -> dict[str, str]:
    """The same for each value of a combination."""
    return {axis: value_text(value) for axis, value in combination.items()}


def _decimal(number: float) -> str:
    try:
        text = format(Decimal(repr(number)), "f")
    except (ArithmeticError, ValueError):  # infinite, or none at all
        return repr(number)
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_member_keys(
    entry: MergedEntry, value: dict[str, Any], expander: Expander, known: Collection[str]
) -> dict[str, Any]:
    """What a member says, `value`, with the keys in it that its own values stand in.

    `needs: train-lr-${matrix.lr}` means the job of that name if it is `known`, else the member whose key has
    the values as keys spell them: `train-lr-0_01`. A former key cannot be looked up, so it may be either.
    """
    for name in ("needs", "formerly"):
        written = entry.value.get(name)
        if entry.matrix and "${matrix." in str(written):
            texts = {**entry.matrix, **value_texts(entry.matrix)}
            try:
                spelled = expander.for_job(entry.name, texts).tree(written)
            except NotExpanded:
                continue  # as in `value`, where that has been told
            choose = _needed if name == "needs" else _former
            value = {**value, name: choose(value[name], spelled, known)}
    return value


def member_key(literal: str, spelled: str, known: Collection[str]) -> str:
    """The key that is meant where values stand in one: as they are, or as keys spell them."""
    return spelled if literal not in known and spelled in known else literal


def _needed(literal: Any, spelled: Any, known: Collection[str]) -> Any:
    if isinstance(literal, list):
        return [_needed(one, other, known) for one, other in zip(literal, spelled, strict=True)]
    are_texts = isinstance(literal, str) and isinstance(spelled, str)
    return member_key(literal, spelled, known) if are_texts else literal


def _former(literal: Any, spelled: Any, _: Collection[str]) -> Any:
    one, other = (value if isinstance(value, list) else [value] for value in (literal, spelled))
    if one == other:
        return literal
    possible = [key for key in one if not isinstance(key, str) or key_problem(key) is None]
    return [*possible, *(key for key in other if key not in possible)]
