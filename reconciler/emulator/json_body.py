"""JSON bodies: read strictly, for what no store can hold is refused at once; written compactly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from reconciler.emulator.errors import ApiError

#: The documents have ten levels; a number has 64 bits.
MAX_DEPTH = 64
_MAX_DIGITS = 18


def read_json(data: bytes) -> Any:
    """Return the value of a body.

    Raises:
        ApiError: 400 ModelArts.2787, not JSON, or JSON that no service could keep: half of a surrogate pair,
            a number beyond 64 bits or none at all, values nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(data.decode(), parse_int=_int, parse_float=_float, parse_constant=_float)
        _check_texts_and_depth(value)
    except (ValueError, RecursionError):
        raise ApiError("ModelArts.2787", "The request body is not valid JSON.") from None
    return value


def dump_json(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def value_at(body: Any, path: str) -> Any:
    """Return what stands at a dotted path, "spec.auto_stop.duration"; None where a part of it is absent."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


def put_at(body: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path; the mappings on the way to it are made where they are absent."""
    *above, name = path.split(".")
    for part in above:
        body[part] = body.get(part) or {}
        body = body[part]
    body[name] = value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number that is too long")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError("not a number")
    return number


def _check_texts_and_depth(value: Any) -> None:
    holders = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for holder in holders:
            if isinstance(holder, str):
                holder.encode()
            elif isinstance(holder, dict):
                below += [*holder, *holder.values()]
            elif isinstance(holder, list):
                below += holder
        if not below:
            return
        holders = below
    raise ValueError("nested too deep")
