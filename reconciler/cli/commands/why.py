"""`reconciler why`: the values and rules that lead to a key's action."""

from __future__ import annotations

import sys
from typing import Any

import click

from reconciler.cli.completions import keys
from reconciler.cli.options import RECORDS, STACK, TARGET_NAME, WITHOUT_RECORDS, with_options
from reconciler.cli.service_session import JSON
from reconciler.cli.terminal.console import console
from reconciler.errors import ExitCode


@click.command("why")
@with_options(
    click.argument("key", shell_complete=keys),
    STACK,
    TARGET_NAME,
    RECORDS,
    WITHOUT_RECORDS,
    JSON,
)
def command(key: str, as_json: bool, **options: Any) -> int:
    """Show why a key gets its action: what is declared and where, what was observed, the rule that
    decided and those before it that did not apply, its drift, and what would make it otherwise.

    Also what keeps it from being applied: policies, guards, and what the target would reject. Nothing is
    changed. Exits 8 if the key could not be judged.
    """
    from reconciler import reconcile
    from reconciler.cli.context import opened

    with opened(**options, only=(), parallelism=8, offline=True) as context:
        explanation = reconcile.why(context, key)
    if as_json:
        console.document(explanation.document())
    else:
        from reconciler.cli.terminal.pager import paged
        from reconciler.render.explain import render_why

        with paged(is_wanted=True):
            console.result(render_why(explanation, console.style(sys.stdout)))
    return ExitCode.DONE if explanation.is_known else ExitCode.UNKNOWN
