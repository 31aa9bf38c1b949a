"""`reconciler show`: a saved plan, in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reconciler.cli.options import OUTPUT, SHOW_KEEP, OutputSpec, with_options
from reconciler.cli.planfile import read_plan
from reconciler.cli.showing import show_plan, wanted


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@with_options(OUTPUT, SHOW_KEEP)
def command(file: Path, outputs: Sequence[OutputSpec], as_json: bool, show_keep: bool) -> int:
    """Show a plan that `plan --out FILE` saved. Nothing is asked of the service."""
    plan, _ = read_plan(file, strict=False)
    show_plan(plan, wanted(outputs, as_json=as_json), show_keep=show_keep)
    return 0
