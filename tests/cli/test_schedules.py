"""Schedules by the command line, on a service whose clock is not ours: docs/semantics.md, "Schedules".

It is 2026-08-06T07:06:40Z there, and the clock is moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from reconciler.emulator import ManualClock, Store, create_app, running
from tests.cli.conftest import Reconciler, Service, manifest, write

NIGHTLY = "schedule: '0 2 * * *'"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that says with each answer what time it is there."""
    clock = ManualClock()
    with Store(clock=clock) as store:
        app = create_app(store, project_id="p1", token="tell-nobody-1", tells_time=True)
        monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
        with running(app) as url:
            yield Service(url, app, clock)


def declare(service: Service, lifecycle: str = "", key: str = "a") -> None:
    text = manifest(key, url=service.url)
    write(text + (f"    lifecycle: {{{lifecycle}}}\n" if lifecycle else ""))


def move_to(service: Service, time: str) -> None:
    time_s = datetime.fromisoformat(f"2026-{time}Z").timestamp()
    service.clock.advance(seconds=time_s - service.clock.now_ms() / 1000)


def planned(reconciler: Reconciler) -> list[tuple[str, str]]:
    """What would be done about each key, and why; nothing that is kept."""
    actions = reconciler("plan", "--json").document["actions"]
    return [(one["action"], one["reason"]) for one in actions if one["action"] != "keep"]


def descriptions(service: Service) -> dict[str, str]:
    jobs = (job.body["metadata"] for job in service.store.jobs())
    return {job["name"]: job["description"] for job in jobs}


def digest(cron: str, zone: str = "UTC") -> str:
    return hashlib.sha256(f"{cron} {zone}".encode()).hexdigest()[:4]


def test_schedule_is_part_of_the_marker_of_a_new_job(reconciler: Reconciler, service: Service) -> None:
    declare(service, NIGHTLY)
    assert reconciler("apply", "--yes").code == 0
    assert descriptions(service)["a"].endswith(f".s{digest('0 2 * * *')}")
    assert planned(reconciler) == []


@pytest.mark.parametrize(
    ("before", "after", "due"),
    [
        ("", NIGHTLY, "08-09T02:00:00"),
        ("schedule: '0 8 * * *'", NIGHTLY, "08-09T02:00:00"),
        (NIGHTLY, f"{NIGHTLY}, timezone: Asia/Tokyo", "08-08T17:00:00"),
    ],
    ids=["added", "cron edited", "time zone edited"],
)
def test_schedule_that_is_added_or_edited_starts_nothing_before_its_next_time(
    reconciler: Reconciler, service: Service, before: str, after: str, due: str
) -> None:
    declare(service, before)
    assert reconciler("apply", "--yes").code == 0
    move_to(service, "08-08T09:00:00")
    declare(service, after)
    plan = reconciler("plan", "--detailed-exitcode")
    assert plan.code == 2
    assert "marker.schedule changed; the schedule counts from now on" in plan.out
    [pending] = reconciler("drift", "--json").document["pending"]
    assert "marker.schedule changed" in pending["detail"]
    assert planned(reconciler) == [("update", "marker_changed")]
    assert reconciler("apply", "--yes").code == 0
    at_s = int(datetime(2026, 8, 8, 9, tzinfo=UTC).timestamp())
    since_s = int(descriptions(service)["a"][-8:], 16)
    assert at_s - 2 <= since_s <= at_s
    assert planned(reconciler) == []
    move_to(service, due)
    service.clock.advance(seconds=2)
    assert reconciler("apply", "--yes").code == 0
    assert set(descriptions(service)) == {"a", "a-r2"}
    assert planned(reconciler) == []


def test_schedule_that_is_removed_goes_from_the_marker(reconciler: Reconciler, service: Service) -> None:
    declare(service, NIGHTLY)
    reconciler("apply", "--yes")
    move_to(service, "08-07T05:00:00")
    declare(service)
    assert planned(reconciler) == [("update", "marker_changed")]
    assert reconciler("apply", "--yes").code == 0
    assert ".s" not in descriptions(service)["a"]
    assert planned(reconciler) == []


def test_adopted_job_counts_from_its_adoption(reconciler: Reconciler, service: Service) -> None:
    declare(service)
    reconciler("apply", "--yes")
    reconciler("release", "a", "--yes")
    move_to(service, "08-08T09:00:00")
    declare(service, NIGHTLY)
    [job] = service.store.jobs()
    adopted = reconciler("adopt", "a", job.id, "--yes")
    assert adopted.code == 0, adopted.err
    assert f".s{digest('0 2 * * *')}" in descriptions(service)["a"]
    assert planned(reconciler) == []
    move_to(service, "08-09T02:00:02")
    assert planned(reconciler) == [("create", "scheduled")]


def test_time_that_nobody_started_in_time_is_missed(reconciler: Reconciler, service: Service) -> None:
    declare(service, f"{NIGHTLY}, starting_deadline: 30m")
    reconciler("apply", "--yes")
    move_to(service, "08-07T02:29:00")
    assert reconciler("drift").code == 0
    assert planned(reconciler) == [("create", "scheduled")]
    move_to(service, "08-07T02:31:00")
    assert planned(reconciler) == []
    drift = reconciler("drift", "--json")
    assert drift.code == 2
    [entry] = drift.document["drift"]
    assert (entry["class"], entry["began_at"]) == ("missed", "2026-08-07T02:00:00Z")
    assert entry["detail"] == "scheduled for 2026-08-07T02:00 UTC, and not started in time"
    move_to(service, "08-08T02:00:02")
    assert reconciler("apply", "--yes").code == 0
    assert reconciler("drift").code == 0


def test_job_is_replaced_when_the_clock_of_the_service_has_come_to_the_time(
    reconciler: Reconciler, service: Service
) -> None:
    """Ours is months ahead."""
    declare(service, f"{NIGHTLY}, overlap: replace")
    reconciler("apply", "--yes")
    [job] = service.store.jobs()
    service.store.hold(job.id)
    move_to(service, "08-07T01:59:58")
    assert planned(reconciler) == []
    assert reconciler("apply", "--yes").code == 0
    assert set(descriptions(service)) == {"a"}
    move_to(service, "08-07T02:00:02")
    assert planned(reconciler) == [("replace", "scheduled")]


def test_longest_description_leaves_room_for_the_schedule(reconciler: Reconciler, service: Service) -> None:
    # 256 without a space, and without the longest marker of stack and key
    longest = "reconciler.test.a.r9999.b000000000000.id00000000.s000000000000.protected.stopped"
    room = 256 - 1 - len(longest)
    text = manifest("a", url=service.url)
    write(text.replace("a of the test", "x" * room))
    assert reconciler("validate").code == 0
    write(text.replace("a of the test", "x" * (room + 1)))
    said = reconciler("validate")
    assert said.code == 65
    assert f"at most {room} are allowed" in said.err
