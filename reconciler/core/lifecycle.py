"""The lifecycle of a job as its manifest declares it: when it is replaced, retried, protected, scheduled."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import Edit, Flag, SeeAlso, Strict, Text, optional
from reconciler.core.scalar import scalar_text
from reconciler.core.schedule import CronText, Overlap, TimeZoneName
from reconciler.text import parse_duration


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("duration", "a duration must be text such as 90s, 2m, 1h30m or 2d")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{message}", {"message": str(error)}) from None


#: Seconds in the program, `1h30m` in a file.
Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?$",
            "minLength": 2,
            "$comment": "a duration such as 90s, 2m, 1h30m or 2d",
        }
    ),
    Field(ge=0),
]


class OnChange(StrEnum):
    """What to do when a declared field changed that the service cannot change on the job."""

    REPLACE = "replace"
    KEEP = "keep"
    FAIL = "fail"


class OnFailure(StrEnum):
    """What to do when the newest revision failed."""

    KEEP = "keep"
    RETRY = "retry"


class OnTerminated(StrEnum):
    """What to do when somebody else terminated the newest revision."""

    KEEP = "keep"
    RECREATE = "recreate"


class OnUpstream(StrEnum):
    """What to do when a needed job has completed a newer revision since the job was created."""

    KEEP = "keep"
    RERUN = "rerun"


class ReplaceOrder(StrEnum):
    """Which job stands while the other one is not there."""

    TERMINATE_FIRST = "terminate_first"
    CREATE_FIRST = "create_first"


def _with_spelling(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The validated text; pydantic would make plain text of one that knows its released form."""
    validated = handler(value)
    text = scalar_text(value)
    return text if text == validated else validated


RerunText = Annotated[Text, WrapValidator(_with_spelling, json_schema_input_type=str | int | float | bool)]


SCHEDULES = SeeAlso('docs/manifest.md, "Schedules"')


class Lifecycle(Strict):
    """When a job is replaced, retried, protected."""

    on_change: Annotated[OnChange | None, Field(strict=False)] = optional(
        "replace, keep or fail; default: replace, unless much work would be lost.", "replace"
    )
    on_failure: Annotated[OnFailure, Field(strict=False)] = optional(
        "keep or retry, when the newest revision failed.", "retry", default=OnFailure.KEEP
    )
    max_retries: Annotated[
        int, Field(ge=0, description="Maximum number of consecutive retries.", examples=[2])
    ] = 1
    retry_delay: Duration = optional(
        "Wait before the first retry; it doubles with each one.", "5m", default=120.0
    )
    on_terminated: Annotated[OnTerminated, Field(strict=False)] = optional(
        "keep or recreate, when the job was terminated outside reconciler.",
        "recreate",
        default=OnTerminated.KEEP,
    )
    on_upstream: Annotated[OnUpstream, Field(strict=False)] = optional(
        "keep or rerun, when a needed job completed a newer revision after this one was created.",
        "rerun",
        default=OnUpstream.KEEP,
    )
    replace_order: Annotated[ReplaceOrder, Field(strict=False)] = optional(
        "terminate_first or create_first.", "create_first", default=ReplaceOrder.TERMINATE_FIRST
    )
    protect: Annotated[Flag | None, Edit.OF_MARKER] = optional(
        "true: never terminated or replaced; false: releases the protection.", True
    )
    rerun: Annotated[RerunText | None, Edit.NEW_JOB] = optional(
        "Any text; edit it to run the same thing again.", "2026-11-21"
    )
    schedule: Annotated[CronText | None, Edit.OF_MARKER, SCHEDULES] = optional(
        "Cron expression of five fields; at each of its times the next revision starts.", "0 2 * * *"
    )
    timezone: Annotated[TimeZoneName, Edit.OF_MARKER, SCHEDULES] = optional(
        "Time zone that the schedule is read in.", "Europe/Berlin", default="UTC"
    )
    overlap: Annotated[Overlap, Field(strict=False), SCHEDULES] = optional(
        "If the job is active at its time: skip lets it finish first, replace ends it.",
        "replace",
        default=Overlap.SKIP,
    )
    starting_deadline: Annotated[Duration | None, Field(gt=0), SCHEDULES] = optional(
        "How late a time may be started; default: half of the interval to the next time. A later "
        "start is left to the next time.",
        "2h",
    )
