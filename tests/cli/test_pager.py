"""Text on a terminal: a pager where it is longer than the screen, its width, and links."""

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
from tests.cli.conftest import manifest, put_finished_job, write
from tests.cli.terminal import run_on_terminal

ROWS, COLUMNS = 20, 60
#: A pager that says that it was one.
MARKS = "sed 's/^/P:/'"
LONG = ("explain", "rules")
Shown = Callable[..., str]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Run a command whose stdout is a terminal; what is seen there."""
    for name in ("CI", "LESS", "PAGER", "RECONCILER_PAGER", "RECONCILER_NO_PAGER", "COLUMNS", "LINES"):
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


def is_paged(text: str) -> bool:
    return any(line.startswith("P:") for line in text.splitlines())


# ── when ───────────────────────────────────────────────────────────────────────────────────────────


def stack() -> None:
    write(manifest(*(f"job-{number:02}" for number in range(12))))


def test_text_longer_than_the_screen_is_paged_and_what_fits_is_not(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", MARKS)
    lines = shown(*LONG).splitlines()
    assert all(line.startswith("P:") for line in lines)
    assert len(lines) >= ROWS
    assert not is_paged(shown(*LONG, rows=500))
    assert not is_paged(shown(*LONG, "--no-pager"))
    write(manifest("a"))
    assert shown("validate") == "Valid: stack test, 1 job in view, 1 file.\n"
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setenv("RECONCILER_PAGER", MARKS)
    assert is_paged(shown(*LONG))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PAGER", ""),
        ("PAGER", "cat"),
        ("RECONCILER_PAGER", "cat"),
        ("RECONCILER_NO_PAGER", "1"),
        ("CI", "true"),
        ("TERM", "dumb"),
    ],
)
def test_environment_says_that_there_is_no_pager(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("PAGER", MARKS)
    monkeypatch.setenv(name, value)
    assert not is_paged(shown(*LONG))


def test_reports_about_a_stack_are_paged_and_output_for_programs_and_an_apply_are_not(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack()
    put_finished_job()
    monkeypatch.setenv("PAGER", MARKS)
    for line in ("plan", "plan --out saved.json", "drift", "status"):
        text = shown(*line.split(), code=2 if line == "drift" else 0, rows=5)
        assert all(shown_line.startswith("P:") for shown_line in text.splitlines()), line
    for line in ("plan --json", "plan -o text", "apply --yes"):
        assert not is_paged(shown(*line.split(), rows=5)), line


# ── a pager that fails, or is quit ─────────────────────────────────────────────────────────────────


def test_pager_that_is_quit_or_fails_changes_no_exit_code_and_hides_no_text(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "head -n 1")
    assert shown(*LONG, rows=5).count("\n") == 1
    monkeypatch.setenv("PAGER", "exec true")
    assert shown(*LONG, rows=5) == ""
    stack()
    monkeypatch.setenv("PAGER", "cat >/dev/null; exit 9")
    shown("plan", "--detailed-exitcode", code=2, rows=5)
    monkeypatch.setenv("PAGER", "/no/such/pager 2>/dev/null")
    assert "details-unreadable" in shown(*LONG)


def test_refusals_on_stderr_come_after_the_plan(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(manifest("a", "b", more="policies: [{name: never, deny: 'true'}]\n"))
    seen = tmp_path / "seen"
    monkeypatch.setenv("PAGER", f"cat > {seen}")
    told = console.tell

    def tell(text: str) -> None:
        told(text)
        assert seen.exists(), "it is shown before anything is said of it"

    monkeypatch.setattr(console, "tell", tell)
    shown("plan", code=3, rows=5)
    assert "denied by a policy" in capsys.readouterr().err
    assert "2 blocked." in seen.read_text()


def test_less_shows_one_screen_and_is_quit_by_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "LESS", "PAGER", "LESSOPEN"):
        monkeypatch.delenv(name, raising=False)

    def is_waiting(screen: list[str]) -> bool:
        return screen[-1].startswith(":")

    # Ctrl-C is the pager's; then it is quit. While less deals with Ctrl-C it drops what is typed, so whoever
    # sees it waiting still presses the key again.
    keys = (b"\x03", *[b"q"] * 20)
    found = run_on_terminal(tmp_path, *LONG, rows=ROWS, columns=COLUMNS, interrupt_when=is_waiting, keys=keys)
    assert found.code == 0
    assert any(is_waiting(screen) for screen in found.screens)
    assert found.last[0].startswith("#")
    assert not any("Traceback" in line or "interrupted" in line for line in found.whole)


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
    monkeypatch.setenv("PAGER", MARKS)
    text = shown("plan", rows=4)
    assert (is_paged(text), "\x1b]8" in text) == (True, False)


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
