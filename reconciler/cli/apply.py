"""Commands that change jobs or their owners: `apply`, `destroy`, `adopt`, `release`, `unlock`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli import options as opt
from reconciler.cli.console import confirm, console
from reconciler.cli.context import load_stack, opened, runtime
from reconciler.cli.exits import handled_by
from reconciler.cli.output import OutputSpec
from reconciler.errors import Diagnostic, Refused, WrongUsage
from reconciler.render import Content
from reconciler.text import format_duration, printable, printable_lines

if TYPE_CHECKING:
    from reconciler.cli.context import StackOptions
    from reconciler.cli.execution import ApplyRequest
    from reconciler.core.entry import EntryPatch
    from reconciler.decide.plan import Plan
    from reconciler.reconcile import Context


#: Options that a saved plan contains, and that cannot be given when it is applied.
_OF_THE_PLAN = {
    "paths": "PATH",
    "target": "--target",
    "only": "--only",
    "rerun": "--rerun",
    "allow": "--allow",
    "force": "--force",
}


@opt.command(
    "apply",
    opt.TARGET,
    opt.option(
        "--plan FILE",
        "Apply this saved plan, unless anything has changed since; no manifest is read.",
        "plan_file",
        type=opt.ANY_PATH,
    ),
    opt.option(
        "--approve DIGEST",
        "With --plan: refuse the plan unless this is its full digest, as plan and show print it.",
        "approved",
    ),
    opt.RERUN,
    opt.NO_PREFLIGHT,
    opt.output(Content.PLAN),
    opt.YES,
    opt.GUARDS,
    opt.TIMEOUT,
    opt.WAIT,
    opt.LOCK,
    opt.FLEET,
    # Used by `watch --apply`.
    click.option("--max-actions", type=int, default=None, hidden=True),
)
def apply_command(
    plan_file: Path | None,
    approved: str | None,
    max_actions: int | None,
    no_preflight: bool,
    outputs: Sequence[OutputSpec],
    yes: bool,
    allow: Sequence[str],
    force: bool,
    timeout_s: float,
    goal: str | None,
    fleet: bool,
    **options: Any,
) -> int:
    """Make the service match the manifest.

    The plan is recomputed and shown, and you are asked to confirm before anything is done. With --json stdout
    carries one event per line. With --fleet you are asked once, for the plans of all stacks.
    """
    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    from reconciler import reconcile
    from reconciler.cli.execution import ApplyRequest, apply_saved, change, report_early_failure
    from reconciler.core.past import RunKind
    from reconciler.decide.guards import limit_actions
    from reconciler.decide.outcome import Goal

    wait_for = None if goal is None else Goal(goal)
    request = ApplyRequest("Apply this plan?", RunKind.APPLY, outputs, yes, timeout_s, wait_for)
    if plan_file is not None:
        conflicting = [name for option_, name in _OF_THE_PLAN.items() if opt.is_typed(option_)]
        with report_early_failure(request):
            if conflicting:  # environment variables do not count: they may be set for `plan` as well
                why = f"{', '.join(conflicting)}: already set in the saved plan"
                raise WrongUsage(Diagnostic("not with --plan", why, "omit it, or create a new plan"))
        # click ignores an empty environment variable; here it means a missing approval.
        approved = os.environ.get("RECONCILER_APPROVE") if approved is None else approved
        return apply_saved(plan_file, request, approved=approved, with_preflight=not no_preflight, **options)
    if approved is not None:
        with report_early_failure(request):
            why = "only a saved plan has a digest to approve"
            raise WrongUsage(Diagnostic("--approve without --plan", why, "reconciler apply --plan FILE"))
    allowed = opt.allowances(allow, force=force)

    def make_plan(context: Context) -> Plan:
        return limit_actions(reconcile.plan(context, allowed, with_preflight=not no_preflight), max_actions)

    return change(request, make_plan, allowed, **options)


@opt.command("destroy", opt.TARGET, opt.output(Content.PLAN), opt.YES, opt.TIMEOUT, opt.LOCK)
def destroy_command(outputs: Sequence[OutputSpec], yes: bool, timeout_s: float, **options: Any) -> int:
    """Terminate the jobs that the stack owns. Their records are kept, as history.

    Protected jobs are kept (blocked). With --only, or a PATH that does not cover the whole stack, only
    the selected jobs are terminated.
    """
    from reconciler import reconcile
    from reconciler.cli.execution import ApplyRequest, change
    from reconciler.core.past import RunKind

    request = ApplyRequest("Terminate these jobs?", RunKind.DESTROY, outputs, yes, timeout_s)
    return change(request, reconcile.destroy_plan, offline=True, **options)


@opt.command(
    "adopt",
    click.argument("words", nargs=-1, metavar="[KEY JOB_ID] [PATH]...", type=opt.WORD),
    opt.flag("--accept", "Adopt the job even if it differs from its declaration."),
    opt.option(
        "--from-stack OLD",
        "Adopt the jobs that stack OLD owns under the declared keys, after the stack was renamed.",
        "old",
    ),
    opt.TARGET_OF_KEYS,
    opt.output(Content.PLAN),
    opt.YES,
    opt.TIMEOUT,
    opt.LOCK,
)
def adopt_command(
    words: tuple[str, ...],
    accept: bool,
    old: str | None,
    outputs: Sequence[OutputSpec],
    yes: bool,
    timeout_s: float,
    **options: Any,
) -> int:
    """Make an unmanaged job the next revision of KEY; nothing restarts.

    JOB_ID is an id, or a name that only one job has. The job must equal the declaration. Where it differs,
    the differences are shown, and the YAML that would remove them; --accept adopts the job anyway. Its
    description becomes the declared one, with the marker.
    """
    from reconciler.adoption import adopt_plan
    from reconciler.cli.execution import ApplyRequest, change, report_early_failure
    from reconciler.core.past import RunKind
    from reconciler.manifest.format import yaml_text

    wrong = {
        "--accept has no effect with --from-stack, which compares nothing": old is not None and accept,
        "a key and a job id are required": old is None and len(words) < 2,
    }
    request = ApplyRequest("Adopt this job?", RunKind.ADOPT, outputs, yes, timeout_s)
    with report_early_failure(request):
        for why in (why for why, is_wrong in wrong.items() if is_wrong):
            usage = "KEY JOB_ID [PATH]... or --from-stack OLD [PATH]..."
            raise WrongUsage(Diagnostic("invalid arguments", why, f"reconciler adopt {usage}"))
    paths = [Path(word) for word in (words if old is not None else words[2:])]
    opening: Any = {**options, "paths": paths, "only": ()}
    if old is not None:
        request = request._replace(question=f"Take over what stack {old} owns?")
        return _rename_stack(old, request, opening)
    patch: EntryPatch | None = None

    def make_plan(context: Context) -> Plan:
        nonlocal patch
        plan, patch = adopt_plan(context, words[0], words[1], takes_as_is=accept)
        return plan

    code = change(request._replace(question=f"Adopt this job as {words[0]}?"), make_plan, **opening)
    if patch is not None:  # YAML that would make the entry equal to the job
        head = f"To match the job of {patch.key}, merge this into its entry"
        if patch.says_null:
            head += " (null: leave the field out)"
        show = console.say if request.tells_events else console.result
        show(f"\n{printable(head)}:\n\n{printable_lines(yaml_text(patch.tree))}")
    return code


def _rename_stack(old: str, request: ApplyRequest, opening: StackOptions) -> int:
    from reconciler.adoption import check_old_name, move_plan, take_over_history
    from reconciler.cli.execution import Interrupt, carry_out, hold_lock, report_early_failure

    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with report_early_failure(request), handled_by(interrupt.abort):
            context = cleanup.enter_context(opened(offline=True, stop=interrupt.stop, **opening)).to_apply()
            check_old_name(context, old)
            lock = hold_lock(cleanup, context, interrupt, context.scope._replace(stack=old))
            move = move_plan(context, old)
        if move.forgotten:
            request = request._replace(on_confirmed=lambda: take_over_history(context, move))
        return carry_out(context, move.plan, request, interrupt, lock)


@opt.command(
    "release",
    opt.KEY,
    opt.PATHS,
    opt.TARGET_OF_KEYS,
    opt.output(Content.PLAN),
    opt.YES,
    opt.TIMEOUT,
    opt.LOCK,
)
def release_command(
    key: str, outputs: Sequence[OutputSpec], yes: bool, timeout_s: float, **options: Any
) -> int:
    """Remove the marker from every revision of KEY, active or ended, after asking.

    Running jobs continue, unmanaged, and keep their descriptions. Remove the key from the manifest as well:
    while it is declared, it is in conflict with the released job, which has its name. Sensitive variables
    need no value.
    """
    from reconciler.adoption import release_plan
    from reconciler.cli.execution import ApplyRequest, change
    from reconciler.core.past import RunKind

    question = f"Release {key}? Its jobs continue, unmanaged."
    request = ApplyRequest(question, RunKind.RELEASE, outputs, yes, timeout_s)
    return change(request, lambda context: release_plan(context, key), offline=True, only=(), **options)


@opt.command("unlock", opt.WHERE, opt.RECORDS, opt.YES)
def unlock_command(records: str | None, yes: bool, **stack: Any) -> int:
    """Break the lock of the stack on its target, after asking.

    The lock of a dead process expires by itself. A live holder starts no new action once it is broken.
    The service is not contacted.
    """
    from reconciler.connection import open_records_of
    from reconciler.core.values import timestamp

    loaded = load_stack(**stack, offline=True)
    with open_records_of(loaded, stack["target"], records, runtime()) as place:
        store = place.store
        holder = store.holder(place.scope) if store else None
        if store is None or holder is None:
            console.result("No lock is held.\n")
            return 0
        left = format_duration(max(0, round(holder.expires_s - place.clock.now())))
        description = (
            f"Stack {place.scope.stack} on {place.scope.place} is locked by {holder.who} "
            f"({holder.command}) since {timestamp(holder.since_s)}, from {holder.where}; "
            f"the lease expires in {left} unless renewed."
        )
        console.say(printable(description))
        if not yes:
            confirm("Break the lock?")
        broken = store.break_lock(place.scope, holder)
        if broken is None and (now := store.holder(place.scope)) is not None:
            # Break only the lock that was shown.
            why = printable(f"it is now held by {now.who} from {now.where}; nothing was changed")
            raise Refused(Diagnostic("the lock has changed", why, "run it again"))
    console.result("The lock is broken.\n" if broken else "The lock is no longer held.\n")
    return 0
