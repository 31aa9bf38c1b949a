"""`reconciler flavors`: the compute flavors that the target offers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import option, with_options
from reconciler.cli.service_session import JSON, WHERE, called
from reconciler.cli.terminal.console import console

if TYPE_CHECKING:
    from reconciler.backends.modelarts.responses import Accelerators, Capacity, Flavor


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
    from reconciler.render.listing import render_table

    with called(**where) as there:
        flavors = there.backend.operations.flavors(flavor_type)
    if as_json:
        told = [flavor.model_dump(mode="json", exclude_unset=True) for flavor in flavors]
        console.document({"flavors": told})
        return
    head = ("FLAVOR", "TYPE", "CORES", "MEMORY", "CARDS", "MAX NODES")
    console.result(render_table(head, map(_row, flavors), console.style(sys.stdout)))


def _row(flavor: Flavor) -> tuple[str, ...]:
    info = flavor.flavor_info
    if info is None:
        return flavor.flavor_id, flavor.flavor_type, "", "", "", ""
    cores = "" if info.cpu is None else f"{_number(info.cpu.core_num)} {info.cpu.arch}".strip()
    return (
        flavor.flavor_id,
        flavor.flavor_type,
        cores,
        _capacity(info.memory),
        _cards(info.gpu or info.npu),
        _number(info.max_num),
    )


def _cards(cards: Accelerators | None) -> str:
    if cards is None:
        return ""
    memory = f" ({cards.memory})" if cards.memory else ""
    return f"{_number(cards.unit_num)} x {cards.product_name}{memory}"


def _capacity(capacity: Capacity | None) -> str:
    return "" if capacity is None else f"{_number(capacity.size)} {capacity.unit}".strip()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
