"""`reconciler drift`: what changed on the service behind the manifest's back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reconciler.cli.fleet_options import FLEET, with_fleet
from reconciler.cli.options import TARGET, OutputSpec, option, output, remind, with_options
from reconciler.decide import exit_code
from reconciler.render import Content


@click.command("drift")
@with_options(
    TARGET,
    option(
        "--since-last",
        is_flag=True,
        help="Compare with the last check: only drift that is new, changed or due again counts.",
    ),
    remind("With --since-last: report again drift that has lasted for this long."),
    output(Content.DRIFT),
    FLEET,
)
@with_fleet
def command(
    since_last: bool, remind_s: float, outputs: Sequence[OutputSpec], as_json: bool, **options: Any
) -> int:
    """Show what changed on the service since the last apply.

    Exits 0 without drift, 2 with drift, and 8 if too little could be read to decide. Changes in
    the manifest are not drift; they are listed separately as pending. Drift that drift.ignore or
    `reconciler accept` says is known is listed and not counted.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened
    from reconciler.cli.final_outputs import final_outputs
    from reconciler.cli.output import requested_outputs, show_drift
    from reconciler.cli.terminal.pager import paged

    with opened(offline=True, **options) as context:
        options_of_check = reconcile.CheckOptions(since_last, remind_s, is_reported_later=True)
        report = reconcile.drift(context, options_of_check)
        with paged(is_wanted=not (outputs or as_json)):
            show_drift(report, requested_outputs(outputs, as_json=as_json))
        final_outputs.notifications_failed += reconcile.notify_drift(context, report).failed
    return exit_code.of_drift(report)
