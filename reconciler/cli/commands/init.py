"""`reconciler init`: files to start from."""

from __future__ import annotations

from pathlib import Path

import click

from reconciler.cli.options import with_options
from reconciler.cli.terminal.console import console


@click.command("init")
@with_options(
    click.argument(
        "directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False)
    )
)
def command(directory: Path) -> int:
    """Write a commented manifest, a CI workflow and a .gitignore to start from.

    DIR is made if it does not exist; default: the current directory. A file that exists is never
    overwritten, and no manifest is written beside another one. The manifest uses the embedded
    emulator, so `reconciler plan` works at once.
    """
    from reconciler.files import write_new_file
    from reconciler.manifests.files import has_root_file
    from reconciler.manifests.scaffold import MANIFEST_FILE, starting_files

    directory.mkdir(parents=True, exist_ok=True)
    has_stack = has_root_file(directory)
    for name, text in starting_files(directory.resolve().name).items():
        path = directory / name
        if name == MANIFEST_FILE and has_stack:
            console.say(f"exists, not written: {directory} has a manifest that says stack:")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if write_new_file(path, text.encode()):
            console.result(f"{path}\n")
        else:
            console.say(f"exists, not written: {path}")
    return 0
