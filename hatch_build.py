"""Put man pages into the wheel: what `--help` says, one page for each command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click_man.core import write_man_pages
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.utils import get_reproducible_timestamp


class ManPages(BuildHookInterface[Any]):
    """What hatchling calls for a wheel. The options of the commands need nothing but click."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages, and have them installed where `man` finds them."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        self.pages = TemporaryDirectory()
        write_pages(self.pages.name, self.metadata.version)
        build_data["shared_data"][self.pages.name] = "share/man/man1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the directory of the pages."""
        if version != "editable":
            self.pages.cleanup()


def write_pages(directory: str, version: str) -> None:
    """Write `reconciler.1` and a page for each command below it."""
    from reconciler.cli.main import cli

    context = click.Context(cli)
    # The commands are loaded on demand otherwise.
    cli.commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    for command in _tree(cli):
        text = (command.help or "").replace("\b\n", "")
        # The whole first sentence, not the 45 characters of it that click shows in a list.
        command.short_help = text.partition("\n\n")[0].replace("\n", " ").removesuffix(".")
        # A line that begins with a dot would be an instruction to troff.
        command.help = re.sub(r"(?m)^(\s*)([.'])", r"\1\\&\2", text)
    date = datetime.fromtimestamp(get_reproducible_timestamp(), UTC).strftime("%Y-%m-%d")
    write_man_pages("reconciler", cli, version=version, target_dir=directory, date=date)
    for page in Path(directory).iterdir():
        # `man` drops characters that are not ASCII, with a warning, where the locale is C.
        text = page.read_text(encoding="utf-8").replace("\N{HORIZONTAL ELLIPSIS}", "...")
        page.write_text(text, encoding="utf-8")


def _tree(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from _tree(one)
