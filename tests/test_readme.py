"""The README: its two commands and its manifest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from docs.doc_runner import commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)
SHELL = [text for language, text in BLOCKS if language == "sh"]


def test_first_two_blocks_are_the_two_commands() -> None:
    assert [language for language, _ in BLOCKS if language != "text"][:2] == ["sh", "sh"]
    main_job, tests = SHELL[:2]
    assert [line.split()[1:] for line in commands(main_job) if "bin/reconciler" in line] == [
        ["plan", "examples/first-job"],
        ["apply", "--yes", "--wait", "completed", "examples/first-job"],
        ["jobs", "logs", "spirals", "--lines", "3", "examples/first-job"],
        ["plan", "--show-keep", "examples/first-job"],
    ]
    assert ".venv/bin/python -m pytest" in tests
    assert "'.[dev]'" in tests


@pytest.mark.parametrize("block", SHELL[:2])
def test_each_readme_block_is_one_complete_command(block: str) -> None:
    """It is valid shell and one command, so a failing step ends it."""
    subprocess.run(["sh", "-n"], input=block, text=True, check=True)
    lines = block.splitlines()
    assert lines[0] == "{ [ -x .venv/bin/pip ] || python3 -m venv .venv; } &&"
    assert all(line.endswith("&&") for line in lines[:-1])


def test_ci_runs_the_second_readme_block(tmp_path: Path) -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    found = re.search(r"^second_block=\"\$\((.*?)\)\"$", script, re.M | re.S)
    assert found
    done = subprocess.run(["bash", "-c", found[1]], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == SHELL[1]


def _plain(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_readme_manifest_is_the_example_without_comments() -> None:
    shown = next(text for language, text in BLOCKS if language == "yaml")
    assert _plain(shown) == _plain((ROOT / "examples/first-job/jobs.yaml").read_text(encoding="utf-8"))
