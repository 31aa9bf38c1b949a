"""`.reconciler/` is 0700 and every file in it 0600, whatever the umask and whatever was there.

Source: docs/operations/records.md, "Contents".
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.files import private_file, record_directory, tighten
from tests.cli.conftest import Reconciler, World, manifest, write

HERE = Path(".reconciler")
OWN_STORE = "records: sqlite:///.reconciler/own.db\n"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(directory: Path = HERE) -> dict[str, str]:
    """Return files and directories accessible to other users, with their modes."""
    every = [directory, *directory.iterdir()]
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in every}
    return {
        name: oct(mode) for name, mode in found.items() if mode != (0o700 if name == HERE.name else 0o600)
    }


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177])
def test_files_created_by_apply_are_private_under_any_umask(reconciler: Reconciler, mask: int) -> None:
    write(manifest("a"))
    with umask(mask):
        reconciler.ends(0, "apply --yes")
    made = {path.name for path in HERE.iterdir()}
    assert {".gitignore", "local.sqlite3", "records.sqlite3"} <= made
    assert modes() == {}


@pytest.mark.parametrize(("more", "file"), [("", "records.sqlite3"), (OWN_STORE, "own.db")])
def test_records_of_a_real_service_are_private_in_any_location(world: World, more: str, file: str) -> None:
    world.write("a", more=more)
    with umask(0o000):
        world.ends(0, "apply --yes")
    assert (HERE / file).exists()
    assert modes() == {}


@pytest.mark.parametrize("command", ["plan", "drift", "history", "unlock --yes", "apply --yes"])
@pytest.mark.parametrize("where", ["local", "service"])
def test_readable_record_directory_is_made_private_on_opening(world: World, command: str, where: str) -> None:
    url = world.url if where == "service" else None
    write(manifest("a", url=url))
    world.ends(0, "apply --yes")
    write(manifest("a", "b", url=url))  # an unchanged plan reads no record
    (HERE / "old-backup.sqlite3").touch()
    HERE.chmod(0o755)
    for file in HERE.iterdir():
        file.chmod(0o644)
    assert world(*command.split()).code in (0, 2)
    assert modes() == {}


def test_restricting_permissions_adds_none_and_follows_no_link(tmp_path: Path) -> None:
    directory = record_directory(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine", encoding="utf-8")
    elsewhere.chmod(0o644)
    (directory / "link").symlink_to(elsewhere)
    read_only = directory / "read-only"
    private_file(read_only, "x")
    read_only.chmod(0o444)
    directory.chmod(0o555)
    tighten(directory)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE(read_only.stat().st_mode) == 0o400
    assert stat.S_IMODE(directory.stat().st_mode) == 0o500
    directory.chmod(0o700)
