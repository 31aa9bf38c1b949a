"""`reconciler destroy`: terminate what the stack owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reconciler.cli.carrying_out import carry_out
from reconciler.cli.opening import opened
from reconciler.cli.options import OUTPUT, TARGET, TIMEOUT, YES, OutputSpec, with_options


@click.command("destroy")
@with_options(TARGET, OUTPUT, YES, TIMEOUT)
def command(outputs: Sequence[OutputSpec], as_json: bool, yes: bool, timeout_s: float, **options: Any) -> int:
    """Terminate what the stack owns. Records stay: they are the history.

    A protected job stays, blocked. With --only, or a PATH that does not cover the whole stack, only
    what is in view ends.
    """
    from reconciler import reconcile

    with opened(**options) as context:
        plan = reconcile.destroy_plan(context)
        return carry_out(
            context,
            plan,
            question=f"Terminate these jobs of stack {plan.stack}?",
            outputs=outputs,
            as_json=as_json,
            yes=yes,
            timeout_s=timeout_s,
        )
