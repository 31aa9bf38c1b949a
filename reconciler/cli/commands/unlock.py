"""`reconciler unlock`: break a lock, after asking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import RECORDS, STACK, TARGET_NAME, YES, with_options
from reconciler.cli.terminal.confirmation import confirm
from reconciler.cli.terminal.console import console
from reconciler.errors import Diagnostic, Refused
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.connection import RecordedStack
    from reconciler.core.record import Holder


@click.command("unlock")
@with_options(STACK, TARGET_NAME, RECORDS, YES)
def command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    records: str | None,
    yes: bool,
) -> int:
    """Break the lock of the stack on its target, after asking.

    The lock of a dead process expires by itself. A live holder starts no new action once it is broken.
    The service is not contacted.
    """
    from reconciler.cli.context import load_stack, runtime
    from reconciler.connection import open_records_of

    loaded = load_stack(paths, variables, var_files, target, offline=True)
    with open_records_of(loaded, target, records, runtime()) as place:
        store = place.store
        holder = store.holder(place.scope) if store else None
        if store is None or holder is None:
            console.result("No lock is held.\n")
            return 0
        console.say(_told(place, holder))
        if not yes:
            confirm("Break the lock?")
        broken = store.break_lock(place.scope, holder)
        if broken is None:
            _check_nobody_else_does(store.holder(place.scope))
    console.result("The lock is broken.\n" if broken else "The lock is no longer held.\n")
    return 0


def _told(place: RecordedStack, holder: Holder) -> str:
    from reconciler.core.values import timestamp
    from reconciler.text import format_duration

    left = format_duration(max(0, round(holder.expires_s - place.clock.now())))
    return printable(
        f"Stack {place.scope.stack} on {place.scope.place} is locked by {holder.who} "
        f"({holder.command}) since {timestamp(holder.since_s)}, from {holder.where}; "
        f"the lease expires in {left} unless renewed."
    )


def _check_nobody_else_does(now: Holder | None) -> None:
    """Only the lock that was shown may be broken.

    Raises:
        Refused: another one holds the lock by now.
    """
    if now is not None:
        why = printable(f"it is now held by {now.who} from {now.where}; nothing was changed")
        raise Refused(Diagnostic("the lock has changed", why, "run it again"))
