"""An unavailable store: reported quickly with cause and fix, and never with a password."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import Diagnostic
from reconciler.records import dialects
from reconciler.records.store import open_records
from reconciler.secrets import Redactor
from tests.records import server
from tests.records.locations import (
    ALICE,
    LEASE_S,
    SCOPE,
    SECRET,
    FileClock,
    Place,
    a_run,
    a_step,
    nothing_lost,
)


def _refusal(url: str, clock: FileClock, *, create: bool = True) -> Diagnostic:
    with pytest.raises(RecordsUnavailable) as unavailable:
        open_records(url, clock=clock, redact=Redactor([SECRET]), create=create)
    (diagnostic,) = unavailable.value.diagnostics
    assert unavailable.value.__cause__ is None
    return diagnostic


# --- a file


def test_non_database_file_is_refused_with_a_fix(sqlite: Place) -> None:
    assert sqlite.path is not None
    sqlite.path.write_text("these are not the records you are looking for" * 100)
    diagnostic = _refusal(sqlite.url, sqlite.clock, create=False)
    assert diagnostic.what == "the record store cannot be read"
    assert diagnostic.why == f"sqlite://{sqlite.path}: file is not a database"
    assert (
        diagnostic.fix
        == f"move it away; the next apply creates a new one: mv {sqlite.path} {sqlite.path}.broken"
    )


def test_file_at_the_store_directory_is_refused(sqlite: Place) -> None:
    diagnostic = _refusal(f"sqlite://{sqlite.clock.path}/records.db", sqlite.clock)
    assert diagnostic.what == "the record store cannot be reached"
    assert "Not a directory" in diagnostic.why or "File exists" in diagnostic.why


@pytest.mark.parametrize(("of_file", "of_directory"), [(0o000, 0o755), (0o644, 0o000)])
def test_unreadable_file_is_not_a_missing_one(clock: FileClock, of_file: int, of_directory: int) -> None:
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        file = Path(name) / "of" / "records.db"
        open_records(f"sqlite://{file}", clock=clock, redact=str, create=True).close()  # type: ignore[union-attr]
        file.chmod(of_file)
        file.parent.chmod(of_directory)
        try:
            if is_root:
                os.seteuid(65534)
            diagnostic = _refusal(f"sqlite://{file}", clock, create=False)
        finally:
            if is_root:
                os.seteuid(0)
            file.parent.chmod(0o755)
    assert diagnostic.what == "the record store cannot be reached"
    assert diagnostic.fix


def test_file_locked_by_another_writer_raises_unavailable(
    sqlite: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "BUSY_S", 0.05)
    first, second = sqlite.open(), sqlite.open()
    with first.writing(), pytest.raises(RecordsUnavailable):
        first.begin(a_run())  # another thread of this process
    with first.writing(), pytest.raises(RecordsUnavailable) as unavailable:
        second.begin(a_run())
    (diagnostic,) = unavailable.value.diagnostics
    assert diagnostic.what == "the record store cannot be written"
    assert diagnostic.fix == f"another process is writing; retry. To see which one: fuser {sqlite.path}"


def test_full_disk_is_named_with_a_fix(sqlite: Place) -> None:
    journal = sqlite.open().begin(a_run())
    with journal._store.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1")

    def fill_it() -> None:
        for _ in range(1000):
            journal.before(a_step())

    with pytest.raises(RecordsUnavailable) as unavailable:
        fill_it()
    (diagnostic,) = unavailable.value.diagnostics
    assert diagnostic.what == "the record store cannot be written"
    assert "is full" in diagnostic.why
    assert diagnostic.fix == f"free up space on the disk of {sqlite.path}"


# --- a server


def _unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.parametrize("create", [True, False])
def test_missing_postgresql_server_is_unreachable(clock: FileClock, create: bool) -> None:
    diagnostic = _refusal(
        f"postgresql://ann:hunter22@127.0.0.1:{_unused_port()}/records", clock, create=create
    )
    assert diagnostic.what == "the record store cannot be reached"
    assert "refused" in diagnostic.why
    assert (diagnostic.fix or "").startswith(
        "check that the server is running and reachable: psql postgresql://ann@"
    )
    assert "hunter22" not in str(diagnostic)


def test_wrong_password_is_refused_and_not_shown(postgresql: Path, clock: FileClock) -> None:
    url = server.url(postgresql, user=f"{server.CAREFUL}:hunter22")
    diagnostic = _refusal(url, clock)
    assert "password authentication failed" in diagnostic.why
    assert "PGPASSWORD" in (diagnostic.fix or "")
    assert "hunter22" not in str(diagnostic)


def test_right_password_connects_and_missing_permission_is_named(postgresql: Path, clock: FileClock) -> None:
    from urllib.parse import quote

    url = server.url(postgresql, user=f"{server.CAREFUL}:{quote(server.PASSWORD, safe='')}")
    assert open_records(url, clock=clock, redact=str, create=False) is None
    diagnostic = _refusal(url, clock)  # since PostgreSQL 15 not every user may create tables
    assert "permission denied" in diagnostic.why
    assert (diagnostic.fix or "").startswith("GRANT")
    assert server.PASSWORD not in str(diagnostic)


def test_missing_database_is_named(postgresql: Path, clock: FileClock) -> None:
    diagnostic = _refusal(server.url(postgresql).replace("/records?", "/nowhere?"), clock)
    assert 'database "nowhere" does not exist' in diagnostic.why


def test_dropped_postgresql_connection_is_reopened(on_postgresql: Place, postgresql: Path) -> None:
    records = on_postgresql.open()
    with records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = records.begin(a_run())
        with server.connect(postgresql) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reconciler'"
            )
        journal.before(a_step())


def test_locked_row_raises_unavailable_after_the_lock_timeout(
    on_postgresql: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "ROW_S", 0.1)
    first, second = on_postgresql.open(), on_postgresql.open()
    with first.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
        journal = first.begin(a_run())
        with second.writing() as connection:
            connection.execute("SELECT 1 FROM reconciler_locks FOR UPDATE")
            with pytest.raises(RecordsUnavailable) as unavailable:
                journal.before(a_step())
        assert "lock timeout" in str(unavailable.value)
        journal.before(a_step())


def test_connections_are_limited_and_waiting_for_one_times_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "BUSY_S", 0.05)
    records = place.open()
    with ExitStack() as stack:
        for _ in range(records.dialect.most_connections):
            stack.enter_context(records.reading())
        with pytest.raises(RecordsUnavailable, match="every connection is in use"):
            stack.enter_context(records.reading())
    assert records.runs(SCOPE) == []


def test_missing_driver_is_named_with_a_fix(clock: FileClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    diagnostic = _refusal("postgresql://h/d", clock)
    assert diagnostic.why == "psycopg, which keeps records on PostgreSQL, is not installed"
    assert diagnostic.fix == "pip install 'reconciler[postgres]'"


def test_database_errors_are_redacted(sqlite: Place) -> None:
    records = sqlite.open(redact=Redactor(["nothing_of_the_kind"]))
    with pytest.raises(RecordsUnavailable) as unavailable, records.reading() as connection:
        connection.execute("SELECT :secret FROM nothing_of_the_kind", secret=SECRET)
    assert "nothing_of_the_kind" not in str(unavailable.value)
    assert SECRET not in str(unavailable.value)
