"""`reconciler apply --plan FILE`: carry a saved plan out, or nothing at all."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

from reconciler import reconcile
from reconciler.cli.context import StackOptions, record_options, runtime
from reconciler.cli.execution import ApplyRequest, carry_out, hold_lock, nothing_done
from reconciler.cli.final_outputs import final_outputs
from reconciler.cli.terminal.confirmation import confirm, has_terminal
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.connection import connect_target, records_url
from reconciler.core.store_url import file_url
from reconciler.decide.plan import Plan
from reconciler.decide.saved_plan import SavedOptions
from reconciler.errors import Diagnostic, Refused
from reconciler.manifests.saved import shown_address
from reconciler.reconcile import Context
from reconciler.record_directory import NAME
from reconciler.recording import DATABASE
from reconciler.saved_plans import ReadPlan, SecretSources, read_plan
from reconciler.text import printable


def apply_saved(
    file: Path, asked: ApplyRequest, *, approved: str | None, **options: Unpack[StackOptions]
) -> int:
    """Carry a saved plan out. No manifest is read, so the values of its secrets are what `options` say.

    Raises:
        StalePlan: something moved, the plan was made for another place or by another version, or another
            one was approved.
        ManifestInvalid: the file is no plan, or a secret in it has no value now.
    """
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=True)
            final_outputs.about(read.plan.stack, read.plan.target.name)
            read.check_approved(approved)
            plan, context = _opened(read, cleanup, interrupt, options, yes=asked.yes)
            reconcile.check_target(context, plan)
            hold = hold_lock(cleanup, context, interrupt)
            reconcile.check_preconditions(context, plan)
            plan = reconcile.preflight(context, plan)
        return carry_out(context, plan, asked._replace(digest=read.digest), hold)


def _opened(
    read: ReadPlan, cleanup: ExitStack, interrupt: Interrupt, options: StackOptions, *, yes: bool
) -> tuple[Plan, Context]:
    """Find the secrets of a plan again, and connect to its target."""
    values = SecretSources(dict(options["variables"]), list(options["var_files"]), os.environ, console.redact)
    plan, shaped_by, loaded = read.resolve(values), read.options, read.as_loaded()
    run_by, given = runtime(interrupt.stop), options["records"]
    url = records_url(shaped_by.target, given, lambda: read.records_url(values, loaded.root), run_by)
    if url is not None and url != given and not yes:
        _confirm_store(url, shaped_by, loaded.root)
    how = record_options(options, url)
    context = cleanup.enter_context(
        connect_target(loaded, plan.target.name, shaped_by.target, url, run_by, how)
    )
    parallelism = options["parallelism"]
    return plan, context._replace(only=shaped_by.only, parallelism=parallelism).to_apply()


def _confirm_store(url: str, options: SavedOptions, root: Path) -> None:
    """Ask about a store that is not the stack's own: the file beside its root file, or what --records says.

    It is asked before anything connects to the store, for that may send a password there.

    Raises:
        Refused: nobody says yes.
    """
    if url == file_url(str(root / NAME / DATABASE)):
        return
    shown = printable(console.redact(shown_address(options.records or "")))
    if not has_terminal():
        why = f"the records are in {shown}, not in the stack's own store; no terminal to ask on"
        fix = "add --yes if this is correct, or pass the store: --records URL"
        raise Refused(Diagnostic("not confirmed", why, fix))
    console.say(f"The plan keeps its records in {shown}, which is not the stack's own store.")
    confirm("Use that store?")
