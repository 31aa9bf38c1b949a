"""`reconciler drift`: what changed on the service behind the manifest's back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reconciler.cli.options import TARGET, OutputSpec, output, with_options
from reconciler.core import exit_code
from reconciler.render import Content


@click.command("drift")
@with_options(TARGET, output(Content.DRIFT))
def command(outputs: Sequence[OutputSpec], as_json: bool, **options: Any) -> int:
    """Show what changed on the service since the last apply.

    Exits 0 without drift, 2 with drift, and 8 if too little could be read to decide. Changes in
    the manifest are not drift; they are listed separately as pending.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened
    from reconciler.cli.output import requested_outputs, show_drift
    from reconciler.cli.terminal.pager import paged

    with opened(offline=True, **options) as context:
        report = reconcile.drift(context)
    with paged(is_wanted=not (outputs or as_json)):
        show_drift(report, requested_outputs(outputs, as_json=as_json))
    return exit_code.of_drift(report)
