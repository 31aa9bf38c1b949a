"""`reconciler show`: a saved plan, in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import SHOW_KEEP, OutputSpec, output, with_options
from reconciler.cli.terminal.console import console
from reconciler.render import Content

if TYPE_CHECKING:
    from reconciler.decide.plan import Plan
    from reconciler.decide.saved_plan import SavedOptions


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@with_options(output(Content.PLAN), SHOW_KEEP)
def command(file: Path, outputs: Sequence[OutputSpec], as_json: bool, show_keep: bool) -> int:
    """Show a plan that `plan --out FILE` saved. The service is not contacted.

    If applying it would look up values, or use another record store than the stack's own, that is
    shown first.
    """
    from reconciler.cli.output import requested_outputs, show_digest, show_plan
    from reconciler.cli.terminal.pager import paged
    from reconciler.saved_plans import read_plan

    read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=False)
    specs = requested_outputs(outputs, as_json=as_json)
    with paged(is_wanted=not (outputs or as_json)):
        _show_sources(read.plan, read.options, specs)
        show_digest(read.digest, specs)
        show_plan(read.plan, specs, show_keep=show_keep, digest=read.digest)
    return 0


def _show_sources(plan: Plan, options: SavedOptions, specs: Sequence[OutputSpec]) -> None:
    """Write to stdout if that is text, else to stderr: other formats have their own form."""
    from reconciler.manifests.saved import shown_address
    from reconciler.render.plan import render_sources

    records = None if options.records is None else shown_address(options.records)
    if not (text := render_sources(plan, options, records)):
        return
    if OutputSpec("text", None) in specs:
        console.result(text + "\n")
    else:
        console.say(text.rstrip("\n"))
