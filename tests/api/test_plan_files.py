"""Saved plans from Python: the same files, digests and preconditions as on the command line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from reconciler import (
    ExitCode,
    ManifestInvalid,
    Plan,
    Refused,
    Stack,
    WrongUsage,
    load_plan,
)
from reconciler.cli.main import cli, run
from tests.api.conftest import ENVIRON, Service, manifest, secret_manifest
from tests.builders import a_startable_entry

GROWING = ("created_at", "elapsed", "lost_node_hours", "cost")


def digest_of(file: Path) -> str:
    """The digest as defined in docs/reference/cli.md, "Saved plans", computed independently."""
    document = json.loads(file.read_text(encoding="utf-8"))
    for part in (document, *document["actions"]):
        for name in GROWING:
            part.pop(name, None)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_saved_plan_is_applied_by_another_session(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere" / "plan.json"
    file.parent.mkdir()
    with service.stack("a", "b").connect(environ=ENVIRON) as session:
        plan = session.plan(only="b")
        plan.save(file)
        read = load_plan(str(file))
        assert isinstance(read, Plan)
        assert read.to_dict() == plan.to_dict()
        assert str(read) == str(plan)
        assert read.digest == plan.digest == digest_of(file)
        assert session.apply(read).ok
    assert [one.name for one in service.app.store.jobs()] == ["b"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_plan_saved_by_python_is_applied_by_the_command_line_if_approved(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", ENVIRON["MODELARTS_AUTH_TOKEN"])
    file = tmp_path / "plan.json"
    with service.stack("a").connect(environ=ENVIRON) as session:
        plan = session.plan()
        plan.save(file)
    assert run(cli, ["show", str(file)]) == 0
    assert plan.digest in capsys.readouterr().out.splitlines()
    apply = ("apply", "--yes", "--plan", str(file), "--approve")
    assert run(cli, [*apply, plan.digest[:-1] + "x"]) == ExitCode.STALE
    assert service.app.store.jobs() == []
    assert run(cli, [*apply, plan.digest]) == ExitCode.DONE
    assert len(service.app.store.jobs()) == 1


def test_secret_of_a_saved_plan_is_read_again_at_apply(service: Service, tmp_path: Path) -> None:
    data = secret_manifest("Bearer ${var.token} $${x}", url=service.url)
    file, copy = tmp_path / "plan.json", tmp_path / "copy.json"
    stack = Stack.from_dict(data, tmp_path, environ={"TOKEN": "tell-nobody-2"})
    with stack.connect(environ=ENVIRON) as session:
        session.plan().save(file)
    load_plan(file).save(copy)
    with pytest.raises(WrongUsage, match="in another directory"):
        load_plan(file).save(tmp_path / "further" / "copy.json")
    assert "tell-nobody-2" not in file.read_text(encoding="utf-8") + copy.read_text(encoding="utf-8")
    with service.stack("a").connect(environ=ENVIRON) as session, pytest.raises(ManifestInvalid):
        session.apply(load_plan(copy))
    environ = {**ENVIRON, "TOKEN": "tell-nobody-3"}
    with service.stack("a").connect(environ=environ) as session:
        assert session.apply(load_plan(copy)).ok
    [made] = service.app.store.jobs()
    sent = (
        {one["name"]: one["value"] for one in made.body["algorithm"]["environments"]}
        if isinstance(made.body["algorithm"]["environments"], list)
        else made.body["algorithm"]["environments"]
    )
    assert sent["TOKEN"] == "Bearer tell-nobody-3 ${x}"


def test_secret_passed_as_a_variable_is_taken_from_the_stack_at_apply(
    service: Service, tmp_path: Path
) -> None:
    data = secret_manifest(url=service.url, description="a token")
    file = tmp_path / "plan.json"
    stack = Stack.from_dict(data, tmp_path, variables={"token": "tell-nobody-2"})
    with stack.connect(environ=ENVIRON) as session:
        session.plan().save(file)
        assert session.apply(load_plan(file)).ok


def test_plan_with_a_secret_without_a_source_cannot_be_saved(service: Service, tmp_path: Path) -> None:
    entry = a_startable_entry()
    entry["algorithm"]["parameters"] = [{"name": "token", "value": "tell-nobody-2", "sensitive": True}]
    data = manifest(url=service.url) | {"jobs": {"a": entry}}
    with Stack.from_dict(data, tmp_path).connect(environ=ENVIRON) as session:
        plan = session.plan()
        with pytest.raises(Refused):
            plan.save(tmp_path / "plan.json")
        with pytest.raises(Refused):
            _ = plan.digest
        assert session.apply(plan).ok


def test_damaged_plan_file_is_refused(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with service.stack("a").connect(environ=ENVIRON) as session:
        session.plan().save(file)
    file.write_text(file.read_text(encoding="utf-8").replace("pytorch_1.8", "pytorch_1.9"), encoding="utf-8")
    with pytest.raises(ManifestInvalid) as caught:
        load_plan(file)
    assert caught.value.exit_code == ExitCode.INVALID
