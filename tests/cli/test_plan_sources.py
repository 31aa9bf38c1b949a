"""What a saved plan looks up is shown by `show`, and a record store of its own asked about.

Source: docs/saved-plans.md, "Secrets".
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.plan_file import sealed
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.terminal import run_on_terminal
from tests.cli.test_saved_plans import CHANGING, PLAN, TOKEN, save, with_token


def edit(document: dict[str, Any], **options: Any) -> None:
    """Edit the options, with a seal that fits: whoever edits a plan can compute it."""
    document["options"] |= options
    PLAN.write_text(json.dumps(sealed(document)), encoding="utf-8")


@pytest.fixture
def plan(reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A plan with a create that needs a secret."""
    monkeypatch.setenv("A_TOKEN", "tell-nobody-9")
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    document = save(reconciler)
    service.app.requests.clear()
    return document


class Listener:
    """A host of somebody else: who connects to it is counted, and gets no answer."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def foreign() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


# ── show ───────────────────────────────────────────────────────────────────────────────────────────


def test_show_says_nothing_of_sources_where_nothing_is_looked_up(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("a", url=service.url))
    plan = reconciler("plan", "--out", str(PLAN))
    assert reconciler("show", str(PLAN)).out == plan.out


def test_show_lists_store_and_values_before_the_plan(reconciler: Reconciler, plan: dict[str, Any]) -> None:
    records = "postgresql://me:${env.PGPASSWORD}@db.example.com/r?sslmode=require&host=else.example.com"
    sources = {
        "token": {"env": "A_TOKEN"},
        "other": {"file": "values.yaml"},
        "third": {"given": True},
    }
    edit(plan, records=records, sources=sources, root=".")
    said = reconciler("show", str(PLAN))
    head, _, shown = said.out.partition("\n\n")
    assert head == (
        f"Root: .\nRecords: {records}\n"
        "Values to look up:\n"
        "  ${env.PGPASSWORD}\n"
        "  ${var.other} from the file values.yaml\n"
        "  ${var.third} from --var\n"
        "  ${var.token} from the environment variable A_TOKEN"
    )
    assert shown.startswith("sha256:")
    assert shown.splitlines()[1].startswith("Stack test on there")
    assert shown.endswith("Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep.\n")
    assert "tell-nobody-9" not in said.out + said.err


@pytest.mark.parametrize(
    "records",
    [
        "postgresql://me:s3cr3t-word@db/r",
        "postgresql://me@db/r?password=s3cr3t-word",
        "postgresql://me@db/r?sslpassword=s3cr3t-word&application_name=x",
        "postgresql://me:s3cr3t-word/@db/r",
        "postgresql://me:s3cr3t-word${env.X}@db/r",
        "nonsense://me:s3cr3t-word@db/r",
    ],
)
@pytest.mark.parametrize("command", ["show", "show --json", "apply --plan"])
def test_password_in_the_address_of_the_store_is_masked(
    reconciler: Reconciler, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch, records: str, command: str
) -> None:
    monkeypatch.setenv("X", "x")
    edit(plan, records=records)
    said = reconciler(*command.split(), str(PLAN))
    assert "s3cr3t-word" not in said.out + said.err
    if command.startswith("show"):
        assert "(sensitive)" in said.out + said.err


def test_sources_go_to_stderr_beside_other_formats(reconciler: Reconciler, plan: dict[str, Any]) -> None:
    said = reconciler("show", "--json", str(PLAN))
    assert said.document["stack"] == "test"
    assert "${var.token} from the environment variable A_TOKEN" in said.err


def test_escapes_in_sources_are_not_obeyed(reconciler: Reconciler, plan: dict[str, Any]) -> None:
    sources = {"token": {"env": "A\x1b[2J\n::error::B"}}
    edit(plan, records="sqlite:///a\x1b]0;x\x07\nRecords: b", root="\x1b[1A", sources=sources)
    said = reconciler("show", str(PLAN))
    assert "\x1b" not in said.out + said.err
    assert "\nRecords: b" not in said.out
    assert "\n::error" not in said.out


# ── apply asks ─────────────────────────────────────────────────────────────────────────────────────


def test_store_of_somebody_else_is_not_asked_without_a_yes(
    reconciler: Reconciler, service: Service, plan: dict[str, Any], foreign: Listener
) -> None:
    edit(plan, records=f"postgresql://me:${{env.A_TOKEN}}@127.0.0.1:{foreign.port}/r")
    said = reconciler("apply", "--plan", str(PLAN))
    assert said.code == 3
    assert f"postgresql://me:${{env.A_TOKEN}}@127.0.0.1:{foreign.port}/r" in said.err
    assert "no terminal to ask on" in said.err
    assert "add --yes" in said.err
    assert foreign.connections == 0
    assert len(service.app.requests) == 0


def test_store_of_somebody_else_is_used_with_yes(
    reconciler: Reconciler, plan: dict[str, Any], foreign: Listener
) -> None:
    """Whoever says --yes has read what `show` shows."""
    edit(plan, records=f"postgresql://me@127.0.0.1:{foreign.port}/r")
    said = reconciler("apply", "--yes", "--plan", str(PLAN))
    assert said.code == 1, "the store does not answer"
    assert foreign.connections > 0


def test_store_that_is_named_now_is_not_asked_about(
    reconciler: Reconciler, service: Service, plan: dict[str, Any], foreign: Listener
) -> None:
    edit(plan, records=f"postgresql://me@127.0.0.1:{foreign.port}/r")
    said = reconciler("apply", "--plan", str(PLAN), "--records", f"sqlite:///{Path.cwd()}/own.db")
    assert said.code == 3
    assert "add --yes" in said.err
    assert "own store" not in said.err
    assert foreign.connections == 0


@pytest.mark.parametrize("records", [None, "sqlite:///.reconciler/records.sqlite3"])
def test_own_store_is_not_asked_about(
    reconciler: Reconciler, service: Service, plan: dict[str, Any], records: str | None
) -> None:
    if records:
        edit(plan, records=records)
    said = reconciler("apply", "--plan", str(PLAN))
    assert said.code == 3
    assert "own store" not in said.err
    assert "1 to create" in said.out


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 3), (b"y\ny\n", 0), (b"y\nn\n", 3), (b"\x04", 3)])
def test_person_is_asked_about_the_store_and_then_about_the_plan(
    reconciler: Reconciler, service: Service, plan: dict[str, Any], answer: bytes, code: int
) -> None:
    edit(plan, records="sqlite:///elsewhere.db")
    service.app.requests.clear()
    environ = {name: os.environ[name] for name in ("A_TOKEN", "MODELARTS_AUTH_TOKEN")}
    seen = run_on_terminal(
        Path.cwd(),
        *("apply", "--plan", str(PLAN)),
        environ=environ,
        interrupt_when=lambda screen: any("Use that store?" in line for line in screen),
        keys=answer,
    )
    whole = " ".join(seen.whole)
    assert seen.code == code
    assert "sqlite:///elsewhere.db, which is not the stack's own store" in " ".join(whole.split())
    assert len(service.store.jobs()) == (code == 0)
    is_used = answer.startswith(b"y")
    assert Path("elsewhere.db").exists() is is_used
    assert ("1 to create" in whole) is is_used
    assert bool(service.app.requests) is is_used
    assert bool(CHANGING & {one.operation for one in service.app.requests}) is (code == 0)
