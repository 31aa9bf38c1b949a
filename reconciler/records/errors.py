"""What a store's failure means to a person: what, why, and how to fix it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import exc

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic
from reconciler.records.sqlite.store_file import UNREACHABLE as UNREACHABLE
from reconciler.records.sqlite.store_file import UNREADABLE as UNREADABLE
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.records.dialect import Dialect

UNWRITABLE = "the record store cannot be written"
TOO_NEW = "the record store needs a newer reconciler"


class Damaged(exc.SQLAlchemyError):
    """What the database answers cannot have been written by this program; the text says what it is."""


def unavailable(error: Exception, dialect: Dialect, redact: Callable[[str], str]) -> RecordsUnavailable:
    """Say of a failure of SQLAlchemy, the driver or the file system what a person needs to know."""
    # Before lines are joined and cleaned, which would make another text of a secret.
    url = dialect.url
    said = _clean(url.without_secrets(redact(_said(error, dialect)))) or type(error).__name__
    row = next(row for row in dialect.errors if row.says in said.casefold())
    why = url.without_secrets(redact(f"{url.shown}: {said}"))
    return RecordsUnavailable(Diagnostic(row.what, why, row.fix.format(place=shlex.quote(dialect.place))))


def too_new(dialect: Dialect, found: int, known: int) -> RecordsUnavailable:
    """The store was written by a later version."""
    why = f"{dialect.url.shown}: schema version {found} is newer than {known}, the latest supported one"
    return RecordsUnavailable(Diagnostic(TOO_NEW, why, "pip install --upgrade reconciler"))


def _said(error: Exception, dialect: Dialect) -> str:
    """The database's own words; never the statement, nor what was written with it."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        return dialect.message_of(error.orig)
    if isinstance(error, exc.TimeoutError):
        return "every connection is in use"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, ImportError):
        return f"the driver for {dialect.title} cannot be imported"
    if isinstance(error, exc.SQLAlchemyError) and not isinstance(error, Damaged):
        return type(error).__name__
    return str(error)


def _clean(text: str) -> str:
    """On one line."""
    return printable("; ".join(line.strip() for line in text.splitlines() if line.strip()))
