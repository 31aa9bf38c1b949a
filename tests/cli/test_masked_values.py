"""Probable secrets are in no output: text, JSON, saved plan, `jobs show`, `jobs list`.

Source: docs/operations/security.md, "Secrets".
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reconciler.cli.console import console
from reconciler.secrets import Redactor
from tests.cli.conftest import World, write

VALUE = "open-sesame-77"


def with_environments(text: str, environments: str) -> str:
    return text.replace("parameters: {lr", f"environments: {{{environments}}}\n      parameters: {{lr")


def test_possible_secret_in_a_removed_value_is_in_no_output_of_a_fresh_checkout(world: World) -> None:
    """In an environment; parameters and commands: tests/core/test_masking.py."""
    now = world.manifest("a")
    then = with_environments(now, f"HF_TOKEN: {VALUE}, NCCL_DEBUG: INFO")
    write(then)
    world.ends(0, "apply --yes")
    shutil.rmtree(".reconciler")
    write(now)
    text = world("plan --out saved.plan")
    outputs = [text.out, world("plan --json").out, Path("saved.plan").read_text(encoding="utf-8")]
    outputs.append(world("show saved.plan").out)
    assert not [one for one in outputs if VALUE in one]
    assert all(
        "(masked: looks like a secret; to see it: reconciler jobs show JOB --json)" in one for one in outputs
    )
    assert all("INFO" in one for one in outputs)
    assert VALUE in world("jobs show a --json").out  # the remedy named in the message


SENSITIVE = "variables: {token: {env: THE_TOKEN, sensitive: true}}\n"


@pytest.fixture
def applied(world: World) -> str:
    """A job with secrets, applied by a user who has their values; here they are missing."""
    text = with_environments(world.manifest("a", more=SENSITIVE), "T: 'x ${var.token}', B: '1'")
    text = text.replace("{lr: 0.1}", f"{{lr: 0.1, hush: {{value: {VALUE}-2, sensitive: true}}}}")
    write(text)
    world.setenv("THE_TOKEN", VALUE)
    world.ends(0, "apply --yes")
    world.patch.delenv("THE_TOKEN")
    world.patch.setattr(console, "redact", Redactor())  # another process does not know the values
    return text


def test_sensitive_variable_without_a_value_is_redacted(world: World, applied: str) -> None:
    for line in ("jobs show a", "jobs events a --json", "jobs logs a", "jobs logs a --json"):
        world.ends(0, line, lacks=VALUE)
        # Values passed to the job are hidden in its log and events.
        assert console.redact(f"the program printed x {VALUE}") == "the program printed (sensitive)"
        world.patch.setattr(console, "redact", Redactor())
    [listed] = world.ends(0, "jobs list --json", lacks=VALUE).document["items"]
    for job in (listed, world.ends(0, "jobs show a --json", lacks=VALUE).document):
        assert job["algorithm"]["environments"] == {"T": "(sensitive)", "B": "1"}
        parameters = {one["name"]: one["value"] for one in job["algorithm"]["parameters"]}
        assert parameters == {"lr": "0.1", "hush": "(sensitive)"}
