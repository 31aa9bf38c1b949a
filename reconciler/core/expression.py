"""Expressions in texts: where `${…}` stands in a manifest or in saved data, and how to write what is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from reconciler.secrets import SecretText, secrets_in

#: How a variable may be named.
VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
#: The name of an axis of a sweep.
AXIS_NAME = r"[A-Za-z][A-Za-z0-9_-]*"

_NAME = re.compile(VARIABLE_NAME)
#: Between the braces of an expression may stand the value of an axis: `${jobs.train-${matrix.lr}.outputs.x}`.
_AXIS = r"\$\{\s*matrix\.[^{}]*\}"
_PART = re.compile(rf"\$\$\{{|\$\{{((?:{_AXIS}|[^{{}}])*+)(\}}?)")
_LITERALS = {"$${": "${", "${$}": "$"}
_OUTPUT = re.compile(rf"jobs\.((?:{_AXIS}|[^.\s])+)\.outputs\.(\S+)")


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
        """The name of the variable if it is `${var.NAME}`."""
        kind, _, name = self.inner.partition(".")
        return name if self.is_closed and kind == "var" and _NAME.fullmatch(name) else None

    @property
    def output(self) -> OutputName | None:
        """What it names if it is `${jobs.KEY.outputs.NAME}`."""
        named = _OUTPUT.fullmatch(self.inner) if self.is_closed else None
        return OutputName(*named.groups()) if named else None


class UnresolvedText(str):
    """A text that names outputs of other jobs, kept as it is written until these jobs are known.

    Its value is to be shown by the name `secret` if that is not empty.
    """

    __slots__ = ("secret",)
    secret: str

    def __new__(cls, text: str, secret: str = "") -> UnresolvedText:
        """Wrap a text."""
        self = super().__new__(cls, text)
        self.secret = secret
        return self

    @property
    def outputs(self) -> tuple[tuple[Reference, OutputName], ...]:
        """The expressions that name outputs, with what they name."""
        return outputs_in(self)


@lru_cache(maxsize=65_536)
def parts_of(text: str) -> tuple[str | Reference, ...]:
    """Take a text apart into literal text and expressions."""
    parts: list[str | Reference] = []
    end = 0
    for match in _PART.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        if literal := _LITERALS.get(match[0]):
            parts.append(literal)
        else:
            parts.append(Reference(match[1].strip(), match[0], bool(match[2])))
        end = match.end()
    if end < len(text):
        parts.append(text[end:])
    return tuple(parts)


def variables_of(text: str) -> tuple[str, ...]:
    """The names of the variables in a text."""
    references = (part for part in parts_of(text) if isinstance(part, Reference))
    return tuple(name for one in references if (name := one.variable) is not None)


def outputs_in(text: str) -> tuple[tuple[Reference, OutputName], ...]:
    """The expressions in a text that name outputs of jobs, with what they name."""
    if "jobs." not in text:
        return ()
    references = (part for part in parts_of(text) if isinstance(part, Reference))
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


def save(tree: Any) -> Any:
    """Return a copy of plain data to be written down: each secret as its reference, other texts escaped.

    `manifest.saved_secrets.resolve` is the inverse.
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


def unresolvable_references(tree: Any) -> tuple[str, ...]:
    """Return the references, each once, of the secrets in plain data that cannot be found again by them.

    These are values that a manifest marks as sensitive in place: they stand nowhere else.
    """
    return tuple(
        dict.fromkeys(one.reference for one in secrets_in(tree) if not _is_resolvable(one.reference))
    )


def _is_resolvable(reference: str) -> bool:
    parts = [part for part in parts_of(reference) if isinstance(part, Reference)]
    return bool(parts) and all(part.variable for part in parts)
