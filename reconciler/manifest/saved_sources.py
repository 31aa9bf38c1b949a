"""Where the value of a sensitive variable can be found again, when a plan is applied without its manifest.

`manifest.saved_secrets` looks it up there. Source: docs/saved-plans.md, "Secrets".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.core.expression import Reference, escape, parts_of
from reconciler.core.scalar import scalar_text
from reconciler.core.stack import VariableSource
from reconciler.manifest.variables import ValueSource, VariableValues
from reconciler.secrets import secret_parts

_NOT_STORED = VariableSource(default=True)


def saved_source(values: VariableValues, name: str, file_by_name: Mapping[str, str]) -> VariableSource | None:
    """Where the value of a declared variable can be found again; None if it has none.

    `file_by_name` are the files of values (--var-file), the last that gives each variable its value.
    """
    source, value = values.raw(name)
    if source is ValueSource.OPTION:
        return VariableSource(given=True)
    if source is ValueSource.FILE:
        return VariableSource(file=file_by_name[name])
    if source is ValueSource.ENV:
        return VariableSource(env=values.declared[name].env)
    return None if source is None else _composed(values, value)


def _composed(values: VariableValues, value: Any) -> VariableSource:
    """The source of a value in a file of the stack: the text around what has its value elsewhere."""
    parts = list(_parts(values, value, frozenset())) if isinstance(value, str) else []
    if len(parts) == 1 and isinstance(parts[0], Reference) and parts[0].inner.startswith("env."):
        return VariableSource(env=parts[0].inner.removeprefix("env."))
    literal = "".join(part for part in parts if isinstance(part, str))
    is_composed = any(isinstance(part, Reference) for part in parts)
    # What looks like a secret itself is not written down.
    return VariableSource(text=_joined(parts)) if is_composed and not secret_parts(literal) else _NOT_STORED


def _parts(values: VariableValues, text: str, within: frozenset[str]) -> Iterator[str | Reference]:
    """What a text is made of, where every variable that is not sensitive gives its own text."""
    for part in parts_of(text):
        name = None if isinstance(part, str) else part.variable
        if name is None or name in within or name not in values.declared or values.declared[name].sensitive:
            yield part
            continue
        source, value = values.raw(name)
        if source is ValueSource.ENV:
            env = f"env.{values.declared[name].env}"
            yield Reference(env, f"${{{env}}}", is_closed=True)
        elif source is not None and source.is_of_stack and isinstance(value, str):
            yield from _parts(values, value, within | {name})
        else:
            yield str(scalar_text(value))


def _joined(parts: Iterable[str | Reference]) -> str:
    """The text that `parts_of` takes apart into these."""
    result = literal = ""
    for part in parts:
        if isinstance(part, str):
            literal += part
        else:
            result += escape(literal, before_expression=True) + part.text
            literal = ""
    return result + escape(literal)
