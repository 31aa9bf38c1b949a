"""`reconciler accept`: take the present drift of a key for known until it changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.cli.completions import keys
from reconciler.cli.options import RECORDS, TARGET_NAME, VARIABLES, OutputSpec, option, output, with_options
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.render import Content

_PARALLELISM = 8


@click.command("accept")
@with_options(
    click.argument("key", metavar="KEY", shell_complete=keys),
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    VARIABLES,
    TARGET_NAME,
    RECORDS,
    option("--reason", default="", metavar="TEXT", help="Why the drift is accepted; shown with it."),
    option("--remove", is_flag=True, help="Remove the acceptance: the drift of KEY counts again."),
    output(Content.DRIFT),
)
def command(
    key: str, reason: str, remove: bool, outputs: Sequence[OutputSpec], as_json: bool, **options: Any
) -> int:
    """Record the present drift of KEY as known until it changes.

    Drift checks list it from then on and do not count it, until it has another class, is about
    another job, has other changes, or has gone. The service is read and not changed, so no lock is
    taken and nothing is asked; who accepted it, and when, is in the history.
    """
    from reconciler.cli.context import opened
    from reconciler.cli.output import requested_outputs, show_drift
    from reconciler.drift_checks import accept, remove_acceptance

    if remove and reason:
        why = "--remove takes back what was accepted, and needs no reason"
        raise WrongUsage(Diagnostic("not with --remove", why, "omit --reason"))
    with opened(offline=True, only=(), parallelism=_PARALLELISM, without_records=False, **options) as context:
        report = remove_acceptance(context, key) if remove else accept(context, key, reason)
    show_drift(report, requested_outputs(outputs, as_json=as_json))
    return 0
