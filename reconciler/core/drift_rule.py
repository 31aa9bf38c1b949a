"""The section `drift` of a manifest: drift that is known, and for how long it is ignored."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import Strict
from reconciler.errors import Location

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
#: The classes of drift that a rule may ignore: what could not be read is never taken for known.
IgnorableClass = Literal[
    "missing", "failed", "terminated", "missed", "modified", "duplicate", "orphaned", "unowned", "stuck"
]


def _day(value: Any) -> Any:
    if isinstance(value, str) and _DAY.fullmatch(value):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise PydanticCustomError("day", "must be a date such as 2026-12-31")


#: A day in the program, `2026-12-31` in a file.
Day = Annotated[
    date,
    BeforeValidator(_day),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "$comment": "a date such as 2026-12-31"}
    ),
]


class IgnoreEntry(Strict):
    """One entry under `drift.ignore`."""

    key: Annotated[str, Field(min_length=1)] = Field(
        description="Key, or glob over keys, declared or not.", examples=["lr-sweep-*"]
    )
    class_: IgnorableClass = Field(
        alias="class",
        description="Class of drift; unknown cannot be ignored.",
        examples=["failed"],
    )
    until: Day | None = Field(
        None,
        description="Last day on which it is ignored, in UTC; default: no end.",
        examples=["2026-12-31"],
    )
    reason: Annotated[str, Field(min_length=1)] = Field(
        description="Why it is known; shown with what it ignores.", examples=["known gap in the data"]
    )


class DriftSettings(Strict):
    """What a drift check does not count."""

    ignore: list[IgnoreEntry] = Field(
        default_factory=list,
        description="Drift that is known: listed in the report, and not counted.",
        examples=[[{"key": "lr-sweep-*", "class": "failed", "until": "2026-12-31", "reason": "known gap"}]],
    )


class IgnoreRule(NamedTuple):
    """A rule as it is asked. `key` is a glob, `until` the last day (UTC), `location` its place."""

    key: str
    class_: str
    reason: str
    until: date | None = None
    location: Location | None = None

    @classmethod
    def of(cls, entry: IgnoreEntry, location: Location | None = None) -> IgnoreRule:
        """Take over an entry of a manifest."""
        return cls(entry.key, entry.class_, entry.reason, entry.until, location)

    def matches(self, key: str, class_: str) -> bool:
        """Whether the rule is about a drift, expired or not."""
        return class_ == self.class_ and fnmatchcase(key, self.key)

    def has_expired(self, at_s: float) -> bool:
        """Whether its last day is over."""
        if self.until is None or self.until == date.max:
            return False
        end = datetime.combine(self.until + timedelta(days=1), datetime.min.time(), UTC)
        return at_s >= end.timestamp()
