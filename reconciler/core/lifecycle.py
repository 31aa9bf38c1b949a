"""The lifecycle of a job as declared: when it is replaced, retried, and started on schedule.

All functions take the current time as a parameter; times are seconds since 1970. `cronsim` decides what
daylight saving does to a schedule, like Debian's cron: docs/reference/manifest.md, "Schedules".
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from hashlib import sha256
from itertools import takewhile
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import Flag, Strict, Text, described, optional
from reconciler.core.scalar import scalar_text
from reconciler.text import parse_duration

UTC_NAME = "UTC"
_ZONE_NAME = r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"
#: Names that mean another zone on each machine, and directories that only some machines have.
_MACHINE_SPECIFIC = r"(?:localtime|posixrules|Factory)|(?:posix|right)/.*"


def time_zone(name: str) -> tzinfo:
    """Return the time zone with this name.

    Raises:
        LookupError: there is none.
    """
    if name == UTC_NAME:
        return UTC
    from zoneinfo import ZoneInfo  # only for a schedule or a window

    if not re.fullmatch(_ZONE_NAME, name) or re.fullmatch(_MACHINE_SPECIFIC, name):
        raise LookupError(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise LookupError(name) from None


def time_zones() -> list[str]:
    """Return the names of the supported time zones, sorted."""
    from zoneinfo import available_timezones  # only to suggest one

    return sorted(name for name in available_timezones() if not re.fullmatch(_MACHINE_SPECIFIC, name))


# --- Schedules: a cron expression in a time zone

#: Longer than any useful schedule, since each item of a list costs time.
_MAX_LENGTH = 256
_FIELD_COUNT = 5
#: Any time: whether an expression ever matches does not depend on it.
_ANY_TIME_S = 1_767_225_600.0
#: The end of the calendar; later times from the service are clamped.
_LATEST_S = 250_000_000_000.0
_MINUTE_S = 60.0
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Schedule(NamedTuple):
    """A valid cron expression of five fields, and the name of its time zone.

    `starting_deadline_s` is how late a start may be; None: half of the interval to the next time.
    """

    expression: str
    timezone: str = UTC_NAME
    starting_deadline_s: float | None = None

    @property
    def digest(self) -> str:
        """4 hex digits of the SHA-256 over the fields and the time zone, separated by single spaces.

        Source: docs/concepts/ownership.md, "Ownership".
        """
        text = " ".join((*self.expression.split(), self.timezone))
        return sha256(text.encode()).hexdigest()[:4]

    def next_after(self, at_s: float) -> float | None:
        """Return the first time after `at_s`, or None at the end of the calendar."""
        return next(self._times_after(at_s), None)

    def due(self, since_s: float, now_s: float) -> float | None:
        """Return the first time after `since_s` to start at `now_s`, or None.

        It has passed, but by no more than the starting deadline.
        """
        if now_s <= since_s:
            return None
        if self.starting_deadline_s is None:
            # An earlier time is late by more than its whole interval.
            time_s = self._last(since_s, now_s)
            return None if time_s is None or now_s > self.start_by(time_s) else time_s
        earliest_s = now_s - self.starting_deadline_s
        times = self._times_from(max(since_s, earliest_s - _MINUTE_S))
        time_s = next((time_s for time_s in times if time_s > since_s and time_s >= earliest_s), None)
        return None if time_s is None or time_s > now_s else time_s

    def missed(self, since_s: float, now_s: float) -> float | None:
        """Return the first time after `since_s` if it is too late to start it at `now_s`, else None."""
        time_s = self.next_after(since_s)
        return None if time_s is None or now_s <= self.start_by(time_s) else time_s

    def start_by(self, time_s: float) -> float:
        """Return the latest start for one of its times."""
        if self.starting_deadline_s is not None:
            return time_s + self.starting_deadline_s
        next_s = self.next_after(time_s)
        return math.inf if next_s is None else time_s + (next_s - time_s) / 2

    def _last(self, since_s: float, now_s: float) -> float | None:
        """Return the last time after `since_s` and up to `now_s`, or None."""
        since_s, now_s, span_s = max(since_s, 0.0), min(now_s, _LATEST_S), _MINUTE_S
        while now_s > since_s:
            # Double the span each time, to avoid walking all times of a schedule that runs every minute.
            from_s = max(since_s, now_s - span_s)
            times = deque(takewhile(lambda time_s: time_s <= now_s, self._times_after(from_s)), maxlen=1)
            if times or from_s <= since_s:
                return times[0] if times else None
            span_s *= 2
        return None

    def _times_after(self, at_s: float) -> Iterator[float]:
        return (time_s for time_s in self._times_from(at_s) if time_s > at_s)

    def spell(self, time_s: float) -> str:
        """Format one of its times: `2026-03-29T03:00 Europe/Berlin`.

        The offset from UTC is added if daylight saving repeats the time.
        """
        local = _local(time_s, self.timezone)
        is_repeated = local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()
        text = local.isoformat(timespec="minutes") if is_repeated else f"{local:%Y-%m-%dT%H:%M}"
        return f"{text} {self.timezone}"

    def _times_from(self, at_s: float) -> Iterator[float]:
        """Yield its times from about `at_s` on.

        In a repeated hour, the first may be before `at_s`: such a time counts in the first pass.
        """
        from cronsim import CronSim  # only for jobs with a schedule

        if at_s < _LATEST_S:
            # Ends if there is no time within fifty years.
            times = CronSim(self.expression, _local(at_s, self.timezone))
            yield from (time.timestamp() for time in times)


def spell_relative(time_s: float, now_s: float, timezone: str) -> str:
    """Format a time relative to `now_s`: `02:00 tomorrow Europe/Berlin`. UTC is left out.

    Raises:
        LookupError: there is no time zone with that name.
    """
    local = _local(time_s, timezone)
    days = (local.date() - _local(now_s, timezone).date()).days
    weekday = _WEEKDAYS[local.weekday()] if 1 < days < 7 else local.date().isoformat()
    day = {0: "today", 1: "tomorrow"}.get(days, f"on {weekday}")
    return f"{local:%H:%M} {day}" + ("" if timezone == UTC_NAME else f" {timezone}")


def _local(time_s: float, timezone: str) -> datetime:
    return datetime.fromtimestamp(min(max(time_s, 0.0), _LATEST_S), time_zone(timezone))


# --- Validation


@lru_cache(maxsize=256)
def schedule_problem(text: str) -> str | None:
    """Return the rule that a cron expression breaks, or None.

    Cached, since the members of a sweep share their schedule.
    """
    if len(text) > _MAX_LENGTH:
        return f"must have at most {_MAX_LENGTH} characters"
    if len(text.split()) != _FIELD_COUNT:
        return "must have five fields: minute, hour, day of the month, month and day of the week"
    from cronsim import CronSim, CronSimError  # only for jobs with a schedule

    try:
        CronSim(text, datetime.fromtimestamp(_ANY_TIME_S, UTC))
    except CronSimError as error:
        return f"must be a cron expression of five fields ({error})"
    if Schedule(text).next_after(_ANY_TIME_S) is None:
        return "never matches any date"
    return None


def _check_schedule(text: str) -> str:
    if (rule := schedule_problem(text)) is not None:
        raise PydanticCustomError("schedule", "{rule}", {"rule": rule})
    return text


def _check_timezone(name: str) -> str:
    try:
        time_zone(name)
    except LookupError:
        raise PydanticCustomError("timezone", "unknown time zone") from None
    return name


CronText = Annotated[str, AfterValidator(_check_schedule)]
TimeZoneName = Annotated[str, AfterValidator(_check_timezone)]


# --- Lifecycle


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("duration", "a duration must be text such as 90s, 2m, 1h30m or 2d")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{message}", {"message": str(error)}) from None


#: Seconds; written as e.g. `1h30m` in a manifest.
Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str)]


#: What exists during a replace: no job, or both.
ReplaceOrder = Literal["terminate_first", "create_first"]


def _with_spelling(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Keep the `ScalarText` of a validated value, which pydantic would turn into plain text."""
    validated = handler(value)
    text = scalar_text(value)
    return text if text == validated else validated


RerunText = Annotated[Text, WrapValidator(_with_spelling, json_schema_input_type=str | int | float | bool)]


class Lifecycle(Strict):
    """When a job is replaced, retried, protected."""

    on_change: Literal["replace", "keep", "fail"] | None = optional(
        "replace, keep or fail; default: replace, unless much work would be lost."
    )
    on_failure: Literal["keep", "retry"] = optional(
        "keep or retry, when the newest revision failed.", default="keep"
    )
    max_retries: int = described("Maximum number of consecutive retries.", default=1, ge=0)
    retry_delay: Duration = optional(
        "Wait before the first retry; it doubles with each one.",
        default=120.0,
        json_schema_extra={"default": "2m"},
    )
    on_terminated: Literal["keep", "recreate"] = optional(
        "keep or recreate, when the job was terminated outside reconciler.", default="keep"
    )
    on_upstream: Literal["keep", "rerun"] = optional(
        "keep or rerun, when a needed job completed a newer revision after this one was created.",
        default="keep",
    )
    replace_order: ReplaceOrder = optional("terminate_first or create_first.", default="terminate_first")
    protect: Flag | None = optional("true: never terminated or replaced; false: removes the protection.")
    rerun: RerunText | None = optional("Any text; edit it to run the same thing again.")
    ignore_changes: Annotated[tuple[str, ...], Field(strict=False)] = described(
        "Fields, or whole sections, whose edits alone start no new job; the next revision includes them.",
        default=(),
    )
    schedule: CronText | None = optional(
        "Cron expression of five fields; at each of its times the next revision starts."
    )
    timezone: TimeZoneName = optional("Time zone of the schedule.", default="UTC")
    overlap: Literal["skip", "replace"] = optional(
        "If the job is active at its time: skip lets it finish first, replace ends it.", default="skip"
    )
    starting_deadline: Duration | None = optional(
        "How late a time may be started; default: half of the interval to the next time. A later start is "
        "left to the next time.",
        gt=0,
    )
