"""The hooks for pre-commit: what they call exists, and does in a repository what a hook has to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.ci.conftest import needs_bash
from tests.ci.repository import Repository
from tests.ci.shell import ROOT, Script, Shell

FILE = ROOT / ".pre-commit-hooks.yaml"
HOOKS: dict[str, dict[str, Any]] = {hook["id"]: hook for hook in YAML(typ="safe").load(FILE)}

needs_pre_commit = pytest.mark.skipif(
    shutil.which("pre-commit") is None, reason="pre-commit is not installed"
)


def test_a_hook_for_each_check_that_needs_no_service() -> None:
    assert {name: hook["entry"] for name, hook in HOOKS.items()} == {
        "reconciler-validate": "reconciler validate",
        "reconciler-fmt": "reconciler fmt",
    }
    for hook in HOOKS.values():
        # A stack is all of its files, so the files that are committed are no PATH.
        assert (hook["language"], hook["types"], hook["pass_filenames"]) == ("python", ["yaml"], False)


@needs_bash
def test_hooks_pass_a_good_manifest_stop_a_wrong_one_and_rewrite_a_bad_layout(
    repository: Repository, tmp_path: Path
) -> None:
    """A hook fails by its exit code, or because it changed a file."""
    repository.commit(a=0.1)
    shell, manifest = Shell(tmp_path / "shell"), repository.path / "jobs.yaml"

    def hook(name: str) -> Script:
        return shell.run(HOOKS[name]["entry"], repository.path, {})

    assert (hook("reconciler-validate").code, hook("reconciler-fmt").code) == (0, 0)
    assert repository.git("status", "--porcelain", "--untracked-files=no") == ""
    good = manifest.read_text(encoding="utf-8")
    manifest.write_text(good.replace("  local: {kind: local}", "  local:   {kind: local}"), encoding="utf-8")
    assert hook("reconciler-fmt") == (0, "jobs.yaml\n")
    assert manifest.read_text(encoding="utf-8") == good
    manifest.write_text(good.replace("flavor_id", "flavour_id"), encoding="utf-8")
    wrong = hook("reconciler-validate")
    assert wrong.code == 65
    assert 'did you mean "flavor_id"?' in wrong.log


@needs_pre_commit
def test_pre_commit_takes_the_definition() -> None:
    subprocess.run(["pre-commit", "validate-manifest", str(FILE)], check=True)


@needs_pre_commit
@pytest.mark.timeout(900)
def test_pre_commit_installs_and_runs_the_hooks(repository: Repository) -> None:
    """It installs the package of the commit that is checked out: slow, so only where pre-commit is there."""
    repository.commit(a=0.1)
    command = ["pre-commit", "try-repo", str(ROOT), "--ref", "HEAD", "--all-files"]
    done = subprocess.run(command, cwd=repository.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Passed") == 2
