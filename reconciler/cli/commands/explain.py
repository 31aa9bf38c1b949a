"""`reconciler explain`: the tables that decide, printed from the data that decides."""

from __future__ import annotations

import click

from reconciler.cli.options import with_options
from reconciler.cli.terminal.console import console

TOPICS = ("states", "fields")


@click.command("explain")
@click.argument("topic", metavar="[states|fields|FIELD]", default="states")
@with_options()
def command(topic: str) -> None:
    """Print the state table (states), or what changing each field means (fields, or one FIELD)."""
    from reconciler.render import tables

    if topic == "states":
        console.result(tables.render_states())
        return
    text = tables.render_fields(None if topic == "fields" else topic)
    if text is None:
        near = tables.nearest_field(topic)
        hint = f' Did you mean "{near}"?' if near else ""
        raise click.UsageError(f'"{topic}" is not "states", "fields" or a field of a job.{hint}')
    console.result(text)
