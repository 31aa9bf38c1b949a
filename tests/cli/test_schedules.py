"""Schedules by the command line, on a service whose clock is not ours: docs/concepts/schedules.md.

It is 2026-08-06T07:06:40Z there, and the clock is moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.cli.conftest import Reconciler, Service, World, a_service, write

NIGHTLY = "schedule: '0 2 * * *'"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that says with each answer what time it is there."""
    with a_service(monkeypatch, tells_time=True) as service:
        yield service


def declare(world: World, lifecycle: str = "", key: str = "a") -> None:
    text = world.manifest(key)
    write(text + (f"    lifecycle: {{{lifecycle}}}\n" if lifecycle else ""))


def move_to(world: World, time: str) -> None:
    time_s = datetime.fromisoformat(f"2026-{time}Z").timestamp()
    world.service.clock.advance(seconds=time_s - world.service.clock.now_ms() / 1000)


def planned(reconciler: Reconciler) -> list[tuple[str, str]]:
    """What would be done about each key, and why; nothing that is kept."""
    actions = reconciler("plan --json").document["actions"]
    return [(one["action"], one["reason"]) for one in actions if one["action"] != "keep"]


def descriptions(world: World) -> dict[str, str]:
    jobs = (job.body["metadata"] for job in world.store.jobs())
    return {job["name"]: job["description"] for job in jobs}


def digest(cron: str, zone: str = "UTC") -> str:
    return hashlib.sha256(f"{cron} {zone}".encode()).hexdigest()[:4]


def test_adopted_job_counts_from_its_adoption(world: World) -> None:
    declare(world)
    world("apply --yes")
    world("release a --yes")
    move_to(world, "08-08T09:00:00")
    declare(world, NIGHTLY)
    [job] = world.store.jobs()
    world.ends(0, "adopt a", job.id, "--yes")
    assert f".s{digest('0 2 * * *')}" in descriptions(world)["a"]
    assert planned(world) == []
    move_to(world, "08-09T02:00:02")
    assert planned(world) == [("create", "scheduled")]
