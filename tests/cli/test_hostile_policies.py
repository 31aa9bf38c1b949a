"""A policy that would run forever: each command ends within the limit, and at once on a signal."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from reconciler.errors import ExitCode
from reconciler.expressions import evaluator
from tests.cli.conftest import Reconciler, manifest, write
from tests.cli.test_interrupted import interrupted
from tests.cli.test_watch import TimeMachine
from tests.processes import TIME_OF_CHILDREN, children, children_of, children_ran_s

DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
#: 10^12 steps in half a kilobyte.
ENDLESS = "".join(f"{DIGITS}.all(v{level}, " for level in range(12)) + "true" + ")" * 12
POLICIES = f"policies:\n  - {{name: endless, deny: '{ENDLESS}'}}\n  - {{name: other, deny: job.key == 'b'}}\n"
COMMANDS = {
    "plan": "plan",
    "fleet": "plan --fleet .",
    "watch": "watch --every 1h --apply",
}


def write_stack() -> None:
    """A stack whose policy never ends."""
    write(manifest("a", "b", more=POLICIES))


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_endless_policy_denies_within_the_time_limit(reconciler: Reconciler, command: str) -> None:
    reconciler.patch.setattr(evaluator, "TIME_LIMIT_S", 0.5)
    reconciler.patch.setattr(evaluator, "time", TIME_OF_CHILDREN)
    write_stack()
    before, begun_s = children(), children_ran_s()
    result = reconciler(command)
    assert children_ran_s() - begun_s < 5
    assert result.code == ExitCode.REFUSED
    assert "it exceeds the limit of 10 s for the policies of a plan" in result.out + result.err
    assert re.search("blocked +b .*denied by other|other denies b", result.out + result.err)
    assert not re.search("blocked +a .*denied by other|other denies a", result.out + result.err)
    assert children() <= before


# Under xdist each worker has a control thread.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("command", "code"), [*((command, 143) for command in COMMANDS), ("plan", 130)])
def test_signal_ends_a_policy_at_once(reconciler: Reconciler, command: str, code: int) -> None:
    """The limit is an hour, so an end within seconds is due to the signal."""
    reconciler.patch.setattr(evaluator, "TIME_LIMIT_S", 3600.0)
    TimeMachine((), signal.SIGTERM).take_place(reconciler.patch)
    write_stack()
    evaluating: set[int] = set()

    def is_evaluating() -> bool:
        evaluating.update(evaluating_for(os.getpid()))
        return bool(evaluating)

    interrupted(reconciler, code, is_evaluating, COMMANDS[command])
    assert all(is_gone(pid) for pid in evaluating)


def evaluating_for(pid: int) -> set[int]:
    below = children_of(pid)
    below |= {one for child in below for one in children_of(child)}
    return {one for one in below if b"reconciler.expressions.worker" in command_line(one)}


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # gone meanwhile
        return b""


def is_gone(pid: int) -> bool:
    """Whether a process ends, allowing for a busy machine."""
    ends_s = time.monotonic() + 30
    while (is_there := bool(command_line(pid))) and time.monotonic() < ends_s:
        time.sleep(0.02)
    return not is_there
