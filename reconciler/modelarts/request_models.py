"""What the service is asked: the bodies of its search, update and terminate, under their documented names.

`body()` is what is sent: what was not said is left to the service.

Source: docs/modelarts.md, "Calls", "Search" and "Updates".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from reconciler.core.fields.desired import JobBody
from reconciler.core.fields.marks import Mark, UpdateInPlace
from reconciler.modelarts.declared_models import bare_type

#: So many values, tags and addresses one search takes at most.
AtMostTen = Field(max_length=10)


class RequestModel(BaseModel):
    """A part of a request: an unknown name is a typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    def body(self) -> dict[str, Any]:
        """The JSON object that is sent."""
        return self.model_dump(mode="json", exclude_defaults=True)


_Model = TypeVar("_Model", bound=RequestModel)


class Filter(RequestModel):
    """One condition of a search. Keys are the service's: name, create_time, phase, kind, user_id…

    `between` takes two times in RFC 3339, at most 31 days apart.
    """

    key: str
    operator: Literal["between", "like", "in", "not"]
    value: Annotated[tuple[str, ...], AtMostTen]


class TagFilter(RequestModel):
    """A tag that a job must have, with one of the values; no value means any (Huawei only)."""

    key: str
    values: Annotated[tuple[str, ...], AtMostTen] = ()


class Search(RequestModel):
    """Which jobs, in which order; all conditions must hold.

    With tags or addresses the service looks at 31 days only: the last ones, or those that a filter of
    create_time names. `unified_jobs` is known from the vendor's Terraform provider alone. Open Telekom Cloud
    knows neither tags and addresses nor `train_type` and `unified_jobs`.
    """

    filters: tuple[Filter, ...] = ()
    sort_by: str | None = None
    order: Literal["asc", "desc"] | None = None
    group_by: str | None = None
    train_type: Literal["job", "ftjob"] | None = None
    unified_jobs: bool | None = None
    tags: Annotated[tuple[TagFilter, ...], AtMostTen] = ()
    host_ips: Annotated[tuple[str, ...], AtMostTen] = ()

    def conditions(self) -> dict[str, Any]:
        """The body without the fields that turn pages."""
        return self.model_dump(mode="json", exclude_defaults=True, include=set(Search.model_fields))


class SearchBody(Search):
    """The whole body of a search: one page of it. `offset` counts pages, the first is 0."""

    offset: Annotated[int | None, Field(ge=0)] = None
    limit: Annotated[int | None, Field(ge=1, le=50)] = None
    workspace_id: str | None = None


class ActionBody(RequestModel):
    """What is to be done with a job. The service knows `restart` too, and documents nothing of it."""

    action_type: Literal["terminate"]


class MetadataUpdate(RequestModel):
    """Switches of a running job. `annotation` is singular here, and jupyter-lab/enable its only key."""

    annotation: dict[str, str] | None = None


def _mutable(*models: type[BaseModel]) -> Callable[[type[_Model]], type[_Model]]:
    """Give a request model the fields of the declared ones that can be changed in place; all are optional."""

    def extended(own: type[_Model]) -> type[_Model]:
        fields = {
            name: update
            for model in models
            for name, field in model.model_fields.items()
            if name not in own.model_fields and (update := _update_of(field))
        }
        return create_model(
            own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **fields
        )

    return extended


def _update_of(field: FieldInfo) -> Any:
    """The field of an update, None for a field that cannot be changed."""
    kind = bare_type(field.annotation)
    is_mutable = any(isinstance(mark, UpdateInPlace) for mark in field.metadata)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields: dict[str, Any] = {
            name: _optional(member) if is_mutable else _update_of(member)
            for name, member in kind.model_fields.items()
        }
        fields = {name: update for name, update in fields.items() if update}
        if not fields:
            return None
        made = create_model(f"{kind.__name__}Update", __base__=RequestModel, __doc__=kind.__doc__, **fields)
        return made | None, None
    return _optional(field) if is_mutable else None


def _optional(field: FieldInfo) -> tuple[Any, None]:
    kind = bare_type(field.annotation)
    if get_origin(kind) is list:
        kind = tuple[bare_type(get_args(kind)[0]), ...]  # type: ignore[misc]
    limits = (limit for limit in field.metadata if not isinstance(limit, UpdateInPlace | Mark))
    return Annotated[(kind | None, Field(), *limits)], None


@_mutable(JobBody)
class UpdateBody(RequestModel):
    """What is to be changed on a job; an empty description clears it. OTC knows `description` alone.

    Beside these fields it has all that can be declared and changed in place: `spec` and `endpoints`, as
    mappings. Source of that list: the marks in `core`.
    """

    description: Annotated[str | None, Field(max_length=256)] = None
    metadata: MetadataUpdate | None = None

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...
