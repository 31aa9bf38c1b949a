"""Live output: as much as fits, in one place, and removed at the end."""

from __future__ import annotations

import io
import re
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from reconciler.cli import progress as reading_module
from reconciler.cli.console import console
from reconciler.cli.execution import Lines, progress
from reconciler.cli.live import LiveTable, TableRow, fit, title_of
from reconciler.cli.progress import BusyLine, Display, Reading, can_draw, display
from reconciler.core.values import timestamp
from reconciler.decide.outcome import ApplyEvent, EventType, Goal, Waited, WaitEnd
from reconciler.decide.plan import Action, Plan
from reconciler.emulator import Store
from tests.cli.conftest import manifest
from tests.cli.terminal import Seen, Terminal, run_on_terminal

JOBS, ROWS = 24, 12
HEAD = re.compile(r"^job +phase +queued +running +wait$")
MORE = re.compile(r"^and (\d+) more: ")
COUNT = re.compile(r"(\d+) of (\d+) jobs")


def a_home(home: Path, speed: float) -> Path:
    """Make a stack of many jobs on a local target with a fast clock; at 600 a job runs for a second."""
    (home / "jobs.yaml").write_text(manifest(*(f"job-{n:02}" for n in range(JOBS))), encoding="utf-8")
    (home / ".reconciler").mkdir()
    Store(str(home / ".reconciler/local.sqlite3"), speed=speed).close()
    return home


# ── seen on a terminal ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A waiting apply of many jobs on a terminal with few rows."""
    home = a_home(tmp_path_factory.mktemp("live"), speed=200)
    return run_on_terminal(home, "apply", "-y", "--wait", "completed", rows=ROWS)


def test_many_jobs_on_few_rows_end_with_a_clean_screen(seen: Seen) -> None:
    assert seen.code == 0, seen.whole
    assert [line for line in seen.last if line][-1] == f"Applied: {JOBS} succeeded."
    assert not seen.cursor_is_hidden
    assert [line for line in seen.whole if HEAD.match(line) or MORE.match(line) or COUNT.search(line)] == []
    for begin, count in (("  + create ", 1), ("  succeeded ", 1), ("  Completed ", JOBS)):
        assert sum(line.startswith(begin) for line in seen.whole) == count
    assert all(line.startswith("  Completed ") for line in seen.last[:-2] if line)


def test_each_screen_has_one_table_with_the_number_of_hidden_rows(seen: Seen) -> None:
    for screen in seen.screens:
        assert sum(bool(HEAD.match(line)) for line in screen) <= 1
        hidden = [int(found[1]) for line in screen if (found := MORE.match(line))]
        shown = sum(bool(re.match(r"^job-\d\d ", line)) for line in screen)
        assert hidden in ([], [JOBS - shown])
        assert not hidden or shown >= ROWS // 2, "the table uses most of the rows"
    counts = [found for screen in seen.screens for line in screen for found in COUNT.findall(line)]
    assert any(MORE.match(line) for screen in seen.screens for line in screen)
    assert counts
    assert all(int(done) <= int(total) == JOBS for done, total in counts)


def test_interrupted_status_watch_is_130_and_restores_the_cursor(tmp_path: Path) -> None:
    home = a_home(tmp_path, speed=20)
    assert run_on_terminal(home, "apply", "-y", rows=ROWS).code == 0

    def is_drawn(screen: list[str]) -> bool:
        return any(MORE.match(line) for line in screen)

    seen = run_on_terminal(home, "status", "--watch", rows=ROWS, interrupt_when=is_drawn)
    assert (seen.code, seen.cursor_is_hidden) == (130, False)
    # The last screen stays complete.
    assert sum("job-" in line for line in seen.whole) == JOBS
    assert not is_drawn(seen.whole)


# ── rows ───────────────────────────────────────────────────────────────────────────────────────────

DRAWN = st.lists(st.builds(TableRow, st.just(("x",)), st.integers(0, 9), st.sampled_from("abc")))


def test_most_relevant_rows_stay_on_a_small_terminal() -> None:
    rows = [TableRow(("a",), 9, "Completed"), TableRow(("b",), 5, "Pending"), TableRow(("c",), 0, "Failed")]
    rows += [TableRow((name,), 9, "Completed") for name in "de"]
    shown, line = fit(rows, 2)
    assert [row.cells[0] for row in shown] == ["c", "b"]
    assert line == "and 3 more: 3 Completed"


@given(DRAWN, st.integers(1, 12))
def test_every_row_is_shown_or_counted(rows: list[TableRow], room: int) -> None:
    shown, line = fit(rows, room)
    hidden = int(found[1]) if (found := MORE.match(line)) else 0
    assert len(shown) <= room
    assert len(shown) + hidden == len(rows)
    assert hidden == sum(map(int, re.findall(r"(\d+) [abc]", line)))


def test_concurrent_parts_share_one_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen, one = Terminal(), Display()
    with one.part(BusyLine("first"), screen):
        other = Terminal()
        with one.part(LiveTable(("key",)), other):
            _until(lambda: "key" in screen.getvalue())
        assert one.is_running
        assert other.getvalue() == ""
    assert not one.is_running
    assert screen.getvalue().rfind("\x1b[?25h") > screen.getvalue().rfind("\x1b[?25l")  # the cursor is back


def test_message_during_drawing_is_printed_above_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, one = a_screen(monkeypatch), Display()
    with one.part(BusyLine("busy"), screen):
        console.say("first")
        _until(lambda: "first" in screen.getvalue())
        console.say("x" * 200)
    console.say("last")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", screen.getvalue())
    assert text.index("first") < text.index("x" * 200) < text.rindex("last")
    assert text.endswith("last\n")


def test_signal_handler_can_print_while_the_main_thread_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that drew itself would interrupt a drawing in progress."""
    screen, one = a_screen(monkeypatch), Display()
    table = LiveTable(("key",))
    table.rows = [TableRow((f"row-{n}",), 0, "x") for n in range(5)]
    before = signal.signal(signal.SIGUSR1, lambda *_: console.say("spoken"))
    try:
        with one.part(table, screen):
            for _ in range(200):
                one.refresh()
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    seen = pyte.HistoryScreen(100, 30, history=1000)
    pyte.Stream(seen).feed(screen.getvalue().replace("\n", "\r\n"))
    lines = ["".join(line[x].data for x in range(100)).rstrip() for line in seen.history.top]
    lines += [line.rstrip() for line in seen.display]
    assert [line for line in lines if line] == ["spoken"] * 200


@pytest.mark.parametrize(("term", "log_format", "expected"), [
    ("xterm-256color", "text", True),
    ("dumb", "text", False),
    ("xterm-256color", "json", False),
])  # fmt: skip
def test_drawing_needs_a_terminal_and_text(
    monkeypatch: pytest.MonkeyPatch, term: str, log_format: str, expected: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(console, "log_format", log_format)
    assert can_draw(Terminal()) is expected
    assert not can_draw(io.StringIO())


# ── lines, without a terminal ──────────────────────────────────────────────────────────────────────


def an_event(type_: EventType, at_s: float, key: str = "a", detail: str = "") -> ApplyEvent:
    return ApplyEvent(type=type_, ts=timestamp(at_s), sequence=1, key=key, action=Action.KEEP, detail=detail)


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


MINUTE = [
    (at_s, "a", phase) for at_s, phase in ((0, "Creating"), (10, "Pending"), (20, "Running"), (70, "Running"))
]


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        (
            [(at_s, "a", f"Running (3 s queued, {at_s} s elapsed)") for at_s in range(0, 3600, 10)],
            ["a: Running (3 s queued, 0 s elapsed)"],
        ),
        (MINUTE, ["a: Creating", "a: Running"]),
        (
            [(at_s + n / 60, f"j{n}", str(at_s)) for at_s in (0, 60) for n in range(60)],
            ["j0: 0", "j1: 0, and 59 more"],
        ),
    ],
    ids=["no change", "once a minute at most", "many jobs"],
)
def test_changes_are_printed_while_waiting_for_jobs(
    capsys: pytest.CaptureFixture[str], progress: list[tuple[float, str, str]], lines: list[str]
) -> None:
    listener = Lines()
    for at_s, key, detail in progress:
        listener(an_event(EventType.ACTION_PROGRESS, at_s, key, detail))
    assert written(capsys) == lines


def test_ended_job_is_reported_once_and_no_longer_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Lines()
    listener(an_event(EventType.ACTION_PROGRESS, 0, detail="Terminating"))
    listener(an_event(EventType.ACTION_PROGRESS, 10, detail="Terminated"))
    listener(an_event(EventType.ACTION_COMPLETED, 11))
    listener(an_event(EventType.ACTION_PROGRESS, 99, "b", "Pending"))
    assert written(capsys) == ["a: Terminating", "keep a: succeeded", "b: Pending"]


# ── the line that counts ───────────────────────────────────────────────────────────────────────────


def a_plan(*keys: str) -> Plan:
    actions = [{"key": key, "action": "create", "reason": "not_found"} for key in keys]
    target = {"name": "t", "kind": "local", "endpoint": "l", "project_id": "p", "workspace_id": "0"}
    return Plan.model_validate({
        "reconciler_version": "0", "created_at": "", "stack": "s", "target": target, "manifest_digest": "",
        "applyable": True, "complete": True, "summary": {}, "actions": actions,
    })  # fmt: skip


def a_screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal."""
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(console, "log_format", "text")
    return stream


def test_job_of_two_actions_counts_once_and_its_retry_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    a_screen(monkeypatch)
    with progress(a_plan("a", "a", "b")) as listener:
        line = listener.line  # type: ignore[attr-defined]
        listener(an_event(EventType.ACTION_COMPLETED, 0))
        assert line.text.startswith("0 of 2 jobs done  ")
        listener(an_event(EventType.ACTION_COMPLETED, 0))
        listener(an_event(EventType.ACTION_COMPLETED, 0))
        assert line.text.startswith("1 of 2 jobs done  ")
        listener(an_event(EventType.ACTION_FAILED, 0, "b"))
        assert line.text == "2 of 2 jobs done, 1 failed"
        listener(an_event(EventType.ACTION_STARTED, 0, "b"))
        listener(an_event(EventType.ACTION_COMPLETED, 0, "b"))
        assert line.text == "2 of 2 jobs done"


@pytest.mark.parametrize(
    ("goal", "ends", "title"),
    [
        (Goal.COMPLETED, {"reached": 7, "waiting": 2}, "7 of 9 jobs completed"),
        (
            Goal.COMPLETED,
            {
                "reached": 1,
                "ended_badly": 2,
                "superseded_elsewhere": 1,
                "timed_out": 1,
                "blocked": 1,
                "gone": 1,
            },
            "1 of 7 jobs completed, 2 ended badly, 1 superseded elsewhere, 1 timed out, 1 blocked, 1 gone",
        ),
        (Goal.RUNNING, {"reached": 1, "waiting": 1}, "1 of 2 jobs running or completed"),
    ],
)
def test_title_of_a_wait_has_the_counts_of_its_goal(goal: Goal, ends: dict[str, int], title: str) -> None:
    waits = [Waited("a", Action.KEEP, WaitEnd(end)) for end, count in ends.items() for _ in range(count)]
    assert title_of(waits, goal) == title


# ── while a slow service is read ───────────────────────────────────────────────────────────────────


def _until(is_so: object) -> None:
    until_s = time.monotonic() + 10
    while not is_so() and time.monotonic() < until_s:  # type: ignore[operator]
        time.sleep(0.005)


def test_slow_read_shows_a_spinner_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    monkeypatch.setattr(reading_module, "DRAW_AFTER_S", 0.01)
    with Reading()() as tell_jobs:
        tell_jobs(50)
        tell_jobs(50)
        _until(lambda: "100 jobs so far" in screen.getvalue())
        assert "reading the workspace, 100 jobs so far" in screen.getvalue()
    assert not display.is_running
    assert "\x1b[?25h" in screen.getvalue()


@pytest.mark.parametrize(
    ("say_after_s", "is_silenced", "lines"),
    [(0.2, False, ["reading the workspace, 350 jobs so far"]), (60.0, False, []), (0.0, True, [])],
    ids=["slow", "quick", "beside a wait for jobs"],
)
def test_slow_read_is_a_line_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, say_after_s: float, is_silenced: bool, lines: list[str]
) -> None:
    monkeypatch.setattr(reading_module, "SAY_AFTER_S", say_after_s)
    messages: list[str] = []
    monkeypatch.setattr(console, "say", lambda text, level="info": messages.append(text))
    reading = Reading()
    with reading.silenced() if is_silenced else nullcontext(), reading() as tell_jobs:
        tell_jobs(300)
        tell_jobs(50)
        if lines:
            _until(lambda: messages)
    assert messages == lines


@pytest.mark.parametrize("columns", [40, 80])
def test_names_in_a_drawn_table_are_whole_on_a_narrow_terminal(columns: int) -> None:
    table = LiveTable(("key", "phase", "waits for"))
    name = "lr-sweep-batch-64-lr-0_0001-long"
    table.rows = [TableRow((name, "Running", "apply, to replace what runs now"), 1, "Running")]
    terminal = Console(file=io.StringIO(), width=columns, height=10, force_terminal=True, color_system=None)
    with terminal.capture() as drawn:
        terminal.print(table)
    lines = drawn.get().splitlines()
    assert any(name in line for line in lines)
    assert max(map(cell_len, lines)) <= columns
    # Truncation is visible: in the cell, or in the head for a whole column.
    assert ("…" in drawn.get()) is (columns == 40)
