"""Numbers and booleans that remember how they were written, and the text that is made of them.

Where the service wants text, `1.10`, `1e-5`, `0123` and `False` are text as they stand in the file; where
it wants a number or a boolean they are one. Only a spelling that Python would not choose is remembered,
so that most values are plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from reconciler.secrets import SecretText

Steps = tuple[str | int, ...]


class SpelledInt(int):
    """A whole number with another spelling than Python's: `0123`, `+5`, `0x1F`."""

    spelling: str

    def __new__(cls, value: int, spelling: str) -> SpelledInt:
        """Remember how `value` was written."""
        self = super().__new__(cls, value)
        self.spelling = spelling
        return self

    def __reduce__(self) -> tuple[type[SpelledInt], tuple[int, str]]:
        return SpelledInt, (int(self), self.spelling)


class SpelledFloat(float):
    """A number with another spelling than Python's: `1.10`, `1e-5`, `.inf`."""

    __slots__ = ("spelling",)
    spelling: str

    def __new__(cls, value: float, spelling: str) -> SpelledFloat:
        """Remember how `value` was written."""
        self = super().__new__(cls, value)
        self.spelling = spelling
        return self

    def __reduce__(self) -> tuple[type[SpelledFloat], tuple[float, str]]:
        return SpelledFloat, (float(self), self.spelling)


class SpelledBool(int):
    """`True`, `TRUE`, `False` or `FALSE`. A bool cannot be subclassed, so `plain` turns it into one."""

    spelling: str

    def __new__(cls, value: bool, spelling: str) -> SpelledBool:
        """Remember how `value` was written."""
        self = super().__new__(cls, value)
        self.spelling = spelling
        return self

    def __reduce__(self) -> tuple[type[SpelledBool], tuple[bool, str]]:
        return SpelledBool, (bool(self), self.spelling)


SPELLED = (SpelledInt, SpelledFloat, SpelledBool)


class ScalarText(str):
    """Text made of a number or a boolean, of which version 0.1.0 made another text: `released`.

    It is that text from which the digests with the letter `a` are computed.
    """

    __slots__ = ("released",)
    released: str

    def __new__(cls, text: str, released: str) -> ScalarText:
        """Wrap the text that is sent."""
        self = super().__new__(cls, text)
        self.released = released
        return self

    def __reduce__(self) -> tuple[type[ScalarText], tuple[str, str]]:
        return ScalarText, (str(self), self.released)


def spelled(value: Any, spelling: str) -> Any:
    """Return a number or a boolean so that `scalar_text` gives back its spelling."""
    if plain_text(value) == spelling:
        return value
    if isinstance(value, bool):
        return SpelledBool(value, spelling)
    return SpelledInt(value, spelling) if isinstance(value, int) else SpelledFloat(value, spelling)


def plain(value: Any) -> Any:
    """Return a scalar as the plain value that it is: a bool, an int, a float; anything else as it is."""
    if isinstance(value, SpelledBool):
        return bool(value)
    if isinstance(value, SpelledInt):
        return int(value)
    return float(value) if isinstance(value, SpelledFloat) else value


def plain_text(value: Any) -> Any:
    """Return the text of a plain number or boolean; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


def scalar_text(value: Any) -> Any:
    """Return a number or a boolean as the text that was written; anything else as it is."""
    if isinstance(value, SPELLED):
        return text_released_as(value.spelling, plain_text(plain(value)))
    return plain_text(value)


def text_released_as(text: str, released: str) -> str:
    """Return a text of which version 0.1.0 made `released`; plain text if that is the same."""
    return text if text == released else ScalarText(text, released)


def as_released(text: str) -> str:
    """Return what version 0.1.0 made of a value of which we make `text`; of a secret the name may differ."""
    if isinstance(text, SecretText):
        name = as_released(text.reference)
        return text if name is text.reference else SecretText(str.__str__(text), name, text.has_value)
    return text.released if isinstance(text, ScalarText) else text


def is_boolean(value: Any) -> bool:
    """Whether a value is true or false, however it is spelled."""
    return isinstance(value, bool | SpelledBool)


#: What a whole number has to fit into, signed or not.
_LEAST, _BEYOND = -(2**63), 2**64


def odd_numbers(tree: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield the numbers in plain data that no reader of JSON takes: without an end, or of too many bits."""
    for step, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from odd_numbers(value, (*steps, step))
        elif _is_odd(value):
            yield (*steps, step), value


def holds_odd_number(tree: Any) -> bool:
    """Whether there is such a number; most plain data hold none, and this is the faster question."""
    for value in tree.values() if tree.__class__ is dict else tree:
        cls = value.__class__
        if cls is str:
            continue
        if cls is dict or cls is list:
            if holds_odd_number(value):
                return True
        elif _is_odd(value):
            return True
    return False


def _is_odd(value: Any) -> bool:
    if isinstance(value, float):
        return not isfinite(value)
    return isinstance(value, int) and not _LEAST <= value < _BEYOND


def walk_texts(tree: Any, change: Any) -> Any:
    """Return plain data with every text passed through `change`; the same object where nothing changes."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        changed = {key: walk_texts(value, change) for key, value in tree.items()}
        return changed if any(changed[key] is not value for key, value in tree.items()) else tree
    if isinstance(tree, list):
        items = [walk_texts(item, change) for item in tree]
        return items if any(one is not other for one, other in zip(items, tree, strict=True)) else tree
    return tree
