"""The documented fields, read from `documented_fields.txt`, and where a model has a place for one."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.modelarts.job_models import ActionBody, JobPage, ReportedJob, SearchBody, UpdateBody

MESSAGES: Mapping[str, type[BaseModel]] = {
    "search": SearchBody,
    "page": JobPage,
    "terminate": ActionBody,
    "update": UpdateBody,
    "job": ReportedJob,
}


class Row(NamedTuple):
    """A field of a message; `path` is as a document has it, `place` where it stands in the model."""

    message: str
    path: str
    place: str

    def __str__(self) -> str:
        return f"{self.message} {self.path}"


def _rows() -> Iterator[Row]:
    text = Path(__file__).with_name("documented_fields.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            field, _, place = line.partition(" = ")
            message, path = field.split()
            yield Row(message, path, place or path)


ROWS = tuple(_rows())
FIELDS = tuple(row for row in ROWS if row.path == row.place)
OTHER_SPELLINGS = tuple(row for row in ROWS if row.path != row.place)


def kind_of(model: type[BaseModel], path: str) -> Any:
    """The type of what stands at a path; None where a model has no place for it."""
    kind: Any = model
    for part in path.split("."):
        name = part.rstrip("[]")
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)) or name not in kind.model_fields:
            return None
        kind = _present(kind.model_fields[name].annotation)
        for _ in range(part.count("[]")):
            kind = _present(get_args(kind)[0]) if get_origin(kind) is tuple else None
    return kind


def _present(kind: Any) -> Any:
    if get_origin(kind) in {Union, types.UnionType}:
        return next(one for one in get_args(kind) if one is not type(None))
    return _present(get_args(kind)[0]) if hasattr(kind, "__metadata__") else kind


def sample(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is dict:
        return {"key": "value"}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {}
    return {str: "text", bool: True, int: 3, float: 3, Any: {"any": "thing"}}[kind]


def put(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    holder = document
    for part in parents:
        name = part.rstrip("[]")
        holder = holder.setdefault(name, [{}])[0] if part.endswith("[]") else holder.setdefault(name, {})
    for _ in range(last.count("[]")):
        value = [value]
    holder[last.rstrip("[]")] = value


def at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = document[part.rstrip("[]")]
        for _ in range(part.count("[]")):
            document = document[0]
    return document


def whole(message: str) -> dict[str, Any]:
    return copy.deepcopy(_whole(message))


@cache
def _whole(message: str) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for row in FIELDS:
        if row.message == message:
            put(document, row.path, sample(kind_of(MESSAGES[message], row.path)))
    return document


def extras(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{path}.{name}".lstrip(".") for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from extras(getattr(value, name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from extras(item, f"{path}[]")
