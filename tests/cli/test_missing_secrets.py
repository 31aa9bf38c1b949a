"""Stopping, reading and unlocking need no secret's value (docs/operations/security.md, "Secrets")."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.cli.conftest import World, write

SECRET = "tell-nobody-7"
VARIABLES = (
    "variables: {token: {env: THE_TOKEN, sensitive: true}, topic: {env: THE_TOPIC, sensitive: true}}\n"
)
NEEDS_NONE = [
    *("drift", "history", "history a", "unlock --yes", "jobs list", "validate"),
    "destroy --yes --timeout 1s",
]


def with_secrets(text: str) -> str:
    """Add a secret to an immutable and to a mutable field of each job."""
    text = text.replace(
        "parameters: {lr", "environments: {T: 'Bearer ${var.token} $${x}'}\n      parameters: {lr"
    )
    return text.replace(
        "    spec:\n",
        "    spec:\n      notification: {topic_urn: 'urn:smn:r:p:${var.topic}', events: [JobFailed]}\n",
    )


@pytest.fixture(autouse=True)
def applied(world: World) -> None:
    """Two jobs, applied by a user who has the secrets; here they are missing."""
    write(with_secrets(world.manifest("a", "b", more=VARIABLES)))
    world.setenv("THE_TOKEN", SECRET)
    world.setenv("THE_TOPIC", "tell-nobody-8")
    world.ends(0, "apply --yes")
    world.patch.delenv("THE_TOKEN")
    world.patch.delenv("THE_TOPIC")


def test_only_commands_that_may_create_need_the_values_of_secrets(world: World) -> None:
    for line in ("plan", "apply --yes"):
        world.ends(65, line, err="variable without a value")
    for line in NEEDS_NONE:
        result = world(line)
        assert result.code in (0, 5), result.err  # the emulator's clock is stopped, so termination may lag
        assert "without a value" not in result.err
    assert world.requests.count("StopTrainingJob") == 2
    text = with_secrets(world.manifest("a", "b", more=VARIABLES))
    write(text.replace(", sensitive: true", "", 1))
    for line in ("drift", "destroy --yes", "history", "unlock --yes", "validate"):
        world.ends(65, line, err='"token" has no value')


@pytest.mark.parametrize("forgets", [False, True], ids=["with its history", "in a fresh checkout"])
def test_drift_compares_fields_without_secrets_if_values_are_missing(world: World, forgets: bool) -> None:
    if forgets:
        shutil.rmtree(".reconciler")
    world.ends(0, "drift")
    job = next(job for job in world.store.jobs() if job.body["metadata"]["name"] == "a")

    def edit(body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        metadata["description"] = "by hand " + metadata["description"].partition(" of the test ")[2]

    world.store.edit(job.id, edit)
    result = world.ends(2, "drift --json")
    assert [(found["key"], found["class"]) for found in result.document["drift"]] == [("a", "modified")]
    assert SECRET not in result.out


def test_records_url_with_a_missing_secret_does_not_block_destroy_without_records(world: World) -> None:
    records = "records: 'postgresql://u:${var.token}@127.0.0.1:9/d'\n"
    write(with_secrets(world.manifest("a", "b", more=VARIABLES + records)))
    world.ends(1, "destroy --yes --timeout 1s", err="variable without a value")
    result = world("destroy --yes --timeout 1s --without-records")
    assert result.code in (0, 5), result.err
    assert world.requests.count("StopTrainingJob") == 2
