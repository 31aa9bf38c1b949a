"""The arguments of the Python API: what programs hand over, as the functions behind it take it.

A program may hand over anything. What cannot be meant is told before anything is done with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from math import isfinite
from numbers import Number, Real
from pathlib import Path

from reconciler.decide.plan import Allowances
from reconciler.decide.wait import Goal
from reconciler.errors import Diagnostic, WrongUsage

AnyPath = str | os.PathLike[str]


def invalid(what: str, why: str) -> WrongUsage:
    """An argument that cannot be meant."""
    return WrongUsage(Diagnostic(f"invalid {what}", why))


def path_of(value: object) -> Path:
    """A path.

    Raises:
        WrongUsage: it is none.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise invalid("path", f"expected a str or a Path, got {type(value).__name__}")
    return Path(text)


def paths_of(values: AnyPath | Iterable[AnyPath]) -> list[Path]:
    """Several paths, or one.

    Raises:
        WrongUsage: one of them is none.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | os.PathLike):
        return [path_of(value) for value in values]
    return [path_of(values)]


def variables_of(values: Mapping[str, object] | None) -> dict[str, str]:
    """The values of variables, as texts, which `--var` takes.

    Raises:
        WrongUsage: a name is no text, or a value none that can stand for one.
    """
    if not isinstance(values or {}, Mapping):
        raise invalid("variables", f"expected a mapping, got {type(values).__name__}")
    return {_name_of(name): _text_of(name, value) for name, value in (values or {}).items()}


def _name_of(name: object) -> str:
    if not isinstance(name, str):
        raise invalid("variables", f"expected names as text, got {name!r}")
    return name


def _text_of(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)  # of a member of an enumeration, its value
    if isinstance(value, Number | date):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(path_of(value))
    raise invalid("variables", f"{name} is a {type(value).__name__}; write a text, a number or a boolean")


def environ_of(values: Mapping[str, str] | None) -> Mapping[str, str]:
    """The variables of the environment; left out, those of this process.

    Raises:
        WrongUsage: they are no mapping of texts.
    """
    if values is None:
        return os.environ
    is_mapping = isinstance(values, Mapping)
    if not is_mapping or not all(isinstance(one, str) for pair in values.items() for one in pair):
        raise invalid("environ", "expected a mapping of names to texts, as os.environ is")
    return values


def text_of(what: str, value: str | None) -> str | None:
    """A text, or None.

    Raises:
        WrongUsage: it is neither.
    """
    if value is not None and not isinstance(value, str):
        raise invalid(what, f"expected a text, got {type(value).__name__}")
    return value


def names_of(what: str, values: str | Iterable[str]) -> tuple[str, ...]:
    """Several names, or one.

    Raises:
        WrongUsage: one of them is no text.
    """
    names = (values,) if isinstance(values, str) or not isinstance(values, Iterable) else tuple(values)
    if not all(isinstance(name, str) for name in names):
        raise invalid(what, f"expected a text or several, got {values!r}")
    return names


def allowances_of(allow: str | Sequence[str], *, force: bool) -> Allowances:
    """Which guards let a plan pass.

    Raises:
        WrongUsage: there is no such guard.
    """
    try:
        return Allowances.of(names_of("guards", allow), force=force)
    except ValueError as error:
        raise WrongUsage(Diagnostic("unknown guard", str(error))) from None


def goal_of(wait: str | None) -> Goal | None:
    """What an apply waits for.

    Raises:
        WrongUsage: it waits for no such thing.
    """
    if wait is None:
        return None
    if wait not in (Goal.RUNNING, Goal.COMPLETED):
        raise invalid("wait", f'"{wait}" is not running or completed')
    return Goal(wait)


def seconds_of(timeout_s: object) -> float:
    """How long something may take.

    Raises:
        WrongUsage: it is no number of seconds.
    """
    if isinstance(timeout_s, Real) and not isinstance(timeout_s, bool):
        seconds = float(timeout_s)
        if isfinite(seconds) and seconds >= 0:
            return seconds
    raise invalid("timeout", f"expected a number of seconds, got {timeout_s!r}")


def parallelism_of(value: object) -> int:
    """How many calls are made at once.

    Raises:
        WrongUsage: it is no whole number, or less than 1.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid("parallelism", f"must be a whole number, at least 1, got {value!r}")
    return value
