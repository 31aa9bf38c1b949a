"""What a plan file may be: a regular file of a bounded size."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.plan_file import MOST_BYTES
from tests.cli.conftest import Reconciler, World, manifest, write
from tests.cli.test_saved_plans import PLAN, TOKEN, save, with_token
from tests.hostile.sizes import RecordProperty, count_tried

NO_PLAN = "plan files of another kind, or of no plain JSON"
COMMANDS = ["apply --yes --plan", "show"]
APPLY, SHOW = (f"{command} {PLAN}" for command in COMMANDS)


@pytest.fixture
def plan(reconciler: Reconciler) -> None:
    """A plan with one create, on a local target."""
    write(manifest("a"))
    save(reconciler)


# ── what kind of file ──────────────────────────────────────────────────────────────────────────────


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def large(path: Path, size: int = 17 * 1024 * 1024) -> None:
    with path.open("wb") as stream:
        stream.truncate(size)


def link_to(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.symlink_to(name)

    return make


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("make", "found"),
    [
        (directory, "a directory"),
        (pipe, "a pipe"),
        (bound_socket, "a socket"),
        (link_to("/dev/zero"), "a device"),
        (link_to("nowhere"), "file not found"),
        (link_to("odd.plan"), ""),
    ],
)
def test_plan_that_is_no_regular_file_is_64_and_blocks_nothing(
    reconciler: Reconciler,
    record_property: RecordProperty,
    command: str,
    make: Callable[[Path], None],
    found: str,
) -> None:
    make(Path("odd.plan"))
    reconciler.ends(64 if found else 1, f"{command} odd.plan", err=found or None)
    count_tried(record_property, NO_PLAN, 1)


@pytest.mark.parametrize("command", COMMANDS)
def test_name_that_cannot_be_or_plan_that_is_too_large_is_no_fault(
    reconciler: Reconciler, command: str
) -> None:
    write(manifest("a"))
    for name in ("", "x" * 300, "jobs.yaml/plan"):
        assert reconciler(command, name).code in (1, 64)
    large(PLAN, MOST_BYTES + 1)
    PLAN.chmod(0o600)
    reconciler.ends(65, f"{command} {PLAN}", err="larger than 256 MB")


@pytest.mark.usefixtures("plan")
def test_link_to_a_plan_is_read_and_its_root_found_from_the_file(reconciler: Reconciler) -> None:
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "link.plan").symlink_to(Path("..") / PLAN)
    for command in reversed(COMMANDS):
        reconciler.ends(0, f"{command} elsewhere/link.plan")
    assert not (elsewhere / ".reconciler").exists()


@pytest.mark.usefixtures("plan")
def test_plan_is_written_for_its_owner_alone_and_read_whoever_can_write_it(reconciler: Reconciler) -> None:
    assert PLAN.stat().st_mode & 0o777 == 0o600
    PLAN.chmod(0o666)
    reconciler.ends(0, SHOW, lacks="warning")
    reconciler.ends(0, APPLY)


def test_root_whose_name_is_no_text_is_found(reconciler: Reconciler) -> None:
    """Linux lets a name be any bytes."""
    root = Path(os.fsdecode(b"caf\xe9"))
    write(manifest("a"), str(root / "jobs.yaml"))
    reconciler.ends(0, f"plan --out {PLAN}", str(root))
    reconciler.ends(0, APPLY)
    assert (root / ".reconciler").is_dir()


# ── files of values that a plan names ──────────────────────────────────────────────────────────────

VALUES = Path("values/secret.yaml")


def test_value_is_looked_for_in_a_regular_file_only(world: World) -> None:
    write(with_token(world.manifest("a", more=TOKEN)))
    write("token: from-a-file-1\n", str(VALUES))
    save(world, f"--var-file {VALUES}")
    VALUES.unlink()
    for make, found in (
        (directory, "it is a directory"),
        (pipe, "it is a pipe"),
        (bound_socket, "it is a socket"),
        (link_to("/dev/zero"), "it is a device"),
        (link_to("/dev/stdin"), "cannot be read: "),
        (large, "it is larger than 16 MB"),
    ):
        make(VALUES)
        world.ends(65, APPLY, err=found)
        (VALUES.rmdir if VALUES.is_dir() else VALUES.unlink)()
    assert world.store.jobs() == []
    write("token: from-a-file-2\n", "elsewhere.yaml")
    link_to("../elsewhere.yaml")(VALUES)
    world.ends(0, APPLY)
    assert "from-a-file-2" in json.dumps(world.job("a").body)
