"""The records of a local target lie beside it, whatever `records` says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, World, manifest, write

RECORDS = Path(".reconciler/records.sqlite3")
#: Nobody listens there: whoever uses it fails.
NOWHERE = "postgresql://me@127.0.0.1:1/records"
IN_MANIFEST = "records: 'postgresql://me:${env.NO_SUCH_PASSWORD}@127.0.0.1:1/records'\n"

COMMANDS = [
    ["apply", "--yes"],
    ["plan"],
    ["drift"],
    ["history"],
    ["history", "a"],
    ["unlock", "--yes"],
    ["doctor"],
    ["destroy", "--yes"],
]


def _by_manifest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    write(manifest("a", more=IN_MANIFEST))
    return []


def _by_option(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    write(manifest("a"))
    return ["--records", NOWHERE]


def _by_variable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    write(manifest("a"))
    monkeypatch.setenv("RECONCILER_RECORDS", NOWHERE)
    return []


WAYS = [_by_manifest, _by_option, _by_variable]
Way = Callable[[pytest.MonkeyPatch], list[str]]


@pytest.mark.parametrize("way", WAYS)
def test_every_command_uses_the_records_beside_a_local_target(reconciler: Reconciler, way: Way) -> None:
    options = way(reconciler.patch)
    for command in COMMANDS:
        said = reconciler.ends(0, *command, *options)
        assert "127.0.0.1" not in said.err, command
    assert RECORDS.exists()
    assert len(reconciler("history --json").document["runs"]) == 3


@pytest.mark.parametrize("way", WAYS)
def test_saved_plan_of_a_local_target_is_recorded_beside_it(reconciler: Reconciler, way: Way) -> None:
    options = way(reconciler.patch)
    reconciler.ends(0, "plan --out plan.json", *options)
    assert json.loads(Path("plan.json").read_text(encoding="utf-8"))["options"].get("records") is None
    reconciler.ends(0, "apply --yes --plan plan.json", *options)
    assert RECORDS.exists()


def test_password_of_a_store_that_is_not_used_stays_secret(reconciler: Reconciler) -> None:
    write(manifest("a").replace("a of the test", "tell-nobody-3"))
    said = reconciler.ends(0, "plan --json --records postgresql://me:tell-nobody-3@127.0.0.1:1/r")
    assert "tell-nobody-3" not in said.out + said.err


def test_records_beside_a_local_target_hold_nothing_of_another_one(world: World, tmp_path: Path) -> None:
    more = f"records: 'sqlite:///{tmp_path}/shared.sqlite3'\ntarget: there\n"
    text = world.manifest("a", more=more).replace("targets:\n", "targets:\n  here: {kind: local}\n")
    write(text)
    world.ends(0, "apply --yes")
    assert not RECORDS.exists()
    world.ends(0, "apply --yes -t here")
    assert RECORDS.exists()
    assert len(world("history --json").document["runs"]) == 1
    assert len(world("history --json -t here").document["runs"]) == 1
