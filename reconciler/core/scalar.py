"""Expressions in texts: where `${…}` stands in a manifest or in saved data, and how to write what is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, Self

from reconciler.secrets import SecretText, map_leaves, secrets_in

#: How a variable may be named.
VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
#: The name of an axis of a sweep.
AXIS_NAME = r"[A-Za-z][A-Za-z0-9_-]*"

#: Between the braces of an expression may stand the value of an axis: `${jobs.train-${matrix.lr}.outputs.x}`.
_AXIS = r"\$\{\s*matrix\.[^{}]*\}"
_PART = re.compile(rf"\$\$\{{|\$\{{((?:{_AXIS}|[^{{}}])*+)(\}}?)")
_LITERALS = {"$${": "${", "${$}": "$"}
_OUTPUT = rf"jobs\.((?:{_AXIS}|[^.\s])+)\.outputs\.(\S+)"


class OutputName(NamedTuple):
    """An output of a job: the key of the job, and its own name; the value of an axis may stand in either."""

    key: str
    name: str


class Reference(NamedTuple):
    """One expression: what is between `${` and `}`, and its text as written."""

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
    """A text that names outputs of other jobs, kept as it is written until these jobs are known.

    Its value is to be shown by the name `secret` if that is not empty.
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
    """A text with the number of the job's revision in it, or with the path of an output that has one.

    Its value shows the expressions, as digests and records have them. `parts` are texts, None where the
    number of the job itself stands, and an output with its path where that stands.
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
        """The text for one revision.

        `completed` gives the number of the newest completed one of another key, None where there is none.
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
    """Plain data with the numbers of revisions in the place of their expressions; see `RevisionText.at`."""
    if isinstance(tree, Mapping):  # the name of an environment variable is a key
        members = tree.items()
        return {numbered(key, number, completed): numbered(one, number, completed) for key, one in members}
    if isinstance(tree, list):
        return [numbered(one, number, completed) for one in tree]
    return tree.at(number, completed) if isinstance(tree, RevisionText) else tree


@lru_cache(maxsize=65_536)
def parts_of(text: str) -> tuple[str | Reference, ...]:
    """Take a text apart into literal text and expressions."""
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
    """The names of the variables in a text."""
    return tuple(name for one in _references(text) if (name := one.variable) is not None)


def outputs_in(text: str) -> tuple[tuple[Reference, OutputName], ...]:
    """The expressions in a text that name outputs of jobs, with what they name."""
    references = _references(text) if "jobs." in text else ()
    return tuple((one, named) for one in references if (named := one.output) is not None)


def escape(text: str, *, before_expression: bool = False) -> str:
    """Return a text so that `parts_of` finds no expression in it: `$${` is a literal `${`.

    A `$` directly before an expression is written `${$}`, for `$${` would be taken for a literal.
    """
    escaped = text.replace("${", "$${")
    if before_expression and escaped.endswith("$"):
        bare = escaped.rstrip("$")
        return bare + "${$}" * (len(escaped) - len(bare))
    return escaped


def join_parts(parts: Iterable[str | Reference]) -> str:
    """Return the text that `parts_of` takes apart into these parts."""
    joined = literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
        else:
            joined += escape(literal, before_expression=True) + part.text
            literal = ""
    return joined + escape(literal)


def save(tree: Any) -> Any:
    """Return a copy of plain data to be written down: each secret as its reference, other texts escaped.

    `manifest.saved_secrets.resolve` is the inverse.
    """

    def saved(leaf: Any) -> Any:
        if isinstance(leaf, SecretText):
            return leaf.reference
        return escape(leaf) if isinstance(leaf, str) else leaf

    return map_leaves(tree, saved)


def unresolvable_references(tree: Any) -> tuple[str, ...]:
    """Return the references, each once, of the secrets in plain data that cannot be found again by them.

    These are values that a manifest marks as sensitive in place: they stand nowhere else.
    """

    def is_resolvable(reference: str) -> bool:
        parts = list(_references(reference))
        return bool(parts) and all(part.variable for part in parts)

    references = dict.fromkeys(one.reference for one in secrets_in(tree))
    return tuple(one for one in references if not is_resolvable(one))


# --- Numbers and booleans that remember how they were written, and the text that is made of them

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
    """A whole number with another spelling than Python's: `0123`, `+5`, `0x1F`."""


class SpelledFloat(_Spelled, float):
    """A number with another spelling than Python's: `1.10`, `1e-5`, `.inf`."""


class SpelledBool(_Spelled, int):
    """`True`, `TRUE`, `False` or `FALSE`. A bool cannot be subclassed, so `plain` turns it into one."""


SPELLED = (SpelledInt, SpelledFloat, SpelledBool)


class ScalarText(str):
    """Text made of a number or a boolean, of which version 0.1.0 made another text: `released`.

    It is that text from which the digests with the letter `a` are computed.
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
        elif is_odd(value):
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
        elif is_odd(value):
            return True
    return False


def is_odd(value: Any) -> bool:
    """Whether a value is a number that no reader of JSON takes."""
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
