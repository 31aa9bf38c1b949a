"""`reconciler drift`: what changed on the service behind the manifest's back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
    # For `watch`, whose checks this command does: what it has to know beside the report.
    click.option("--handover", default=None, hidden=True, type=click.Path(path_type=Path)),
    FLEET,
)
@with_fleet
def command(
    since_last: bool,
    remind_s: float,
    outputs: Sequence[OutputSpec],
    as_json: bool,
    handover: Path | None,
    **options: Any,
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
    from reconciler.cli.terminal.console import console
    from reconciler.cli.terminal.pager import paged
    from reconciler.errors import ReconcilerError
    from reconciler.watch import handing_over, words_of

    checked = reconcile.CheckOptions(since_last, remind_s, is_reported_later=True)
    unwritten = None
    with handing_over(handover, console.redact) as told, opened(offline=True, **options) as context:
        report = reconcile.drift(context, checked)
        told.compared = report.compared
        if report.comparison is not None and report.comparison.problem is not None:
            told.problem = f"not compared with the last check: {report.comparison.problem}"
        try:
            with paged(is_wanted=not (outputs or as_json)):
                show_drift(report, requested_outputs(outputs, as_json=as_json))
        except (OSError, ReconcilerError) as error:
            if handover is None:
                raise
            # The line of the watch has the drift all the same.
            unwritten, told.problem = error, f"the report was not written: {words_of(error)}"
        told.notified = notified = reconcile.notify_drift(context, report, told.notified)
        final_outputs.notifications_failed += notified.failed
        if unwritten is not None:
            raise unwritten
    return exit_code.of_drift(report)
