"""The databases that can hold the records: each has its module, and nothing else knows which one it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Table, event, make_url
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import sqlite as sqlite_sql
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.visitors import iterate

from reconciler.core.addresses import STORES, parse_store_url
from reconciler.core.record import Call
from reconciler.decide.outcome import RunEnd, StepEnd
from reconciler.decide.plan import Action
from reconciler.records import dialects, schema, store
from reconciler.records.dialects import Changes, dialect_of
from reconciler.records.dialects.sqlite import StoreDialect
from tests.builders import NOW
from tests.records.locations import (
    ALICE,
    DECLARED,
    LEASE_S,
    OTHER_DIGEST,
    SCOPE,
    Place,
    a_run,
    a_step,
    an_action,
    done,
    nothing_lost,
    owned,
)

PACKAGE = Path(dialects.__file__).parents[2]
MODULES = {path.stem for path in Path(dialects.__file__).parent.glob("[!_]*.py")}


def test_store_kinds_and_dialect_modules_match() -> None:
    assert {kind.name for kind in STORES} == MODULES


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
def test_database_error_table_ends_with_a_catch_all(kind: Any) -> None:
    rows = import_module(f"reconciler.records.dialects.{kind.name}").StoreDialect.errors
    assert [row.says for row in rows].index("") == len(rows) - 1
    assert all(row.says == row.says.casefold() for row in rows)


def test_record_modules_outside_the_dialects_do_not_ask_for_the_database() -> None:
    own = re.compile(r"dialects/|file\.py")
    asks = re.compile(r"dialect\.name ==|\burl\.kind|is_file|with_variant|sqlalchemy\.dialects")
    found = {
        str(file.relative_to(PACKAGE))
        for file in (PACKAGE / "records").rglob("*.py")
        if not own.search(str(file.relative_to(PACKAGE))) and asks.search(file.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "rest",
    [
        "/d",
        "h/d",
        "ann@h/d",
        "ann:p%40ss@h:5433/d",
        "ann:p/w@[::1]:5433/d",
        "@/d?host=%2Ftmp%2Fsocket",
        "u@h/d?a=1&a=2&b=%26",
        "h/d?options=-csearch_path%3Da%2Cb",
        "a%20b:c+d@h/d",
    ],
)
def test_server_url_is_parsed_as_by_sqlalchemy(rest: str) -> None:
    expected = make_url(f"postgresql+psycopg://{rest}")
    dialect = dialect_of(f"postgresql://{rest}")
    assert dialect.engine_url("postgresql+psycopg") == expected


# --- what a third database may rely on


class _Plain(StoreDialect):
    """A database that knows neither ON CONFLICT nor RETURNING, and sets columns one after another."""

    def __init__(self, url: Any) -> None:
        super().__init__(url)
        self.executed: list[ClauseElement] = []

    def create_engine(self) -> Engine:
        engine = super().create_engine()

        @event.listens_for(engine, "before_execute")
        def before_execute(connection: object, statement: Any, *_: object) -> None:
            if isinstance(statement, ClauseElement):
                self.executed.append(statement)

        return engine

    def insert_missing(self, table: Table) -> Insert:
        return sqlite_sql.insert(table).prefix_with("OR IGNORE")

    def upsert(self, table: Table, changes: Changes) -> Insert:
        insertion = sqlite_sql.insert(table)
        earlier: set[str] = set()
        for name, value in changes(insertion.excluded).items():
            old = {str(one) for one in iterate(value) if getattr(one, "table", None) is table}
            assert not old & earlier, f"{name} rests on {old & earlier}, set before it"
            earlier.add(f"{table.name}.{name}")
        return insertion.prefix_with("OR REPLACE")


def _everything(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Do all that a store can be asked for on such a database; return the statements in MySQL's words."""
    dialect = _Plain(parse_store_url(place.url))
    monkeypatch.setattr(store, "dialect_of", lambda _: dialect)
    records = place.open()
    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run())
        journal.after(journal.before(a_step()), StepEnd(ok=True, job="job-a"))
        journal.outcome(done(), DECLARED)
        renamed = an_action("b", Action.UPDATE, job="job-a").model_copy(update={"formerly": "a"})
        journal.after(journal.before(a_step(renamed, Call.UPDATE)), StepEnd(ok=True, job="job-a"))
        journal.outcome(done(renamed), DECLARED)
        ending = an_action("b", Action.TERMINATE, job="job-a")
        journal.after(journal.before(a_step(ending, Call.TERMINATE)), StepEnd(ok=True))
        records.remember(SCOPE, [owned("c"), owned("c", 2, digest=OTHER_DIGEST)], NOW)
        assert records.holder(SCOPE) is not None
        assert len(records.runs(SCOPE, key="b", limit=1)) == len(records.runs(SCOPE, limit=1)) == 1
        journal.end(RunEnd(NOW, "complete", {}))
        assert journal.problem is None
    assert set(records.memory(SCOPE).by_key) == {"b", "c"}
    assert set(records.last_changes(SCOPE)) == {"a", "b"}
    assert len(records.revisions(SCOPE, "c")) == 2
    assert records.break_lock(SCOPE, ALICE) is None
    assert records.prunable(SCOPE, NOW + 1).runs == records.prune(SCOPE, NOW + 1) == 1
    records.check()
    return [" ".join(str(one.compile(dialect=mysql.dialect())).split()) for one in dialect.executed]


def test_statements_use_portable_sql(sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _everything(sqlite, monkeypatch)
    assert {one.split()[0] for one in said} >= {"CREATE", "SELECT", "INSERT", "UPDATE", "DELETE"}
    assert [one for one in said if re.search(r"IN \(SELECT [^()]* LIMIT", one)] == []
    for one in said:
        assert " RETURNING " not in one
        if changed := re.match(r"(?:UPDATE|DELETE FROM) (\w+)", one):
            # Not every database lets a change read the table that it changes.
            assert not re.search(rf"\b(FROM|JOIN) {changed[1]}\b", one[changed.end() :]), one


def _indexed(table: Table) -> Iterator[Iterable[Column[Any]]]:
    for constraint in table.constraints:
        yield getattr(constraint, "columns", ())
    yield from (index.columns for index in table.indexes)


def test_indexed_text_columns_have_a_limited_length() -> None:
    """Not every database has an index of texts that have no limit."""
    indexed = {
        column for table in schema.METADATA.sorted_tables for columns in _indexed(table) for column in columns
    }
    assert {column.name for column in indexed} >= {"key", "stack", "host"}
    assert [str(column) for column in indexed if getattr(column.type, "kind", None) is schema.TEXT] == []
