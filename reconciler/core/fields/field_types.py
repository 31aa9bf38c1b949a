"""The building blocks of the models of a job: their base, and the marks and types of fields.

Canonical form, digest, diff, `explain fields` and the schemas all use the marks. A path in object storage
begins with obs:// or a slash, a directory ends in a slash (ModelArts.2791), and boot_file must be in
code_dir (2792). file:// means a path in the image. Source: docs/reference/modelarts.md, "Create request".
"""

from __future__ import annotations

import re
from enum import Enum, StrEnum
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

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
    """The service can change the field on an existing job. A field without this mark needs a new job.

    `clouds` offer the update, in phases in which `operation` is legal (see `phase.RULES`). `on_ended`: also
    after the job has ended.
    """

    clouds: frozenset[Cloud]
    operation: Operation
    on_ended: bool = False


class KeyedBy(NamedTuple):
    """A list whose items are identified by one field, so that their order does not matter."""

    field: str


class DefaultTemplate(NamedTuple):
    """A documented default that depends on the item's name and index in the list."""

    template: str


class Mark(Enum):
    """Marks without further data."""

    AS_SET = "the order of the list means nothing"
    OBS_PATH = "a path with or without obs:// is the same path"
    SECONDS = '"30s", "30" and 30 are the same'
    FILLED_IN = "the service may return a value that was never sent"
    NOT_REPORTED = "the service does not (reliably) return it"
    FREE_MEMBERS = "a mapping whose keys are the user's own"


class Rare:
    """The type of a rarely used field: a name in `rare.py`, imported on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def type(self) -> Any:
        """The type of the field, which may be null."""
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
    """Members of a model of which at most one may be given, or exactly one if `is_required`.

    `hint` is appended to the rule in an error.
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
    """A model of what users write: unknown keys are errors, and values are not converted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True,
        allow_inf_nan=False,
    )  # fmt: skip

    #: The mutually exclusive members.
    choices: ClassVar[tuple[Choice, ...]] = ()

    def check_choices(self) -> None:
        """Raise an error for the first choice that is violated."""
        for choice in self.choices:
            count = len(given(self, *choice.members))
            if count > 1 or (count == 0 and choice.is_required):
                raise rule_error(choice.rule)


class Exclusive(Strict):
    """A model that only has to check its choices."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_choices()
        return self


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by their names in a manifest, i.e. their aliases if any."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def described(description: str, **options: Any) -> Any:
    """Define a field with its help text and other options of `Field`, such as default and limits."""
    return Field(description=description, **options)


def optional(description: str, default: Any = None, **limits: Any) -> Any:
    """Define an optional field; `default` is the documented one."""
    return described(description, default=default, **limits)


def type_of(field: FieldInfo) -> Any:
    """Return the type of a field, including that of a `Rare` one."""
    return next((mark.type for mark in field.metadata if isinstance(mark, Rare)), field.annotation)


#: The service wants text; users may write a number or a boolean, which keeps its spelling.
Text = Annotated[str, BeforeValidator(scalar_text, json_schema_input_type=str | int | float | bool)]
#: For all boolean fields, since pydantic does not accept a `SpelledBool` such as `True`.
Flag = Annotated[bool, BeforeValidator(plain)]
#: A path in a task, whose format is not documented.
TaskPath = Annotated[str, Mark.OBS_PATH]
Filled = Mark.FILLED_IN
FilledText = Annotated[str | None, Filled]
Unreported = Mark.NOT_REPORTED


def rule_error(message: str) -> PydanticCustomError:
    # The message of a custom error is kept as it is; pydantic prefixes that of a ValueError.
    return PydanticCustomError("rule", "{message}", {"message": message})


def form_error(rule: str) -> PydanticCustomError:
    """Return the error for a value with an invalid format."""
    return PydanticCustomError("form", "{rule}", {"rule": rule})


def given(model: BaseModel, *names: str) -> list[str]:
    """Return those of the fields that are set; null, "" and empty containers do not count."""
    values = model.__dict__  # fast: called for each model of each job
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
#: A list of items with distinct names.
ByName = Annotated[list[_Item] | None, KeyedBy("name"), AfterValidator(_distinct_names)]
#: The types of these pydantic errors, by which their messages and locations are found.
INVALID_PATH, OUTSIDE = "obs_path", "boot_file_outside"
_IMAGE, _ANY, _BUCKET = "file://", r"[\s\S]*", "(?:(?:obs|s3):/)?/[^/]+"
_PLACE = f"{_BUCKET}(?:/{_ANY})?"


def _path(
    *, ends_in_slash: bool | None = None, may_be_in_image: bool = False, is_required: bool = False
) -> AfterValidator:
    """Return a validator for a path in object storage; "" is valid.

    If `may_be_in_image`, a path that begins with file:// is also valid.
    """

    def check(path: str) -> str:
        rule = ""
        is_outside = path and not (may_be_in_image and path.startswith(_IMAGE))
        if (is_required and not path) or (is_outside and not re.fullmatch(_PLACE, path)):
            rule = "must be obs://BUCKET/… or /BUCKET/…"
        elif ends_in_slash and is_outside and not path.endswith("/"):
            rule = "a directory must end in / (ModelArts.2791)"
        elif ends_in_slash is False and path.endswith("/"):
            rule = "boot_file must be a file, not a directory (ModelArts.2758)"
        if rule:
            raise PydanticCustomError(INVALID_PATH, "{rule}", {"rule": rule})
        return path

    return AfterValidator(check)


#: A file or a directory; the name does not tell which.
ObsPath = Annotated[str, Mark.OBS_PATH, _path()]
ObsDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True)]
#: The path of a volume. It has no canonical form: each spelling is a different path.
VolumePath = Annotated[str, _path()]
GivenPath = Annotated[str, Mark.OBS_PATH, _path(is_required=True)]
GivenDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True, is_required=True)]
CodeDirectory = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=True, may_be_in_image=True)]
BootFile = Annotated[str, Mark.OBS_PATH, _path(ends_in_slash=False, may_be_in_image=True)]


def is_inside(file: str, directory: str) -> bool:
    """Whether a file is in a directory or below it; obs:// makes no difference."""
    bare, above = (re.sub("^(?:(?:obs|s3):/|file://)(?=/)", "", path) for path in (file, directory))
    return bare.startswith(above.rstrip("/") + "/")
