"""Whether a SQLite file is whole: its tables and columns, and the rows that decisions rest on."""

from __future__ import annotations

from sqlalchemy import Connection, exists, literal, select

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
    # A revision of a scope that is not there would be found by nobody. (To SQLite, NULL refers to nothing.)
    is_lost = REVISIONS.c.scope_id.is_(None) | REVISIONS.c.scope_id.not_in(select(SCOPES.c.id))
    if connection.execute(select(literal(1)).where(exists().where(is_lost))).first() is not None:
        raise damaged("a revision belongs to no stack")
    for table in _DECISIVE:
        _check_pragma(connection, f"integrity_check('{table.name}')")


def examine_file(connection: Connection) -> None:
    """See that the whole file is sound, and that each row refers to rows that are there.

    Raises:
        Damaged: it is not so.
    """
    _check_pragma(connection, "integrity_check")
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise damaged("a row refers to another one that does not exist")


def _check_pragma(connection: Connection, pragma: str) -> None:
    """Ask SQLite about the file.

    Raises:
        Damaged: the first of what it finds.
    """
    found = connection.exec_driver_sql(f"PRAGMA {pragma}").scalars().first()
    if found != "ok":
        raise damaged(str(found))
