"""`show` lists the sources a saved plan reads; its own record store needs confirmation.

Source: docs/reference/saved-plans.md, "Secrets".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from reconciler.plan_file import sealed
from tests.cli.conftest import World, write
from tests.cli.terminal import Terminal
from tests.cli.test_saved_plans import PLAN, TOKEN, save, with_token

SHOW, APPLY = f"show {PLAN}", f"apply --plan {PLAN}"


def edit(document: dict[str, Any], **options: Any) -> None:
    """Edit the options and reseal the plan, as an attacker could."""
    document["options"] |= options
    PLAN.write_text(json.dumps(sealed(document)), encoding="utf-8")


@pytest.fixture
def plan(world: World) -> dict[str, Any]:
    """A plan with a create that needs a secret."""
    world.setenv("A_TOKEN", "tell-nobody-9")
    write(with_token(world.manifest("a", more=TOKEN)))
    document = save(world)
    world.forget_requests()
    return document


# ── show ───────────────────────────────────────────────────────────────────────────────────────────


def test_show_lists_store_and_values_before_the_plan(world: World, plan: dict[str, Any]) -> None:
    records = "postgresql://me:${env.PGPASSWORD}@db.example.com/r?sslmode=require&host=else.example.com"
    sources = {"token": {"env": "A_TOKEN"}, "other": {"file": "values.yaml"}, "third": {"given": True}}
    sources |= {"header": {"text": "Key ${var.token}"}}
    edit(plan, records=records, sources=sources, root=".")
    result = world.ends(0, SHOW, lacks="tell-nobody-9")
    head, _, shown = result.out.partition("\n\n")
    assert head == (
        f"Root: .\nRecords: {records}\n"
        "Values to look up:\n"
        "  ${env.PGPASSWORD}\n"
        "  ${var.header} from the text Key ${var.token}\n"
        "  ${var.other} from the file values.yaml\n"
        "  ${var.third} from --var\n"
        "  ${var.token} from the environment variable A_TOKEN"
    )
    assert shown.startswith("sha256:")
    assert shown.splitlines()[1].startswith("Stack test on there")
    assert shown.endswith("Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep.\n")
    # With other formats they go to stderr.
    result = world.ends(0, f"{SHOW} --json", err="${var.token} from the environment variable A_TOKEN")
    assert result.document["stack"] == "test"


@pytest.mark.parametrize(
    "records",
    [
        "postgresql://me:s3cr3t-word${env.X}@db/r",
        "nonsense://me:s3cr3t-word@db/r",
    ],
)
def test_password_in_the_address_of_the_store_is_masked(
    world: World, plan: dict[str, Any], records: str
) -> None:
    world.setenv("X", "x")
    edit(plan, records=records)
    for line in (SHOW, f"{SHOW} --json", APPLY):
        result = world(line)
        assert "s3cr3t-word" not in result.out + result.err
        assert line == APPLY or "(sensitive)" in result.out + result.err


def test_escapes_in_sources_are_sanitized(world: World, plan: dict[str, Any]) -> None:
    sources = {"token": {"env": "A\x1b[2J\n::error::B"}}
    edit(plan, records="sqlite:///a\x1b]0;x\x07\nRecords: b", root="\x1b[1A", sources=sources)
    result = world(SHOW)
    assert "\x1b" not in result.out + result.err
    assert "\nRecords: b" not in result.out
    assert "\n::error" not in result.out


# ── prompts ────────────────────────────────────────────────────────────────────────────────────────


def test_foreign_store_is_not_connected_without_confirmation(world: World, plan: dict[str, Any]) -> None:
    connect = Mock(side_effect=psycopg.OperationalError("nobody answers"))
    world.patch.setattr(psycopg, "connect", connect)
    records = "postgresql://me:${env.A_TOKEN}@db.example.com/r"
    edit(plan, records=records)
    world.ends(3, APPLY, err=[records, "no terminal to ask for confirmation", "add --yes"])
    assert world.requests == []
    # A store given now needs no confirmation.
    world.ends(3, f"{APPLY} --records sqlite:///{Path.cwd()}/own.db", err="add --yes", lacks="own store")
    connect.assert_not_called()
    # --yes confirms what `show` shows; the store does not respond.
    world.ends(1, f"{APPLY} --yes")
    connect.assert_called()


@pytest.mark.parametrize("records", [None, "sqlite:///.reconciler/records.sqlite3"])
def test_own_store_needs_no_confirmation(world: World, plan: dict[str, Any], records: str | None) -> None:
    if records:
        edit(plan, records=records)
    world.ends(3, APPLY, out="1 to create", lacks="own store")


@pytest.mark.parametrize(("answers", "code"), [(("n",), 3), (("y", "y"), 0), (("y", "n"), 3), ((), 3)])
def test_prompt_confirms_the_store_before_the_plan(
    world: World, plan: dict[str, Any], answers: tuple[str, ...], code: int
) -> None:
    edit(plan, records="sqlite:///elsewhere.db")
    world.patch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    asked = ["sqlite:///elsewhere.db, which is not the stack's own store", "Use that store?"]
    result = world.ends(code, APPLY)
    assert all(text in " ".join(result.err.split()) for text in asked)
    assert len(world.store.jobs()) == len(world.changes) == (code == 0)
    is_used = answers[:1] == ("y",)
    assert Path("elsewhere.db").exists() is ("1 to create" in result.out) is bool(world.requests) is is_used
