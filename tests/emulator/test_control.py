"""Directing an emulator over HTTP."""

# An answer without JSON fails the test by itself.
# mypy: disable-error-code="index"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Store, create_app
from tests.emulator.conftest import Api


def test_control_api_is_not_found_unless_enabled(store: Store) -> None:
    response = Client(create_app(store)).get("/emulator/jobs")
    assert (response.status_code, response.json["error_code"]) == (404, "APIGW.0101")


def test_clock_can_be_advanced(api: Api) -> None:
    job_id = api.create()
    start = api.clock.now_ms()
    assert api.post("/emulator/clock", json={"advance_s": 90.5}).json == {"now_ms": start + 90_500}
    assert api.get("/emulator/clock").json == {"now_ms": start + 90_500}
    assert api.get("/emulator/jobs").json["jobs"] == [
        {
            "id": job_id,
            "project_id": "project",
            "workspace_id": "0",
            "name": "resnet50-r1",
            "phase": "Running",
            "secondary_phase": "Running",
            "held": False,
        }
    ]


def test_phase_can_be_set_held_and_released(api: Api) -> None:
    path = f"/emulator/jobs/{api.create()}"
    put = api.post(f"{path}/phase", json={"phase": "Failed", "secondary_phase": "Lost"}).json
    assert (put["phase"], put["secondary_phase"]) == ("Failed", "Lost")
    api.post(f"{path}/phase", json={"phase": "Pending"})
    assert api.post(f"{path}/hold").json["held"] is True
    api.clock.advance(hours=1)
    assert api.get("/emulator/jobs").json["jobs"][0]["phase"] == "Pending"
    assert api.post(f"{path}/release").json["held"] is False
    assert api.post("/emulator/jobs/nowhere/hold").json["error_code"] == "ModelArts.2775"


def test_served_requests_are_listed_and_cleared(api: Api) -> None:
    job_id = api.create()
    api.get("/v2/project/training-jobs/none")
    api.get("/nowhere")
    api.get("/emulator/jobs")
    assert api.get("/emulator/requests").json["requests"] == [
        {
            "method": "POST",
            "path": "/v2/project/training-jobs",
            "operation": "CreateTrainingJob",
            "status": 201,
        },
        {
            "method": "GET",
            "path": "/v2/project/training-jobs/none",
            "operation": "ShowTrainingJobDetails",
            "status": 400,
        },
        {"method": "GET", "path": "/nowhere", "operation": "", "status": 404},
    ]
    assert job_id
    assert api.delete("/emulator/requests").status_code == 204
    assert api.get("/emulator/requests").json == {"requests": []}


def test_faults_can_be_added_and_cleared(api: Api) -> None:
    def search() -> int:
        return api.post("/v2/project/training-job-searches", json={}).status_code

    added = api.post("/emulator/faults", json=[{"effect": "answer", "status": 503, "count": None}]).json
    assert added["faults"][0]["effect"] == "answer"
    assert [search(), search()] == [503, 503]
    assert api.get("/emulator/jobs").status_code == 200
    assert api.delete("/emulator/faults").status_code == 204
    assert search() == 200
    assert len(api.post("/emulator/faults", json={"chaos": 0.1}).json["faults"]) == 6


def test_offset_counting_can_be_set_to_pages_or_items(api: Api) -> None:
    for number in range(3):
        api.create(f"job-{number}")

    def second_page() -> list[str]:
        search = {"offset": 1, "limit": 2, "order": "asc"}
        items = api.post("/v2/project/training-job-searches", json=search).json["items"]
        return [job["metadata"]["name"] for job in items]

    assert api.get("/emulator/settings").json == {"offset_counts": "pages"}
    assert second_page() == ["job-2"]
    items = {"offset_counts": "items"}
    assert api.post("/emulator/settings", json=items).json == items
    assert api.get("/emulator/settings").json == items
    assert second_page() == ["job-1", "job-2"]
    api.post("/emulator/settings", json={"offset_counts": "pages"})
    assert second_page() == ["job-2"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("settings", {"offset_counts": "apples"}),
        ("settings", {"offset_counts": ["items"]}),
        ("settings", {"colour": "red"}),
        ("settings", []),
        ("faults", {"effect": "moved_list", "shift": 0}),
        ("faults", {"effect": "moved_list", "shift": "1"}),
        ("faults", {"effect": "moved_list", "shift": True}),
        ("faults", {"effect": "moved_list", "shift": 1.0}),
        ("faults", {"effect": "moved_list", "shift": 1 << 31}),
        ("faults", {"effect": "answer", "nth": 0}),
        ("faults", {"effect": "answer", "probability": 1.5}),
        ("faults", {"effect": "answer", "delay_s": -1.0}),
        ("clock", {"advance_s": -1}),
        ("clock", {"advance_s": "1"}),
        ("clock", {}),
        ("clock", []),
        ("faults", {"effect": "explode"}),
        ("faults", {"effect": "answer", "colour": "red"}),
        ("faults", {"effect": "answer", "path": "("}),
        ("faults", {}),
        ("faults", [1]),
        ("faults", {"chaos": 2}),
    ],
)
def test_invalid_control_request_is_refused(api: Api, path: str, body: Any) -> None:
    response = api.post(f"/emulator/{path}", json=body)
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2788")


def test_phase_must_be_text_and_may_be_unknown(api: Api) -> None:
    path = f"/emulator/jobs/{api.create()}/phase"
    assert api.post(path, json={"phase": 7}).status_code == 400
    assert api.post(path, data=b"?").status_code == 400
    assert api.post(path, json={"phase": "Hibernating"}).json["phase"] == "Hibernating"
