"""The wait loop in simulated time: polls, timeout, interrupts."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.apply.waiter import FIRST_PAUSE_S, LONGEST_PAUSE_S, wait_for
from tests.modelarts.building import StoppedClock


class Until:
    """A condition that holds from a given time; the polls numbered in `moves_at` report progress."""

    def __init__(
        self,
        time: StoppedClock,
        over_s: float,
        due_s: float = math.inf,
        moves_at: frozenset[int] = frozenset(),
    ) -> None:
        self._time, self._over_s, self._due_s, self._moves_at = time, time.now() + over_s, due_s, moves_at
        self.looks = 0
        self.announced: list[float] = []
        self.is_over = self._over_s <= time.now()

    def announce(self, pause_s: float) -> float:
        self.announced.append(pause_s)
        return self._due_s

    def look(self) -> bool:
        self.looks += 1
        self.is_over = self._time.now() >= self._over_s
        return self.looks in self._moves_at


@pytest.fixture
def time() -> StoppedClock:
    return StoppedClock(1000.0)


def test_finished_wait_is_neither_polled_nor_paused(time: StoppedClock) -> None:
    waiting = Until(time, 0.0)
    assert wait_for(waiting, time)
    assert (waiting.looks, waiting.announced, time.slept) == (0, [], [])


def test_pauses_double_from_the_first_to_the_longest_and_are_announced(time: StoppedClock) -> None:
    waiting = Until(time, 300.0)
    assert wait_for(waiting, time)
    assert time.slept[0] == FIRST_PAUSE_S
    assert all(later == min(LONGEST_PAUSE_S, sooner * 2) for sooner, later in pairwise(time.slept))
    assert time.slept[-1] == LONGEST_PAUSE_S
    assert waiting.announced == time.slept


def test_poll_that_saw_progress_shortens_the_next_pause(time: StoppedClock) -> None:
    wait_for(Until(time, 60.0, moves_at=frozenset({5})), time)
    assert time.slept[4] > time.slept[5] == FIRST_PAUSE_S


def test_earlier_due_time_shortens_the_pause(time: StoppedClock) -> None:
    wait_for(Until(time, 60.0, due_s=2.0), time)
    assert max(time.slept) == 2.0


@pytest.mark.parametrize("timeout_s", [0.0, 45.0])
def test_wait_that_times_out_ends_on_time_with_a_last_poll(time: StoppedClock, timeout_s: float) -> None:
    waiting = Until(time, 60.0)
    assert not wait_for(waiting, time, timeout_s=timeout_s)
    assert sum(time.slept) == pytest.approx(timeout_s)
    assert waiting.looks == len(time.slept)


def test_interrupt_ends_the_wait_without_another_pause_or_poll(time: StoppedClock) -> None:
    waiting = Until(time, 60.0)
    assert not wait_for(waiting, time, is_interrupted=lambda: waiting.looks == 3)
    assert waiting.looks == len(time.slept) == 3


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_wait_reaches_its_goal_if_there_is_time_for_it(over_s: int, timeout_s: int) -> None:
    time = StoppedClock(1000.0)
    waiting = Until(time, over_s)
    assert wait_for(waiting, time, timeout_s) is (over_s <= timeout_s)
    assert time.now() <= 1000.0 + min(timeout_s, over_s + LONGEST_PAUSE_S) + 1e-6
    assert waiting.looks <= time.now() / LONGEST_PAUSE_S + 10
