"""`reconciler plan`: what apply would do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.fleet_options import FLEET, with_fleet
from reconciler.cli.options import (
    DETAILED,
    GUARDS,
    OUT,
    SHOW_KEEP,
    TARGET,
    OutputSpec,
    allowances,
    option,
    output,
    with_options,
)
from reconciler.cli.terminal.console import console
from reconciler.decide import exit_code
from reconciler.errors import Refused
from reconciler.render import Content
from reconciler.text import format_count

if TYPE_CHECKING:
    from reconciler.decide.plan import Allowances, Plan
    from reconciler.reconcile import Context
    from reconciler.saved_plans import PlanFile


@click.command("plan")
@with_options(
    TARGET,
    output(Content.PLAN),
    OUT,
    option(
        "--preflight",
        is_flag=True,
        help="Also check quota, flavors, engines and pools of the target; exit 3 if it would reject a job.",
    ),
    SHOW_KEEP,
    DETAILED,
    GUARDS,
    FLEET,
)
@with_fleet
def command(
    outputs: Sequence[OutputSpec],
    as_json: bool,
    plan_file: Path | None,
    preflight: bool,
    show_keep: bool,
    detailed_exitcode: bool,
    allow: Sequence[str],
    force: bool,
    records: str | None,
    **options: Any,
) -> int:
    """Show what apply would do, without changing anything.

    PATH is one or more manifest files or directories; default: the current directory.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened
    from reconciler.cli.output import requested_outputs, show_digest, show_plan, wants_step_outputs
    from reconciler.cli.terminal.pager import paged

    with opened(records=records, **options) as context:
        allowed = allowances(allow, force=force)
        plan = reconcile.plan(context, allowed, with_preflight=preflight)
        if preflight:
            _say_that_it_passed(plan)
        specs = requested_outputs(outputs, as_json=as_json)
        digest = ""
        if plan_file is not None:
            saved = _as_file(plan, context, plan_file, allowed, records)
            saved.write(plan_file)
            digest = saved.digest
        elif wants_step_outputs(specs):
            # As the Python API has it: that of a file in the stack's root.
            with suppress(Refused):
                digest = _as_file(plan, context, context.loaded.root / "plan.json", allowed, records).digest
    with paged(is_wanted=not (outputs or as_json)):
        if plan_file is not None:
            show_digest(digest, specs)
        show_plan(plan, specs, show_keep=show_keep, digest=digest)
    return exit_code.of_plan(plan, detailed=detailed_exitcode)


def _as_file(plan: Plan, context: Context, file: Path, allowed: Allowances, records: str | None) -> PlanFile:
    from reconciler.saved_plans import plan_file_of

    return plan_file_of(
        plan,
        context.loaded,
        file,
        only=context.only,
        allow=allowed.words,
        records=records,
        environ=os.environ,
        redact=console.redact,
    )


def _say_that_it_passed(plan: Plan) -> None:
    from reconciler.decide.preflight import has_passed, jobs_to_start

    if has_passed(plan):
        jobs = format_count(len(jobs_to_start(plan.actions)), "job")
        console.say(f"pre-flight: {jobs} checked, nothing found")
