"""`reconciler engines`: the preset frameworks that the target offers."""

from __future__ import annotations

import sys
from typing import Any

import click

from reconciler.cli.options import option, with_options
from reconciler.cli.service_session import JSON, WHERE, open_target
from reconciler.cli.terminal.console import console


@click.command("engines")
@with_options(
    WHERE,
    option("--name", metavar="TEXT", default="", help="Only engines whose name or id contains this text."),
    JSON,
)
def command(name: str, as_json: bool, **where: Any) -> None:
    """List the preset engines of the target: valid values of algorithm.engine.engine_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.lines import render_table

    with open_target(**where) as there:
        engines = there.target.catalog.engine_offers().items
    wanted = name.casefold()
    found = [e for e in engines if wanted in e.name.casefold() or wanted in e.engine_id.casefold()]
    if as_json:
        console.document({"engines": [engine.reported for engine in found]})
        return
    rows = [(engine.engine_id, engine.name, engine.run_user) for engine in found]
    console.result(render_table(("ENGINE", "NAME", "RUN USER"), rows, console.style(sys.stdout)))
