"""What a store's failure means to a person: what, why, and how to fix it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import exc

from reconciler.core.diagnostic import Diagnostic
from reconciler.core.record import RecordsUnavailable
from reconciler.core.text.sanitize import printable
from reconciler.records.sqlite.store_file import UNREACHABLE, UNREADABLE
from reconciler.records.url import Address

UNWRITABLE = "the record store cannot be written"
TOO_NEW = "the record store needs a newer reconciler"


class Damaged(exc.SQLAlchemyError):
    """What the database answers cannot have been written by this program; the text says what it is."""


class _Row(NamedTuple):
    """A text of a database in lower case, what it means, and the fix; `{place}` is the file or the URL."""

    says: str
    what: str
    fix: str


_MOVE_AWAY = "move it away; the next apply creates a new one: mv {place} {place}.broken"
#: What SQLite and its driver say of a file that was changed or cut.
_DAMAGES = (
    "not a database",
    "malformed",
    "no such table",
    "no such column",
    "duplicate column",
    "already exists",
    "constraint failed",
    "mismatch",
    "encoding",
    "could not decode",
    "too big",
    "out of memory",
    "unsupported file format",
)
_SQLITE = (
    _Row("readonly", UNWRITABLE, "let this user write to the file and its directory: chmod u+w {place}"),
    _Row("unable to open", UNREACHABLE, "check the path, and that this user may open it: ls -l {place}"),
    _Row("locked", UNWRITABLE, "another process is writing; retry. To see which one: fuser {place}"),
    *(_Row(said, UNREADABLE, _MOVE_AWAY) for said in _DAMAGES),
    _Row("is full", UNWRITABLE, "free up space on the disk of {place}"),
    _Row("disk i/o error", UNREADABLE, "check the disk of {place}"),
    _Row("", UNREACHABLE, "check the file: ls -l {place}"),
)
_POSTGRESQL = (
    _Row(
        "authentication failed",
        UNREACHABLE,
        "check the user and password of {place}, PGPASSWORD and ~/.pgpass",
    ),
    _Row("no password supplied", UNREACHABLE, "give the password in PGPASSWORD or ~/.pgpass"),
    _Row("does not exist", UNREACHABLE, "check the names in {place}, and create what is missing"),
    _Row("permission denied", UNWRITABLE, "GRANT the user of {place} the right to create and write tables"),
    _Row("read-only transaction", UNWRITABLE, "use the primary server, not a standby, in {place}"),
    _Row("malformed", UNREADABLE, "restore {place} from a backup"),
    _Row("lock timeout", UNWRITABLE, "another process is writing; retry"),
    _Row("statement timeout", UNREACHABLE, "the server is too slow; retry"),
    _Row("no answer within", UNREACHABLE, "the server does not respond; retry, or check it"),
    _Row("cannot be imported", UNREACHABLE, "pip install 'psycopg[binary]'"),
    _Row("", UNREACHABLE, "check that the server is running and reachable: psql {place}"),
)


def away(error: Exception, address: Address, redact: Callable[[str], str]) -> RecordsUnavailable:
    """Say of a failure of SQLAlchemy, the driver or the file system what a person needs to know."""
    # Before lines are joined and cleaned, which would make another text of a secret.
    said = _clean(address.without_secrets(redact(_said(error)))) or type(error).__name__
    rows = _POSTGRESQL if address.path is None else _SQLITE
    place = shlex.quote(address.shown if address.path is None else str(address.path))
    row = next(row for row in rows if row.says in said.casefold())
    why = address.without_secrets(redact(f"{address.shown}: {said}"))
    return RecordsUnavailable(Diagnostic(row.what, why, row.fix.format(place=place)))


def too_new(address: Address, found: int, known: int) -> RecordsUnavailable:
    """The store was written by a later version."""
    why = f"{address.shown}: schema version {found} is newer than {known}, the latest supported one"
    return RecordsUnavailable(Diagnostic(TOO_NEW, why, "pip install --upgrade reconciler"))


def _said(error: Exception) -> str:
    """The database's own words; never the statement, nor what was written with it."""
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        # PostgreSQL's first line is the message; DETAIL, which follows, quotes rows.
        primary = getattr(getattr(error.orig, "diag", None), "message_primary", None)
        return str(primary or error.orig)
    if isinstance(error, exc.TimeoutError):
        return "every connection is in use"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, ImportError):
        return "the driver for PostgreSQL cannot be imported"
    if isinstance(error, exc.SQLAlchemyError) and not isinstance(error, Damaged):
        return type(error).__name__
    return str(error)


def _clean(text: str) -> str:
    """On one line."""
    return printable("; ".join(line.strip() for line in text.splitlines() if line.strip()))
