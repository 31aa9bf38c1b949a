"""Commands that show and explain plans: `plan`, `show`, `why`, `review`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.context import opened
from reconciler.cli.output import OutputSpec, requested_outputs, save_plan, show, show_plan
from reconciler.errors import ExitCode
from reconciler.render import Content


@opt.command(
    "plan",
    opt.TARGET,
    opt.output(Content.PLAN),
    opt.OUT,
    opt.NO_PREFLIGHT,
    opt.RERUN,
    opt.SHOW_KEEP,
    opt.SHOW_HISTORY,
    opt.DETAILED,
    opt.GUARDS,
    opt.FLEET,
)
def plan_command(
    outputs: Sequence[OutputSpec],
    plan_file: Path | None,
    no_preflight: bool,
    show_keep: bool,
    show_history: bool,
    detailed_exitcode: bool,
    allow: Sequence[str],
    force: bool,
    records: str | None,
    fleet: bool,
    **options: Any,
) -> int:
    """Show what apply would do, without changing anything.

    PATH is one or more manifest files or directories; default: the current directory.
    """
    from reconciler import reconcile

    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    with opened(records=records, **options) as context:
        allowed = opt.allowances(allow, force=force)
        context = context._replace(with_history=show_history)
        plan = reconcile.plan(context, allowed, with_preflight=not no_preflight)
        specs = requested_outputs(outputs)
        digest = save_plan(plan, context, allowed, records, specs, plan_file)
    if plan_file is not None:
        _show_beside(digest, specs)
    show_plan(plan, specs, show_keep=show_keep, digest=digest)
    return plan.exit_code(detailed=detailed_exitcode)


def _show_beside(text: str, outputs: Sequence[OutputSpec]) -> None:
    """Write a text above a plan: to stdout if that has the text format, else to stderr."""
    if OutputSpec("text", None) in outputs:
        console.result(f"{text}\n")
    else:
        console.say(text.rstrip("\n"))


@opt.command("show", click.argument("file", type=opt.ANY_PATH), opt.output(Content.PLAN), opt.SHOW_KEEP)
def show_command(file: Path, outputs: Sequence[OutputSpec], show_keep: bool) -> int:
    """Show a plan that `plan --out FILE` saved. The service is not contacted.

    If applying it would look up values, or use another record store than the stack's own, that is
    shown first.
    """
    from reconciler.manifest.saved_secrets import shown_address
    from reconciler.plan_file import read_plan
    from reconciler.render.plan import render_sources

    read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=False)
    records = read.options.records
    sources = render_sources(read.plan, read.options, None if records is None else shown_address(records))
    specs = requested_outputs(outputs)
    if sources:
        _show_beside(sources, specs)
    _show_beside(read.digest, specs)
    show_plan(read.plan, specs, show_keep=show_keep, digest=read.digest)
    return 0


@opt.command("why", click.argument("key"), opt.WHERE, opt.RECORDS, opt.WITHOUT_RECORDS, opt.JSON)
def why_command(key: str, as_json: bool, **options: Any) -> int:
    """Show why a key gets its action: the rule that decided, what is declared and where, what was
    observed, and what would change it.

    KEY may be an entry with a matrix, which means its members. Also shows what blocks the action:
    policies, guards, and what the target would reject. -v shows all rules that were checked. Nothing
    is changed. Exits 8 if the key could not be decided.
    """
    from reconciler import reconcile

    with opened(**options, only=(), parallelism=8, offline=True) as context:
        found = reconcile.why(context, key)
    if as_json:
        from reconciler.decide.reports import why_document

        console.document(why_document(key, found))
    else:
        from reconciler.render.commands import render_why

        console.result(render_why(found, console.style(sys.stdout), verbose=console.verbosity > 0))
    return ExitCode.DONE if all(one.is_known for one in found) else ExitCode.UNKNOWN


@opt.command("review", click.argument("base"), click.argument("head"), opt.WHERE, opt.output(Content.REVIEW))
def review_command(outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Show what a change of the manifests means, from BASE to HEAD, on every target or on one.

    BASE and HEAD are directories, or git revisions of the repository around the current directory.
    PATH is the stack in both of them; default: the current directory's place in the repository, or
    the whole directory. Neither the service nor credentials are needed.
    """
    from reconciler.review import review

    options["variables"] = dict(options["variables"])
    found = review(**options, add_secrets=console.redact.add_secrets)
    show(Content.REVIEW, found, requested_outputs(outputs))
    if denied := found.every_denial:
        from reconciler.decide.policies import refusals_of

        console.diagnostics(refusals_of(denied))
    return ExitCode.REFUSED if denied else ExitCode.DONE
