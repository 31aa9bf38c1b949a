"""The table of commands."""

from __future__ import annotations

import click
import pytest

from reconciler.cli.main import COMMANDS, cli


@pytest.mark.parametrize("name", COMMANDS)
def test_each_row_names_a_command_of_its_module(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
