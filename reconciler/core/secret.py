"""Values that must never be seen: they travel as text that knows by which name to show itself."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

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


def may_have_been(redacted: str, text: str) -> bool:
    """Whether a text is redacted, and another one may be what it was."""
    pieces = redacted.split(REDACTED)
    return len(pieces) > 1 and re.fullmatch(".+".join(map(re.escape, pieces)), text, re.DOTALL) is not None


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


class _Forms(NamedTuple):
    """The forms of so many secrets; each with its key, by which a text is searched first."""

    secrets: int = 0
    squeezed: tuple[tuple[bytes, Form], ...] = ()
    exact: tuple[tuple[bytes, Form], ...] = ()
    shortest: int = 0


class Redactor:
    """Takes every known secret out of a text, in whatever form it stands there: see `core.secret_forms`.

    Threads may share one. What was learnt before a text is begun is not in it afterwards.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._by_secret: dict[str, tuple[Form, ...]] = {}
        self._forms = _Forms()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add values that must not be seen from now on."""
        for secret in map(str, secrets):
            if len(secret) >= SHORTEST_SCANNED and not secret.isspace():
                self._by_secret.setdefault(secret, ())

    def __call__(self, text: str) -> str:
        """Return the text without secrets; the very same if it holds none."""
        forms = self._known_forms()
        data = text.encode("utf-8", "surrogatepass")
        if not forms.secrets or len(data) < forms.shortest:
            return text
        spans = sorted(_spans(forms, data))
        if not spans:
            return text
        # What stands for a secret is none, though one may be a part of it.
        shown = [found.start() for found in re.finditer(re.escape(_REDACTED), data)]
        pieces: list[bytes] = []
        end = 0
        for start, stop in _merged(spans):
            before = bisect_right(shown, start) - 1
            if before < 0 or stop > shown[before] + len(_REDACTED):
                pieces += (data[end:start], _REDACTED)
                end = stop
        return b"".join((*pieces, data[end:])).decode("utf-8", "surrogatepass")

    def held_back(self, text: str) -> int:
        """How many characters at the end of a text may be the first lines of a secret that goes on."""
        plain = text.replace("\r\n", "\n")
        begins = (begin for secret in list(self._by_secret) for begin in breaks_of(secret))
        found = max((len(begin) for begin in begins if plain.endswith(begin)), default=0)
        return found + text[-found:].count("\r") if found else 0

    def _known_forms(self) -> _Forms:
        """The forms of all that was learnt. Two threads may make them both; none takes what is too old."""
        forms = self._forms
        if forms.secrets == len(self._by_secret):
            return forms
        secrets = list(self._by_secret)
        by_key: dict[bytes, Form] = {}
        for secret in secrets:
            made = self._by_secret[secret] or tuple(forms_of(secret))
            self._by_secret[secret] = made
            by_key |= {form.key: form for form in made}
        self._forms = forms = _Forms(
            len(secrets),
            tuple((key, form) for key, form in by_key.items() if form.is_squeezed),
            tuple((key, form) for key, form in by_key.items() if not form.is_squeezed),
            min(map(len, by_key)),
        )
        return forms


def _spans(forms: _Forms, data: bytes, deepest: int = DEEPEST) -> Iterator[tuple[int, int]]:
    """Where secrets stand, at whatever level of escapes."""
    ways_back: list[Decoded] = []
    for _ in range(deepest):
        inside = (
            span
            for span, text in base64_texts(data, forms.shortest)
            if any(_spans(forms, text, deepest // 2))
        )
        for span in chain(_found(forms, data), inside):
            for way in reversed(ways_back):
                span = way.origin(*span)
            yield span
        decoded = decode(data)
        if decoded is None:
            return
        ways_back.append(decoded)
        data = decoded.data


def _found(forms: _Forms, data: bytes) -> Iterator[tuple[int, int]]:
    squeezed = squeeze(data)
    for form in [form for key, form in forms.squeezed if key in squeezed]:
        yield from form.spans(data, squeezed)
    for form in [form for key, form in forms.exact if key in data]:
        yield from form.spans(data, squeezed)
    if b"\xe2\x80\xa6" in data or b"..." in data:
        for _, form in (*forms.squeezed, *forms.exact):
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
