"""Confirming a plan and carrying it out: what apply and destroy share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from reconciler.cli import exits
from reconciler.cli.console import console
from reconciler.cli.interrupts import Interrupt, interruptible
from reconciler.cli.options import OutputSpec
from reconciler.cli.progress import json_lines, progress
from reconciler.cli.showing import show_plan, wanted
from reconciler.core.diagnostic import Diagnostic, Refused

if TYPE_CHECKING:
    from reconciler.apply.executor import EventStream
    from reconciler.core.outcome import Result
    from reconciler.core.plan import Plan
    from reconciler.reconcile import Context


def carry_out(
    context: Context,
    plan: Plan,
    *,
    question: str,
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    timeout_s: float,
) -> int:
    """Show the plan, ask, do it, and say what became of it. Returns the exit code.

    With JSON on stdout the lines there are events; the plan is then shown in files only.
    """
    from reconciler.apply.executor import EventStream
    from reconciler.core.outcome import EventType, Result
    from reconciler.version import __version__

    specs = wanted(outputs, as_json=as_json)
    tells_events = OutputSpec("json", None) in specs
    show_plan(plan, [spec for spec in specs if spec.file is not None or not tells_events])
    interrupt, result = Interrupt(), None
    with json_lines() if tells_events else progress(plan) as listener:
        stream = EventStream(context.target.clock, listener)
        stream.tell(EventType.VERSION, reconciler_version=__version__, format_version=plan.format_version)
        stream.tell(EventType.PLANNED, stack=plan.stack, applyable=plan.applyable, summary=plan.summary)
        interrupt.last_words = partial(stream.tell, EventType.APPLY_COMPLETED, summary=Result().summary)
        try:
            if plan.applyable and not yes:
                confirm(question)
            listener.begin()
            result = _execute(context, plan, stream, interrupt, timeout_s)
        finally:
            # Readers wait for this line, also where somebody said no.
            stream.tell(EventType.APPLY_COMPLETED, summary=(result or Result()).summary)
    if not tells_events and plan.applyable and result is not None:
        from reconciler.render.text import render_result

        console.result("\n" + render_result(result, console.style(sys.stdout)))
    return exits.of_result(plan, result, interrupt.exit)


def _execute(
    context: Context, plan: Plan, stream: EventStream, interrupt: Interrupt, timeout_s: float
) -> Result:
    from reconciler import reconcile

    with interruptible(interrupt):
        return reconcile.apply(context, plan, stream, interrupt.stop, timeout_s=timeout_s)


def confirm(question: str) -> None:
    """Ask on the terminal.

    Raises:
        Refused: the answer is no, or there is no terminal to ask on.
    """
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        raise Refused(Diagnostic("not confirmed", "there is no terminal to ask on", "add --yes"))
    if not click.confirm(question, err=True):
        raise Refused(Diagnostic("not confirmed", "nothing was changed"))
