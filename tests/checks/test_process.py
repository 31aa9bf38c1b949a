"""A piece of work in a process of its own: it ends in time whatever it does, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.checks.process import Ended, Work, run_process
from reconciler.watch import Sleeper
from tests.processes import children

# Where tests run in several processes, each has a thread by which it is told what to do.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LONG_S = 30.0


def run(work: Callable[[Work], None], limit_s: float = LONG_S, stops: Callable[[], int] = lambda: 0) -> Ended:
    """Run it; it has to end soon, and there must be no process and no file afterwards."""
    began_s, before, siblings = time.monotonic(), descriptors(), children()
    ended = run_process(work, Sleeper(), limit_s, stops)
    assert time.monotonic() - began_s < LONG_S / 2
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


def test_work_that_hangs_is_ended_at_its_limit() -> None:
    ended = run(lambda work: time.sleep(LONG_S), limit_s=0.2)
    assert (ended.result, ended.is_out_of_time, ended.was_killed) == (None, True, False)


def test_work_that_does_not_listen_is_killed() -> None:
    def deaf(work: Work) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        time.sleep(LONG_S)

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


def applying(most_s: float | None) -> Callable[[Work], None]:
    """Work that changes things until it is told to stop, and then says how far it came."""

    def work(work: Work) -> None:
        work.begin_to_apply(most_s)
        is_stopped = work.stop.wait(LONG_S)
        work.send_result({"is_stopped": is_stopped})

    return work


def test_apply_is_stopped_in_order_when_its_window_closes() -> None:
    ended = run(applying(0.2))
    assert ended.result == {"is_stopped": True}
    assert (ended.is_out_of_time, ended.was_applying, ended.was_killed) == (True, True, False)


def test_apply_is_stopped_in_order_at_the_limit_of_its_check() -> None:
    assert run(applying(None), limit_s=0.2).result == {"is_stopped": True}


def test_apply_is_stopped_in_order_when_all_is_to_end_and_at_once_the_second_time() -> None:
    ends_s = time.monotonic() + 0.2
    assert run(applying(None), stops=lambda: time.monotonic() > ends_s).result == {"is_stopped": True}

    def stubborn(work: Work) -> None:
        work.begin_to_apply(None)
        time.sleep(LONG_S)

    ends_s = time.monotonic() + 0.1
    later = run(stubborn, stops=lambda: 2 if time.monotonic() > ends_s + 0.3 else time.monotonic() > ends_s)
    assert (later.result, later.was_killed) == (None, True)


def test_nothing_is_applied_once_the_process_was_asked_to_stop(tmp_path: Path) -> None:
    changed = tmp_path / "changed"

    def work(work: Work) -> None:
        try:
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
    print("asked" if work.stop.wait(30) else "over", flush=True)

run_process(work, Sleeper(), 30.0)
"""


@pytest.mark.parametrize(("stage", "said"), [("looking", ""), ("applying", "asked\n")])
def test_process_ends_in_order_when_the_one_that_watches_is_killed(stage: str, said: str) -> None:
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, stage], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "begun\n"
        watching.kill()
        # The end of the file is the end of both processes.
        assert watching.stdout.read() == said
    assert time.monotonic() - began_s < LONG_S / 3
