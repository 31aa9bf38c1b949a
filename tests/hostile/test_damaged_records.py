"""Records that were damaged: unavailable, and said so; nothing that runs is ended, nothing runs again."""

from __future__ import annotations

import os
import random
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.hostile.damaged_records import MAY, Scene, a_scene
from tests.hostile.sizes import RecordProperty, count_tried, size, some

#: A healthy plan: what each key is to become.
HEALTHY = {key: first for key, (first, *_) in MAY.items()}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with a_scene(tmp_path_factory.mktemp("records")) as scene:
        yield scene


def test_undamaged_records_decide_the_plan(scene: Scene) -> None:
    scene.put(scene.whole)
    told = scene.look()
    assert told.actions == HEALTHY
    assert (told.problem, told.failures) == (None, ())


def test_truncated_records_do_no_harm(scene: Scene, record_property: RecordProperty) -> None:
    chance = random.Random(3)
    lengths = [0, 1, 100, 4096, 4097, len(scene.whole) - 1]
    lengths += [chance.randrange(len(scene.whole)) for _ in range(size(2, 0.02))]
    for length in lengths:
        scene.put(scene.whole[:length])
        told = scene.look()
        assert told.problem, f"cut to {length} bytes: nobody says it"
        assert len(told.failures) == 4, length
    count_tried(record_property, "records cut short", len(lengths))


# --- the tables


def _tables(scene: Scene) -> Iterator[str | tuple[str, ...]]:
    scene.put(scene.whole)
    cells = scene.cells()
    for table in {cell.table: None for cell in cells}:
        yield f"DROP TABLE {table}"
        yield f"ALTER TABLE {table} RENAME TO something_else"
    for table, column in cells:
        yield f'ALTER TABLE {table} RENAME COLUMN "{column}" TO something_else'
    for value in ("-1", "0", "'two'", "NULL", "x'00'", "1.5", "99", "1", "2", "3"):
        yield (
            "DROP TABLE reconciler_version",
            "CREATE TABLE reconciler_version (version)",
            (f"INSERT INTO reconciler_version VALUES ({value})"),
        )
    yield "DELETE FROM reconciler_version"
    yield "INSERT INTO reconciler_version VALUES (1), (2)"


def test_missing_table_column_or_version_makes_the_records_unavailable(
    scene: Scene, record_property: RecordProperty
) -> None:
    cases = list(_tables(scene))
    chosen = some(cases, 12)
    for statements in chosen:
        scene.put(scene.whole)
        with closing(sqlite3.connect(scene.file)) as connection, connection:
            for statement in (statements,) if isinstance(statements, str) else statements:
                connection.execute(statement)
        told = scene.look()
        assert told.problem, statements
        assert len(told.failures) == 4, statements
    count_tried(record_property, "records without a table, a column or a version", len(chosen))


# --- something else in the place of the file


def _socket(file: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as one, pytest.MonkeyPatch.context() as patch:
        patch.chdir(file.parent)  # the address of a socket may not be long
        one.bind(file.name)


IN_THE_PLACE: dict[str, Callable[[Path], object]] = {
    "a directory": lambda file: file.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a link to nothing": lambda file: file.symlink_to("/no/such/disk/records.sqlite3"),
    "a link to a directory": lambda file: file.symlink_to("/tmp"),
    "a link to a device": lambda file: file.symlink_to("/dev/zero"),
    "a link to nothing to be read": lambda file: file.symlink_to("/dev/null"),
    "a link to a file of the kernel": lambda file: file.symlink_to("/proc/self/status"),
    "an empty file": lambda file: file.touch(),
    "a file of zeros": lambda file: file.write_bytes(bytes(100_000)),
    "a text": lambda file: file.write_text("These are no records.\n" * 1000),
}


@pytest.mark.parametrize("what", IN_THE_PLACE)
def test_non_record_file_makes_the_records_unavailable(
    scene: Scene, what: str, record_property: RecordProperty
) -> None:
    scene.clear()
    IN_THE_PLACE[what](scene.file)
    told = scene.look()
    assert told.problem
    assert len(told.failures) == 4
    count_tried(record_property, "something else in the place of the records", 1)


def test_dangling_directory_link_makes_the_records_unavailable(
    scene: Scene, tmp_path: Path, record_property: RecordProperty
) -> None:
    away = Scene(scene.service, tmp_path)
    (tmp_path / ".reconciler").symlink_to("/no/such/disk")
    told = away.look()
    assert told.problem
    count_tried(record_property, "something else in the place of the records", 1)


# --- what lies beside it


def _beside(scene: Scene) -> Iterator[tuple[str, bytes | None]]:
    chance = random.Random(4)
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("CREATE TABLE something (else_ TEXT)")
        pages = other.serialize()
    for ending in ("-wal", "-shm", "-journal"):
        yield ending, None
        yield ending, b""
        yield ending, pages
        yield ending, scene.whole
        yield ending, chance.randbytes(40_000)
        yield ending, b"\x37\x7f\x06\x82" + chance.randbytes(40_000)
        yield ending, b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + chance.randbytes(40_000)


def test_files_left_beside_the_records_do_no_harm(scene: Scene, record_property: RecordProperty) -> None:
    cases = list(_beside(scene))
    for ending, content in cases:
        scene.put(scene.whole)
        beside = scene.file.with_name(scene.file.name + ending)
        if content is None:
            beside.mkdir()
        else:
            beside.write_bytes(content)
        scene.look()
    count_tried(record_property, "something else in the place of the records", len(cases))


# --- who may not


@contextmanager
def _as_somebody_else() -> Iterator[None]:
    """Root may read and write everything."""
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(("of_file", "of_directory"), [(0o000, 0o755), (0o444, 0o755), (0o644, 0o000)])
def test_unreadable_or_unwritable_records_do_no_harm(
    scene: Scene, of_file: int, of_directory: int, record_property: RecordProperty
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Scene(scene.service, Path(name))
        place.root.chmod(0o755)
        place.file.parent.mkdir()
        place.file.write_bytes(scene.whole)
        place.file.chmod(of_file)
        place.file.parent.chmod(of_directory)
        try:
            with _as_somebody_else():
                told = place.look()
        finally:
            place.file.parent.chmod(0o755)
    assert told.failures
    count_tried(record_property, "something else in the place of the records", 1)
