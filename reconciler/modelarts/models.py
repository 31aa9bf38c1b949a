"""How an object of the service is read: null is absent, numbers may be text and text numbers.

Unknown fields are kept in `model_extra`. `model_dump(mode="json", exclude_unset=True)` gives back what was
received: unknown fields as they were; documented ones under the name, and in the form, of their place in the
model, whichever of two spellings they came in.

Source: docs/modelarts.md, "Contradictions".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)


@cache
def _fields_by_spelling(model: type[BaseModel]) -> Mapping[str, str]:
    """The names of a model's fields, by each name that the service has for them."""
    return {
        str(spelling): name
        for name, field in model.model_fields.items()
        for spelling in (
            field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else [name]
        )
    }


class ResponseModel(BaseModel):
    """An object of the service."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        coerce_numbers_to_str=True,
        loc_by_alias=False,
        protected_namespaces=(),
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = _fields_by_spelling(cls)
            return {key: member for key, member in value.items() if member is not None or key not in known}
        return value


class Lenient(ResponseModel):
    """An object in which a member of the wrong type hides no other: it is kept beside the unknown ones."""

    if TYPE_CHECKING:
        # Unknown fields are attributes, and so are those that are taken from a declared model.
        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="wrap")
    @classmethod
    def _mistyped_is_kept_aside(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(value)
        except ValidationError as error:
            wrong = {place["loc"][0] for place in error.errors() if place["loc"]}
            if not isinstance(value, Mapping) or not wrong:
                raise
        known = _fields_by_spelling(cls)
        aside = {key: member for key, member in value.items() if known.get(key) in wrong}
        found = read({key: member for key, member in value.items() if key not in aside})
        assert found.model_extra is not None  # extra="allow"
        found.model_extra.update(aside)
        return found


def _number_or_none(value: Any) -> Any:
    """An empty text is no number, and no mistake either."""
    return None if isinstance(value, str) and not value.strip() else value


def _one_map(value: Any) -> Any:
    """The documents show some maps as a list of maps; a key without a value has none."""
    maps = value if isinstance(value, list) else [value]
    if not all(isinstance(one, Mapping) for one in maps):
        return value
    return {key: member for one in maps for key, member in one.items() if member is not None}


Number = Annotated[int | float | None, BeforeValidator(_number_or_none)]
Count = Annotated[int | None, BeforeValidator(_number_or_none)]
Texts = Annotated[dict[str, str], BeforeValidator(_one_map)]


# --- what jobs and the catalog have in common


class Accelerators(Lenient):
    """The cards of a node."""

    unit_num: Count = None
    # Some tables of the service's documents have the other spelling.
    product_name: str = Field("", validation_alias=AliasChoices("product_name", "product_nume"))
    memory: str = ""


class Cpu(Lenient):
    arch: str = ""
    core_num: Count = None


class Capacity(Lenient):
    size: Number = None
    unit: str = ""


class FlavorInfo(Lenient):
    """What a node of a flavor has; at most `max_num` of them."""

    max_num: Count = None
    cpu: Cpu | None = None
    gpu: Accelerators | None = None
    npu: Accelerators | None = None
    memory: Capacity | None = None
    disk: Capacity | None = None


class Billing(Lenient):
    code: str = ""
    unit_num: Count = None


class Task(Lenient):
    """A task of a job, and where it ran."""

    task: str = ""
    ip: str = ""
    host_ip: str = ""
    schedule_count: Count = None
