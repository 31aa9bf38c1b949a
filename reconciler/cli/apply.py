"""`reconciler apply`: make the service match the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reconciler.cli.carrying_out import carry_out
from reconciler.cli.opening import opened
from reconciler.cli.options import (
    ALLOW_EMPTY,
    FORCE,
    OUTPUT,
    TARGET,
    TIMEOUT,
    YES,
    OutputSpec,
    with_options,
)


@click.command("apply")
@with_options(TARGET, OUTPUT, YES, FORCE, ALLOW_EMPTY, TIMEOUT)
def command(
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    force: bool,
    allow_empty: bool,
    timeout_s: float,
    **options: Any,
) -> int:
    """Make the service match the manifest.

    The plan is made anew and shown, and you are asked before anything is done. With --json stdout
    carries one event per line.
    """
    from reconciler import reconcile
    from reconciler.core.planner import Options

    with opened(**options) as context:
        plan = reconcile.plan(context, Options(force=force, allow_empty=allow_empty))
        return carry_out(
            context,
            plan,
            question="Carry this plan out?",
            outputs=outputs,
            as_json=as_json,
            yes=yes,
            timeout_s=timeout_s,
        )
