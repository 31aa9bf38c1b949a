"""What the models of a job are made of: their base, the marks and types of their fields.

Normal form, digest, diff, `explain fields` and the schemas all read the marks. A path in object storage
begins with obs:// or a slash, a directory ends in a slash (ModelArts.2791), and boot_file lies inside
code_dir (2792). file:// means a place in the image. Source: docs/reference/modelarts.md, "Create request".
"""

from __future__ import annotations

import re
from enum import Enum, StrEnum
from functools import cache, cached_property
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from reconciler.core.phase import Operation
from reconciler.core.scalar import plain, scalar_text


class Cloud(StrEnum):
    """Which vendor's cloud a target is: their update calls differ."""

    HUAWEI = "huawei"
    OTC = "otc"


class UpdateInPlace(NamedTuple):
    """An edit of the field is an update of the running job. A field without this mark needs a new job.

    `clouds` offer the update, in the phases in which `operation` is legal (see `phase.RULES`).
    `on_ended` says whether it may still be changed when the job has ended.
    """

    clouds: frozenset[Cloud]
    operation: Operation
    on_ended: bool = False


class KeyedBy(NamedTuple):
    """A list whose items are told apart by one field, so that their order means nothing."""

    field: str


class DefaultTemplate(NamedTuple):
    """A documented default that depends on the item's name and its place in the list."""

    template: str


class Mark(Enum):
    """Marks that need no more than their name."""

    AS_SET = "the order of the list means nothing"
    OBS_PATH = "a path with or without obs:// is the same path"
    SECONDS = '"30s", "30" and 30 are the same'
    FILLED_IN = "the service may return a value that was never sent"
    NOT_REPORTED = "the service does not (reliably) return it"
    FREE_MEMBERS = "a mapping whose keys are the user's own"


class Rare:
    """The type of a field that few manifests have: a name in `rare.py`, imported when it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def type(self) -> Any:
        """The type of the field; null is a value of it."""
        return getattr(import_module("reconciler.core.fields.rare"), self._name) | None

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(self._adapter.core_schema)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.type, config=ConfigDict(strict=True, hide_input_in_errors=True))

    def _validate(self, value: Any) -> Any:
        return None if value is None else self._adapter.validate_python(value)


HUAWEI_ONLY = frozenset({Cloud.HUAWEI})
EVERY_CLOUD = frozenset(Cloud)
RESCHEDULE = UpdateInPlace(HUAWEI_ONLY, Operation.UPDATE_PRIORITY)
WHILE_ACTIVE = UpdateInPlace(HUAWEI_ONLY, Operation.UPDATE_DESCRIPTION)
ANY_TIME = UpdateInPlace(EVERY_CLOUD, Operation.UPDATE_DESCRIPTION, on_ended=True)


class Choice(NamedTuple):
    """Members of a model of which at most one may be given, or exactly one if one `is_required`.

    `hint` stands behind the rule in an error.
    """

    members: tuple[str, ...]
    is_required: bool = False
    hint: str = ""

    @property
    def rule(self) -> str:
        *others, last = self.members
        names = f"{', '.join(others)} and {last}"
        words = (
            f"exactly one of {names} is required" if self.is_required else f"{names} are mutually exclusive"
        )
        return f"{words}; {self.hint}" if self.hint else words


class Strict(BaseModel):
    """A model of what people write: an unknown key is a typo, and a wrong type is not guessed at."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True,
        allow_inf_nan=False,
    )  # fmt: skip

    #: The members of which only so many may be given.
    choices: ClassVar[tuple[Choice, ...]] = ()

    def check_choices(self) -> None:
        """Raise the error of the first choice that is not made as it must be."""
        for choice in self.choices:
            count = len(given(self, *choice.members))
            if count > 1 or (count == 0 and choice.is_required):
                raise rule_error(choice.rule)


class Exclusive(Strict):
    """A model of which nothing but its choices is to be checked."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_choices()
        return self


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the names that people write: a word of Python's own has an alias."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def described(description: str, **options: Any) -> Any:
    """A field: its help text, and what else `Field` takes: its default, its limits."""
    return Field(description=description, **options)


def optional(description: str, default: Any = None, **limits: Any) -> Any:
    """A field that may be left out; `default` is the documented one."""
    return described(description, default=default, **limits)


def type_of(field: FieldInfo) -> Any:
    """The type of a field, one that is `Rare` included."""
    return next((mark.type for mark in field.metadata if isinstance(mark, Rare)), field.annotation)


#: The service wants text; people may write a number or a boolean, which is text as it stands.
Text = Annotated[str, BeforeValidator(scalar_text, json_schema_input_type=str | int | float | bool)]
#: A boolean, however it is spelled. Every boolean field has this type: `True` is no bool to pydantic.
Flag = Annotated[bool, BeforeValidator(plain)]
#: A path of a task, of which the service's documents say no more.
TaskPath = Annotated[str, Mark.OBS_PATH]
Hours = Literal["HOURS"]
Filled = Mark.FILLED_IN
FilledText = Annotated[str | None, Filled]
Unreported = Mark.NOT_REPORTED


def rule_error(message: str) -> PydanticCustomError:
    # A custom error keeps our words as they are; a ValueError would be shown as "Value error, …".
    return PydanticCustomError("rule", "{message}", {"message": message})


def form_error(rule: str) -> PydanticCustomError:
    """The error of a value that has not the form that it must have."""
    return PydanticCustomError("form", "{rule}", {"rule": rule})


def given(model: BaseModel, *names: str) -> list[str]:
    """Those of the fields that say something (null, "" and empty containers say nothing)."""
    values = model.__dict__  # asked for each model of each job
    return [
        name for name in names if (value := values[name]) or (value is not None and value not in ("", [], {}))
    ]


def _distinct_names(items: list[Any] | None) -> list[Any] | None:
    seen: set[str] = set()
    for item in items or ():
        if item.name in seen:
            raise rule_error(f'the name "{item.name}" is used twice')
        seen.add(item.name)
    return items


_Item = TypeVar("_Item")
#: A list of items with names, each of another one.
ByName = Annotated[list[_Item] | None, KeyedBy("name"), AfterValidator(_distinct_names)]
#: pydantic's name of these errors, by which their words and their place are found.
INVALID_PATH, OUTSIDE = "obs_path", "boot_file_outside"
_IMAGE, _ANY, _BUCKET = "file://", r"[\s\S]*", "(?:(?:obs|s3):/)?/[^/]+"
_PLACE = f"{_BUCKET}(?:/{_ANY})?"


@cache
def _place() -> re.Pattern[str]:
    return re.compile(_PLACE)


@cache
def _scheme() -> re.Pattern[str]:
    return re.compile("^(?:(?:obs|s3):/|file://)(?=/)")


def _path(
    *, ends_in_slash: bool | None = None, may_be_in_image: bool = False, is_required: bool = False
) -> AfterValidator:
    """What a path in object storage must look like; "" says nothing.

    One that may lie in the image, instead, begins with file://.
    """

    def check(path: str) -> str:
        rule = ""
        is_outside = path and not (may_be_in_image and path.startswith(_IMAGE))
        if (is_required and not path) or (is_outside and not _place().fullmatch(path)):
            rule = "must be obs://BUCKET/… or /BUCKET/…"
        elif ends_in_slash and is_outside and not path.endswith("/"):
            rule = "a directory must end in / (ModelArts.2791)"
        elif ends_in_slash is False and path.endswith("/"):
            rule = "boot_file must be a file, not a directory (ModelArts.2758)"
        if rule:
            raise PydanticCustomError(INVALID_PATH, "{rule}", {"rule": rule})
        return path

    return AfterValidator(check)


#: A file or a directory: nobody can tell which by its name.
ObsPath = Annotated[str, Mark.OBS_PATH, _path()]
ObsDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True)]
#: The path of a volume, of which every spelling is another one.
VolumePath = Annotated[str, _path()]
GivenPath = Annotated[str, Mark.OBS_PATH, _path(is_required=True)]
GivenDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True, is_required=True)]
CodeDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True, may_be_in_image=True)]
BootFile = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=False, may_be_in_image=True)]


def is_inside(file: str, directory: str) -> bool:
    """Whether a file lies in a directory or below it; with and without obs:// is the same place."""
    bare, above = (_scheme().sub("", path) for path in (file, directory))
    return bare.startswith(above.rstrip("/") + "/")


def outside() -> PydanticCustomError:
    """The error that boot_file is outside code_dir, to be raised for the model that holds both."""
    return PydanticCustomError(
        OUTSIDE, "boot_file is outside code_dir", {"field": "boot_file", "beside": "code_dir"}
    )
