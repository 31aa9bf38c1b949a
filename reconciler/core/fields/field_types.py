"""What the models of a job are made of: their base, the types of their fields, what an edit of one means."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from reconciler.core.fields.marks import Cloud, Mark, UpdateInPlace
from reconciler.core.phase import Operation
from reconciler.core.scalar import plain, scalar_text

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
        """The rule in words."""
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

    #: The members of which only so many may be given; validator and schema both read this.
    choices: ClassVar[tuple[Choice, ...]] = ()

    def check_choices(self) -> None:
        """Raise the error of the first choice that is not made as it must be."""
        for choice in self.choices:
            count = len(given(self, *choice.members))
            if count > 1 or (count == 0 and choice.is_required):
                raise rule_error(choice.rule)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by the names that people write: a word of Python's own has an alias."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


#: The service wants text; people may write a number or a boolean, which is text as it stands.
Text = Annotated[str, BeforeValidator(scalar_text, json_schema_input_type=str | int | float | bool)]
#: A boolean, however it is spelled. Every boolean field has this type: `True` is no bool to pydantic.
Flag = Annotated[bool, BeforeValidator(plain)]
#: A path of a task, of which the service's documents say no more.
TaskPath = Annotated[str, Mark.OBS_PATH]
Hours = Literal["HOURS"]
Filled = Mark.FILLED_IN
Unreported = Mark.NOT_REPORTED


def rule_error(message: str) -> PydanticCustomError:
    # A custom error keeps our words as they are; a ValueError would be shown as "Value error, …".
    return PydanticCustomError("rule", "{message}", {"message": message})


def form_error(rule: str) -> PydanticCustomError:
    """The error of a value that has not the form that it must have."""
    return PydanticCustomError("form", "{rule}", {"rule": rule})


def given(model: BaseModel, *names: str) -> list[str]:
    """Those of the fields that say something (null, "" and empty containers say nothing)."""
    return [name for name in names if getattr(model, name) not in (None, "", [], {})]


def _distinct_names(items: list[Any] | None) -> list[Any] | None:
    seen: set[str] = set()
    for item in items or ():
        if item.name in seen:
            raise rule_error(f'the name "{item.name}" is used twice')
        seen.add(item.name)
    return items


DISTINCT_NAMES = AfterValidator(_distinct_names)
