"""Asking on the terminal before something is done."""

from __future__ import annotations

import sys

import click

from reconciler.cli.terminal.console import console, has_reader
from reconciler.core.diagnostic import Diagnostic, Refused


def has_terminal() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def confirm(question: str) -> None:
    """Ask on the terminal.

    Raises:
        Refused: the answer is no, or none (Ctrl-D), there is no terminal, or nobody sees it.
    """
    if not has_terminal():
        raise Refused(Diagnostic("not confirmed", "no terminal to ask for confirmation", "add --yes"))
    if not has_reader(sys.stderr):
        why = "the prompt could not be shown: stderr is closed; nothing was changed"
        raise Refused(Diagnostic("not confirmed", why, "keep stderr open, or add --yes"))
    try:
        is_confirmed = click.confirm(console.clean(question), err=True)
    except click.Abort as aborted:
        # To click the end of the input and Ctrl-C are the same.
        if not isinstance(aborted.__context__, EOFError):
            raise
        console.tell("\n")
        is_confirmed = False
    if not is_confirmed:
        raise Refused(Diagnostic("not confirmed", "nothing was changed"))
