"""`reconciler unlock`: break a lock, after asking."""

from __future__ import annotations

from typing import Any

import click

from reconciler.cli.carrying_out import confirm
from reconciler.cli.console import console
from reconciler.cli.opening import opened
from reconciler.cli.options import RECORDS, STACK, TARGET_NAME, YES, with_options
from reconciler.core.printable import printable


@click.command("unlock")
@with_options(STACK, TARGET_NAME, RECORDS, YES)
def command(yes: bool, **options: Any) -> int:
    """Break the lock of the stack on its target, after asking.

    A dead holder's lock ends by itself. Whoever holds it and lives begins no new action from then on.
    """
    from reconciler.core.duration import spell
    from reconciler.core.plan import timestamp

    with opened(only=(), parallelism=1, **options) as context:
        assert context.recording is not None
        records = context.recording.reading()
        holder = records.holder(context.scope) if records else None
        if records is None or holder is None:
            console.result("No lock is held.\n")
            return 0
        left = spell(max(0.0, round(holder.expires_s - context.recording.clock.now())))
        console.say(
            printable(
                f"Stack {context.scope.stack} on {context.scope.place} is locked by {holder.who} "
                f"({holder.command}) since {timestamp(holder.since_s)}, from {holder.where}; "
                f"the lease ends in {left}."
            )
        )
        if not yes:
            confirm("Break the lock?")
        records.break_lock(context.scope)
    console.result("The lock is broken.\n")
    return 0
