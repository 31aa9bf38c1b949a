"""A plan file must be a regular file of bounded size."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.plan_file import MOST_BYTES
from tests.cli.conftest import Reconciler, World, manifest, write
from tests.cli.test_saved_plans import PLAN, TOKEN, save, with_token
from tests.hostile.sizes import RecordProperty, count_tried

NO_PLAN = "files that are not plans"
COMMANDS = ["apply --yes --plan", "show"]
APPLY, SHOW = (f"{command} {PLAN}" for command in COMMANDS)


@pytest.fixture
def plan(reconciler: Reconciler) -> None:
    """A plan with one create, on a local target."""
    write(manifest("a"))
    save(reconciler)


# ── file types ─────────────────────────────────────────────────────────────────────────────────────


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    path.chmod(0o600)


def link_to(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.symlink_to(name)

    return make


@pytest.mark.parametrize("command", COMMANDS)
def test_plan_file_that_is_irregular_or_too_large_is_refused_without_blocking(
    reconciler: Reconciler, record_property: RecordProperty, command: str
) -> None:
    write(manifest("a"))
    rows = {
        "directory": (directory, 64, "a directory"),
        "pipe": (pipe, 64, "a pipe"),
        "device": (link_to("/dev/zero"), 64, "a device"),
        "nothing": (link_to("nowhere"), 64, "file not found"),
        "loop": (link_to("loop"), 1, "Too many levels"),
        "large": (large, 65, "larger than 256 MB"),
    }
    for name, (make, code, found) in rows.items():
        make(Path(name))
        reconciler.ends(code, f"{command} {name}", err=found)
    reconciler.ends(1, f"{command} {'x' * 300}")
    count_tried(record_property, NO_PLAN, len(rows))


@pytest.mark.usefixtures("plan")
def test_link_to_a_plan_is_read_and_its_root_found_from_the_file(reconciler: Reconciler) -> None:
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "link.plan").symlink_to(Path("..") / PLAN)
    for command in reversed(COMMANDS):
        reconciler.ends(0, f"{command} elsewhere/link.plan")
    assert not (elsewhere / ".reconciler").exists()


def test_root_with_a_non_utf8_name_is_found(reconciler: Reconciler) -> None:
    """A file name on Linux may be any bytes."""
    root = Path(os.fsdecode(b"caf\xe9"))
    write(manifest("a"), str(root / "jobs.yaml"))
    reconciler.ends(0, f"plan --out {PLAN}", str(root))
    reconciler.ends(0, APPLY)
    assert (root / ".reconciler").is_dir()


# ── files of values that a plan names ──────────────────────────────────────────────────────────────

VALUES = Path("values/secret.yaml")


def test_variable_value_is_read_from_a_regular_file_only(world: World) -> None:
    write(with_token(world.manifest("a", more=TOKEN)))
    write("token: from-a-file-1\n", str(VALUES))
    save(world, f"--var-file {VALUES}")
    VALUES.unlink()
    for make, found in (
        (directory, "it is a directory"),
        (pipe, "it is a pipe"),
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
