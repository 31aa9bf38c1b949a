"""Texts with expressions, numbers that keep their spelling, and how both are saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, Self

from reconciler.secrets import SecretText, map_leaves, secrets_in

#: The name of a variable.
VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
#: The name of an axis of a sweep.
AXIS_NAME = r"[A-Za-z][A-Za-z0-9_-]*"

#: An expression may contain the value of an axis: `${jobs.train-${matrix.lr}.outputs.x}`.
_AXIS = r"\$\{\s*matrix\.[^{}]*\}"
_PART = re.compile(rf"\$\$\{{|\$\{{((?:{_AXIS}|[^{{}}])*+)(\}}?)")
_LITERALS = {"$${": "${", "${$}": "$"}
_OUTPUT = rf"jobs\.((?:{_AXIS}|[^.\s])+)\.outputs\.(\S+)"


class OutputName(NamedTuple):
    """An output of a job: the job's key and the output's name. Both may contain values of axes."""

    key: str
    name: str


class Reference(NamedTuple):
    """An expression: the text between `${` and `}`, and the whole text as written."""

    inner: str
    text: str
    is_closed: bool

    @property
    def variable(self) -> str | None:
        kind, _, name = self.inner.partition(".")
        return name if self.is_closed and kind == "var" and re.fullmatch(VARIABLE_NAME, name) else None

    @property
    def output(self) -> OutputName | None:
        named = re.fullmatch(_OUTPUT, self.inner) if self.is_closed else None
        return OutputName(*named.groups()) if named else None


class UnresolvedText(str):
    """A text that refers to outputs of other jobs, kept as written until these jobs are known.

    If `secret` is not empty, the value is sensitive and shown by that name.
    """

    __slots__ = ("secret",)
    secret: str

    def __new__(cls, text: str, secret: str = "") -> UnresolvedText:
        self = super().__new__(cls, text)
        self.secret = secret
        return self

    @property
    def outputs(self) -> tuple[tuple[Reference, OutputName], ...]:
        return outputs_in(self)


class RevisionText(str):
    """A text that contains the job's revision number, or the path of an output that contains one.

    Its value shows the expressions, as digests and records do. `parts` are texts, None for the job's own
    number, and outputs with their paths.
    """

    __slots__ = ("parts",)
    parts: tuple[str | tuple[OutputName, RevisionText] | None, ...]

    def __new__(cls, parts: Iterable[str | tuple[OutputName, RevisionText] | None]) -> RevisionText:
        parts = tuple(parts)
        self = super().__new__(cls, "".join(map(_shown_part, parts)))
        self.parts = parts
        return self

    @property
    def is_of_outputs(self) -> bool:
        return any(isinstance(part, tuple) for part in self.parts)

    def at(self, number: object, completed: Callable[[str], object]) -> str:
        """Return the text for one revision.

        `completed` returns the number of another key's newest completed revision, or None.
        """

        def text(part: str | tuple[OutputName, RevisionText] | None) -> str:
            if not isinstance(part, tuple):
                return str(number) if part is None else part
            last = completed(part[0].key)
            return _shown_part(part) if last is None else part[1].at(last, completed)

        return "".join(map(text, self.parts))


def _shown_part(part: str | tuple[OutputName, RevisionText] | None) -> str:
    if isinstance(part, tuple):
        return "${{jobs.{}.outputs.{}}}".format(*part[0])
    return "${job.revision}" if part is None else part


def numbered(tree: Any, number: object, completed: Callable[[str], object]) -> Any:
    """Return plain data with the revision numbers instead of their expressions; see `RevisionText.at`."""
    if isinstance(tree, Mapping):  # keys may contain expressions, too: names of environment variables
        members = tree.items()
        return {numbered(key, number, completed): numbered(one, number, completed) for key, one in members}
    if isinstance(tree, list):
        return [numbered(value, number, completed) for value in tree]
    return tree.at(number, completed) if isinstance(tree, RevisionText) else tree


@lru_cache(maxsize=65_536)
def parts_of(text: str) -> tuple[str | Reference, ...]:
    """Split a text into literal parts and expressions."""
    parts: list[str | Reference] = []
    end = 0
    for match in _PART.finditer(text):
        literal = _LITERALS.get(match[0])
        part = literal or Reference(match[1].strip(), match[0], bool(match[2]))
        parts += filter(None, (text[end : match.start()], part))
        end = match.end()
    return (*parts, text[end:]) if end < len(text) else tuple(parts)


def _references(text: str) -> Iterator[Reference]:
    return (part for part in parts_of(text) if isinstance(part, Reference))


def variables_of(text: str) -> tuple[str, ...]:
    """Return the names of the variables in a text."""
    return tuple(name for reference in _references(text) if (name := reference.variable) is not None)


def outputs_in(text: str) -> tuple[tuple[Reference, OutputName], ...]:
    """Return the expressions in a text that refer to outputs of jobs."""
    references = _references(text) if "jobs." in text else ()
    return tuple((reference, named) for reference in references if (named := reference.output) is not None)


def escape(text: str, *, before_expression: bool = False) -> str:
    """Escape a text so that `parts_of` finds no expression in it: `$${` is a literal `${`.

    A `$` directly before an expression becomes `${$}`, since `$${` would be read as a literal.
    """
    escaped = text.replace("${", "$${")
    if before_expression and escaped.endswith("$"):
        bare = escaped.rstrip("$")
        return bare + "${$}" * (len(escaped) - len(bare))
    return escaped


def join_parts(parts: Iterable[str | Reference]) -> str:
    """Join parts into a text; the inverse of `parts_of`."""
    joined = literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
        else:
            joined += escape(literal, before_expression=True) + part.text
            literal = ""
    return joined + escape(literal)


def save(tree: Any) -> Any:
    """Return a copy of plain data for a file: each secret as its reference, other texts escaped.

    `manifest.saved_secrets.resolve` is the inverse.
    """

    def saved(leaf: Any) -> Any:
        if isinstance(leaf, SecretText):
            return leaf.reference
        return escape(leaf) if isinstance(leaf, str) else leaf

    return map_leaves(tree, saved)


def unresolvable_references(tree: Any) -> tuple[str, ...]:
    """Return the distinct references in plain data from which the secret cannot be found again.

    These are values marked `sensitive` in place in a manifest, which are not stored anywhere else.
    """

    def is_resolvable(reference: str) -> bool:
        parts = list(_references(reference))
        return bool(parts) and all(part.variable for part in parts)

    references = dict.fromkeys(secret.reference for secret in secrets_in(tree))
    return tuple(reference for reference in references if not is_resolvable(reference))


# --- Numbers and booleans that keep their spelling, and their conversion to text

Steps = tuple[str | int, ...]


class _Spelled:
    spelling: str

    def __new__(cls, value: Any, spelling: str) -> Self:
        self = super().__new__(cls, value)  # type: ignore[call-arg]
        self.spelling = spelling
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[Any, str]]:
        return type(self), (plain(self), self.spelling)


class SpelledInt(_Spelled, int):
    """A whole number that Python spells differently: `0123`, `+5`, `0x1F`."""


class SpelledFloat(_Spelled, float):
    """A number that Python spells differently: `1.10`, `1e-5`, `.inf`."""


class SpelledBool(_Spelled, int):
    """`True`, `TRUE`, `False` or `FALSE`. An int, since bool cannot be subclassed; see `plain`."""


class ScalarText(str):
    """Text for a number or a boolean for which version 0.1.0 used other text, which is `released`.

    Digests with the letter `a` are computed from that text.
    """

    __slots__ = ("released",)
    released: str

    def __new__(cls, text: str, released: str) -> ScalarText:
        self = super().__new__(cls, text)
        self.released = released
        return self

    def __reduce__(self) -> tuple[type[ScalarText], tuple[str, str]]:
        return ScalarText, (str(self), self.released)


def spelled(value: Any, spelling: str) -> Any:
    """Return a number or a boolean for which `scalar_text` returns this spelling."""
    if plain_text(value) == spelling:
        return value
    if isinstance(value, bool):
        return SpelledBool(value, spelling)
    return SpelledInt(value, spelling) if isinstance(value, int) else SpelledFloat(value, spelling)


def plain(value: Any) -> Any:
    """Return a scalar as a plain bool, int or float; any other value unchanged."""
    if isinstance(value, SpelledBool):
        return bool(value)
    if isinstance(value, SpelledInt):
        return int(value)
    return float(value) if isinstance(value, SpelledFloat) else value


def plain_text(value: Any) -> Any:
    """Return a plain number or boolean as text; any other value unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


def scalar_text(value: Any) -> Any:
    """Return a number or a boolean as text, as it was spelled; any other value unchanged."""
    if isinstance(value, _Spelled):
        return text_released_as(value.spelling, plain_text(plain(value)))
    return plain_text(value)


def text_released_as(text: str, released: str) -> str:
    """Return a text that knows what version 0.1.0 used instead; plain text if that is the same."""
    return text if text == released else ScalarText(text, released)


def as_released(text: str) -> str:
    """Return the text that version 0.1.0 used instead of `text`; for a secret, with the name used then."""
    if isinstance(text, SecretText):
        name = as_released(text.reference)
        return text if name is text.reference else SecretText(str.__str__(text), name, text.has_value)
    return text.released if isinstance(text, ScalarText) else text


def is_boolean(value: Any) -> bool:
    """Whether the value is true or false, however it is spelled."""
    return isinstance(value, bool | SpelledBool)


#: The range of whole numbers, signed or unsigned.
_INT_MIN, _INT_END = -(2**63), 2**64


def out_of_range_numbers(tree: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield the numbers in plain data that JSON readers reject: not finite, or too large."""
    for step, value in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from out_of_range_numbers(value, (*steps, step))
        elif is_out_of_range(value):
            yield (*steps, step), value


def holds(tree: Any, matches: Callable[[Any], bool]) -> bool:
    """Whether a value in plain data that is not text matches. Faster than a walk with paths or copies."""
    for value in tree.values() if tree.__class__ is dict else tree:
        cls = value.__class__
        if cls is str:
            continue
        if holds(value, matches) if cls is dict or cls is list else matches(value):
            return True
    return False


def is_out_of_range(value: Any) -> bool:
    """Whether the value is a number that JSON readers reject."""
    if isinstance(value, float):
        return not isfinite(value)
    return isinstance(value, int) and not _INT_MIN <= value < _INT_END


def walk_texts(tree: Any, change: Any) -> Any:
    """Return plain data with `change` applied to each text; the same object if nothing changes."""
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        changed = {key: walk_texts(value, change) for key, value in tree.items()}
        return changed if any(changed[key] is not value for key, value in tree.items()) else tree
    if isinstance(tree, list):
        items = [walk_texts(item, change) for item in tree]
        return items if any(item is not old for item, old in zip(items, tree, strict=True)) else tree
    return tree
