"""The loop of `watch`: its memory use over many checks, and the time of the next one."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import watch as loop
from reconciler.cli.watch import render_check
from reconciler.decide.watch_window import Window
from reconciler.errors import ExitCode
from reconciler.render import PLAIN
from reconciler.render.prometheus import MetricSource, render_metrics
from reconciler.watch import (
    Checker,
    CheckInterval,
    CheckReport,
    Due,
    ProcessEnd,
    Watch,
    WatchClock,
    WatchRequest,
    WatchState,
    next_check,
    watch_figures,
)

EVERY_S = 900.0


@dataclass
class SimulatedTime(WatchClock):
    """A clock moved by waiting; records the start of each check."""

    elapsed_s: float = 5000.0
    began_s: list[float] = field(default_factory=list)
    ends_after: int = 4

    def now(self) -> float:
        return 1_800_000_000.0 + self.elapsed_s

    def elapsed(self) -> float:
        return self.elapsed_s

    def wait(self, seconds: float) -> None:
        self.elapsed_s += min(seconds, EVERY_S / 7)  # a wait may end early

    def is_over(self) -> bool:
        return len(self.began_s) >= self.ends_after


def watched(
    clock: SimulatedTime,
    check: Callable[[int], CheckReport | None],
    report: Callable[[CheckReport], None] = lambda check: None,
) -> tuple[Watch, ExitCode | None]:
    """Run the loop until the end of the simulated time."""

    def begin() -> CheckReport | None:
        clock.began_s.append(clock.elapsed_s)
        return check(watch.state.checks + 1)

    watch = Watch(CheckInterval(EVERY_S), begin, report, clock.is_over, clock)
    return watch, watch.run()


def result(code: int = ExitCode.DONE, **more: object) -> CheckReport:
    fields = {"stack": "vision", "target": "prod", "has_compared": True, "summary": {"missing": 0}}
    return CheckReport(**{"exit_code": code, **fields, **more})  # type: ignore[arg-type]


def test_first_check_is_immediate_then_one_per_interval() -> None:
    clock = SimulatedTime()
    watched(clock, lambda number: result())
    assert clock.began_s == [5000, 5900, 6800, 7700]


def test_failed_check_does_not_end_the_watch_and_delays_the_next() -> None:
    clock = SimulatedTime(ends_after=7)
    codes = [8, 7, 1, 70, 2, 0, 0]
    watch, end = watched(clock, lambda number: result(codes[number - 1]))
    gaps = [round((b - a) / EVERY_S) for a, b in zip(clock.began_s, clock.began_s[1:], strict=False)]
    assert (gaps, end, watch.state.failures) == ([1, 2, 4, 4, 1, 1], None, 0)


@pytest.mark.parametrize("code", [ExitCode.WRONG_USAGE, ExitCode.INVALID])
def test_initial_error_ends_the_watch_and_a_later_one_does_not(code: ExitCode) -> None:
    assert watched(SimulatedTime(), lambda number: result(code))[1] is code
    clock = SimulatedTime()
    assert watched(clock, lambda number: result(code if number > 1 else 0))[1] is None
    assert len(clock.began_s) == 4


def test_check_ended_by_the_shutdown_is_not_reported() -> None:
    reports: list[CheckReport] = []
    watched(SimulatedTime(), lambda number: None, reports.append)
    assert reports == []


def test_metrics_show_the_drift_of_the_last_conclusive_check() -> None:
    clock = SimulatedTime(ends_after=3)
    unknown = result(8, summary={}, has_compared=False)
    found = [result(2, summary={"missing": 3}), unknown, unknown]
    watch, _ = watched(clock, lambda number: found[number - 1])
    figures = {one.name: one for one in watch_figures(watch.state, MetricSource("vision", "prod"))}
    assert [value for _, value in figures["reconciler_drift"].samples] == [3]
    assert [value for _, value in figures["reconciler_run_success"].samples] == [0]


def test_two_thousand_checks_leak_nothing() -> None:
    clock = SimulatedTime(ends_after=2_000)
    entry = {"key": "a" * 40, "class": "missing", "job": None, "detail": "x" * 200}
    sizes: list[tuple[int, int, int]] = []

    def check(number: int) -> CheckReport:
        clock.began_s[:] = clock.began_s[-1:] if number < clock.ends_after else clock.began_s * number
        code = (0, 2, 8)[number % 3]
        new = tuple({**entry, "key": f"{number}-{one}"} for one in range(number % 5))
        return result(code, new=new, has_compared=code != 8, notifications_failed=number % 2)

    def report(check: CheckReport) -> None:
        render_check(check, PLAIN)
        state = WatchState().after(check, 0.0)
        render_metrics(watch_figures(state, MetricSource("vision", "prod")))
        check.document()
        if check.number in (500, 1990):
            gc.collect()
            sizes.append((sys.getallocatedblocks(), len(gc.get_objects()), open_files()))

    before_threads, began_s = threading.active_count(), time.process_time()
    watch, _ = watched(clock, check, report)
    assert watch.state.checks == 2_000
    assert threading.active_count() == before_threads
    (early, objects, files), (late, more_objects, more_files) = sizes
    assert late - early < 500, "blocks of memory"
    assert more_objects - objects < 200
    assert more_files == files
    assert time.process_time() - began_s < 8


def open_files() -> int:
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0


# ── docs/operations/watch.md, "Schedule": a fixed grid, jitter, fewer checks after failures ────────────

STARTED, EVERY = 1000.0, 900.0
GRID = CheckInterval(EVERY)


@pytest.mark.parametrize(
    ("ended_after_s", "interval"),
    [(0.5, 1), (899.9, 1), (900.0, 2), (1800.0, 3), (2000.0, 3), (90_000.0, 101)],
)
def test_started_interval_is_skipped(ended_after_s: float, interval: int) -> None:
    due = next_check(GRID, STARTED, Due(0, STARTED), STARTED + ended_after_s, failures=0, chance=0.0)
    assert due.interval == interval


@given(
    every_s=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    steps=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1), st.integers(0, 6)), max_size=30),
)
def test_checks_stay_on_the_grid_with_any_duration(
    every_s: float, jitter: float, steps: list[tuple[float, float, int]]
) -> None:
    schedule, due = CheckInterval(every_s, jitter), Due(0, STARTED)
    for took, chance, failures in steps:
        ended_s = due.at_s + took * every_s
        later = next_check(schedule, STARTED, due, ended_s, failures=failures, chance=chance)
        grid_s = STARTED + later.interval * every_s
        assert later.at_s > ended_s - 1e-6 * every_s
        assert grid_s <= later.at_s <= grid_s + jitter * every_s * (1 + 1e-9)
        assert later.interval > due.interval
        missed = max(0, int((ended_s - STARTED) // every_s) - due.interval)
        assert later.interval - due.interval <= max(4, missed + 1)
        due = later


@pytest.mark.parametrize(("compared_s", "is_so"), [(100.0, True), (99.99, False)])
def test_watch_is_healthy_if_compared_within_three_intervals(compared_s: float, is_so: bool) -> None:
    assert not WatchState().is_healthy(129.99, every_s=10.0)
    state = WatchState().after(CheckReport(0, has_compared=True), compared_s)
    assert state.is_healthy(129.99, every_s=10.0) is is_so


# ── docs/operations/watch.md, "Applying": how a check reports the end of its apply ──────────────────

DRIFT: dict[str, Any] = {
    **{"stack": "vision", "target": {"name": "prod"}, "complete": True, "summary": {"failed": 0}},
    **dict.fromkeys(("drift", "ignored", "new", "changed", "gone", "warnings"), ()),
}
PLANNED = {"type": "planned", "summary": {"create": 2}, "applyable": True}
STARTED_ONE = {"type": "action_started", "key": "a"}
HALF = {"type": "apply_completed", "summary": {"done": 1, "interrupted": 1, "failed": 0}}
KILLED = "the process of the check ended without a result (signal 9)"
STOPPED = "stopped before the end: 1 done, 1 interrupted"
ENDED = "the check timed out after 5 min and was ended; raise --check-timeout to give it more time"


@pytest.mark.parametrize(
    ("events", "end", "code", "applied", "problem"),
    [
        ([PLANNED, {**HALF, "summary": {"done": 2}}], ProcessEnd(0), 0, "applied: 2 done", ""),
        (
            [{**PLANNED, "applyable": False}, {**HALF, "message": "too many actions"}],
            *(ProcessEnd(3), 3, "refused: too many actions", ""),
        ),
        ([{**HALF, "message": "the lock is held"}], ProcessEnd(6), 6, "not applied: the lock is held", ""),
        ([PLANNED], ProcessEnd(4), 4, "not applied: exit code 4", ""),
        ([PLANNED, STARTED_ONE], ProcessEnd(-9), 70, f"not applied: {KILLED}", ""),
        ([PLANNED], ProcessEnd(0, is_stopped=True), 0, "", ""),
        ([PLANNED, STARTED_ONE, HALF], ProcessEnd(5, is_stopped=True), 5, STOPPED, ""),
        ([PLANNED, STARTED_ONE, HALF], ProcessEnd(5, is_out_of_time=True), 5, STOPPED, ""),
        ([PLANNED], ProcessEnd(0, is_out_of_time=True), 8, f"not applied: {ENDED}", ENDED),
        ("window", ProcessEnd(0, is_out_of_time=True), 0, "not applied: the window closed", ""),
    ],
)
def test_outcome_of_an_apply_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: Any,
    end: ProcessEnd,
    code: int,
    applied: str,
    problem: str,
) -> None:
    windows: tuple[Window, ...] = ()
    if events == "window":
        events, windows = [], (Window.parse("00:00-24:00"),)
        monkeypatch.setattr(loop, "closes_at", lambda _, now_s: now_s + 60)

    def run_process(
        command: list[str], environ: object, limit_s: float, take: Callable[[bytes], None], **_: object
    ) -> ProcessEnd:
        for line in [DRIFT] if command[0] == "drift" else events:
            take(json.dumps({"ts": "", "sequence": 1, **line}).encode() + b"\n")
        return ProcessEnd(0) if command[0] == "drift" else end

    monkeypatch.setattr(loop, "run_process", run_process)
    request = WatchRequest(900.0, 0.0, 300.0, 0.0, applies=True, windows=windows)
    check = Checker(request, lambda name, _: ([name], {}), tmp_path).run()
    assert check is not None
    assert (check.exit_code, check.applied, check.problem) == (code, applied, problem)
    is_planned = applied.startswith(("applied", "refused", "stopped"))
    assert check.plan == ({"create": 2} if is_planned else None)
