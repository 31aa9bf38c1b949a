"""One suite for every database: a SQLite file, and a PostgreSQL server started by the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from reconciler.core.addresses import STORES
from reconciler.records.journal import StoredJournal
from reconciler.records.store import Records
from tests.builders import NOW
from tests.records import server
from tests.records.locations import FileClock, Place, a_run


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Path]:
    """The socket directory of a running server, started on first use per test process."""
    bin_dir = server.programs()
    if bin_dir is None:
        missing = "PostgreSQL is not installed (initdb is not in /usr/lib/postgresql/*/bin or PATH)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with server.running(bin_dir) as home:
        yield home


@contextmanager
def _of_postgresql(home: Path, clock: FileClock) -> Iterator[Place]:
    """A separate schema with a controlled clock: the server's clock_timestamp() is shadowed."""
    schema = f"t{uuid4().hex[:12]}"
    with server.connect(home) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.moment AS SELECT {NOW}::float8 AS at_s")
        connection.execute(
            f"CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE"
            f" AS 'SELECT to_timestamp(at_s) FROM {schema}.moment'"
        )

        def move(at_s: float) -> None:
            connection.execute(f"UPDATE {schema}.moment SET at_s = {at_s!r}")

        yield Place("postgresql", server.url(home, schema=schema), clock, on_move=move)
        connection.execute(f"SET client_min_messages = error; DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def clock(tmp_path: Path) -> FileClock:
    clock = FileClock(tmp_path / "now")
    clock.set(NOW)
    return clock


@pytest.fixture
def sqlite(tmp_path: Path, clock: FileClock) -> Iterator[Place]:
    path = tmp_path / "records.db"
    place = Place("sqlite", f"sqlite://{path}", clock, path)
    yield place
    place.close()


@pytest.fixture
def on_sqlite(sqlite: Place) -> Place:
    return sqlite


@pytest.fixture
def on_postgresql(postgresql: Path, clock: FileClock) -> Iterator[Place]:
    with _of_postgresql(postgresql, clock) as place:
        yield place
        place.close()


@pytest.fixture(params=[kind.name for kind in STORES])
def place(request: pytest.FixtureRequest) -> Place:
    """Each database of the table in turn; a row needs its fixture `on_NAME`."""
    found: Place = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture
def records(place: Place) -> Records:
    return place.open()


@pytest.fixture
def journal(records: Records) -> StoredJournal:
    return records.begin(a_run())
