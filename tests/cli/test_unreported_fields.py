"""A field the service stores but does not report: sent once, then trusted, with a warning."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Result, Service, World, a_service, write

UPDATE = "ChangeTrainingJobDescription"
BELIEVED = "the service does not report spec.notification; assuming the value last sent"
UNRECORDED = (
    "the service does not report spec.notification; no record of what was sent; assuming the declared value"
)


@pytest.fixture(params=[("spec.notification",), ()], ids=["not echoed", "echoed"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service over HTTP that may or may not report the notification."""
    with a_service(monkeypatch, unreported=request.param) as service:
        yield service


only_unechoed = pytest.mark.parametrize("service", [("spec.notification",)], indirect=True)


def declare(world: World, *events: str, topic: str = "urn:smn:x", more: str = "") -> None:
    """Write a manifest whose job notifies a topic of these events."""
    told = f"      notification: {{topic_urn: '{topic}', events: [{', '.join(events)}]}}\n"
    write(world.manifest("a", more=more) + (told if events else ""))


def actions(result: Result) -> list[str]:
    return [action["action"] for action in result.document["actions"]]


def warnings(result: Result) -> list[str]:
    return [warning["why"] for warning in result.document["warnings"]]


def sent(service: Service) -> object:
    [job] = service.store.jobs()
    return job.body["spec"].get("notification")


def updates(world: World) -> int:
    return sum(request.operation == UPDATE for request in world.service.app.requests)


@pytest.mark.parametrize("before", [(), ("JobFailed",)], ids=["added", "edited"])
def test_edit_of_an_unreported_field_is_sent_once(world: World, before: tuple[str, ...]) -> None:
    declare(world, *before)
    world.ends(0, "apply --yes")
    world.time.sleep(60)
    declare(world, "JobCompleted")
    assert actions(world("plan --json")) == ["update"]
    world.ends(0, "apply --yes")
    assert sent(world.service) == {"topic_urn": "urn:smn:x", "events": ["JobCompleted"]}
    for _ in range(2):
        result = world("plan --json")
        assert actions(result) == ["keep"]
        assert warnings(result) == ([BELIEVED] if world.store.unreported else [])
        world.ends(0, "apply --yes")
    assert updates(world) == 1


@only_unechoed
def test_fresh_checkout_keeps_unreported_fields_with_a_warning(world: World) -> None:
    declare(world, "JobFailed")
    world.ends(0, "apply --yes")
    shutil.rmtree(Path(".reconciler"))
    for _ in range(2):
        result = world("plan --json --detailed-exitcode")
        assert (result.code, actions(result), warnings(result)) == (0, ["keep"], [UNRECORDED])


@only_unechoed
def test_unreported_field_is_no_drift(world: World) -> None:
    declare(world, "JobFailed")
    world.ends(0, "apply --yes")
    world.ends(0, "drift")
    declare(world, "JobCompleted")
    result = world("drift --json")
    assert (result.code, result.document["drift"]) == (0, [])
    assert [pending["key"] for pending in result.document["pending"]] == ["a"]
