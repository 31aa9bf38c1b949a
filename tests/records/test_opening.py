"""Opening a store: creation, and migration."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from reconciler.core.record import RecordsUnavailable
from reconciler.errors import LockHeld, WrongUsage
from reconciler.records import dialects
from reconciler.records.database import Database
from reconciler.records.dialects import dialect_of
from reconciler.records.schema import MIGRATIONS, latest
from reconciler.records.store import open_records
from tests.builders import NOW
from tests.records.locations import ALICE, DECLARED, LEASE_S, SCOPE, Place, a_run, nothing_lost

_STEP = ("ALTER TABLE reconciler_runs ADD COLUMN note TEXT", "UPDATE reconciler_runs SET note = 'old'")
NEXT = (*MIGRATIONS, _STEP)
NEXT_VERSION = latest() + 1


@contextmanager
def _database(place: Place) -> Iterator[Database]:
    with closing(Database(dialect_of(place.url), place.clock, str)) as database:
        yield database


def _version(place: Place) -> tuple[int | None, bool]:
    """Return the schema version, and whether the tables have the additions of the next one."""
    with _database(place) as database, database.reading() as connection:
        version = database.stored_version(connection)
        if version is None:
            return None, False
        columns = connection.execute("SELECT * FROM reconciler_runs").description
        return version, "note" in {column[0] for column in columns}


@pytest.mark.parametrize("size", [None, 0])
def test_opening_without_create_makes_no_file(sqlite: Place, size: int | None) -> None:
    assert sqlite.path is not None
    if size == 0:
        sqlite.path.touch()
    before = sorted(sqlite.path.parent.iterdir())
    assert sqlite.maybe(create=False) is None
    assert sorted(sqlite.path.parent.iterdir()) == before


def test_opening_without_create_makes_no_tables(place: Place) -> None:
    assert place.maybe(create=False) is None
    place.open().begin(a_run())
    assert len(place.open(create=False).runs(SCOPE)) == 1


def test_record_file_and_the_files_beside_it_are_private(tmp_path: Path, sqlite: Place) -> None:
    path = tmp_path / "new" / ".reconciler" / "records.db"
    sqlite.url = f"sqlite://{path}"
    sqlite.open().begin(a_run())
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()} == {
        "records.db": 0o600,
        "records.db-wal": 0o600,
        "records.db-shm": 0o600,
    }


def test_sqlite_commits_are_synchronous(sqlite: Place) -> None:
    sqlite.open()
    with _database(sqlite) as database, database.reading() as connection:
        names = ("journal_mode", "synchronous", "foreign_keys")
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        assert found == ["wal", 2, 1]  # 2 is FULL


def test_store_on_a_read_only_mount_is_read(sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite.open()) as records:
        records.begin(a_run())
    monkeypatch.setattr(dialects, "is_on_read_only_mount", lambda file: file == sqlite.path)
    assert sqlite.path is not None
    before = sorted(sqlite.path.parent.iterdir())
    records = sqlite.open(create=False)
    assert len(records.runs(SCOPE)) == 1
    with pytest.raises(RecordsUnavailable, match="cannot be written"):
        records.begin(a_run())
    assert sorted(sqlite.path.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["with space.db", "with?query.db", "with#hash.db", "50%25.db", "日.db"])
def test_special_characters_in_the_store_path_are_literal(tmp_path: Path, sqlite: Place, name: str) -> None:
    sqlite.url = f"sqlite://{tmp_path / name}"
    sqlite.open()
    assert (tmp_path / name).exists()


# --- versions


def test_new_store_has_the_latest_schema_version(place: Place) -> None:
    place.open()
    assert _version(place) == (latest(), False)


@pytest.mark.parametrize("version", [1, 10])
def test_store_written_by_an_older_program_is_read(sqlite: Place, version: int) -> None:
    """Every later version must read them; these files never change."""
    assert sqlite.path is not None
    old = sqlite3.connect(sqlite.path)
    old.executescript(Path(__file__).with_name(f"version-{version}.sql").read_text(encoding="utf-8"))
    old.close()
    records = sqlite.open(create=False)
    (run,) = records.runs(SCOPE)
    assert (run.who, run.result, run.summary) == ("alice", "complete", {"done": 1})
    assert len(run.steps) == len(run.actions) == 1
    (revision,) = records.revisions(SCOPE, "a")
    assert (revision.declared, revision.phases) == (DECLARED, (("Completed", NOW),))
    assert not revision.stopped
    assert records.holder(SCOPE) is None
    records.check()
    records.begin(a_run())
    assert [run.id for run in records.runs(SCOPE)] == [2, 1]


def test_older_store_is_migrated_and_keeps_its_records(place: Place) -> None:
    place.open().begin(a_run())
    for _ in range(2):
        with _database(place) as database:
            assert database.prepare(create=False, migrations=NEXT)
            with database.reading() as connection:
                rows = connection.rows("SELECT who, note FROM reconciler_runs")
        assert rows == [("alice", "old")]
        assert _version(place) == (NEXT_VERSION, True)


def test_failed_migration_changes_nothing(place: Place) -> None:
    place.open()
    broken = (*MIGRATIONS, (*_STEP, "ALTER TABLE of_nobody ADD COLUMN x TEXT"))
    with _database(place) as database, pytest.raises(RecordsUnavailable):
        database.prepare(create=False, migrations=broken)
    assert _version(place) == (latest(), False)


def _at_once(place: Place, act: Callable[[Database], object]) -> None:
    with ExitStack() as opened, ThreadPoolExecutor(8) as threads:
        list(threads.map(act, [opened.enter_context(_database(place)) for _ in range(8)]))


def test_concurrent_openings_create_the_tables_once(place: Place) -> None:
    _at_once(place, lambda database: database.prepare(create=True))
    assert place.open(create=False).runs(SCOPE) == []


def test_concurrent_first_runs_of_a_stack_find_the_store_undamaged(place: Place) -> None:
    def use(number: int) -> None:
        records = place.open()
        with suppress(LockHeld), records.locked(SCOPE, ALICE, lease_s=LEASE_S, on_lost=nothing_lost):
            records.begin(a_run(at_s=NOW + number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    assert place.open().runs(SCOPE)


def test_concurrent_migrations_migrate_once(place: Place) -> None:
    place.open()
    _at_once(place, lambda database: database.prepare(create=False, migrations=NEXT))
    assert _version(place) == (NEXT_VERSION, True)


def test_store_of_a_newer_schema_version_is_refused(place: Place) -> None:
    place.open()
    with _database(place) as database:
        database.prepare(create=True, migrations=NEXT)
    with pytest.raises(RecordsUnavailable) as refused:
        place.open()
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.what == "the record store needs a newer reconciler"
    assert f"schema version {NEXT_VERSION} is newer than {latest()}" in diagnostic.why


def test_invalid_store_url_is_refused(sqlite: Place) -> None:
    with pytest.raises(WrongUsage, match="not a valid record store URL"):
        open_records("oracle://h/d", clock=sqlite.clock, redact=str, create=True)
