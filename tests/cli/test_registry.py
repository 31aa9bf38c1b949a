"""The folder of the commands is the registry."""

from __future__ import annotations

from pathlib import Path

from reconciler.cli import commands
from reconciler.cli.registry import COMMANDS


def test_each_command_has_its_file_and_each_file_its_command() -> None:
    files = {path.stem for path in Path(str(commands.__path__[0])).glob("*.py")} - {"__init__"}
    assert files == {row.module for row in COMMANDS.values()}
