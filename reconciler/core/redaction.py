"""Values for programs, without secrets: what `Redactor` is for texts, for plans, findings and results.

Numbers, times and words of ours (enums) stay what they are, so that a value keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel

from reconciler.core.secret import show

_T = TypeVar("_T")
_Redact = Callable[[str], str]


def without_secrets(value: _T, redact: _Redact) -> _T:
    """Return a copy in which each secret is shown by its name, or redacted; the same where there is none."""
    cleaned: _T = _clean(value, redact)
    return cleaned


def _clean(value: Any, redact: _Redact) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Enum) else redact(show(value))
    if isinstance(value, BaseModel):
        changed = _changed(value, redact)
        return value.model_copy(update=changed) if changed else value
    if is_dataclass(value) and not isinstance(value, type):
        changed = _changed(value, redact)
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        return {_clean(name, redact): _clean(member, redact) for name, member in value.items()}
    if hasattr(value, "_fields") and not isinstance(value, type):
        changed = _changed(value, redact)
        return value._replace(**changed) if changed else value
    if type(value) in (list, tuple):
        return type(value)(_clean(item, redact) for item in value)
    return value


def _members_of(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        names = (*type(value).model_fields, *(value.model_extra or ()))
    elif hasattr(value, "_fields"):
        names = value._fields
    else:
        names = tuple(one.name for one in fields(value))
    return {name: getattr(value, name) for name in names}


def _changed(value: Any, redact: _Redact) -> dict[str, Any]:
    members = _members_of(value)
    cleaned = {name: _clean(member, redact) for name, member in members.items()}
    # A secret is equal to text that has its letters, and is not that text.
    return {n: v for n, v in cleaned.items() if v is not members[n] and repr(v) != repr(members[n])}
