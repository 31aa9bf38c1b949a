"""`reconciler apply --plan FILE`: carry a saved plan out, or nothing at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli.context import runtime
from reconciler.cli.execution import ApplyRequest, carry_out, confirm, has_terminal, held, nothing_done
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.core.diagnostic import Diagnostic, Refused
from reconciler.core.store_url import file_url
from reconciler.core.text.sanitize import printable
from reconciler.saved_plans import SecretSources, read_plan

if TYPE_CHECKING:
    from reconciler.core.planning.plan import Plan
    from reconciler.core.saved_plan.document import SavedOptions
    from reconciler.reconcile import Context


def apply_saved(file: Path, asked: ApplyRequest, **given: Any) -> int:
    """Carry a saved plan out. No manifest is read. `given` are the options of the command line.

    Raises:
        StalePlan: something moved, the plan was made for another place or by another version, or another
            one was approved.
        ManifestInvalid: the file is no plan, or a secret in it has no value now.
    """
    from reconciler import reconcile

    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            plan, context = _opened(file, cleanup, interrupt, yes=asked.yes, **given)
            reconcile.check_target(context, plan)
            hold = cleanup.enter_context(held(context, interrupt))
            reconcile.check_preconditions(context, plan)
        return carry_out(context, plan, asked, hold)


def _opened(
    file: Path,
    cleanup: ExitStack,
    interrupt: Interrupt,
    *,
    yes: bool,
    approved: str | None,
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    records: str | None,
    parallelism: int,
    lease_s: float,
    without_records: bool,
    **_: Any,
) -> tuple[Plan, Context]:
    """Read a plan, find its secrets again, and connect to its target."""
    from reconciler.connection import RecordOptions, connect_target, records_url

    read = read_plan(file, lambda warning: console.diagnostics([warning]), strict=True)
    read.check_approved(approved)
    values = SecretSources(dict(variables), list(var_files), os.environ, console.redact)
    plan, options, loaded = read.resolve(values), read.options, read.as_loaded()
    run_by = runtime(interrupt.stop)
    url = records_url(options.target, records, lambda: read.records_url(values, loaded.root), run_by)
    if url is not None and url != records and not yes:
        _confirm_store(url, options, loaded.root)
    how = RecordOptions(url, lease_s, without_records)
    context = cleanup.enter_context(
        connect_target(loaded, plan.target.name, options.target, url, run_by, how)
    )
    return plan, context._replace(only=options.only, parallelism=parallelism, is_applied=True)


def _confirm_store(url: str, options: SavedOptions, root: Path) -> None:
    """Ask about a store that is not the stack's own: the file beside its root file, or what --records says.

    It is asked before anything connects to the store, for that may send a password there.

    Raises:
        Refused: nobody says yes.
    """
    from reconciler.manifests.saved import shown_address
    from reconciler.record_directory import NAME
    from reconciler.recording import DATABASE

    if url == file_url(str(root / NAME / DATABASE)):
        return
    shown = printable(console.redact(shown_address(options.records or "")))
    if not has_terminal():
        why = f"the records are in {shown}, not in the stack's own store; no terminal to ask on"
        fix = "add --yes if this is correct, or pass the store: --records URL"
        raise Refused(Diagnostic("not confirmed", why, fix))
    console.say(f"The plan keeps its records in {shown}, which is not the stack's own store.")
    confirm("Use that store?")
