"""A policy that would run for ever: each command ends within the limit, and at once on a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import reconciler as api
from reconciler.errors import ExitCode
from reconciler.expressions import evaluator
from tests.cli.conftest import Reconciler, manifest, write
from tests.processes import TIME_OF_CHILDREN, children, children_of, children_ran_s

ROOT = Path(__file__).parents[2]
DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
#: 10^12 steps in half a kilobyte.
ENDLESS = "".join(f"{DIGITS}.all(v{level}, " for level in range(12)) + "true" + ")" * 12
POLICIES = f"policies:\n  - {{name: endless, deny: '{ENDLESS}'}}\n  - {{name: other, deny: job.key == 'b'}}\n"
#: The program, with a limit of an hour: what ends within seconds ends by a signal.
WITHOUT_LIMIT = """\
from reconciler.__main__ import main
from reconciler.expressions import evaluator
evaluator.TIME_LIMIT_S = 3600.0
main()
"""
EXITS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
COMMANDS = {
    "plan": ("plan",),
    "apply": ("apply", "--yes"),
    "why": ("why", "a"),
    "validate": ("validate",),
    "review": ("review", "base", "head"),
    "policies": ("policies", "test", "."),
    "fleet": ("plan", "--fleet", "."),
    "watch": ("watch", "--every", "1h", "--apply"),
}


def write_stack() -> None:
    """A stack whose policy never ends: here, and as the HEAD of a review."""
    write(manifest("a", "b", more=POLICIES))
    write("job: {}\nexpect: {}\n", "cases/one.yaml")
    write(manifest("a"), "base/jobs.yaml")
    write(manifest("a", "b", more=POLICIES), "head/jobs.yaml")


@pytest.mark.parametrize("command", ["plan", "validate", "policies"])
def test_policy_that_never_ends_denies_within_the_limit(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(evaluator, "TIME_LIMIT_S", 1.0)
    monkeypatch.setattr(evaluator, "time", TIME_OF_CHILDREN)
    write_stack()
    before, begun_s = children(), children_ran_s()
    said = reconciler(*COMMANDS[command])
    assert children_ran_s() - begun_s < 5
    assert said.code == (ExitCode.FAILED if command == "policies" else ExitCode.REFUSED)
    assert "it exceeds the limit of 10 s for the policies of a plan" in said.out + said.err
    if command != "policies":
        assert "other denies b" in said.err
        assert "other denies a" not in said.err
    assert children() <= before


@pytest.mark.parametrize(
    ("command", "number"),
    [*((command, signal.SIGTERM) for command in COMMANDS), ("plan", signal.SIGINT), ("plan", signal.SIGHUP)],
)
def test_signal_ends_a_policy_at_once(command: str, number: int) -> None:
    write_stack()
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_LIMIT, *COMMANDS[command]],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        evaluating = wait_for_evaluation(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == EXITS[signal.Signals(number)], err
    assert "Traceback" not in err
    assert all(is_gone(pid) for pid in evaluating)


def wait_for_evaluation(pid: int) -> set[int]:
    """The processes that evaluate for a command, once one has done so for a while."""
    ends_s = time.monotonic() + 30
    while time.monotonic() < ends_s:
        found = evaluating_for(pid)
        time.sleep(0.5)
        if still := found & evaluating_for(pid):
            return still
    raise AssertionError("nothing is evaluated")


def evaluating_for(pid: int) -> set[int]:
    below = children_of(pid)
    below |= {one for child in below for one in children_of(child)}
    return {one for one in below if b"reconciler.expressions.worker" in command_line(one)}


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has gone meanwhile
        return b""


def is_gone(pid: int) -> bool:
    """Whether a process ends, however busy the machine is."""
    ends_s = time.monotonic() + 30
    while (is_there := bool(command_line(pid))) and time.monotonic() < ends_s:
        time.sleep(0.02)
    return not is_there


def test_session_in_python_ends_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "TIME_LIMIT_S", 1.0)
    write_stack()
    with api.load("jobs.yaml").connect() as session:
        plan = session.plan()
    assert not plan.applyable
