"""The type of a variable's value, and the values that its declaration allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.core.scalar import is_boolean, plain, scalar_text, spelled
from reconciler.core.stack import Variable, VariableType
from reconciler.manifest.expression_problems import WrongValue
from reconciler.manifest.problems import found
from reconciler.manifest.yaml import parse, parse_scalar, shorten
from reconciler.secrets import SecretText


class _WrongType(Exception):
    """A value is not, and does not read as, one of the type."""


def typed(value: Any, variable: Variable) -> Any:
    """Return a value as one of the declared type. A number may be written as text, and a text as a number.

    Raises:
        WrongValue: it is of another type, or not one of the allowed values.
    """
    if variable.type is not None:
        kind, convert = _TYPES[variable.type]
        value = _converted(value, convert, f"must be {kind}", variable)
    return value if variable.allowed is None else _allowed(value, variable.allowed, variable)


def typed_text(text: str, variable: Variable) -> Any:
    """Return a text from outside as a value of the declared type; without one it takes that of the default.

    With neither, or a default that is an expression, it is a number, or true or false, only if it reads
    back the same.

    Raises:
        WrongValue: see `typed`.
    """
    default = variable.default
    if variable.type is None and not variable.sensitive:
        if default is None or (isinstance(default, str) and "${" in default):
            text = _number_or_boolean(text)
        else:
            text = _like_default(text, variable)
    return typed(text, variable)


def _number_or_boolean(text: str) -> Any:
    """The number or boolean that a text is if it reads back the same, else the text."""
    value = parse_scalar(text.strip()) if text.strip() else text
    is_one = type(value) in (bool, int, float) and scalar_text(value) == text
    return value if is_one else text


def _like_default(text: str, variable: Variable) -> Any:
    default = variable.default
    name = next((name for is_type, name in _OF_DEFAULT if is_type(default)), None)
    if name is None:
        return text
    is_integer = name == "number" and isinstance(default, int)
    kind, convert = (_INTEGER, _integer) if is_integer else _TYPES[name]
    value = _converted(text, convert, f"must be {kind}, like its default", variable)
    if isinstance(default, float) and isinstance(value, int):
        return spelled(float(value), scalar_text(value))
    return value


def _converted(value: Any, convert: Callable[[Any], Any], rule: str, variable: Variable) -> Any:
    if isinstance(value, SecretText):
        if not value.has_value:
            return value
        # A secret stays text, whatever it reads as: only text is kept out of sight.
        _try(convert, str.__str__(value), rule, value, variable)
        return value
    return _try(convert, value, rule, value, variable)


def _try(convert: Callable[[Any], Any], value: Any, rule: str, shown: Any, variable: Variable) -> Any:
    try:
        return convert(value)
    except _WrongType:
        raise _wrong(rule, shown, variable) from None


def _wrong(rule: str, value: Any, variable: Variable) -> WrongValue:
    return WrongValue("wrong type", f"{rule}{_got(value, variable)}")


def _got(value: Any, variable: Variable) -> str:
    return "" if variable.sensitive and not isinstance(value, SecretText) else f"; got {found(value)}"


def _text(value: Any) -> Any:
    text = scalar_text(value)
    if not isinstance(text, str):
        raise _WrongType
    return text


def _number(value: Any) -> Any:
    read = parse_scalar(value.strip()) if isinstance(value, str) and value.strip() else value
    if is_boolean(read) or not isinstance(read, int | float):
        raise _WrongType
    return read


def _integer(value: Any) -> Any:
    read = _number(value)
    if not isinstance(read, int):
        raise _WrongType
    return read


def _boolean(value: Any) -> Any:
    read = parse_scalar(value.strip()) if isinstance(value, str) and value.strip() else value
    if not is_boolean(read):
        raise _WrongType
    return read


def _of_kind(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        read = _flow_value(value) if isinstance(value, str) else value
        if not isinstance(read, kind):
            raise _WrongType
        return read

    return convert


def _flow_value(text: str) -> Any:
    """The value of YAML on one line, or of JSON on any number of them."""
    document = parse(b"{value: " + text.encode() + b"\n}", Path(), "")
    if document.problems or document.tree.keys() != {"value"}:
        raise _WrongType
    return document.tree["value"]


_INTEGER = "an integer"
#: Each type in words, and what makes a value of it.
_TYPES: dict[VariableType, tuple[str, Callable[[Any], Any]]] = {
    "string": ("text", _text),
    "number": ("a number", _number),
    "bool": ("true or false", _boolean),
    "list": ("a list, e.g. [1, 2]", _of_kind(list)),
    "mapping": ("a mapping, e.g. {a: 1}", _of_kind(dict)),
}
_OF_DEFAULT: tuple[tuple[Callable[[Any], bool], VariableType], ...] = (
    (is_boolean, "bool"),
    (lambda default: isinstance(default, int | float), "number"),
    (lambda default: isinstance(default, list), "list"),
    (lambda default: isinstance(default, dict), "mapping"),
)


def _allowed(value: Any, allowed: list[Any], variable: Variable) -> Any:
    """The one of the allowed values that it equals, spelled as it is there."""
    if isinstance(value, SecretText):
        is_allowed = not value.has_value or any(_equal(str.__str__(value), one) for one in allowed)
        if is_allowed:
            return value
    for one in allowed:
        if _equal(value, one):
            return one
    shown = "" if variable.sensitive else f" {', '.join(_word(one) for one in allowed)}"
    rule = f"must be one of{shown}" if shown else "must be one of the values under allowed"
    raise WrongValue("value not allowed", f"{rule}{_got(value, variable)}")


def _equal(value: Any, one: Any) -> bool:
    """Whether two values are the same; a number and the text that spells it are."""
    if isinstance(value, dict | list) or isinstance(one, dict | list):
        return bool(plain(value) == plain(one))
    if is_boolean(value) == is_boolean(one) and plain(value) == plain(one):
        return True
    return bool(scalar_text(value) == scalar_text(one))


def _word(value: Any) -> str:
    return shorten(str(scalar_text(value))) if not isinstance(value, dict | list) else found(value)
