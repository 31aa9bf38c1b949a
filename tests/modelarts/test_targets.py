"""The local target when its file cannot be used any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.core.ports import Clock
from reconciler.core.stack import Target
from reconciler.core.values import LOCAL
from reconciler.emulator import StoreError
from reconciler.modelarts.local import LocalFileFailed, _fix_of
from reconciler.modelarts.target import Connected, Runtime, connected


class Frozen(Clock):
    """The time of this machine."""

    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is tried again")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Connected]:
    with connected("there", Target(kind=LOCAL), tmp_path, Runtime({}, Frozen())) as place:
        yield place


def run(directory: Path, sql: str) -> None:
    with closing(sqlite3.connect(directory / ".reconciler" / "local.sqlite3")) as file:
        file.execute(sql)


def test_request_that_the_file_fails_is_told_at_once(local: Connected, tmp_path: Path) -> None:
    run(tmp_path, "DROP TABLE jobs")
    with pytest.raises(LocalFileFailed, match="no such table: jobs") as raised:
        local.backend.details("00000000-0000-0000-0000-000000000000")
    assert str(raised.value.diagnostics[0].fix).startswith("remove ")


def test_clock_goes_on_without_the_file(local: Connected, tmp_path: Path) -> None:
    assert local.clock.now() > 1.0
    run(tmp_path, "DROP TABLE clock")
    assert local.clock.now() == 1.0


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("SQLITE_BUSY", "another process is using it; retry when that process has ended"),
        ("SQLITE_BUSY_SNAPSHOT", "another process is using it; retry when that process has ended"),
        ("SQLITE_READONLY", "local.sqlite3 must be a writable file, and r a directory"),
        ("SQLITE_CANTOPEN", "local.sqlite3 must be a writable file, and r a directory"),
        ("SQLITE_FULL", "check whether the disk is full"),
        ("SQLITE_CORRUPT", "remove r/local.sqlite3 if you can lose the jobs of the local target"),
    ],
)
def test_file_that_is_only_held_is_not_to_be_removed(name: str, fix: str) -> None:
    error = StoreError("said by the database")
    error.sqlite_errorname = name
    assert _fix_of(error, Path("r/local.sqlite3")) == fix
