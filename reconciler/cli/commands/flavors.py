"""`reconciler flavors`: the compute flavors that the target offers."""

from __future__ import annotations

import sys
from typing import Any

import click

from reconciler.cli.options import option, with_options
from reconciler.cli.service_session import JSON, WHERE, open_target
from reconciler.cli.terminal.console import console


@click.command("flavors")
@with_options(
    WHERE,
    option(
        "--type",
        "flavor_type",
        type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False),
        default=None,
        help="Only this type.",
    ),
    JSON,
)
def command(flavor_type: str | None, as_json: bool, **where: Any) -> None:
    """List the flavors of the target's public pools: valid values of spec.resource.flavor_id.

    --json prints everything the service returns about each.
    """
    from reconciler.render.lines import render_table

    with open_target(**where) as there:
        flavors = there.target.catalog.flavor_offers(flavor_type).items
    if as_json:
        console.document({"flavors": [flavor.reported for flavor in flavors]})
        return
    head = ("FLAVOR", "TYPE", "CORES", "MEMORY", "CARDS", "MAX NODES")
    rows = [(*flavor[:5], "" if flavor.max_nodes is None else str(flavor.max_nodes)) for flavor in flavors]
    console.result(render_table(head, rows, console.style(sys.stdout)))
