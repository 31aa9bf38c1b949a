"""The whole of a store, read: for `reconciler doctor`."""

from __future__ import annotations

from sqlalchemy import Connection, Table, select

from reconciler.records.cells import damaged
from reconciler.records.history import read_revision
from reconciler.records.schema import LINES, METADATA, REVISIONS, RUNS
from reconciler.records.serialization import read_declared, read_summary
from reconciler.records.sqlite.integrity import check_pragma


def check_everything(connection: Connection) -> None:
    """Read the whole store.

    Raises:
        Damaged: something in it was not written by this program.
    """
    if connection.dialect.name == "sqlite":
        check_pragma(connection, "integrity_check")
        if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise damaged("a row refers to another one that does not exist")
    for row in connection.execute(select(REVISIONS)):
        read_revision(row)
    for row in connection.execute(select(RUNS)):
        read_summary(row.summary)
    for row in connection.execute(select(LINES)):
        read_declared(row.declared)
    for table in METADATA.sorted_tables:
        if table not in (REVISIONS, RUNS, LINES):
            _read_all(connection, table)


def _read_all(connection: Connection, table: Table) -> None:
    for _ in connection.execute(select(table)):
        pass
