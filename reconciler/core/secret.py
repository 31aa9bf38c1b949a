"""Values that must never be seen: they travel as text that knows by which name to show itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from reconciler.core.decoding import Decoded, base64_texts, decode
from reconciler.core.expression import Reference, escape, parts_of
from reconciler.core.scalar import ScalarText
from reconciler.core.secret_forms import DEEPEST, SHORTEST_SCANNED, Form, breaks_of, forms_of, squeeze

REDACTED = "(sensitive)"
_REDACTED = REDACTED.encode()


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
    """Takes every known secret out of a text, in whatever form it stands there: see `core.secret_forms`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._squeezed: tuple[tuple[bytes, Form], ...] = ()
        self._exact: tuple[tuple[bytes, Form], ...] = ()
        self._breaks: tuple[str, ...] = ()
        self._shortest = 0
        self._new: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add values that must not be seen from now on."""
        new = {str(s) for s in secrets if len(s) >= SHORTEST_SCANNED and not s.isspace()} - self._known
        self._known |= new
        self._new += sorted(new)

    def __call__(self, text: str) -> str:
        """Return the text without secrets; the very same if it holds none."""
        if self._new:
            self._prepare()
        data = text.encode("utf-8", "surrogatepass")
        if not self._known or len(data) < self._shortest:
            return text
        spans = sorted(self._spans(data))
        if not spans:
            return text
        # What stands for a secret is none, though one may be a part of it.
        shown = [found.span() for found in re.finditer(re.escape(_REDACTED), data)] if "(" in text else []
        pieces: list[bytes] = []
        end = 0
        for start, stop in _merged(spans):
            if not any(one <= start and stop <= other for one, other in shown):
                pieces += (data[end:start], _REDACTED)
                end = stop
        return b"".join((*pieces, data[end:])).decode("utf-8", "surrogatepass")

    def held_back(self, text: str) -> int:
        """How many characters at the end of a text may be the first lines of a secret that goes on."""
        if self._new:
            self._prepare()
        plain = text.replace("\r\n", "\n")
        found = max((len(begin) for begin in self._breaks if plain.endswith(begin)), default=0)
        return found + text[-found:].count("\r") if found else 0

    def _prepare(self) -> None:
        new, self._new = self._new, []
        forms = {form.key: form for secret in new for form in forms_of(secret)}
        forms = {**forms, **dict(self._squeezed), **dict(self._exact)}
        self._squeezed = tuple((key, form) for key, form in forms.items() if form.is_squeezed)
        self._exact = tuple((key, form) for key, form in forms.items() if not form.is_squeezed)
        self._shortest = min(map(len, forms), default=0)
        self._breaks += tuple(begin for secret in new for begin in breaks_of(secret))

    def _spans(self, data: bytes, deepest: int = DEEPEST) -> Iterator[tuple[int, int]]:
        """Where secrets stand, at whatever level of escapes."""
        ways_back: list[Decoded] = []
        for level in range(deepest):
            inside = (
                span
                for span, text in base64_texts(data, self._shortest)
                if any(self._spans(text, deepest - level - 1))
            )
            for span in chain(self._found(data), inside):
                for way in reversed(ways_back):
                    span = way.origin(*span)
                yield span
            decoded = decode(data)
            if decoded is None:
                return
            ways_back.append(decoded)
            data = decoded.data

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        squeezed = squeeze(data)
        for form in [form for key, form in self._squeezed if key in squeezed]:
            yield from (found.span() for found in form.pattern.finditer(data))
        for form in [form for key, form in self._exact if key in data]:
            yield from (found.span() for found in form.pattern.finditer(data))
        if b"\xe2\x80\xa6" in data or b"..." in data:
            for _, form in (*self._squeezed, *self._exact):
                yield from form.parts(data, squeezed)


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, those that overlap made one."""
    start, end = -1, -1
    for one, other in spans:
        if one < end:
            end = max(end, other)
            continue
        if end > 0:
            yield start, end
        start, end = one, other
    if end > 0:
        yield start, end
