"""`reconciler plan`: what apply would do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.cli.opening import opened
from reconciler.cli.options import (
    DETAILED,
    GUARDS,
    OUT,
    OUTPUT,
    SHOW_KEEP,
    TARGET,
    OutputSpec,
    allowances,
    with_options,
)
from reconciler.cli.showing import show_plan, wanted
from reconciler.core import exit_code


@click.command("plan")
@with_options(TARGET, OUTPUT, OUT, SHOW_KEEP, DETAILED, GUARDS)
def command(
    outputs: Sequence[OutputSpec],
    as_json: bool,
    plan_file: Path | None,
    show_keep: bool,
    detailed_exitcode: bool,
    allow: Sequence[str],
    force: bool,
    allow_empty: bool,
    records: str | None,
    **options: Any,
) -> int:
    """Show what apply would do. Nothing is changed.

    PATH is one or more manifest files or directories; left out, it is the current directory.
    """
    from reconciler import reconcile
    from reconciler.core.planner import Options

    with opened(records=records, **options) as context:
        allowed = allowances(allow, force=force, allow_empty=allow_empty)
        plan = reconcile.plan(context, Options(allowed))
        if plan_file is not None:
            from reconciler.cli.planfile import save_plan

            save_plan(context, plan, plan_file, records=records, allow=allowed.words)
    show_plan(plan, wanted(outputs, as_json=as_json), show_keep=show_keep)
    return exit_code.of_plan(plan, detailed=detailed_exitcode)
