"""`reconciler init`: generated files work at once, and no existing file is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from reconciler.core.identity import stack_problem
from reconciler.manifest.export import stack_name
from tests.cli.conftest import Reconciler


def test_generated_files_are_valid_formatted_and_plannable(reconciler: Reconciler, tmp_path: Path) -> None:
    result = reconciler.ends(0, "init", "My Models")
    expected = ["jobs.yaml", "src/train.py", ".github/workflows/reconciler.yml", ".gitignore"]
    assert result.out.splitlines() == [f"My Models/{name}" for name in expected]
    assert "Next:\n  cd 'My Models'\n  reconciler plan " in result.err
    reconciler.patch.chdir(tmp_path / "My Models")
    reconciler.ends(0, "fmt --check")
    assert "stack my-models" in reconciler("validate").out
    reconciler.ends(0, "validate -t prod")  # the target of the workflow, without a project
    plan = reconciler("plan --json")
    assert (plan.code, plan.document["summary"]["create"]) == (0, 1)
    reconciler.ends(0, "apply --yes --wait completed", out="Completed   hello")
    reconciler.ends(0, "jobs logs hello", out=["epoch 100  loss 0.01", "return code: 0"])
    assert Path(".reconciler/obs/my-bucket/hello/r1/model.json").is_file()
    reconciler.ends(0, "plan --detailed-exitcode")
    reconciler.ends(0, "apply --yes -t local")


def test_existing_files_are_kept_and_named(reconciler: Reconciler, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n", encoding="utf-8")
    result = reconciler.ends(0, "init")
    assert ".gitignore" not in result.out
    assert "exists, not written: .gitignore" in result.err
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "mine\n"
    reconciler.ends(0, "init", out="")


def test_init_beside_a_manifest_writes_no_second_one(reconciler: Reconciler, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("stack: mine\n", encoding="utf-8")
    said = reconciler.ends(0, "init", lacks=["jobs.yaml\n", "src/train.py", "hello", "prod"])
    assert "Next:\n  reconciler plan                     shows what would start\nCI: " in said.err
    assert not (tmp_path / "jobs.yaml").exists()
    assert not (tmp_path / "src").exists()


def test_file_in_place_of_the_directory_is_wrong_usage(reconciler: Reconciler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    reconciler.ends(64, "init file")


def test_workflow_is_yaml_and_runs_commands_that_exist(reconciler: Reconciler, tmp_path: Path) -> None:
    reconciler("init")
    workflow = YAML(typ="safe").load(tmp_path / ".github/workflows/reconciler.yml")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert workflow["env"]["RECONCILER"] == "${{ vars.RECONCILER }}", "no default that an index may answer"
    scripts = [line.split() for step in steps for line in step.get("run", "").splitlines()]
    commands = [words[1:] for words in scripts if words and words[0] == "reconciler"]
    assert {words[0] for words in commands} == {"fmt", "validate", "review", "plan", "apply", "drift"}
    for words in commands:
        text = reconciler(words[0], "--help").out
        assert all(word in text for word in words if word.startswith("--"))


@pytest.mark.parametrize("directory", ["", "...", "ÄÖ", "9 Lives!", "x" * 100, "a" * 31 + "- b", "models"])
def test_any_directory_gives_a_valid_stack_name(directory: str) -> None:
    assert stack_problem(stack_name(directory)) is None
