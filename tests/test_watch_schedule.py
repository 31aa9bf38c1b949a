"""docs/watch.md, "Schedule": a fixed grid, jitter that never adds up, and fewer checks after failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.watch import CheckInterval, CheckReport, Due, WatchState, next_check

STARTED, EVERY = 1000.0, 900.0
PLAIN = CheckInterval(EVERY)


@pytest.mark.parametrize(
    ("failures", "intervals"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 4), (10_000, 4)]
)
def test_checks_come_less_often_after_failures(failures: int, intervals: int) -> None:
    due = next_check(PLAIN, STARTED, Due(3, 0.0), STARTED + 3 * EVERY + 1, failures=failures, chance=0.0)
    assert due == Due(3 + intervals, STARTED + (3 + intervals) * EVERY)


@pytest.mark.parametrize(
    ("ended_after_s", "interval"),
    [(0.5, 1), (899.9, 1), (900.0, 2), (1800.0, 3), (2000.0, 3), (90_000.0, 101)],
)
def test_interval_that_has_begun_is_left_out(ended_after_s: float, interval: int) -> None:
    due = next_check(PLAIN, STARTED, Due(0, STARTED), STARTED + ended_after_s, failures=0, chance=0.0)
    assert due.interval == interval


@given(
    every_s=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    steps=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1), st.integers(0, 6)), max_size=30),
)
def test_checks_stay_on_the_grid_however_long_they_take(
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


@pytest.mark.parametrize(
    ("compared_s", "is_so"), [(None, False), (100.0, True), (99.99, False), (0.0, False), (130.0, True)]
)
def test_what_was_compared_within_three_intervals_is_healthy(compared_s: float | None, is_so: bool) -> None:
    state = WatchState()
    if compared_s is not None:
        state = state.after(CheckReport(0, has_compared=True), compared_s)
    assert state.is_healthy(129.99, every_s=10.0) is is_so
