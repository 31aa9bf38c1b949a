"""Shell completion: the scripts, and what a shell is offered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from reconciler.cli import cli
from tests.cli.conftest import Reconciler, manifest


def offered(*args: str, incomplete: str = "") -> list[str]:
    """What follows some words of a command line."""
    complete = BashComplete(cli, {}, "reconciler", "_RECONCILER_COMPLETE")
    return [item.value for item in complete.get_completions(list(args), incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_program_and_is_accepted_by_its_shell(reconciler: Reconciler, shell: str) -> None:
    said = reconciler("completion", shell)
    assert said.code == 0
    assert "_RECONCILER_COMPLETE" in said.out
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=said.out, text=True, check=True, timeout=30)


def test_unknown_shell_is_wrong_usage(reconciler: Reconciler) -> None:
    assert reconciler("completion", "tcsh").code == 64


def test_commands_are_offered() -> None:
    assert offered(incomplete="pl") == ["plan"]


def test_targets_and_keys_of_the_manifest_are_offered(tmp_path: Path, reconciler: Reconciler) -> None:
    (tmp_path / "jobs.yaml").write_text(manifest("train", "test", "other"), encoding="utf-8")
    assert offered("plan", "--only", incomplete="t") == ["test", "train"]
    assert offered("apply", "--only", incomplete="other,tr") == ["other,train"]
    assert offered("plan", "--target") == ["there"]
    assert offered("history", incomplete="tr") == ["train"]


def test_nothing_is_offered_where_there_is_no_manifest_or_a_broken_one(
    tmp_path: Path, reconciler: Reconciler
) -> None:
    assert offered("plan", "--only") == []
    (tmp_path / "jobs.yaml").write_text("stack: [\n", encoding="utf-8")
    assert offered("plan", "--target") == []
