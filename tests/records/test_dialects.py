"""The databases that can hold the records: each has its module, and nothing else knows which one it is."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from reconciler.core.addresses import STORES
from reconciler.records import dialects
from reconciler.records.dialects import dialect_of

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
