"""What a plan file may be: a regular file of a bounded size that nobody else can write."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.plan_file import MOST_BYTES
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.test_saved_plans import PLAN, TOKEN, save, with_token
from tests.hostile.sizes import RecordProperty, count_tried

NO_PLAN = "plan files of another kind, or of no plain JSON"
COMMANDS = ["apply --yes --plan", "show"]


@pytest.fixture
def plan(reconciler: Reconciler) -> dict[str, Any]:
    """A plan with one create, on a local target."""
    write(manifest("a"))
    return save(reconciler)


# ── what kind of file ──────────────────────────────────────────────────────────────────────────────


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


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
    said = reconciler(*command.split(), "odd.plan")
    assert said.code == (64 if found else 1)
    assert found in said.err
    count_tried(record_property, NO_PLAN, 1)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["", "x" * 300, "jobs.yaml/plan"])
def test_name_that_cannot_be_is_no_fault(reconciler: Reconciler, command: str, name: str) -> None:
    write(manifest("a"))
    assert reconciler(*command.split(), name).code in (1, 64)


def test_link_to_a_plan_is_read_and_its_root_found_from_the_file(
    reconciler: Reconciler, plan: dict[str, Any]
) -> None:
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "link.plan").symlink_to(Path("..") / PLAN)
    assert reconciler("show", "elsewhere/link.plan").code == 0
    assert reconciler("apply", "--yes", "--plan", "elsewhere/link.plan").code == 0
    assert not (elsewhere / ".reconciler").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_plan_that_is_too_large_is_65_and_says_how_large_one_may_be(
    reconciler: Reconciler, command: str
) -> None:
    with PLAN.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    PLAN.chmod(0o600)
    said = reconciler(*command.split(), str(PLAN))
    assert said.code == 65
    assert "larger than 256 MB" in said.err


# ── who else can write or read it ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        *((mode, "writable") for mode in (0o620, 0o602, 0o666, 0o660, 0o777)),
        *((mode, "readable") for mode in (0o640, 0o604, 0o644)),
        (0o600, None),
    ],
)
def test_plan_that_others_can_write_is_not_applied_and_what_they_can_read_is_a_warning(
    reconciler: Reconciler, plan: dict[str, Any], mode: int, found: str | None
) -> None:
    PLAN.chmod(mode)
    shown = reconciler("show", str(PLAN))
    assert shown.code == 0
    assert (f"warning: plan file {found} by others" in shown.err) is bool(found)
    said = reconciler("apply", "--yes", "--plan", str(PLAN))
    assert said.code == (3 if found == "writable" else 0)
    if found == "writable":
        assert f"error: plan file writable by others\n  why: {PLAN} has mode {mode:04o}" in said.err
        assert f"chmod 600 {PLAN}" in said.err
        assert not Path(".reconciler/records.sqlite3").exists()
    else:
        assert ("warning: plan file readable by others" in said.err, "warning" in said.err) == (
            bool(found),
        ) * 2


@pytest.mark.parametrize(("owner", "code"), [(0, 0), (1234, 3), (4321, 0)])
def test_plan_of_another_user_is_not_applied(
    reconciler: Reconciler, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch, owner: int, code: int
) -> None:
    """Root's are, and our own."""
    fstat = os.fstat

    def owned(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        found[4] = owner
        return os.stat_result(found)

    monkeypatch.setattr("reconciler.files.os.fstat", owned)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert reconciler("show", str(PLAN)).code == 0
    said = reconciler("apply", "--yes", "--plan", str(PLAN))
    assert said.code == code
    assert ("owned by user 1234" in said.err) is (code == 3)


def test_root_whose_name_is_no_text_is_found(reconciler: Reconciler) -> None:
    """Linux lets a name be any bytes."""
    root = Path(os.fsdecode(b"caf\xe9"))
    write(manifest("a"), str(root / "jobs.yaml"))
    assert reconciler("plan", "--out", str(PLAN), str(root)).code == 0
    assert reconciler("apply", "--yes", "--plan", str(PLAN)).code == 0
    assert (root / ".reconciler").is_dir()


# ── files of values that a plan names ──────────────────────────────────────────────────────────────


@pytest.fixture
def with_values(reconciler: Reconciler, service: Service) -> None:
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    write("token: from-a-file-1\n", "values/secret.yaml")
    save(reconciler, "--var-file", "values/secret.yaml")
    Path("values/secret.yaml").unlink()


def large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(17 * 1024 * 1024)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (directory, "it is a directory"),
        (pipe, "it is a pipe"),
        (bound_socket, "it is a socket"),
        (link_to("/dev/zero"), "it is a device"),
        (link_to("/dev/stdin"), "cannot be read: "),
        (large, "it is larger than 16 MB"),
    ],
)
@pytest.mark.usefixtures("with_values")
def test_value_is_not_looked_for_in_what_is_no_regular_file(
    reconciler: Reconciler, service: Service, make: Callable[[Path], None], found: str
) -> None:
    make(Path("values/secret.yaml"))
    said = reconciler("apply", "--yes", "--plan", str(PLAN))
    assert said.code == 65
    assert found in said.err
    assert service.store.jobs() == []


@pytest.mark.usefixtures("with_values")
def test_value_is_found_through_a_link_to_a_regular_file(reconciler: Reconciler, service: Service) -> None:
    write("token: from-a-file-2\n", "elsewhere.yaml")
    Path("values/secret.yaml").symlink_to("../elsewhere.yaml")
    assert reconciler("apply", "--yes", "--plan", str(PLAN)).code == 0
    assert "from-a-file-2" in json.dumps(service.store.jobs()[0].body)
