"""An edit of code is an edit of the job: decided, compared and adopted like any other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from reconciler.errors import ExitCode
from tests.cli.conftest import World, write

CODE = "code: {source: ./src}"
JOB = """\
  KEY:
    CODE
    algorithm:
      boot_file: train.py
      engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
      parameters: {lr: LR}
    spec: {resource: {flavor_id: modelarts.vm.cpu.2u}}
"""


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The code store of the service, as files of a directory."""
    root = tmp_path / "obs"
    monkeypatch.setattr("reconciler.modelarts.objects.open_objects", lambda *_: LocalStore(root, mkdir=True))
    put("print(1)\n")
    return root


def put(text: str, name: str = "src/train.py") -> None:
    write(text, name)


def job(key: str = "a", code: str = CODE, lr: str = "0.1", more: str = "") -> str:
    return JOB.replace("KEY", key).replace("CODE", code).replace("LR", lr) + more


def declare(world: World, *jobs: str, more: str = "") -> None:
    target = f"{{kind: modelarts, endpoint: '{world.url}', project_id: p1, code_store: 'obs://v/code/'"
    head = f"apiVersion: reconciler/v1\nstack: test\ntargets:\n  there: {target}, region: cn-north-4}}\n"
    write(head + more + "jobs:\n" + "".join(jobs))


def planned(world: World) -> dict[str, Any]:
    [action] = world.ends(0, "plan --json").document["actions"]
    assert isinstance(action, dict)
    return action


def forget_history() -> None:
    for file in Path(".reconciler").glob("*.sqlite3*"):
        file.unlink()


IGNORES = "    lifecycle: {ignore_changes: [code]}\n"
ANNOTATED = "    annotations: {x: y}\n"
RERUN = "    lifecycle: {rerun: again, ignore_changes: [code]}\n"


@pytest.mark.parametrize(
    ("was", "now", "action", "detail"),
    [
        ("", "", "replace", "code changed"),
        ("", ANNOTATED, "replace", "annotations, code changed"),
        (IGNORES, IGNORES, "keep", "creating; ignored: code"),
        # Only the code was edited.
        (ANNOTATED + IGNORES, ANNOTATED + IGNORES, "keep", "creating; ignored: code"),
        (RERUN, RERUN, "keep", "creating; ignored: code"),
        (IGNORES, ANNOTATED + IGNORES, "replace", "annotations, code changed"),
    ],
)
def test_edit_of_code_gives_the_same_plan_in_a_fresh_checkout(
    world: World, was: str, now: str, action: str, detail: str
) -> None:
    declare(world, job(more=was))
    world.ends(0, "apply --yes")
    declare(world, job(more=now))
    put("print(2)\n")
    beside_a_history = planned(world)
    assert (beside_a_history["action"], beside_a_history["detail"]) == (action, detail)
    forget_history()
    assert planned(world) == beside_a_history


def test_code_that_was_not_edited_has_no_changed_files_in_a_fresh_checkout(world: World) -> None:
    declare(world, job())
    world.ends(0, "apply --yes")
    declare(world, job(lr="0.2"))
    beside_a_history = planned(world)
    assert beside_a_history["code"]["files"] == []
    forget_history()
    assert planned(world) == beside_a_history


@pytest.mark.parametrize("code_dir", ["", ", code_dir: 'obs://b/x/'"])
def test_code_no_longer_declared_is_an_edit(world: World, code_dir: str) -> None:
    image = "algorithm: {command: python train.py, engine: {image_url: org/image:1}"
    declare(
        world,
        f"  a:\n    {CODE}\n    {image}}}\n    spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}\n",
    )
    world.ends(0, "apply --yes")
    declare(
        world, f"  a:\n    {image}{code_dir}}}\n    spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}\n"
    )
    beside_a_history = planned(world)
    assert beside_a_history["action"] == "replace"
    assert "code" in [change["path"] for change in beside_a_history["changes"]]
    forget_history()
    assert planned(world) == beside_a_history


def test_ignored_edit_keeps_a_job_with_unknown_code(world: World, store: Path) -> None:
    declare(world, job(more=ANNOTATED + IGNORES))
    world.ends(0, "apply --yes")
    forget_history()
    shutil.rmtree(store)
    put("print(2)\n")
    output = "creating; ignored: code; what was declared before is not on record"
    world.ends(0, "plan --show-keep", out=["1 to keep", output])


def test_job_is_adopted_with_the_code_it_runs(world: World) -> None:
    declare(world, job())
    world.ends(0, "apply --yes")
    world.ends(0, "release a --yes")
    put("print(2)\n")
    adopt = f"adopt a {world.job('a').id} --yes"
    place = "obs://v/code/test/df7da332ff19b65e/src/"
    output = (
        f"  a:\n    code: null\n    algorithm:\n      boot_file: {place}train.py\n      code_dir: {place}\n"
    )
    world.ends(
        ExitCode.REFUSED,
        adopt,
        out=["differs from the declaration in code;", "code: 1 file changed (train.py +1 -1)", output],
    )
    put("print(1)\n")
    world.ends(0, adopt, lacks="not compared")
    world.ends(0, "plan", out="1 to keep")


def test_same_code_under_two_names_has_two_locations(world: World, store: Path) -> None:
    put("print(1)\n", "copy/train.py")
    declare(world, job(), job("b", code="code: {source: ./copy}"))
    world.ends(0, "plan --out plan.json")
    put("print(2)\n", "copy/train.py")
    world.ends(ExitCode.STALE, "apply --plan plan.json --yes", err="the code in copy has changed: train.py")
    put("print(1)\n", "copy/train.py")
    world.ends(0, "apply --plan plan.json --yes")
    assert sorted(file.parent.name for file in store.rglob("train.py")) == ["copy", "src"]


def test_absent_job_needs_no_code(world: World) -> None:
    declare(world, job())
    world.ends(0, "apply --yes")
    shutil.rmtree("src")
    declare(world, job(more="    state: absent\n"))
    world.ends(0, "plan", out="1 to terminate")


INHERITED = "code: {source: ./src}, algorithm: {boot_file: train.py}"


@pytest.mark.parametrize(
    ("more", "extends"),
    [
        (f"defaults: {{{INHERITED}}}\n", ""),
        (f"templates: {{t: {{{INHERITED}}}}}\n", "    extends: t\n"),
        ("defaults: {algorithm: {boot_file: train.py}}\n", f"    {CODE}\n"),
    ],
)
def test_code_and_paths_relative_to_it_are_inherited(world: World, more: str, extends: str) -> None:
    own = job(more=extends).replace(f"    {CODE}\n", "", 1).replace("      boot_file: train.py\n", "")
    declare(world, own, more=more)
    world.ends(0, "plan", out="uploads 1 file, 9 B")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("code: {source: './${env.NOT_SET}'}", "NOT_SET is not set"),
        ("code: {source: [1]}", "expected text, got a list"),
        (f"{CODE}\n    raw: {{algorithm: {{code_dir: 'obs://b/x/'}}}}", "`code` sets code_dir"),
    ],
)
def test_unreadable_code_is_one_error(world: World, code: str, says: str) -> None:
    declare(world, job(code=code))
    assert world.ends(ExitCode.INVALID, "validate", err=says).err.count("error:") == 1
