"""`reconciler destroy`: terminate what the stack owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reconciler.cli.carrying_out import Asked, carry_out, held
from reconciler.cli.opening import LockOptions, opened
from reconciler.cli.options import LOCK, OUTPUT, TARGET, TIMEOUT, YES, OutputSpec, with_options


@click.command("destroy")
@with_options(TARGET, OUTPUT, YES, TIMEOUT, LOCK)
def command(
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    timeout_s: float,
    lease_s: float,
    without_records: bool,
    **options: Any,
) -> int:
    """Terminate what the stack owns. Records stay: they are the history.

    A protected job stays, blocked. With --only, or a PATH that does not cover the whole stack, only
    what is in view ends.
    """
    from reconciler import reconcile
    from reconciler.core.record import RunKind

    lock = LockOptions(lease_s, without_records)
    with opened(lock=lock, remembers=True, **options) as context, held(context) as interrupt:
        plan = reconcile.destroy_plan(context)
        question = f"Terminate these jobs of stack {plan.stack}?"
        asked = Asked(question, RunKind.DESTROY, outputs, as_json, yes, timeout_s)
        return carry_out(context, plan, asked, interrupt)
