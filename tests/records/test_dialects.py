"""Database-specific behavior of `records`: errors and URLs."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.records import dialects
from reconciler.records.dialects import Dialect, Postgresql, Sqlite, dialect_of


@pytest.mark.parametrize("dialect", [Sqlite, Postgresql])
def test_database_error_table_ends_with_a_catch_all(dialect: type[Dialect]) -> None:
    messages = [says for says, _, _ in dialect.errors]
    assert messages.index("") == len(messages) - 1
    assert all(one == one.casefold() for one in messages)


@pytest.mark.parametrize(
    ("rest", "options"),
    [
        ("/d", {}),
        ("h/d", {"host": "h"}),
        ("ann@h/d", {"user": "ann", "host": "h"}),
        ("ann:p%40ss@h:5433/d", {"user": "ann", "password": "p@ss", "host": "h", "port": 5433}),
        ("ann:p/w@[::1]:5433/d", {"user": "ann", "password": "p/w", "host": "::1", "port": 5433}),
        ("a%20b:c+d@h/d", {"user": "a b", "password": "c+d", "host": "h"}),
        ("@/d?host=%2Ftmp%2Fsocket", {"host": "/tmp/socket"}),
        (
            "u@h/d?sslmode=require&options=-ca%3Db%2Cc",
            {"user": "u", "host": "h", "sslmode": "require", "options": "-ca=b,c"},
        ),
        (
            "u@h/d?user=v&connect_timeout=1&password=%26",
            {"user": "v", "host": "h", "connect_timeout": "1", "password": "&"},
        ),
        ("/d?host=h1,h2&port=1,2", {"host": "h1,h2", "port": "1,2"}),
        ("/d?host=h1&host=h2", {"host": "h1,h2"}),
        ("/d?host=::1", {"host": "::1"}),
    ],
)
def test_server_url_options_are_passed_to_the_driver(rest: str, options: dict[str, Any]) -> None:
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        dialect = dialect_of(f"{scheme}://{rest}")
        assert isinstance(dialect, Postgresql)
        found = dict(set(dialect.options.items()) - set(dialects.NETWORK.items()))
        assert found == {"dbname": "d", **options}
