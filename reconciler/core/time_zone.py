"""Time zones by their names in the IANA database: those that mean the same zone on every machine."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo

UTC_NAME = "UTC"
NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
#: Longer than any name.
_LONGEST = 256
#: Names that mean another zone on each machine, and trees that only some machines have.
_OF_ONE_MACHINE = re.compile(r"(?:localtime|posixrules|Factory)|(?:posix|right)/.*")


class UnknownTimeZone(LookupError):
    """There is no time zone of that name."""


def time_zone(name: str) -> tzinfo:
    """The zone of a name.

    Raises:
        UnknownTimeZone: there is none.
    """
    if name == UTC_NAME:
        return UTC
    from zoneinfo import ZoneInfo  # only where there is a schedule or a window

    if len(name) > _LONGEST or not _NAME.fullmatch(name) or _OF_ONE_MACHINE.fullmatch(name):
        raise UnknownTimeZone(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownTimeZone(name) from None


def time_zones() -> list[str]:
    """The names of the time zones that may be given, sorted."""
    from zoneinfo import available_timezones  # only to suggest one

    return sorted(name for name in available_timezones() if not _OF_ONE_MACHINE.fullmatch(name))
