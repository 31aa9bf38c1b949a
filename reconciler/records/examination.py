"""The whole of a store, read: for `reconciler doctor`."""

from __future__ import annotations

from sqlalchemy import Connection, Table, select

from reconciler.records.dialect import Dialect
from reconciler.records.drift_checks import read_standing
from reconciler.records.history import read_revision
from reconciler.records.schema import DRIFT, LINES, METADATA, REVISIONS, RUNS
from reconciler.records.serialization import read_declared, read_summary


def check_everything(dialect: Dialect, connection: Connection) -> None:
    """Read the whole store.

    Raises:
        Damaged: something in it was not written by this program.
    """
    dialect.examine(connection)
    for row in connection.execute(select(REVISIONS)):
        read_revision(row)
    for row in connection.execute(select(RUNS)):
        read_summary(row.summary)
    for row in connection.execute(select(LINES)):
        read_declared(row.declared)
    for row in connection.execute(select(DRIFT)):
        read_standing(row)
    for table in METADATA.sorted_tables:
        if table not in (REVISIONS, RUNS, LINES, DRIFT):
            _read_all(connection, table)


def _read_all(connection: Connection, table: Table) -> None:
    for _ in connection.execute(select(table)):
        pass
