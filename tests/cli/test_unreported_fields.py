"""A field that the service keeps and does not echo: sent once, then believed, and said so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.emulator import ManualClock, Store, create_app, running
from tests.cli.conftest import Reconciler, Said, Service, manifest, write

UPDATE = "ChangeTrainingJobDescription"
BELIEVED = "the service does not report spec.notification; assuming the value last sent"
UNRECORDED = (
    "the service does not report spec.notification; no record of what was sent; assuming the declared value"
)


@pytest.fixture(params=[("spec.notification",), ()], ids=["not echoed", "echoed"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service over HTTP, that echoes the notification or does not."""
    clock = ManualClock()
    with Store(clock=clock, unreported=request.param) as store:
        app = create_app(store, project_id="p1", token="tell-nobody-1")
        monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
        with running(app) as url:
            yield Service(url, app, clock)


only_unechoed = pytest.mark.parametrize("service", [("spec.notification",)], indirect=True)


def declare(service: Service, *events: str, topic: str = "urn:smn:x", more: str = "") -> None:
    """Write a manifest whose job tells a topic of these events."""
    told = f"      notification: {{topic_urn: '{topic}', events: [{', '.join(events)}]}}\n"
    write(manifest("a", url=service.url, more=more) + (told if events else ""))


def actions(said: Said) -> list[str]:
    return [action["action"] for action in said.document["actions"]]


def warnings(said: Said) -> list[str]:
    return [warning["why"] for warning in said.document["warnings"]]


def sent(service: Service) -> object:
    [job] = service.store.jobs()
    return job.body["spec"].get("notification")


def updates(service: Service) -> int:
    return sum(request.operation == UPDATE for request in service.app.requests)


def test_what_was_sent_at_create_is_kept(reconciler: Reconciler, service: Service) -> None:
    declare(service, "JobFailed")
    assert reconciler("apply", "--yes").code == 0
    said = reconciler("plan", "--json", "--detailed-exitcode")
    assert (said.code, actions(said)) == (0, ["keep"])
    assert warnings(said) == ([BELIEVED] if service.store.unreported else [])


@pytest.mark.parametrize("before", [(), ("JobFailed",)], ids=["added", "edited"])
def test_edit_is_sent_once(reconciler: Reconciler, service: Service, before: tuple[str, ...]) -> None:
    declare(service, *before)
    assert reconciler("apply", "--yes").code == 0
    service.clock.advance(seconds=60)
    declare(service, "JobCompleted")
    assert actions(reconciler("plan", "--json")) == ["update"]
    assert reconciler("apply", "--yes").code == 0
    assert sent(service) == {"topic_urn": "urn:smn:x", "events": ["JobCompleted"]}
    for _ in range(2):
        said = reconciler("plan", "--json")
        assert actions(said) == ["keep"]
        assert warnings(said) == ([BELIEVED] if service.store.unreported else [])
        assert reconciler("apply", "--yes").code == 0
    assert updates(service) == 1


@only_unechoed
def test_update_says_what_the_service_does_not_report(reconciler: Reconciler, service: Service) -> None:
    declare(service)
    assert reconciler("apply", "--yes").code == 0
    declare(service, "JobFailed")
    said = reconciler("apply", "--yes")
    assert "spec.notification sent; the service does not report it" in said.out


@only_unechoed
def test_fresh_checkout_keeps_with_a_warning(reconciler: Reconciler, service: Service) -> None:
    declare(service, "JobFailed")
    assert reconciler("apply", "--yes").code == 0
    shutil.rmtree(Path(".reconciler"))
    for _ in range(2):
        said = reconciler("plan", "--json", "--detailed-exitcode")
        assert (said.code, actions(said), warnings(said)) == (0, ["keep"], [UNRECORDED])


@only_unechoed
def test_another_edit_sends_the_field_along_and_is_done(reconciler: Reconciler, service: Service) -> None:
    declare(service, "JobFailed")
    assert reconciler("apply", "--yes").code == 0
    text = Path("jobs.yaml").read_text(encoding="utf-8")
    reconciler.apply(text.replace("a of the test", "another text"))
    assert actions(reconciler("plan", "--json")) == ["keep"]
    assert updates(service) == 1


@only_unechoed
def test_drift_of_what_is_not_reported_is_none(reconciler: Reconciler, service: Service) -> None:
    declare(service, "JobFailed")
    assert reconciler("apply", "--yes").code == 0
    assert reconciler("drift").code == 0
    declare(service, "JobCompleted")
    said = reconciler("drift", "--json")
    assert (said.code, said.document["drift"]) == (0, [])
    assert [pending["key"] for pending in said.document["pending"]] == ["a"]


@only_unechoed
def test_secret_in_it_is_never_shown(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "urn:smn:tell-nobody-2")
    variables = "variables:\n  topic: {env: TOPIC, sensitive: true}\n"
    declare(service, "JobFailed", topic="${var.topic}", more=variables)
    assert reconciler("apply", "--yes").code == 0
    said = reconciler("plan", "--json")
    assert actions(said) == ["keep"]
    declare(service, "JobFailed")
    said = reconciler("plan", "--json")
    assert actions(said) == ["update"]
    assert "tell-nobody-2" not in said.out
