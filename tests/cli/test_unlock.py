"""The lock as people meet it: who is refused and told what, and how a lock is broken."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.emulator import Effect, Fault
from reconciler.records.store import Records
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.lock_helpers import ROOT, OtherProcess, held_by

SECRET = "variables: {token: {env: NO_SUCH_TOKEN, sensitive: true}}\n"


def needs_a_secret(text: str) -> str:
    """The same manifest, which nobody can apply who does not have the secret."""
    assert "parameters: {lr" in text
    return text.replace("parameters: {lr", "environments: {T: '${var.token}'}\n      parameters: {lr")


class Terminal(io.StringIO):
    """Somebody who sits there and answers."""

    def isatty(self) -> bool:
        return True


# ── who is refused ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["apply", "destroy"])
def test_refused_second_apply_names_holder_since_when_place_and_time_left(
    reconciler: Reconciler, command: str
) -> None:
    write(manifest("a"))
    with held_by("bob"):
        said = reconciler(command, "--yes")
        assert reconciler("plan").code == 0  # looking needs no lock
    assert said.code == 6
    assert said.out == ""
    assert "error: another process holds the lock" in said.err
    assert re.search(
        r"why: stack test: held by bob on laptop, process 7 since 20[\dT:-]+Z, for apply; "
        r"it expires in \d\d s unless renewed",
        said.err,
    )
    assert "fix: wait until it is released; if its process is gone: reconciler unlock" in said.err


def test_page_shows_what_is_said(reconciler: Reconciler) -> None:
    page = (ROOT / "docs/records.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```text\n(error: another process holds .*?)```", page, re.S)
    write(manifest("a").replace("stack: test", "stack: vision"))
    with held_by("alice", stack="vision"):
        said = reconciler("apply", "--yes").err
    varying = r"20[\dT:-]+Z|process \d+|\d+ s "
    assert re.sub(varying, "…", said) == re.sub(varying, "…", shown)


def test_other_stacks_and_targets_are_not_held_up(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    with held_by("bob"), held_by("carol", place="http://elsewhere.example"):
        assert reconciler("apply", "--yes").code == 0


def test_holder_that_was_killed_holds_nobody_up(reconciler: Reconciler) -> None:
    write(manifest("a"))
    with OtherProcess() as other:
        other.kill()
        said = reconciler("unlock")
        assert (said.code, said.out) == (0, "No lock is held.\n")
        assert reconciler("apply", "--yes").code == 0


# ── unlock ─────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_lock_there_is_nothing_to_ask(reconciler: Reconciler) -> None:
    write(manifest("a"))
    for number in range(2):  # without a store, and none is made; and with one
        said = reconciler("unlock")
        assert (said.code, said.out, said.err) == (0, "No lock is held.\n", "")
        assert Path(".reconciler").exists() == bool(number)
        reconciler("apply", "--yes")


def test_without_a_terminal_it_names_the_flag(reconciler: Reconciler) -> None:
    write(manifest("a"))
    with held_by("bob"):
        said = reconciler("unlock")
        assert said.code == 3
        assert re.match(
            r"Stack test on local, project local, workspace 0 is locked by bob \(apply\) since 20[\dT:-]+Z, "
            r"from laptop, process 7; the lease expires in \d\d s unless renewed\.\n",
            said.err,
        )
        assert "fix: add --yes" in said.err
        assert reconciler("apply", "--yes").code == 6


def test_broken_lock_is_free(reconciler: Reconciler) -> None:
    write(manifest("a"))
    with held_by("bob"):
        said = reconciler("unlock", "--yes")
        assert (said.code, said.out) == (0, "The lock is broken.\n")
        assert reconciler("unlock").out == "No lock is held.\n"
        assert reconciler("apply", "--yes").code == 0


@pytest.mark.parametrize(("text", "code"), [("y\n", 0), ("n\n", 3), ("", 3)])
def test_it_asks(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch, text: str, code: int) -> None:
    write(manifest("a"))
    with held_by("bob"):
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        said = reconciler("unlock")
        assert (said.code, said.out) == (code, "" if code else "The lock is broken.\n")
        assert "Break the lock? [y/N]" in said.err
        assert (reconciler("apply", "--yes").code == 6) == bool(code)


@pytest.mark.parametrize(
    ("options", "at"),
    [((), "reconciler.cli.apply.confirm"), (("--yes",), "reconciler.records.lock.Locks.break_lock")],
)
def test_only_the_lock_that_was_named_is_broken(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], at: str
) -> None:
    """Before it was broken, while somebody thought about it, say, bob ended and carol began."""
    write(manifest("a"))
    bob, carol = held_by("bob"), held_by("carol")
    broken = Records.break_lock
    bob.__enter__()

    def meanwhile(*arguments: Any) -> Any:
        bob.__exit__(None, None, None)
        carol.__enter__()
        return broken(*arguments) if options else None

    monkeypatch.setattr(at, meanwhile)
    said = reconciler("unlock", *options)
    assert (said.code, said.out) == (3, "")
    assert "carol from laptop, process 7; nothing was changed" in said.err
    assert "carol" in reconciler("apply", "--yes").err
    carol.__exit__(None, None, None)


def test_neither_the_service_nor_credentials_nor_secrets_are_needed(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(needs_a_secret(manifest("a", url="http://127.0.0.1:9", more=SECRET)))
    with held_by("bob", place="http://127.0.0.1:9"):
        assert reconciler("unlock", "--yes").out == "The lock is broken.\n"
    write(manifest("a", url="http://127.0.0.1:9").replace(", project_id: p1", ""))
    assert reconciler("unlock").code == 7  # only the credentials know the project
    monkeypatch.setenv("OS_PROJECT_ID", "p1")
    with held_by("bob", place="http://127.0.0.1:9"):
        assert reconciler("unlock", "--yes").out == "The lock is broken.\n"


def test_what_the_holder_wrote_steers_no_terminal(reconciler: Reconciler) -> None:
    write(manifest("a"))
    with held_by("bob\x1b[2J"):
        assert "\x1b" not in reconciler("unlock", "--yes").err


def test_store_that_is_away_is_1(reconciler: Reconciler) -> None:
    write(manifest("a"))
    write("this is no database, " * 100, ".reconciler/records.sqlite3")
    said = reconciler("unlock", "--yes")
    assert said.code == 1
    assert "the record store cannot be read" in said.err
    assert reconciler("unlock", "--records", "ftp://x/y").code == 64
    assert reconciler("unlock", "-t", "elsewhere").code == 64


# ── the one whose lock is broken ───────────────────────────────────────────────────────────────────


def test_apply_whose_lock_is_broken_begins_nothing_more(reconciler: Reconciler, service: Service) -> None:
    """In another process. Found without connecting, and by connecting, a target names one scope."""
    url = service.url.replace("127.0.0.1", "LocalHost") + "/"
    write(manifest("a", "b", "c", "d", url=url))
    service.app.faults.add(Fault(Effect.DELAY, operation="CreateTrainingJob", count=None, delay_s=0.7))
    other = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "apply", "--yes", "--parallelism", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ends_s = time.monotonic() + 60
        while (said := reconciler("unlock")).code != 3:
            assert time.monotonic() < ends_s, said
            time.sleep(0.02)
        assert f"process {other.pid}" in said.err
        assert reconciler("apply", "--yes").code == 6
        assert reconciler("unlock", "--yes").code == 0
    finally:
        out, err = other.communicate()
    # Whether the heartbeat notices first, or a call that was about to be made.
    assert other.returncode == 6, err
    assert "the lock was lost" in out + err
    assert len(service.store.jobs()) < 3  # what was in flight has finished
    service.app.faults.clear()
    assert reconciler("apply", "--yes").code == 0
    assert len(service.store.jobs()) == 4
