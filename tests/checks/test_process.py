"""A piece of work in a process of its own: it ends in time whatever it does, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import accumulate, repeat
from pathlib import Path

import pytest

from reconciler.checks import process
from reconciler.checks.process import Ended, Work, run_process
from reconciler.watch import Sleeper
from tests.processes import children

# Where tests run in several processes, each has a thread by which it is told what to do.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

#: Longer than anything takes that ends by itself, and shorter than the limit of a test.
LONG_S = 60.0


class TimeOfWork:
    """In the place of the module `time`: the time stands until the work has begun in the other process."""

    sleep = staticmethod(time.sleep)

    def __init__(self, mark: Path) -> None:
        self._mark, self._stood_s = mark, time.monotonic()
        self._began_s: float | None = None

    def begin(self) -> None:
        """Let it pass."""
        self._mark.touch()

    @property
    def passes(self) -> bool:
        """Whether the work has begun."""
        return self._mark.exists()

    def monotonic(self) -> float:
        """The time as the process sees it that watches."""
        if self._began_s is None and self.passes:
            self._began_s = time.monotonic()
        return self._stood_s + (0.0 if self._began_s is None else time.monotonic() - self._began_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TimeOfWork:
    """Limits are counted from the moment in which the work says that it has begun."""
    clock = TimeOfWork(tmp_path / "begun")
    monkeypatch.setattr(process, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _time_to_unwind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is killed because the machine is busy."""
    monkeypatch.setattr(process, "UNWIND_S", LONG_S / 2)


def run(work: Callable[[Work], None], limit_s: float = LONG_S, stops: Callable[[], int] = lambda: 0) -> Ended:
    """Run it; there must be no process and no file afterwards."""
    before, siblings = descriptors(), children()
    ended = run_process(work, Sleeper(), limit_s, stops)
    assert descriptors() == before
    assert children() <= siblings
    return ended


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_result_and_what_is_said_after_it_arrive() -> None:
    def work(work: Work) -> None:
        work.send_result({"found": "x" * 200_000})
        work.send_more({"failed": 2})

    assert run(work).result == {"found": "x" * 200_000, "failed": 2}


def test_work_that_hangs_is_ended_at_its_limit(clock: TimeOfWork) -> None:
    def hanging(work: Work) -> None:
        clock.begin()
        time.sleep(LONG_S)

    ended = run(hanging, limit_s=0.2)
    assert (ended.result, ended.is_out_of_time, ended.was_killed) == (None, True, False)


def test_work_that_does_not_listen_is_killed(clock: TimeOfWork, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(work: Work) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        clock.begin()
        time.sleep(LONG_S)

    monkeypatch.setattr(process, "UNWIND_S", 0.2)
    ended = run(deaf, limit_s=0.2)
    assert (ended.is_out_of_time, ended.was_killed) == (True, True)


def test_signals_to_the_whole_group_are_left_to_the_process_that_watches() -> None:
    def work(work: Work) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        work.send_result({"is_alive": True})

    assert run(work).result == {"is_alive": True}


def test_process_that_dies_has_no_result() -> None:
    ended = run(lambda work: os.kill(os.getpid(), signal.SIGKILL))
    assert (ended.result, ended.is_out_of_time) == (None, False)


def applying(clock: TimeOfWork, most_s: float | None) -> Callable[[Work], None]:
    """Work that changes things until it is told to stop, and then says how far it came."""

    def work(work: Work) -> None:
        work.begin_to_apply(most_s)
        clock.begin()
        is_stopped = work.stop.wait(LONG_S)
        work.send_result({"is_stopped": is_stopped})

    return work


def test_apply_is_stopped_in_order_when_its_window_closes(clock: TimeOfWork) -> None:
    ended = run(applying(clock, 0.2))
    assert ended.result == {"is_stopped": True}
    assert (ended.is_out_of_time, ended.was_applying, ended.was_killed) == (True, True, False)


def test_apply_is_stopped_in_order_at_the_limit_of_its_check(clock: TimeOfWork) -> None:
    assert run(applying(clock, None), limit_s=0.2).result == {"is_stopped": True}


def test_apply_is_stopped_in_order_when_all_is_to_end(clock: TimeOfWork) -> None:
    assert run(applying(clock, None), stops=lambda: clock.passes).result == {"is_stopped": True}


def test_apply_is_ended_at_once_when_the_end_is_wanted_for_the_second_time(clock: TimeOfWork) -> None:
    def stubborn(work: Work) -> None:
        work.begin_to_apply(None)
        clock.begin()
        time.sleep(LONG_S)

    wanted = accumulate(repeat(1))
    ended = run(stubborn, stops=lambda: next(wanted) if clock.passes else 0)
    assert (ended.result, ended.was_killed) == (None, True)


def test_nothing_is_applied_once_the_process_was_asked_to_stop(clock: TimeOfWork, tmp_path: Path) -> None:
    changed = tmp_path / "changed"

    def work(work: Work) -> None:
        try:
            clock.begin()
            time.sleep(LONG_S)
        finally:
            work.begin_to_apply(None)
            changed.touch()

    run(work, limit_s=0.2)
    assert not changed.exists()


_ORPHAN = """
import sys, time
from reconciler.checks.process import run_process
from reconciler.watch import Sleeper

def work(work):
    if sys.argv[1] == "applying":
        work.begin_to_apply(None)
    print("begun", flush=True)
    print("asked" if work.stop.wait(60) else "over", flush=True)

run_process(work, Sleeper(), 60.0)
"""


@pytest.mark.parametrize(("stage", "said"), [("looking", ""), ("applying", "asked\n")])
def test_process_ends_in_order_when_the_one_that_watches_is_killed(stage: str, said: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, stage], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "begun\n"
        watching.kill()
        # The end of the file is the end of both processes.
        assert watching.stdout.read() == said
