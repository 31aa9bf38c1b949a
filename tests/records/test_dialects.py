"""What the databases of `records` do in their own way: what they say of a failure, and their addresses."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from reconciler.records.dialects import Dialect, Postgresql, Sqlite, dialect_of


@pytest.mark.parametrize("dialect", [Sqlite, Postgresql])
def test_database_error_table_ends_with_a_catch_all(dialect: type[Dialect]) -> None:
    said = [says for says, _, _ in dialect.errors]
    assert said.index("") == len(said) - 1
    assert all(one == one.casefold() for one in said)


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
    dialect = dialect_of(f"postgresql://{rest}")
    assert isinstance(dialect, Postgresql)
    assert dialect.engine_url == make_url(f"postgresql+psycopg://{rest}")
