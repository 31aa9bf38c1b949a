"""Whether a SQLite file is whole: its tables and columns, and the rows that decisions rest on."""

from __future__ import annotations

from sqlalchemy import Connection, select

from reconciler.records.cells import damaged
from reconciler.records.schema import LOCKS, METADATA, REVISIONS, SCOPES

#: What decisions rest on. SQLite keeps a copy of each row of these in an index.
_DECISIVE = (SCOPES, REVISIONS, LOCKS)


def check_file(connection: Connection) -> None:
    """See that a SQLite file has every table and column, and that what decisions rest on is unchanged.

    Raises:
        Damaged: it is not so. Other failures of the database say the same.
    """
    for table in METADATA.sorted_tables:
        connection.execute(select(table).limit(0))
    # A scope is looked for by its parts, so one that is damaged would be none, and its history empty.
    connection.execute(select(SCOPES)).all()
    check_references(connection, f"('{REVISIONS.name}')")
    for table in _DECISIVE:
        check_pragma(connection, f"integrity_check('{table.name}')")


def check_references(connection: Connection, table: str = "") -> None:
    """See that no row refers to one that is not there: it would be found by nobody.

    Raises:
        Damaged: one does.
    """
    if connection.exec_driver_sql(f"PRAGMA foreign_key_check{table}").first() is not None:
        raise damaged("a row refers to another one that is not there")


def check_pragma(connection: Connection, pragma: str) -> None:
    """Ask SQLite about the file.

    Raises:
        Damaged: the first of what it finds.
    """
    found = connection.exec_driver_sql(f"PRAGMA {pragma}").scalars().first()
    if found != "ok":
        raise damaged(str(found))
