"""`reconciler explain`: the tables that decide, printed from the data that decides."""

from __future__ import annotations

from collections.abc import Callable

import click

from reconciler.cli.options import with_options
from reconciler.cli.terminal.console import console


@click.command("explain")
@click.argument("topic", metavar="[states|rules|fields|FIELD]", default="states")
@with_options()
def command(topic: str) -> None:
    """Print one of the tables that decide.

    states: what is legal in each phase. rules: how the action for a key is chosen. fields, or
    one FIELD: what changing each field means.
    """
    from reconciler.render import tables

    topics: dict[str, Callable[[], str | None]] = {
        "states": tables.render_states,
        "rules": tables.render_rules,
        "fields": tables.render_fields,
    }
    text = topics[topic]() if topic in topics else tables.render_fields(topic)
    if text is None:
        near = tables.nearest_field(topic)
        hint = f' Did you mean "{near}"?' if near else ""
        allowed = ", ".join(f'"{name}"' for name in topics)
        raise click.UsageError(f'"{topic}" is not {allowed} or a field of a job.{hint}')
    console.result(text)
