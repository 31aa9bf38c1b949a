"""Schedules from the command line, on a service with its own clock: docs/concepts/schedules.md.

Its time starts at 2026-08-06T07:06:40Z, and is advanced by the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Service, World, a_service, write

DAY_S = 86_400


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that reports its time with each response."""
    with a_service(monkeypatch, tells_time=True) as service:
        yield service


def planned(world: World) -> list[tuple[str, str]]:
    """Return action and reason of each key that is not kept."""
    actions = world("plan --json").document["actions"]
    return [(one["action"], one["reason"]) for one in actions if one["action"] != "keep"]


def test_schedule_of_an_adopted_job_counts_from_its_adoption(world: World) -> None:
    world.apply(world.manifest("a"))
    world.ends(0, "release a --yes")
    world.service.clock.advance(seconds=2 * DAY_S)
    write(world.manifest("a") + "    lifecycle: {schedule: '0 2 * * *'}\n")
    world.ends(0, "adopt a", world.job("a").id, "--yes")
    digest = hashlib.sha256(b"0 2 * * * UTC").hexdigest()[:4]
    assert f".s{digest}" in world.descriptions()["a"]
    assert planned(world) == []
    world.service.clock.advance(seconds=DAY_S * 0.8)  # past two o'clock
    assert planned(world) == [("create", "scheduled")]
