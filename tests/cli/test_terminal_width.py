"""Text on a terminal: its width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from tests.cli.conftest import manifest, write

ROWS, COLUMNS = 20, 60
Shown = Callable[..., str]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Run a command whose stdout is a terminal; what is seen there."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(console, "colour", "auto")

    def call(*arguments: str, code: int = 0, rows: int = ROWS, columns: int = COLUMNS) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        seen: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(ours, seen))
        reader.start()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            assert run(cli, list(arguments)) == code
        reader.join()
        os.close(ours)
        return b"".join(seen).decode().replace("\r\n", "\n")

    return call


def _read_all(descriptor: int, seen: list[bytes]) -> None:
    try:
        while data := os.read(descriptor, 65_536):
            seen.append(data)
    except OSError:  # the other end is closed
        return


def stack() -> None:
    write(manifest(*(f"job-{number:02}" for number in range(12))))


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_plan_fits_the_terminal(shown: Shown, columns: int) -> None:
    stack()
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown("plan", columns=columns, rows=500))
    assert max(map(len, text.splitlines())) <= columns
    assert all(f"job-{number:02}" in text for number in range(12))


def test_columns_of_the_environment_are_those_of_a_terminal_and_not_of_a_pipe(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    write(manifest("a"))
    lines = shown("plan", "--no-color", rows=500, columns=200).splitlines()
    assert 30 < max(map(len, lines)) <= 44
    assert run(cli, ["plan"]) == 0
    last = "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep."
    assert capsys.readouterr().out.splitlines()[-1] == last
