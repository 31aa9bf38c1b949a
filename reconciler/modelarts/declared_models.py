"""A job is reported as it is declared: the lenient variant of a declared model has its fields.

Text, numbers and the words of closed lists are read as the service writes them; what is absent is "",
None, () or {}. So a field that is added to the models of `core` is read from answers as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from reconciler.modelarts.models import Count, Lenient, Number, Texts

_Model = TypeVar("_Model", bound=Lenient)
_VARIANTS: dict[type[BaseModel], type[Lenient]] = {}
#: How a plain type is read, and what stands there when nothing was reported.
_PLAIN: dict[Any, tuple[Any, Any]] = {
    str: (str, ""),
    bool: (bool | None, None),
    int: (Count, None),
    float: (Number, None),
}


def as_declared(
    *models: type[BaseModel], without: Collection[str] = ()
) -> Callable[[type[_Model]], type[_Model]]:
    """Give a response model the fields of the declared ones, but those that it has itself.

    It is their variant from then on, wherever another declared model has one of them as a field.
    """

    def extended(own: type[_Model]) -> type[_Model]:
        fields: dict[str, Any] = {
            name: _lenient(field.annotation)
            for model in models
            for name, field in model.model_fields.items()
            if name not in own.model_fields and name not in without
        }
        made = create_model(
            own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **fields
        )
        _VARIANTS.update(dict.fromkeys(models, made))
        return made

    return extended


def variant_of(model: type[BaseModel]) -> type[Lenient]:
    """The response model of a declared one; one without further fields is made here."""
    if model not in _VARIANTS:
        own = type(model.__name__, (Lenient,), {"__module__": __name__, "__doc__": model.__doc__})
        as_declared(model)(own)
    return _VARIANTS[model]


def _lenient(annotation: Any) -> tuple[Any, Any]:
    kind = bare_type(annotation)
    if get_origin(kind) is list:
        return tuple[_item(get_args(kind)[0]), ...], ()  # type: ignore[misc]
    if get_origin(kind) is dict:
        is_text = bare_type(get_args(kind)[1]) is str
        return Texts if is_text else dict[str, Any], Field(default_factory=dict)
    return _PLAIN.get(kind) or (variant_of(kind) | None, None)


def _item(annotation: Any) -> Any:
    kind = bare_type(annotation)
    return kind if kind is str or get_origin(kind) is dict else variant_of(kind)


def bare_type(annotation: Any) -> Any:
    """The type without None, limits and validators; a closed list of words is text."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        [kind] = [one for one in get_args(annotation) if one is not NoneType]
        return bare_type(kind)
    return str if origin is Literal else annotation
