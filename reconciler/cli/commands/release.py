"""`reconciler release`: take the marker off every revision of a key."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from reconciler.cli.completions import keys
from reconciler.cli.options import LOCK, TARGET_OF_KEYS, TIMEOUT, YES, OutputSpec, output, with_options
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.render import Content


@click.command("release")
@with_options(
    click.argument("key", metavar="KEY", shell_complete=keys),
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    TARGET_OF_KEYS,
    output(Content.PLAN),
    YES,
    TIMEOUT,
    LOCK,
)
def command(
    key: str,
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    timeout_s: float,
    **options: Any,
) -> int:
    """Take the marker off every revision of KEY, active or ended, after asking.

    What runs goes on, unmanaged; each job keeps the text of its description. Remove the key from the
    manifest as well: while it is declared, the name of the job is in its way. No sensitive variable needs a
    value.
    """
    from reconciler.adoption import release_plan
    from reconciler.cli.context import opened
    from reconciler.cli.execution import ApplyRequest, carry_out, hold_lock, nothing_done
    from reconciler.core.record import RunKind

    question = f"Release {key}? Its jobs go on, unmanaged."
    asked = ApplyRequest(question, RunKind.RELEASE, outputs, as_json, yes, timeout_s)
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(offline=True, stop=interrupt.stop, only=(), **options))
            context = context._replace(is_applied=True)
            hold = hold_lock(cleanup, context, interrupt)
            plan = release_plan(context, key)
        return carry_out(context, plan, asked, hold)
