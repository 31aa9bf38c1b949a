"""In which order the keys of a manifest stand: that of the models of the language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.core.fields.algorithm import Algorithm, EnvironmentItem
from reconciler.core.fields.tasks import TaskAlgorithm
from reconciler.core.stack import JobEntry, Manifest, TargetEntry

#: Keys that people look for first; all others follow in the order of their model.
_FIRST: Mapping[type[BaseModel], tuple[str, ...]] = {
    JobEntry: (
        "extends",
        "matrix",
        "name",
        "state",
        "kind",
        "description",
        "annotations",
        "formerly",
        "needs",
    ),
    Algorithm: (
        *("id", "name", "subscription_id", "item_version_id"),
        *("code_dir", "boot_file", "command", "engine", "parameters", "inputs", "outputs", "environments"),
    ),
}
_MERGE = "<<"
#: Mappings that are read as something else later.
_READ_AS: Mapping[tuple[type[BaseModel], str], Any] = {
    (Manifest, "defaults"): JobEntry,
    (Manifest, "templates"): dict[str, JobEntry],
    (TargetEntry, "defaults"): JobEntry,
    (Algorithm, "environments"): dict[str, EnvironmentItem],
    (TaskAlgorithm, "environments"): dict[str, EnvironmentItem],
}


class ValueShape:
    """What a value may be, as far as it orders keys; `annotation` is that of a field."""

    def __init__(self, annotation: Any = None) -> None:
        self._model: type[BaseModel] | None = None
        self._inner: Any = None
        for kind in _alternatives(annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                self._model = kind
            elif get_origin(kind) in (list, dict, tuple):
                self._inner = get_args(kind)[-1]

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Each known key and its place; empty where people choose the names."""
        if self._model is None:
            return {}
        names = [field.alias or name for name, field in self._model.model_fields.items()]
        first = (_MERGE, *_FIRST.get(self._model, ()))
        return {name: rank for rank, name in enumerate(dict.fromkeys((*first, *names)))}

    def member(self, name: str) -> ValueShape:
        """What stands under a key. A list with names may be written as a mapping, name to item."""
        if self._model is None:
            return _shape(self._inner)
        for attribute, field in self._model.model_fields.items():
            if name in (attribute, field.alias):
                return _shape(_READ_AS.get((self._model, attribute), field.annotation))
        return FREE

    @property
    def item(self) -> ValueShape:
        """What an item of the list is."""
        return _shape(self._inner)


@cache
def _shape(annotation: Any) -> ValueShape:
    return ValueShape(annotation)


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) for kind in _alternatives(one)]
    return [annotation]


FREE = ValueShape()
MANIFEST = ValueShape(Manifest)
