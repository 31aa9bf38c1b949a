"""Columns that look at what they read: a file may hold anything in any cell, whatever its column says.

A value that this program cannot have written makes the store unreadable (`Damaged`), wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Boolean, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from reconciler.core.identity import DIGEST_PATTERN
from reconciler.records.errors import Damaged

#: No time or duration that the service may say is longer; seconds.
_LONGEST_S = 1e30
#: Endpoint hosts, project and workspace ids are far shorter.
_LONGEST_PLACE = 1000
#: What PostgreSQL's integers and identities hold.
_LARGEST, _LARGEST_ID = 2**31 - 1, 2**63 - 1


def damaged(what: str) -> Damaged:
    """Say that something is not as it was written."""
    return Damaged(f"malformed: {what}")


def is_seconds(value: object) -> bool:
    """Whether a value can be a time or a duration; NaN is none."""
    return isinstance(value, int | float) and 0 <= value <= _LONGEST_S


class _Checked(TypeDecorator[Any]):
    """A type of column; `is_sound` judges what the driver read, None aside."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = Text
    what = "a cell"

    def __init__(self, *, nullable: bool = False) -> None:
        super().__init__()
        self.nullable = nullable

    def is_sound(self, value: Any) -> bool:
        """Whether this program can have written it."""
        raise NotImplementedError

    def convert(self, value: Any) -> Any:
        """What the driver read, as the program takes it."""
        return value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Look at each value. Raises Damaged instead of handing on what nobody wrote."""

        def read(value: Any) -> Any:
            if value is None:
                if self.nullable:
                    return None
            elif self.is_sound(value):
                return self.convert(value)
            raise damaged(f"{self.what} expected, got {_kind_of(value)}")

        return read


def _kind_of(value: object) -> str:
    kinds = {str: "another text", bytes: "bytes", int: "another number", float: "another number"}
    return "nothing" if value is None else kinds.get(type(value), "something else")


class TextCell(_Checked):
    """A text."""

    cache_ok = True
    what = "a text"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, str)


class KeyCell(TextCell):
    """A key of the manifest, which is short enough to be looked for in an index."""

    cache_ok = True


class NameCell(_Checked):
    """A text that is never empty."""

    cache_ok = True
    what = "a name"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, str) and value != ""


class PlaceCell(_Checked):
    """A part of what a scope is: one word, of a length that an address can have."""

    cache_ok = True
    what = "the stack or the target that rows are about"

    def is_sound(self, value: Any) -> bool:
        """Whether it can be one."""
        return isinstance(value, str) and 0 < len(value) <= _LONGEST_PLACE and value.isprintable()


class DigestCell(_Checked):
    """A digest."""

    cache_ok = True
    what = "a digest"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one, of whatever algorithm."""
        return isinstance(value, str) and DIGEST_PATTERN.fullmatch(value) is not None


class NumberCell(_Checked):
    """A whole number, `least` or more."""

    impl = Integer
    cache_ok = True
    what = "a number"

    def __init__(self, least: int = 0, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.least = least

    def is_sound(self, value: Any) -> bool:
        """Whether it is one; SQLite has no truth values, so it cannot be one of those."""
        return isinstance(value, int) and self.least <= value <= _LARGEST


class IdCell(_Checked):
    """The number of a row that others refer to."""

    impl = BigInteger
    cache_ok = True
    what = "the number of a row"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return isinstance(value, int) and 1 <= value <= _LARGEST_ID


class SecondsCell(_Checked):
    """A time since 1970 or a duration, in seconds."""

    impl = Double
    cache_ok = True
    what = "a time"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one."""
        return is_seconds(value)


class TruthCell(_Checked):
    """True or false."""

    impl = Boolean
    cache_ok = True
    what = "a truth value"

    def is_sound(self, value: Any) -> bool:
        """Whether it is one; SQLite writes them as 0 and 1."""
        return isinstance(value, int) and value in (0, 1)

    def convert(self, value: Any) -> bool:
        """Take 0 and 1 for what they mean."""
        return bool(value)
