"""Asking on the terminal before something is done."""

from __future__ import annotations

import io
import select
import signal
import socket
import sys
from contextlib import suppress

from reconciler.cli.terminal.console import console, has_reader
from reconciler.errors import Diagnostic, Refused


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
    while True:
        console.tell(f"{console.clean(question)} [y/N]: ")
        with suppress(io.UnsupportedOperation):  # a stdin that is no file
            _wait_for_line(sys.stdin.fileno())
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            console.tell("\n")
        match answer.strip().lower():
            case "y" | "yes":
                return
            case "" | "n" | "no":
                raise Refused(Diagnostic("not confirmed", "nothing was changed"))
        console.tell("Error: invalid input\n")


def _wait_for_line(descriptor: int) -> None:
    """Wait until there is something to be read. A signal that comes before the wait begins ends it, too.

    Of a read that begins in the moment after Ctrl-C the interpreter would come back with the next line only.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            while descriptor not in select.select([descriptor, ours.fileno()], [], [])[0]:
                ours.recv(1)
        finally:
            signal.set_wakeup_fd(before)
