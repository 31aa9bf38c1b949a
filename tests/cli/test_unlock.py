"""The lock from the command line: refusals, and `unlock`."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator import Effect, Fault
from reconciler.records.store import Records
from tests.cli.conftest import Reconciler, Service, World, manifest, write
from tests.cli.lock_helpers import ROOT, held_by
from tests.cli.terminal import Terminal, start

SECRET = "variables: {token: {env: NO_SUCH_TOKEN, sensitive: true}}\n"
AWAY = "http://127.0.0.1:9"
BROKEN, FREE = "The lock is broken.\n", "No lock is held.\n"


@pytest.fixture
def stack(reconciler: Reconciler) -> Reconciler:
    """The command line beside a manifest."""
    write(manifest("a"))
    return reconciler


# ── refused ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["apply", "destroy"])
def test_refused_second_apply_names_holder_start_host_and_expiry(stack: Reconciler, command: str) -> None:
    fix = "fix: wait until it is released; if its process is gone: reconciler unlock"
    with held_by("bob"):
        result = stack.ends(6, f"{command} --yes", out="", err=["error: another process holds the lock", fix])
        stack.ends(0, "plan")  # reading needs no lock
    assert re.search(
        r"why: stack test: held by bob on laptop, process 7 since 20[\dT:-]+Z, for apply; "
        r"it expires in \d\d s unless renewed",
        result.err,
    )


def test_lock_error_equals_the_documented_one(reconciler: Reconciler) -> None:
    page = (ROOT / "docs/operations/records.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```text\n(error: another process holds .*?)```", page, re.S)
    write(manifest("a").replace("stack: test", "stack: vision"))
    with held_by("alice", stack="vision"):
        output = reconciler("apply --yes").err
    varying = r"20[\dT:-]+Z|process \d+|\d+ s "
    assert re.sub(varying, "…", output) == re.sub(varying, "…", shown)


def test_lock_does_not_block_other_stacks_and_targets(world: World) -> None:
    world.write("a")
    with held_by("bob"), held_by("carol", place="http://elsewhere.example"):
        world.ends(0, "apply --yes")


# ── unlock ─────────────────────────────────────────────────────────────────────────────────────────


def test_unlock_without_a_lock_needs_no_confirmation(stack: Reconciler) -> None:
    for number in range(2):  # without a store, which is not created; then with one
        result = stack("unlock")
        assert (result.code, result.out, result.err) == (0, FREE, "")
        assert Path(".reconciler").exists() == bool(number)
        stack("apply --yes")


def test_unlock_without_a_terminal_needs_the_flag(stack: Reconciler) -> None:
    with held_by("bob"):
        result = stack.ends(3, "unlock", err="fix: add --yes")
        assert re.match(
            r"Stack test on local \(emulator: jobs are pretended\) is locked by bob \(apply\) since "
            r"20[\dT:-]+Z, from laptop, process 7; the lease expires in \d\d s unless renewed\.\n",
            result.err,
        )
        stack.ends(6, "apply --yes")
        assert stack.ends(0, "unlock --yes").out == BROKEN
        assert stack("unlock").out == FREE
        stack.ends(0, "apply --yes")


@pytest.mark.parametrize(("text", "code"), [("y\n", 0), ("n\n", 3), ("", 3)])
def test_unlock_prompts_before_breaking_the_lock(stack: Reconciler, text: str, code: int) -> None:
    with held_by("bob\x1b[2J"):
        stack.patch.setattr(sys, "stdin", Terminal(text))
        result = stack.ends(code, "unlock", err="Break the lock? [y/N]", lacks="\x1b")
        assert result.out == ("" if code else BROKEN)
        assert (stack("apply --yes").code == 6) == bool(code)


@pytest.mark.parametrize(
    ("options", "at"),
    [("", "reconciler.cli.apply.confirm"), ("--yes", "reconciler.records.lock.Locks.break_lock")],
)
def test_only_the_named_lock_is_broken(stack: Reconciler, options: str, at: str) -> None:
    """During the prompt bob's lock ended and carol took hers."""
    bob, carol = held_by("bob"), held_by("carol")
    broken = Records.break_lock
    bob.__enter__()

    def meanwhile(*arguments: Any) -> Any:
        bob.__exit__(None, None, None)
        carol.__enter__()
        return broken(*arguments) if options else None

    stack.patch.setattr(at, meanwhile)
    stack.ends(3, f"unlock {options}", out="", err="carol from laptop, process 7; nothing was changed")
    assert "carol" in stack("apply --yes").err
    carol.__exit__(None, None, None)


def test_command_needs_no_service_credentials_or_secrets(reconciler: Reconciler) -> None:
    text = manifest("a", url=AWAY, more=SECRET)
    write(text.replace("parameters: {lr", "environments: {T: '${var.token}'}\n      parameters: {lr"))
    with held_by("bob", place=AWAY):
        assert reconciler("unlock --yes").out == BROKEN
    write(manifest("a", url=AWAY).replace(", project_id: p1", ""))
    reconciler.ends(7, "unlock")  # only the credentials know the project
    reconciler.setenv("OS_PROJECT_ID", "p1")
    with held_by("bob", place=AWAY):
        assert reconciler("unlock --yes").out == BROKEN


def test_invalid_store_or_target_is_wrong_usage(stack: Reconciler) -> None:
    stack.ends(64, "unlock --records ftp://x/y")
    stack.ends(64, "unlock -t elsewhere")


# ── broken lock ────────────────────────────────────────────────────────────────────────────────────


def test_apply_with_a_broken_lock_starts_nothing_more(reconciler: Reconciler, service: Service) -> None:
    """In another process. A target has the same scope with and without a connection."""
    write(manifest(*"abcd", url=service.url.replace("127.0.0.1", "LocalHost") + "/"))
    service.app.faults.add(Fault(Effect.DELAY, operation="CreateTrainingJob", count=None, delay_s=0.5))
    other = start("apply", "--yes", "--parallelism", "1")
    try:
        ends_s = time.monotonic() + 60
        while (result := reconciler("unlock")).code != 3:
            assert time.monotonic() < ends_s, result
            time.sleep(0.02)
        assert f"process {other.pid}" in result.err
        reconciler.ends(6, "apply --yes")
        reconciler.ends(0, "unlock --yes")
    finally:
        out, err = other.communicate()
    # Detected first by the heartbeat, or by a call about to be made.
    assert other.returncode == 6, err
    assert "the lock was lost" in out + err
    assert len(service.store.jobs()) < 3  # calls in flight have finished
    service.app.faults.clear()
    reconciler.ends(0, "apply --yes")
    assert len(service.store.jobs()) == 4
