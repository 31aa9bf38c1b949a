"""Texts and documents on their way into the store: redacted, and such that any database takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from reconciler.core.record import Declared
from reconciler.records.cells import damaged, is_seconds
from reconciler.secrets import show


def storable_text(text: str) -> str:
    """PostgreSQL takes no NUL, and neither database half of a surrogate pair; ids and names can hold both."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


class Texts:
    """What is written goes through here first."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def text(self, text: str) -> str:
        """Redact a text."""
        return storable_text(self._redact(text))

    def document(self, tree: Mapping[str, Any]) -> str:
        """Write plain data as JSON. Redaction is by value, so that the JSON stays readable."""
        tree = show(tree)
        text = _dump(tree)
        return text if self._redact(text) == text else _dump(self._redacted(tree))

    def _redacted(self, tree: Any) -> Any:
        if isinstance(tree, Mapping):
            return {self._redact(str(key)): self._redacted(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._redacted(value) for value in tree]
        return self._redact(tree) if isinstance(tree, str) else tree

    def declared(self, declared: Declared | None) -> str | None:
        """Write down what was declared."""
        if declared is None:
            return None
        return self.document(
            {
                "immutable": declared.immutable,
                "mutable": declared.mutable,
                "description": declared.description,
                "protect": declared.protect,
            }
        )


def _dump(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


# Many revisions of a key are of one declaration, and what is read is frozen.
@lru_cache(maxsize=256)
def read_declared(text: str | None) -> Declared | None:
    """The inverse of `Texts.declared`.

    Raises:
        Damaged: the text was not written by it.
    """
    if text is None:
        return None
    tree = _load(text, "the declaration")
    match tree:
        case {"immutable": dict(), "mutable": dict(), "description": str(), "protect": bool() | None} if (
            len(tree) == 4
        ):
            return Declared(**tree)
    raise damaged("the declaration differs from what was written")


def read_phases(text: str) -> tuple[tuple[str, float], ...]:
    """The phases in which a revision was seen, each with the first time.

    Raises:
        Damaged: the text does not say that.
    """
    found = _load(text or "[]", "the observed phases")
    if isinstance(found, list) and all(_is_phase(one) for one in found):
        return tuple((phase, at_s) for phase, at_s in found)
    raise damaged("the observed phases are not a list")


def read_summary(text: str) -> dict[str, int]:
    """How many actions ended in each way.

    Raises:
        Damaged: the text does not say that.
    """
    found = _load(text or "{}", "the summary of a run")
    if isinstance(found, dict) and all(type(count) is int and count >= 0 for count in found.values()):
        return found
    raise damaged("the summary of a run is not a mapping")


def read_document(text: str, what: str) -> Any:
    """What `Texts.document` wrote.

    Raises:
        Damaged: it is no JSON; `what` says what it should be.
    """
    return _load(text, what)


def _load(text: str, what: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise damaged(f"{what} cannot be read") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


#: NaN and infinity are no JSON, and nothing here writes them.
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _is_phase(one: Any) -> bool:
    match one:
        case [str() as phase, int() | float() as at_s]:
            return phase != "" and is_seconds(at_s)
    return False
