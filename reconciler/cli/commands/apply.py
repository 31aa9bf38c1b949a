"""`reconciler apply`: make the service match the manifest, or carry out a saved plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from reconciler.cli.options import (
    GUARDS,
    LOCK,
    TARGET,
    TIMEOUT,
    WAIT,
    YES,
    OutputSpec,
    allowances,
    option,
    output,
    with_options,
)
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.render import Content

if TYPE_CHECKING:
    from reconciler.decide.wait import Goal

#: What shaped a saved plan, and cannot be said again when it is carried out.
_OF_THE_PLAN = {
    "paths": "PATH",
    "target": "--target",
    "only": "--only",
    "allow": "--allow",
    "force": "--force",
}


@click.command("apply")
@with_options(
    TARGET,
    option(
        "--plan",
        "plan_file",
        default=None,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Apply this saved plan, unless anything has changed since; no manifest is read.",
    ),
    option(
        "--approve",
        "approved",
        default=None,
        metavar="DIGEST",
        help="With --plan: refuse the plan unless it has this digest, whole, as plan and show print it.",
    ),
    output(Content.PLAN),
    YES,
    GUARDS,
    TIMEOUT,
    WAIT,
    LOCK,
    # For `watch --apply`, whose option it is.
    click.option("--max-actions", type=int, default=None, hidden=True),
)
def command(
    plan_file: Path | None,
    approved: str | None,
    max_actions: int | None,
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    allow: Sequence[str],
    force: bool,
    timeout_s: float,
    goal: Goal | None,
    **options: Any,
) -> int:
    """Make the service match the manifest.

    The plan is recomputed and shown, and you are asked to confirm before anything is done. With --json stdout
    carries one event per line.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened
    from reconciler.cli.execution import ApplyRequest, carry_out, hold_lock, nothing_done
    from reconciler.core.record import RunKind
    from reconciler.decide.guards import limited

    asked = ApplyRequest("Apply this plan?", RunKind.APPLY, outputs, as_json, yes, timeout_s, goal)
    if plan_file is not None:
        with nothing_done(asked):
            _check_nothing_is_said_twice()
        from reconciler.cli.apply_plan_file import apply_saved

        # An empty variable is no option to click, and here an approval that went missing.
        approved = os.environ.get("RECONCILER_APPROVE") if approved is None else approved
        return apply_saved(plan_file, asked, approved=approved, **options)
    if approved is not None:
        with nothing_done(asked):
            why = "only a saved plan has a digest to approve"
            raise WrongUsage(Diagnostic("--approve without --plan", why, "reconciler apply --plan FILE"))
    allowed = allowances(allow, force=force)
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(stop=interrupt.stop, **options))
            context = context.to_apply()
            hold = hold_lock(cleanup, context, interrupt)
            plan = limited(reconcile.plan(context, allowed), max_actions)
        return carry_out(context, plan, asked, hold, allowed)


def _check_nothing_is_said_twice() -> None:
    # A variable of the environment may be there for the plan as well.
    source = click.get_current_context().get_parameter_source
    said = [name for option_, name in _OF_THE_PLAN.items() if source(option_) is ParameterSource.COMMANDLINE]
    if said:
        why = f"{', '.join(said)}: already set in the saved plan"
        raise WrongUsage(Diagnostic("not with --plan", why, "omit it, or create a new plan"))
