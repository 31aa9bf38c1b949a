"""The command line as a process: its streams, or a pseudo-terminal and what a person sees there."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyte

ROOT = Path(__file__).parents[2]
#: No run takes so many seconds; one that hangs must not hang the tests.
_LONGEST_S = 60
#: A screen that nothing changes for so long is what a person would look at, and press the next key.
_STILL_S = 0.5


class Terminal(io.StringIO):
    """A stream that says it is a terminal; as stdin it holds the answers."""

    def isatty(self) -> bool:
        return True


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start `reconciler` with these arguments, as a process whose output is read."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "reconciler", *arguments], env=environ, **streams)


class Seen(NamedTuple):
    """What a run showed: every screen in between, what scrolled out of sight, and the last screen."""

    code: int
    screens: list[list[str]]
    scrolled: list[str]
    last: list[str]
    cursor_is_hidden: bool

    @property
    def whole(self) -> list[str]:
        """All that stays, as somebody who scrolls back reads it."""
        return [*self.scrolled, *self.last]


def run_on_terminal(
    home: Path,
    *arguments: str,
    rows: int = 30,
    columns: int = 100,
    environ: Mapping[str, str] | None = None,
    interrupt_when: Callable[[list[str]], bool] | None = None,
    keys: bytes | Sequence[bytes] = b"\x03",
) -> Seen:
    """Run `reconciler` in a directory, on a terminal of its own.

    `keys` are pressed when a screen is as asked, several one by one, for each that is drawn or stays: Ctrl-C.
    """
    pid, terminal = pty.fork()
    if pid == 0:  # the program, which finds the terminal as large as it stays
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.chdir(home)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **(environ or {})}
        for name in ("NO_COLOR", "LINES", "COLUMNS"):  # workers of the tests have a size of their own
            env.pop(name, None)
        os.execve(sys.executable, [sys.executable, "-m", "reconciler", *arguments], env)
    screen = pyte.HistoryScreen(columns, rows, history=10_000)
    stream = pyte.ByteStream(screen)
    screens: list[list[str]] = []
    waiting = [keys] if isinstance(keys, bytes) else [*keys]
    until_s = time.monotonic() + _LONGEST_S
    try:
        while time.monotonic() < until_s and (data := _read(terminal)) is not None:
            if data:
                stream.feed(data)
                screens.append([line.rstrip() for line in screen.display])
            if waiting and interrupt_when and screens and interrupt_when(screens[-1]):
                os.write(terminal, waiting.pop(0))
    finally:
        os.close(terminal)
        if time.monotonic() > until_s:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    scrolled = ["".join(line[x].data for x in range(columns)).rstrip() for line in screen.history.top]
    last = [line.rstrip() for line in screen.display]
    return Seen(os.waitstatus_to_exitcode(status), screens, scrolled, last, screen.cursor.hidden)


def _read(terminal: int) -> bytes | None:
    """The next that is written; nothing while the screen stays as it is, None once the program has ended."""
    if not select.select([terminal], [], [], _STILL_S)[0]:
        return b""
    try:
        return os.read(terminal, 65_536) or None
    except OSError:  # the other end is closed
        return None
