"""The life cycle of a job: its phase at each second."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Durations, ManualClock, Store, create_app
from tests.emulator.conftest import Api, a_job


def status(client: Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v2/project/training-jobs/{job_id}").json["status"]
    return found


@pytest.mark.parametrize(
    ("seconds", "phase", "secondary"),
    [
        (0, "Creating", "Creating"),
        (0.999, "Creating", "Creating"),
        (1, "Pending", "Queuing"),
        (2.999, "Pending", "Queuing"),
        (3, "Running", "Running"),
        (602.999, "Running", "Running"),
        (603, "Completed", "Completed"),
        (1e6, "Completed", "Completed"),
    ],
)
def test_phase_of_a_job_follows_from_its_age(api: Api, seconds: float, phase: str, secondary: str) -> None:
    job_id = api.create()
    api.clock.advance(seconds=seconds)
    told = status(api, job_id)
    assert (told["phase"], told["secondary_phase"]) == (phase, secondary)


def test_frequent_reads_do_not_change_the_phases(api: Api) -> None:
    # The job between them is a variant.
    watched, _, alone = api.create("watched"), api.create("between"), api.create("alone")
    for _ in range(100):
        api.clock.advance(seconds=1)
        status(api, watched)
    assert status(api, watched) == status(api, alone)


def test_job_status_has_start_duration_and_end(api: Api) -> None:
    born = api.clock.now_ms()
    job_id = api.create(edits={"spec.resource.node_count": 2})
    api.clock.advance(minutes=5)
    assert status(api, job_id) == {
        "phase": "Running",
        "secondary_phase": "Running",
        "duration": 297_000,
        "node_count_metrics": [[born + 1000, 0], [born + 3000, 2]],
        "tasks": ["worker-0", "worker-1"],
        "start_time": born + 3000,
        "running_records": [{"start_at": (born + 3000) // 1000, "start_type": "init_or_rescheduled"}],
    }
    api.clock.advance(hours=5)
    ended = status(api, job_id)
    assert (ended["duration"], ended["start_time"]) == (600_000, born + 3000)
    assert ended["running_records"][0]["end_at"] == (born + 603_000) // 1000


@pytest.mark.parametrize(
    ("environments", "hours", "seconds", "phase"),
    [
        ({"EMULATOR_RUN_SECONDS": "30"}, None, 32, "Running"),
        ({"EMULATOR_RUN_SECONDS": "30"}, None, 33, "Completed"),
        ({"EMULATOR_RUN_SECONDS": "0"}, None, 3, "Completed"),
        ({"EMULATOR_RESULT": "Failed"}, None, 602, "Running"),
        ({"EMULATOR_RESULT": "Failed"}, None, 603, "Failed"),
        ({"EMULATOR_RESULT": "Abnormal", "EMULATOR_RUN_SECONDS": "5"}, None, 8, "Abnormal"),
        ({"EMULATOR_RUN_SECONDS": "7200"}, 1, 3602, "Running"),
        ({"EMULATOR_RUN_SECONDS": "7200"}, 1, 3603, "Terminated"),
        ({"EMULATOR_RUN_SECONDS": "7200"}, 2, 7203, "Completed"),
        ({}, 1, 603, "Completed"),
    ],
)
def test_environment_variables_of_a_job_control_its_phases(
    api: Api, environments: dict[str, str], hours: int | None, seconds: float, phase: str
) -> None:
    edits: dict[str, Any] = {"algorithm.environments": environments}
    if hours:
        edits["spec.auto_stop"] = {"time_unit": "HOURS", "duration": hours}
    job_id = api.create(edits=edits)
    api.clock.advance(seconds=seconds)
    assert status(api, job_id)["phase"] == phase


def test_durations_can_be_set_on_the_store(clock: ManualClock) -> None:
    slow = Durations(creating=10, pending=20, running=30, terminating=40, deleting=50)
    with Store(clock=clock, durations=slow) as store:
        client, job_id = Client(create_app(store)), store.create("project", a_job()).id
        clock.advance(seconds=29)
        assert status(client, job_id)["phase"] == "Pending"
        clock.advance(seconds=1)
        assert status(client, job_id)["phase"] == "Running"
        store.terminate("project", job_id)
        clock.advance(seconds=39)
        assert status(client, job_id)["phase"] == "Terminating"


def test_name_stays_taken_during_a_slow_delete(clock: ManualClock) -> None:
    with Store(clock=clock, durations=Durations(deleting=10)) as store:
        client, job = Client(create_app(store)), store.create("project", a_job("mine"))
        path = f"/v2/project/training-jobs/{job.id}"
        assert client.delete(path).status_code == 202
        clock.advance(seconds=9)
        assert client.delete(path).status_code == 202
        assert client.get(path).status_code == 200
        assert store.is_taken("project", "0", "mine")
        clock.advance(seconds=1)
        assert client.get(path).json["error_code"] == "ModelArts.2775"
        assert not store.is_taken("project", "0", "mine")


@pytest.mark.parametrize(
    ("put", "later"),
    [
        ("Creating", "Completed"),
        ("Pending", "Completed"),
        ("Running", "Completed"),
        ("Terminating", "Terminated"),
        ("Failed", "Failed"),
        ("Abnormal", "Abnormal"),
        ("Hibernating", "Hibernating"),
    ],
)
def test_job_continues_from_a_phase_that_was_set(api: Api, put: str, later: str) -> None:
    job_id = api.create()
    api.store.set_phase(job_id, put, "Odd")
    told = status(api, job_id)
    assert (told["phase"], told["secondary_phase"]) == (put, "Odd")
    api.clock.advance(hours=1)
    assert status(api, job_id)["phase"] == later


def test_running_job_that_is_queued_again_keeps_its_start_and_duration(api: Api) -> None:
    job_id = api.create()
    api.clock.advance(minutes=5)
    api.store.set_phase(job_id, "Pending")
    queued = status(api, job_id)
    assert queued["duration"] == 297_000  # 5 min without the 3 s before its start
    api.clock.advance(seconds=2)
    assert status(api, job_id)["phase"] == "Running"
    assert status(api, job_id)["start_time"] == queued["start_time"]


def test_duration_of_a_terminating_job_is_constant(api: Api) -> None:
    job_id = api.create()
    api.clock.advance(minutes=5)
    api.store.set_phase(job_id, "Terminating")
    api.store.hold(job_id)
    api.clock.advance(hours=2)
    assert status(api, job_id)["duration"] == 297_000  # 5 min without the 3 s before its start


@pytest.mark.parametrize(
    ("ends", "held", "then"), [(False, "Pending", "Running"), (True, "Terminating", "Terminated")]
)
def test_held_job_stays_until_it_is_released(api: Api, ends: bool, held: str, then: str) -> None:
    job_id = api.create()
    api.clock.advance(seconds=2)
    api.store.hold(job_id)
    if ends:
        api.store.terminate("project", job_id)
    api.clock.advance(hours=10)
    assert status(api, job_id)["phase"] == held
    api.store.release(job_id)
    assert status(api, job_id)["phase"] == held
    api.clock.advance(seconds=1)
    assert status(api, job_id)["phase"] == then


def test_time_never_runs_backwards(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        clock.advance(seconds=-1)
