"""What each command says, and ends with, where the records were damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.lock_helpers import FILE

DAMAGES: dict[str, Callable[[Path], object]] = {
    "a cell": lambda file: _change(file, "UPDATE reconciler_revisions SET phases = 'nonsense'"),
    "a number": lambda file: _change(file, "UPDATE reconciler_revisions SET number = 'two'"),
    "the lock": lambda file: _change(file, "UPDATE reconciler_locks SET expires_s = 'never', token = 'x'"),
    "a table": lambda file: _change(file, "DROP TABLE reconciler_revisions"),
    "the file": lambda file: file.write_bytes(file.read_bytes()[:5000]),
}
#: What each command ends with where the history cannot be read. A job finished, and one is new.
CODES = {
    ("plan",): 8,
    ("drift",): 8,
    ("status",): 8,
    ("history",): 1,
    ("doctor",): 1,
    ("apply", "--yes"): 1,
    ("destroy", "--yes"): 1,
    ("unlock", "--yes"): 1,
    ("apply", "--yes", "--without-records"): 0,
}
#: The commands that do not read what was damaged.
SPARED = {"a cell": {"unlock"}, "a number": {"unlock"}, "the lock": {"plan", "drift", "status", "history"}}


def _change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_command_says_that_the_records_are_damaged(
    reconciler: Reconciler, service: Service, damage: str
) -> None:
    write(manifest("a", url=service.url))
    reconciler.ends(0, "apply --yes")
    write(manifest("a", "b", url=service.url))
    DAMAGES[damage](FILE)
    content = FILE.read_bytes()
    for command, code in CODES.items():
        said = reconciler(*command)
        everything = said.out + said.err
        assert said.code != 70, everything
        assert "Traceback" not in everything
        if command[0] not in SPARED.get(damage, ()):
            assert said.code == code, (command, everything)
            assert str(FILE.resolve()) in everything, command
            assert "mv " in everything or "--without-records" in command, command
        if "--without-records" not in command:
            assert [job.name for job in service.store.jobs()] == ["a"]
            assert service.store.jobs()[0].life.phase not in {"Terminating", "Terminated"}
    assert sorted(job.name for job in service.store.jobs()) == ["a", "b"]
    assert content[:100] == FILE.read_bytes()[:100]
