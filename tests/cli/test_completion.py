"""Shell completion: scripts and candidates."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.shell_completion import BashComplete

from reconciler.cli.main import cli
from tests.cli.conftest import Reconciler


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_program_and_is_accepted_by_its_shell(reconciler: Reconciler, shell: str) -> None:
    result = reconciler.ends(0, "completion", shell, out="_RECONCILER_COMPLETE")
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=result.out, text=True, check=True, timeout=30)


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        ([], "pl", ["plan"]),
        (["jobs"], "li", ["list"]),
        (["plan"], "--show-k", ["--show-keep"]),
        (["plan", "--log-format"], "", ["text", "json"]),
    ],
)
def test_commands_options_and_choices_are_offered(
    words: list[str], incomplete: str, names: list[str]
) -> None:
    complete = BashComplete(cli, {}, "reconciler", "_RECONCILER_COMPLETE")
    assert [item.value for item in complete.get_completions(words, incomplete)] == names
