"""Error and exit code of each command with damaged or foreign records."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from copy import copy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.cli.conftest import Reconciler, Service, World, manifest, write
from tests.cli.lock_helpers import FILE
from tests.hostile.sizes import RecordProperty, count_tried, size


def _changed(*statements: str) -> Callable[[Path], object]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return change


def _cut(length: int) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes()[:length])


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(file: Path) -> None:
        file.unlink()
        make(file)

    return replace


def _linked(to: str) -> Callable[[Path], object]:
    return _replaced(lambda file: file.symlink_to(to))


#: Exit code of each command with an unreadable history. One job is running, one is new.
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
TABLE, VERSION = "reconciler_revisions", "reconciler_version"
CHANGED: dict[str, Callable[[Path], object]] = {
    "a cell": _changed(f"UPDATE {TABLE} SET phases = 'nonsense'"),
    "a number": _changed(f"UPDATE {TABLE} SET number = 'two'"),
    "the lock": _changed("UPDATE reconciler_locks SET expires_s = 'never', token = 'x'"),
    "a table": _changed(f"DROP TABLE {TABLE}"),
    "a column": _changed(f"ALTER TABLE {TABLE} RENAME COLUMN job TO something_else"),
    "no version": _changed(f"DELETE FROM {VERSION}"),
    "two versions": _changed(f"INSERT INTO {VERSION} VALUES (1)"),
    "a version of another kind": _changed(f"DROP TABLE {VERSION}", f"CREATE TABLE {VERSION} (version)"),
    "a page": lambda file: file.write_bytes(
        file.read_bytes()[:8192] + bytes(4096) + file.read_bytes()[12288:]
    ),
    **{f"cut to {length}": _cut(length) for length in (0, 100, 5000)},
}
IN_THE_PLACE: dict[str, Callable[[Path], object]] = {
    "a directory": _replaced(Path.mkdir),
    "a pipe": _replaced(os.mkfifo),
    "a link to nothing": _linked("/no/such/disk/records.sqlite3"),
    "a link to a device": _linked("/dev/zero"),
    "a text": lambda file: file.write_text("These are no records.\n" * 1000),
}
#: Commands that do not read the damaged part.
SPARED = {"a cell": {"unlock"}, "a number": {"unlock"}, "the lock": {"plan", "drift", "status", "history"}}


@pytest.mark.parametrize("damage", [*CHANGED, *IN_THE_PLACE])
def test_each_command_reports_damaged_records(
    reconciler: Reconciler, service: Service, damage: str, record_property: RecordProperty
) -> None:
    write(manifest("a", url=service.url))
    reconciler.ends(0, "apply --yes")
    write(manifest("a", "b", url=service.url))
    place = str(FILE.resolve())
    {**CHANGED, **IN_THE_PLACE}[damage](FILE)
    for command, code in CODES.items():
        result = reconciler(*command)
        everything = result.out + result.err
        assert result.code != 70, everything
        assert "Traceback" not in everything
        if command[0] not in SPARED.get(damage, ()):
            assert result.code == code, (command, everything)
            assert place in everything, command
            assert "fix:" in everything or "--without-records" in command, command
        if "--without-records" not in command:
            assert [job.name for job in service.store.jobs()] == ["a"]
            assert service.store.jobs()[0].life.phase not in {"Terminating", "Terminated"}
    assert sorted(job.name for job in service.store.jobs()) == ["a", "b"]
    count_tried(record_property, "damaged records", 1)


#: The columns that hold JSON.
DOCUMENTS = {
    "reconciler_revisions": ("phases", "declared"),
    "reconciler_lines": ("declared",),
    "reconciler_runs": ("summary",),
    "reconciler_drift": ("entry",),
}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 10**400, 1e308, 2.5, "", "x"),
    *([], ["x", -1], [["Running", "x"]], {}, {"spec": {"a": []}}),
)


def _mutated(tree: Any, chance: Random) -> Any:
    """Yield plain data with one value replaced or removed."""
    if isinstance(tree, dict | list) and tree and chance.random() < 0.8:
        tree = copy(tree)
        at = chance.choice([*tree] if isinstance(tree, dict) else range(len(tree)))
        if chance.random() < 0.2:
            del tree[at]
        else:
            tree[at] = _mutated(tree[at], chance)
        return tree
    return chance.choice(ODD)


def test_document_of_another_shape_is_damage_and_no_internal_error(
    world: World, record_property: RecordProperty
) -> None:
    world.apply(world.manifest("a", "b"))
    world.set_phase("Running")
    world.ends(0, "plan")
    world.apply(world.manifest("a", "b", lr="0.5"))
    world.set_phase("Failed")
    world.ends(2, "drift")
    world.write("a", "b", lr="0.9")
    whole, chance, jobs = FILE.read_bytes(), Random(7), len(world.store.jobs())
    tried = size(40, 0.01)
    places = [(table, column) for table, columns in DOCUMENTS.items() for column in columns]
    for number in range(tried):
        table, column = places[number % len(places)]
        FILE.write_bytes(whole)
        with closing(sqlite3.connect(FILE)) as connection, connection:
            look = f"SELECT rowid, {column} FROM {table} WHERE {column} <> ''"
            rowid, text = chance.choice(connection.execute(look).fetchall())
            changed = json.dumps(_mutated(json.loads(text), chance))
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, rowid))
        damaged = FILE.read_bytes()
        for command in ("plan", chance.choice(["why a", "status", "history --json", "drift"])):
            FILE.write_bytes(damaged)
            result = world(command)
            assert result.code in {0, 1, 2, 8}, (table, column, changed, command, result)
            assert "Traceback" not in result.err
    assert len(world.store.jobs()) == jobs
    count_tried(record_property, "damaged records", tried)


@pytest.mark.parametrize("damage", ["a negative number", "a huge number", "no time", "no rows"])
def test_invalid_records_are_unreadable_and_never_empty(reconciler: Reconciler, damage: str) -> None:
    reconciler.apply(manifest("a"))
    write(manifest("b"))
    _changed(
        *{
            "a negative number": [f"UPDATE {TABLE} SET number = -5"],
            "a huge number": [f"UPDATE {TABLE} SET number = 9223372036854775807"],
            "no time": [f"UPDATE {TABLE} SET seen_at_s = 9e999"],
            "no rows": [f"DELETE FROM {name}" for name in (*DOCUMENTS, "reconciler_keys", "reconciler_locks")]
            + ["DELETE FROM reconciler_outcomes", "DELETE FROM reconciler_scopes"],
        }[damage]
    )(FILE)
    result = reconciler.ends(8, "plan")
    assert str(FILE.resolve()) in result.out + result.err
    reconciler.ends(1, "apply --yes", err="fix:")


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("left", ["nothing", "a directory", "records", "noise"])
def test_files_left_beside_the_records_are_tolerated(
    reconciler: Reconciler, service: Service, ending: str, left: str
) -> None:
    reconciler.apply(manifest("a", url=service.url))
    beside, content = FILE.with_name(FILE.name + ending), FILE.read_bytes()
    if left == "a directory":
        beside.mkdir()
    else:
        beside.write_bytes({"nothing": b"", "records": content, "noise": bytes(range(256)) * 99}[left])
    for command in ("plan", "history", "doctor", "apply --yes"):
        assert reconciler(command).code != 70
    assert [(job.name, job.life.phase == "Terminating") for job in service.store.jobs()] == [("a", False)]
