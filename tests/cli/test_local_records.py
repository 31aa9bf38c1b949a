"""The records of a local target are beside it, whatever `records` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, World, manifest, write

RECORDS = Path(".reconciler/records.sqlite3")
#: Nothing listens there, so any use fails.
NOWHERE = "postgresql://me@127.0.0.1:1/records"
IN_MANIFEST = "records: 'postgresql://me:${env.NO_SUCH_PASSWORD}@127.0.0.1:1/records'\n"


@pytest.mark.parametrize("way", ["manifest", "option", "variable"])
def test_every_command_uses_the_records_beside_a_local_target(reconciler: Reconciler, way: str) -> None:
    write(manifest("a", more=IN_MANIFEST if way == "manifest" else ""))
    if way == "variable":
        reconciler.setenv("RECONCILER_RECORDS", NOWHERE)
    options = f"--records {NOWHERE}" if way == "option" else ""
    for line in (
        *("plan --out plan.json", "apply --yes --plan plan.json", "plan", "drift", "history", "history a"),
        *("unlock --yes", "doctor", "destroy --yes"),
    ):
        result = reconciler.ends(0, f"{line} {options}")
        assert "127.0.0.1" not in result.err, line
    assert json.loads(Path("plan.json").read_text(encoding="utf-8"))["options"].get("records") is None
    assert RECORDS.exists()
    assert len(reconciler("history --json").document["runs"]) == 3


def test_password_of_an_unused_store_is_redacted(reconciler: Reconciler) -> None:
    write(manifest("a").replace("a of the test", "tell-nobody-3"))
    store = "postgresql://me:tell-nobody-3@127.0.0.1:1/r"
    reconciler.ends(0, f"plan --json --records {store}", lacks="tell-nobody-3")
    reconciler.ends(64, "plan --records ftp://x/y")


def test_local_records_hold_nothing_of_another_target(world: World, tmp_path: Path) -> None:
    more = f"records: 'sqlite:///{tmp_path}/shared.sqlite3'\ntarget: there\n"
    world.apply(world.manifest("a", more=more).replace("targets:\n", "targets:\n  here: {kind: local}\n"))
    assert not RECORDS.exists()
    world.ends(0, "apply --yes -t here")
    assert RECORDS.exists()
    for target in ("there", "here"):
        assert len(world(f"history --json -t {target}").document["runs"]) == 1
