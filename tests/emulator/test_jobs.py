"""Job operations: responses and refusals."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index,union-attr"

from __future__ import annotations

import re
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Store, create_app
from reconciler.emulator.app import HUAWEI, ROUTES
from tests.emulator.conftest import Api, a_job

JOBS = "/v2/project/training-jobs"
NOWHERE = "66ff6991-fd66-40b6-8101-0829a46d3731"


def test_create_returns_the_whole_job(api: Api) -> None:
    response = api.post(JOBS, json=a_job("first"))

    assert response.status_code == 201
    assert response.json["metadata"]["name"] == "first"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", response.json["metadata"]["id"])
    assert response.json["metadata"]["create_time"] == api.clock.now_ms()
    assert response.json["metadata"]["user_name"] == ""
    assert response.json["status"] == {
        "phase": "Creating",
        "secondary_phase": "Creating",
        "duration": 0,
        "node_count_metrics": None,
        "tasks": ["worker-0"],
        "start_time": 0,
    }


@pytest.mark.parametrize("second", ["first", "FIRST"])
def test_name_is_taken_until_its_job_is_deleted(api: Api, second: str) -> None:
    job_id = api.create("first")
    api.store.set_phase(job_id, "Completed")

    response = api.post(JOBS, json=a_job(second))
    assert response.status_code == 400
    assert response.json == {
        "error_msg": f"The training job name {second} already exists.",
        "error_code": "ModelArts.2751",
        "error_solution": "Use another training job name.",
    }

    api.delete(f"{JOBS}/{job_id}")
    assert api.post(JOBS, json=a_job(second)).status_code == 201


def test_name_is_free_in_another_workspace_and_project(api: Api) -> None:
    api.create("first")
    api.create("first", {"metadata.workspace_id": "w" * 32})
    assert api.post("/v2/other/training-jobs", json=a_job("first")).status_code == 201


@pytest.mark.parametrize(
    ("phase", "terminate", "restart"),
    [
        ("Creating", None, "2813"),
        ("Pending", None, "2813"),
        ("Running", None, "2813"),
        ("Terminating", "2796", "2813"),
        ("Completed", "2796", None),
        ("Failed", "2796", None),
        ("Terminated", "2796", None),
        ("Abnormal", "2796", None),
        ("Hibernating", "2796", "2813"),
    ],
)
def test_phase_decides_which_actions_are_accepted(
    api: Api, phase: str, terminate: str | None, restart: str | None
) -> None:
    for action, code, then in (("terminate", terminate, "Terminating"), ("restart", restart, "Creating")):
        job_id = api.create(action)
        api.store.set_phase(job_id, phase)
        response = api.post(f"{JOBS}/{job_id}/actions", json={"action_type": action})
        refused = (409, f"ModelArts.{code}")
        assert (response.status_code, response.json.get("error_code")) == (refused if code else (202, None))
        assert code or response.json["metadata"]["id"] == job_id
        assert api.get(f"{JOBS}/{job_id}").json["status"]["phase"] == (phase if code else then)
        deleted = api.delete(f"{JOBS}/{job_id}")
        assert (deleted.status_code, deleted.data) == (202, b""), "in any phase"
        assert api.get(f"{JOBS}/{job_id}").json["error_code"] == "ModelArts.2775"


def test_restarted_job_runs_again(api: Api) -> None:
    job_id = api.create()
    api.clock.advance(hours=1)
    path = f"{JOBS}/{job_id}"
    assert api.get(path).json["status"]["running_records"][0]["start_type"] == "init_or_rescheduled"
    api.post(f"{path}/actions", json={"action_type": "restart"})
    api.clock.advance(seconds=30)
    status = api.get(path).json["status"]
    assert (status["phase"], status["duration"]) == ("Running", 27_000)
    assert status["running_records"][0]["start_type"] == "restarted"
    api.clock.advance(hours=1)
    assert api.get(path).json["status"]["phase"] == "Completed"


@pytest.mark.parametrize("action", ["pause", "", None])
def test_unknown_action_is_refused(api: Api, action: str | None) -> None:
    response = api.post(f"{JOBS}/{api.create()}/actions", json={"action_type": action})
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2788")


def test_batch_delete_is_all_or_nothing(api: Api) -> None:
    ids = [api.create(f"job-{number}") for number in range(3)]

    def delete(*job_ids: str) -> int:
        jobs = [{"kind": "job", "metadata": {"id": job_id}} for job_id in job_ids]
        return api.post(f"{JOBS}/batch-delete", json={"jobs": jobs}).status_code

    assert delete(ids[0], NOWHERE) == 400
    assert api.get(f"{JOBS}/{ids[0]}").status_code == 200
    assert delete(ids[0], ids[2]) == 202
    assert [api.get(f"{JOBS}/{job_id}").status_code for job_id in ids] == [400, 200, 400]
    assert delete() == 400
    assert delete(*[ids[1]] * 101) == 400


def test_batch_delete_stays_in_one_workspace(api: Api) -> None:
    ids = [api.create("one"), api.create("two", {"metadata.workspace_id": "w" * 32})]
    jobs = [{"kind": "job", "metadata": {"id": job_id}} for job_id in ids]
    assert api.post(f"{JOBS}/batch-delete", json={"jobs": jobs}).json["error_code"] == "ModelArts.2788"


# ── update ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("phase", "description", "priority"),
    [
        ("Creating", 200, 400),
        ("Pending", 200, 200),
        ("Running", 200, 400),
        ("Terminating", 400, 400),
        ("Completed", 200, 400),
        ("Terminated", 200, 400),
    ],
)
def test_description_and_priority_can_be_changed_by_phase(
    api: Api, phase: str, description: int, priority: int
) -> None:
    job_id = api.create()
    api.store.set_phase(job_id, phase)
    more = {"spec": {"schedule_policy": {"priority": 3}}}
    assert api.put(f"{JOBS}/{job_id}", json={"description": "x"}).status_code == description
    assert api.put(f"{JOBS}/{job_id}", json=more).status_code == priority


@pytest.mark.parametrize(
    ("update", "code"),
    [
        ({"description": "x" * 257}, "ModelArts.2788"),
        ({"description": 7}, "ModelArts.2825"),
        ({"spec": {"schedule_policy": {"priority": 4}}}, "ModelArts.2816"),
        ({"spec": {"schedule_policy": {"priority": "1"}}}, "ModelArts.2825"),
        ({"spec": {"notification": {"events": ["JobDreaming"]}}}, "ModelArts.2788"),
        ({"metadata": {"annotation": {"tensorboard/enable": "true"}}}, "ModelArts.2788"),
    ],
)
def test_invalid_update_is_refused(api: Api, update: dict[str, Any], code: str) -> None:
    response = api.put(f"{JOBS}/{api.create()}", json=update)
    assert (response.status_code, response.json["error_code"]) == (400, code)


def test_refused_update_changes_nothing(api: Api) -> None:
    job_id = api.create(edits={"metadata.description": "old"})
    api.store.set_phase(job_id, "Running")
    api.put(f"{JOBS}/{job_id}", json={"description": "new", "spec": {"schedule_policy": {"priority": 2}}})
    assert api.get(f"{JOBS}/{job_id}").json["metadata"]["description"] == "old"


# ── catalogue, quota, cloud ────────────────────────────────────────────────────────────────────────


def test_quota_counts_finished_jobs_until_they_are_deleted(api: Api) -> None:
    api.store.quota = 2
    first = api.create("one")
    api.store.set_phase(api.create("two"), "Completed")

    refused = api.post(JOBS, json=a_job("three"))
    assert (refused.status_code, refused.json["error_code"]) == (400, "ModelArts.2815")
    quota = api.get("/v2/project/training-quotas").json["quotas"][0]
    assert quota == {"resource": "job-num", "quota": 2, "used": 2}

    api.delete(f"{JOBS}/{first}")
    assert api.post(JOBS, json=a_job("three")).status_code == 201


def test_quota_can_be_changed(api: Api) -> None:
    quotas = [{"resource": "job-num", "quota": 1}, {"resource": "visual-job-num", "quota": 5}]
    response = api.put("/v2/project/training-quotas", json={"user_id": "u", "quotas": quotas})
    assert (response.status_code, response.json) == (200, {"user_id": "u", "quotas": quotas})
    shown = api.get("/v2/project/training-quotas").json["quotas"]
    assert shown == [{"resource": "job-num", "quota": 1, "used": 0}]
    assert [api.post(JOBS, json=a_job(name)).status_code for name in ("one", "two")] == [201, 400]


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"resource": "luck", "quota": 1}, "ModelArts.2764"),
        ({"resource": "job-num"}, "ModelArts.2788"),
        ({"resource": "job-num", "quota": 0}, "ModelArts.2788"),
        ({"resource": "job-num", "quota": 1 << 31}, "ModelArts.2816"),
        ({"resource": "job-num", "quota": "7"}, "ModelArts.2825"),
        ({"resource": "job-retention-enabled", "quota": 2}, "ModelArts.2816"),
    ],
)
def test_invalid_quota_item_refuses_the_whole_update(api: Api, item: dict[str, Any], code: str) -> None:
    quotas = [{"resource": "job-num", "quota": 7}, item]
    response = api.put("/v2/project/training-quotas", json={"quotas": quotas})
    assert (response.status_code, response.json["error_code"]) == (400, code)
    assert api.store.quota == 10_000, "all or nothing"


def test_operations_of_huawei_only_are_missing_on_otc(api: Api) -> None:
    known = {"<project_id>": "project", "<job_id>": api.create(), "<task_id>": "worker-0"}
    otc = Client(create_app(api.store, cloud="otc"))
    for route in (route for route in ROUTES if route.clouds == HUAWEI):
        missing = otc.open(
            "/".join(known.get(part, part) for part in route.path.split("/")), method=route.method
        )
        # If another call has the path, it is a wrong method.
        assert missing.status_code in (404, 405), route.operation
        assert missing.json["error_code"] in ("APIGW.0101", "ModelArts.2803")


def test_unknown_cloud_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="cloud must be one of huawei, otc"):
        create_app(store, cloud="aws")
