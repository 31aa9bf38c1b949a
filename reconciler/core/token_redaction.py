"""The tokens in a job's endpoints: whoever has one is inside the running job.

These are `endpoints.{jupyter_lab,tensorboard,mindstudio_insight}.token`.

Source: docs/modelarts.md, "Responses".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.secret import REDACTED

_SECRET = "token"  # noqa: S105 - the name of the field


def tokens_of(body: Mapping[str, Any]) -> list[str]:
    """Every token that a job's answer holds."""
    return list(_tokens(body.get("endpoints")))


def _tokens(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            if name == _SECRET and isinstance(member, str):
                yield member
            else:
                yield from _tokens(member)
    elif isinstance(value, list):
        for member in value:
            yield from _tokens(member)


def without_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """A job's answer that may be shown, all other fields as they are."""
    if "endpoints" not in body:
        return dict(body)
    return {**body, "endpoints": _masked(body["endpoints"])}


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: REDACTED if name == _SECRET and member else _masked(member)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [_masked(member) for member in value]
    return value
