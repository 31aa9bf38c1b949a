"""A pager for text that is longer than the screen, as git has it.

Only on a terminal, never in CI, and only for text that was asked for without `-o` or `--json`. The pager is
what RECONCILER_PAGER or PAGER says (empty or `cat`: none), else `less`. Most runs need none.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reconciler.cli.terminal import screen
from reconciler.cli.terminal.console import console

if TYPE_CHECKING:
    from subprocess import Popen

#: Quit if one screen is enough, show colours, leave what was shown on the screen. As git sets them.
_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
#: The first version of less that shows links as links.
_LESS_WITH_LINKS = 566
_LINK_END = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")
#: What a shell says of a program that it cannot run.
_CANNOT_RUN = (126, 127)
_PATIENCE_S = 2.0


@contextmanager
def paged(*, is_wanted: bool) -> Iterator[None]:
    """Show what is written to stdout in this block by the pager, if it is longer than the screen."""
    command = _command(os.environ) if is_wanted and console.may_page and sys.stdout.isatty() else None
    if command is None:
        yield
        return
    with console.collected(lambda text: _show(text, command)):
        yield


def _command(environ: Mapping[str, str]) -> str | None:
    """The pager, as a shell reads it; None if there is to be none."""
    if environ.get("CI", "").lower() not in ("", "0", "false"):
        return None
    if environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    found = environ.get("RECONCILER_PAGER", environ.get("PAGER"))
    if found is None:
        from shutil import which

        return "less" if which("less") else None
    return None if found.strip() in ("", "cat") else found


def _show(text: str, command: str) -> bool:
    """Show a text that is longer than the screen; False if it was not shown."""
    from subprocess import PIPE, Popen

    if not _is_longer_than_screen(text):
        return False
    if _LINK_END.search(text) and not _has_links(command):
        text = _LINK_END.sub("", text)
    environ = {**_DEFAULTS, **os.environ}
    try:
        # The command is the user's own, as git's is.
        pager = Popen(["/bin/sh", "-c", command], stdin=PIPE, stdout=sys.stdout, env=environ)  # noqa: S603
    except OSError:
        return False
    return _run(pager, text) not in _CANNOT_RUN


def _is_longer_than_screen(text: str) -> bool:
    from reconciler.render.layout import cell_len

    rows, columns = screen.rows(sys.stdout), screen.columns(sys.stdout)
    if rows is None or columns is None:
        return False
    needed = sum(max(1, -(-cell_len(line) // columns)) for line in text.rstrip("\n").split("\n"))
    return needed >= rows  # the shell's prompt takes a line, too


def _has_links(command: str) -> bool:
    """Whether the pager is a `less` that shows links."""
    from subprocess import SubprocessError, run

    program, *_ = command.split()
    if program.rpartition("/")[2] != "less":
        return False
    asked = [program, "--version"]
    with suppress(OSError, SubprocessError):
        done = run(asked, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)  # noqa: S603
        found = re.match(r"less (\d+)", done.stdout)
        return found is not None and int(found[1]) >= _LESS_WITH_LINKS
    return False


def _run(pager: Popen[bytes], text: str) -> int:
    """Hand the text over, and wait until the reader has had enough of it.

    Ctrl-C belongs to the pager. Whoever ends us otherwise ends the pager, too: it would go on with a terminal
    that is the shell's again.
    """
    from subprocess import TimeoutExpired

    assert pager.stdin is not None
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        with suppress(BrokenPipeError):  # it was quit before it had read all
            pager.stdin.write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
        with suppress(BrokenPipeError):
            pager.stdin.close()
        return pager.wait()
    finally:
        if pager.poll() is None:
            pager.terminate()
            with suppress(TimeoutExpired):
                pager.wait(_PATIENCE_S)
        if is_main:
            signal.signal(signal.SIGINT, before)
