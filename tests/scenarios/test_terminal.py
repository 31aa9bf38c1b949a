"""A waiting apply on a terminal: one and two Ctrl-C, and a hang-up."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyte
import pytest

from reconciler.emulator import Store
from tests.cli.conftest import manifest
from tests.processes import Waited

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS = 24, 100
PATIENCE_S = 30.0
CTRL_C = b"\x03"


class Terminal:
    """A pseudo-terminal with a program on it, and the screen as a person sees it."""

    def __init__(
        self, *arguments: str, cwd: Path, program: tuple[str, ...] = (sys.executable, "-m", "reconciler")
    ) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        self._kept = os.dup(theirs)
        self.flags = termios.tcgetattr(theirs)
        self.raw = b""
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            [*program, *arguments],
            cwd=cwd,
            env={"PATH": "", "HOME": str(cwd), "TERM": "xterm-256color", "PYTHONPATH": f"{ROOT}:{cwd}"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its controlling terminal
        )
        os.close(theirs)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read(self, until: Callable[[], bool]) -> None:
        """Read until a condition holds."""
        ends_s = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < ends_s, self.text
            if select.select([self._ours], [], [], 0.05)[0]:
                self._take()

    def _take(self) -> None:
        with suppress(OSError):
            piece = os.read(self._ours, 65536)
            self.raw += piece
            self._stream.feed(piece)

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        self.read(self.has_ended)
        self.process.wait()
        while select.select([self._ours], [], [], 0)[0]:
            self._take()
        return self.process.returncode

    def has_ended(self) -> bool:
        """Whether the program has ended; it is not reaped."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        os.close(self._kept)
        os.close(self._ours)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).strip()

    @property
    def flags_now(self) -> object:
        return termios.tcgetattr(self._kept)


def a_home(home: Path, *keys: str) -> None:
    """Make a stack on a local target whose jobs queue for a moment and run for twenty seconds."""
    (home / "jobs.yaml").write_text(manifest(*keys), encoding="utf-8")
    (home / ".reconciler").mkdir(mode=0o700)
    Store(str(home / ".reconciler/local.sqlite3"), speed=30).close()


@pytest.fixture
def waiting(tmp_path: Path) -> Terminal:
    """An apply that waits for three jobs, with its table on the terminal."""
    a_home(tmp_path, "a", "b", "c")
    terminal = Terminal("apply", "--yes", "--wait", "completed", cwd=tmp_path)
    terminal.read(lambda: "Pending" in terminal.text or "Running" in terminal.text)
    return terminal


def has_table(terminal: Terminal) -> bool:
    return re.search(r"phase +queued +running +wait", terminal.text) is not None


def check_the_terminal_is_usable(terminal: Terminal) -> None:
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l") > 0
    assert not terminal.screen.cursor.hidden
    assert terminal.flags_now == terminal.flags
    lines = terminal.text.splitlines()
    assert not [line for line in lines if line.split()[:2] == ["job", "phase"]], "a table was left"
    assert not [line for line in lines if "waiting" in line and "Apply" not in line[:5] and "Pending" in line]


def test_single_interrupt_ends_the_wait_and_leaves_a_clean_terminal(waiting: Terminal) -> None:
    waited = Waited(waiting.process.pid)
    waiting.type(CTRL_C)
    waiting.read(waiting.has_ended)
    assert waited.seconds < 1.5
    assert waiting.end() == 130
    assert "finishing the actions in flight" in waiting.text
    assert "Apply interrupted: 3 succeeded." in waiting.text
    assert waiting.screen.cursor.x == 0
    lines = [line for line in waiting.text.splitlines() if line.startswith("  waiting ")]
    assert len(lines) == 3, "how each stands is said once"
    assert waiting.raw.rfind(b"\x1b[?25h") > waiting.raw.rfind(b"\x1b[?25l") > 0
    assert waiting.flags_now == waiting.flags
    assert not has_table(waiting)


SLOW = """\
import threading, time
from reconciler.modelarts.connect import WsgiAdapter
send = WsgiAdapter.send
def slow(self, request, **options):
    if request.method == "POST" and request.url.endswith("/training-jobs"):
        with open("sent.txt", "a") as sent:
            sent.write("sending\\n")
        time.sleep(60)
    return send(self, request, **options)
WsgiAdapter.send = slow
"""


def test_second_interrupt_stops_at_once_and_leaves_a_clean_terminal(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(manifest("a", "b"), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(SLOW, encoding="utf-8")
    terminal = Terminal("apply", "--yes", "--wait", "completed", cwd=tmp_path)
    sent = tmp_path / "sent.txt"
    sent.touch()
    terminal.read(lambda: has_table(terminal) and sent.read_text(encoding="utf-8").count("sending") == 2)
    terminal.type(CTRL_C)
    terminal.read(lambda: "interrupt again to stop immediately" in terminal.text)
    waited = Waited(terminal.process.pid)
    terminal.type(CTRL_C)
    terminal.read(terminal.has_ended)
    assert waited.seconds < 1.5
    assert terminal.end() == 130
    assert "the next plan shows the outcome of calls in flight" in " ".join(terminal.text.split())
    check_the_terminal_is_usable(terminal)


def test_hangup_ends_the_wait_with_exit_code_129(waiting: Terminal) -> None:
    waiting.hang_up()
    assert waiting.process.wait(PATIENCE_S) == 129


FAILING = """\
import reconciler.cli.live as live
def fail(waited, at_s):
    if len(rows) == 3:
        raise ZeroDivisionError
    rows.append(waited)
    return row(waited, at_s)
row, rows = live._row, []
live._row = fail
"""


def test_internal_error_leaves_a_clean_terminal(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(manifest("a", "b", "c"), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(FAILING, encoding="utf-8")
    terminal = Terminal("apply", "--yes", "--wait", "completed", cwd=tmp_path)
    assert terminal.end() == 70
    check_the_terminal_is_usable(terminal)


def test_ignored_hangup_does_not_end_the_apply(tmp_path: Path) -> None:
    """As with `nohup`."""
    a_home(tmp_path, "a")
    process = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "apply", "--yes", "--wait", "running"],
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stderr is not None
    assert any("create a: started" in line for line in process.stderr)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0
    process.stderr.close()
