"""The command line as a process, with its streams or on a pseudo-terminal."""

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
#: Longer than any run, in seconds; a hanging run must not hang the tests.
_LONGEST_S = 60
#: After this many seconds without a change the screen counts as settled, and the next key is pressed.
_STILL_S = 0.5


class Terminal(io.StringIO):
    """A stream that claims to be a terminal; as stdin it holds the input."""

    def isatty(self) -> bool:
        return True


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start `reconciler` with these arguments, as a process whose output is read."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "reconciler", *arguments], env=environ, **streams)


class Seen(NamedTuple):
    """Output of a run: each intermediate screen, the scrollback, and the last screen."""

    code: int
    screens: list[list[str]]
    scrolled: list[str]
    last: list[str]
    cursor_is_hidden: bool

    @property
    def whole(self) -> list[str]:
        """The scrollback and the last screen."""
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

    `keys` are pressed when a screen matches; several are pressed one per drawn or settled screen.
    """
    pid, terminal = pty.fork()
    if pid == 0:  # the child, which finds the terminal at its final size
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.chdir(home)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **(environ or {})}
        for name in ("NO_COLOR", "LINES", "COLUMNS"):  # test workers may set their own size
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
    """Return the next output; "" while the screen is unchanged, None after the end of the program."""
    if not select.select([terminal], [], [], _STILL_S)[0]:
        return b""
    try:
        return os.read(terminal, 65_536) or None
    except OSError:  # closed by the other end
        return None
