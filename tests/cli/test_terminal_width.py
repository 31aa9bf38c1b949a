"""Text on a terminal: its width, and links."""

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
from pathlib import Path

import pytest

from reconciler.cli.console import console, links_are_shown
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


# ── width ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_plan_fits_the_terminal(shown: Shown, columns: int) -> None:
    stack()
    text = re.sub(r"\x1b(\[[0-9;]*m|\]8;[^\x1b]*\x1b\\)", "", shown("plan", columns=columns, rows=500))
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


# ── links ──────────────────────────────────────────────────────────────────────────────────────────


def test_key_is_a_link_to_its_line_on_a_terminal_that_has_links(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(manifest("a")).resolve()
    link = rf"\x1b]8;id=[0-9a-f]+;{re.escape(file.as_uri())}#6\x1b\\a\x1b]8;;\x1b\\"
    assert re.search(link, shown("plan"))
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "linux"), ("FORCE_HYPERLINK", "0")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert "\x1b]8" not in shown("plan")
    run(cli, ["plan", "--color", "always", "-o", "text", "-o", "text=plan.txt"])
    assert "\x1b]8" not in capsys.readouterr().out + Path("plan.txt").read_text()


@pytest.mark.parametrize(
    ("environ", "are_shown"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7006"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4800"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "linux", "FORCE_HYPERLINK": "1"}, True),
        ({}, False),
    ],
)
def test_terminals_that_have_links(environ: dict[str, str], are_shown: bool) -> None:
    assert links_are_shown(environ) is are_shown


def test_hostile_file_name_makes_no_link_of_its_own(shown: Shown) -> None:
    """A problem in a file whose name holds escape sequences."""
    write("stack: x\nnothing: 1\n", "a\x1b]8;;file:;\x07.yaml")
    text = shown("validate", code=65)
    assert "\x07" not in text
    assert text.count("\x1b]8;;file") == 0
