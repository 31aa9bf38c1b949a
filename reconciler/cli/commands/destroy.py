"""`reconciler destroy`: terminate what the stack owns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import click

from reconciler.cli.options import LOCK, TARGET, TIMEOUT, YES, OutputSpec, output, with_options
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.render import Content


@click.command("destroy")
@with_options(TARGET, output(Content.PLAN), YES, TIMEOUT, LOCK)
def command(
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    timeout_s: float,
    **options: Any,
) -> int:
    """Terminate the jobs that the stack owns. Their records are kept, as history.

    Protected jobs are kept (blocked). With --only, or a PATH that does not cover the whole stack, only
    the selected jobs are terminated.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened
    from reconciler.cli.execution import ApplyRequest, carry_out, hold_lock, nothing_done
    from reconciler.core.record import RunKind

    asked = ApplyRequest("Terminate these jobs?", RunKind.DESTROY, outputs, as_json, yes, timeout_s)
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(offline=True, stop=interrupt.stop, **options))
            context = context._replace(is_applied=True)
            hold = hold_lock(cleanup, context, interrupt)
            plan = reconcile.destroy_plan(context)
        return carry_out(context, plan, asked, hold)
