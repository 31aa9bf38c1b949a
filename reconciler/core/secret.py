"""Values that must never be seen: they travel as text that knows by which name to show itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from reconciler.core.expression import Reference, escape, parts_of
from reconciler.core.printable import printable
from reconciler.core.scalar import ScalarText

#: Scanning outputs for shorter values would blank out half of every text, and hide nothing.
_SHORTEST_SCANNED = 4
REDACTED = "(sensitive)"


class SecretText(str):
    """A text made with a sensitive value. It is sent as it is, and shown as `reference`.

    `reference` names where the value comes from, e.g. `Bearer ${var.hf_token}`. Where `has_value` is
    False nothing gave the value, and the text is the reference: it is compared by name, and never sent.
    """

    __slots__ = ("has_value", "reference")
    reference: str
    has_value: bool

    def __new__(cls, value: str, reference: str, has_value: bool = True) -> SecretText:
        """Wrap `value`; `reference` is what everybody may read."""
        self = super().__new__(cls, value)
        self.reference = reference
        self.has_value = has_value
        return self

    def __repr__(self) -> str:
        return f"SecretText({self.reference!r})"

    def __reduce__(self) -> tuple[type[SecretText], tuple[str, str, bool]]:
        return SecretText, (str.__str__(self), self.reference, self.has_value)


def as_released(text: str) -> str:
    """Return what version 0.1.0 made of a value of which we make `text`; of a secret the name may differ."""
    if isinstance(text, SecretText):
        name = as_released(text.reference)
        return text if name is text.reference else SecretText(str.__str__(text), name, text.has_value)
    return text.released if isinstance(text, ScalarText) else text


def show(tree: Any) -> Any:
    """Return a copy of plain data in which each secret is replaced by its reference."""
    if isinstance(tree, SecretText):
        return tree.reference
    if isinstance(tree, Mapping):
        return {key: show(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [show(value) for value in tree]
    return tree


def holds_secret(tree: Any) -> bool:
    """Whether plain data holds a secret, with its value or without."""
    if isinstance(tree, Mapping):
        return any(map(holds_secret, tree.values()))
    if isinstance(tree, list | tuple):
        return any(map(holds_secret, tree))
    return isinstance(tree, SecretText)


def save(tree: Any) -> Any:
    """Return a copy of plain data to be written down: each secret as its reference, other texts escaped.

    `manifests.saved.resolve` is the inverse.
    """
    if isinstance(tree, SecretText):
        return tree.reference
    if isinstance(tree, str):
        return escape(tree)
    if isinstance(tree, Mapping):
        return {key: save(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [save(value) for value in tree]
    return tree


def unsavable(tree: Any) -> tuple[str, ...]:
    """The references, each once, of the secrets in plain data that cannot be found again by them.

    These are values that a manifest marks as sensitive in place: they stand nowhere else.
    """
    return tuple(dict.fromkeys(one for one in _references_in(tree) if not _can_be_resolved(one)))


def _references_in(tree: Any) -> Iterator[str]:
    if isinstance(tree, SecretText):
        yield tree.reference
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _references_in(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _references_in(value)


def _can_be_resolved(reference: str) -> bool:
    parts = [part for part in parts_of(reference) if isinstance(part, Reference)]
    return bool(parts) and all(part.variable for part in parts)


class Redactor:
    """Replaces every known secret in a text, its base64 and URL forms too."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        self._known: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add values that must not be seen from now on."""
        self._known |= {str(s) for s in secrets if len(s) >= _SHORTEST_SCANNED}
        forms = {form for secret in self._known for form in _forms(secret)}
        # The longest first: a secret may hold another one.
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        return text


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    encoded = {base64.b64encode(raw), base64.urlsafe_b64encode(raw)}
    # An output may escape what a secret holds: JSON does, and so does text that is made printable.
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {secret.encode("unicode_escape").decode(), printable(secret)}
    return {
        secret,
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
        *(form.decode().rstrip("=") for form in encoded),
        *escaped,
    }
