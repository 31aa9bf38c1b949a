"""Stopping, looking and unlocking rest on no secret's value (docs/semantics.md, "Secrets")."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.cli.conftest import Reconciler, Service, manifest, write

SECRET = "tell-nobody-7"
VARIABLES = (
    "variables: {token: {env: THE_TOKEN, sensitive: true}, topic: {env: THE_TOPIC, sensitive: true}}\n"
)
NEEDS_NONE = ["drift", "destroy --yes", "history", "history a", "unlock --yes", "jobs list", "validate"]


def with_secrets(text: str) -> str:
    """Each job holds a secret in what the digest covers, and one in what can be changed on the job."""
    text = text.replace(
        "parameters: {lr", "environments: {T: 'Bearer ${var.token} $${x}'}\n      parameters: {lr"
    )
    return text.replace(
        "    spec:\n",
        "    spec:\n      notification: {topic_urn: 'urn:smn:r:p:${var.topic}', events: [JobFailed]}\n",
    )


@pytest.fixture(autouse=True)
def applied(reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs, made by somebody who had the secrets; we have not."""
    write(with_secrets(manifest("a", "b", url=service.url, more=VARIABLES)))
    monkeypatch.setenv("THE_TOKEN", SECRET)
    monkeypatch.setenv("THE_TOPIC", "tell-nobody-8")
    assert reconciler("apply", "--yes").code == 0
    monkeypatch.delenv("THE_TOKEN")
    monkeypatch.delenv("THE_TOPIC")


@pytest.mark.parametrize("command", NEEDS_NONE)
def test_no_value_of_a_secret_is_needed(reconciler: Reconciler, command: str) -> None:
    said = reconciler(*command.split(), *(["--timeout", "1s"] if "destroy" in command else []))
    assert said.code in (0, 5), said.err  # the emulator's clock stands still, so termination may lag
    assert "without a value" not in said.err


@pytest.mark.parametrize("command", ["plan", "apply --yes"])
def test_what_may_create_needs_it(reconciler: Reconciler, command: str) -> None:
    said = reconciler(*command.split())
    assert said.code == 65
    assert "variable without a value" in said.err


@pytest.mark.parametrize("command", ["drift", "destroy --yes", "history", "unlock --yes", "validate"])
def test_value_that_is_not_sensitive_is_needed_all_the_same(
    reconciler: Reconciler, service: Service, command: str
) -> None:
    text = with_secrets(manifest("a", "b", url=service.url, more=VARIABLES))
    write(text.replace(", sensitive: true", "", 1))
    said = reconciler(*command.split())
    assert said.code == 65
    assert '"token" has no value' in said.err


def test_destroy_ends_the_jobs_without_a_secret(reconciler: Reconciler, service: Service) -> None:
    reconciler("destroy", "--yes", "--timeout", "1s")
    stopped = [served.operation for served in service.app.requests].count("StopTrainingJob")
    assert stopped == 2


@pytest.mark.parametrize("forgets", [False, True], ids=["with its history", "in a fresh checkout"])
def test_what_holds_a_secret_is_no_drift_and_what_does_not_is_compared(
    reconciler: Reconciler, service: Service, forgets: bool
) -> None:
    if forgets:
        shutil.rmtree(".reconciler")
    assert reconciler("drift").code == 0
    job = next(job for job in service.store.jobs() if job.body["metadata"]["name"] == "a")

    def edit(body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        metadata["description"] = "by hand " + metadata["description"].partition(" of the test ")[2]

    service.store.edit(job.id, edit)
    said = reconciler("drift", "--json")
    assert said.code == 2
    assert [(found["key"], found["class"]) for found in said.document["drift"]] == [("a", "modified")]
    assert SECRET not in said.out


def test_records_whose_address_needs_a_secret_are_away_and_stop_no_emergency_stop(
    reconciler: Reconciler, service: Service
) -> None:
    records = "records: 'postgresql://u:${var.token}@127.0.0.1:9/d'\n"
    write(with_secrets(manifest("a", "b", url=service.url, more=VARIABLES + records)))
    said = reconciler("destroy", "--yes", "--timeout", "1s")
    assert said.code == 1
    assert "variable without a value" in said.err
    said = reconciler("destroy", "--yes", "--timeout", "1s", "--without-records")
    assert said.code in (0, 5), said.err
    assert [served.operation for served in service.app.requests].count("StopTrainingJob") == 2
