"""Faults: which requests they affect, and the resulting response."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index"

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Effect, Fault, ResponseLost, Store, create_app
from tests.emulator.conftest import Api, a_job

JOBS = "/v2/project/training-jobs"
SEARCH = "/v2/project/training-job-searches"


def statuses(client: Client, times: int, path: str = SEARCH) -> list[int]:
    return [client.post(path, json={}).status_code for _ in range(times)]


@pytest.mark.parametrize(
    ("fault", "struck"),
    [
        (Fault(Effect.ANSWER), [500, 200, 200, 200]),
        (Fault(Effect.ANSWER, nth=3), [200, 200, 500, 200]),
        (Fault(Effect.ANSWER, nth=2, count=2), [200, 500, 500, 200]),
        (Fault(Effect.ANSWER, count=None), [500, 500, 500, 500]),
        (Fault(Effect.ANSWER, status=429, code="APIGW.0308"), [429, 200, 200, 200]),
        (Fault(Effect.ANSWER, method="GET", count=None), [200, 200, 200, 200]),
        (Fault(Effect.ANSWER, method="POST"), [500, 200, 200, 200]),
        (Fault(Effect.ANSWER, operation="ListTrainingJobs"), [500, 200, 200, 200]),
        (Fault(Effect.ANSWER, operation="CreateTrainingJob"), [200, 200, 200, 200]),
        (Fault(Effect.ANSWER, path="*searches"), [500, 200, 200, 200]),
        (Fault(Effect.ANSWER, path="/v3/*"), [200, 200, 200, 200]),
        (Fault(Effect.ANSWER, path="*/training*-searches"), [500, 200, 200, 200]),
        (Fault(Effect.ANSWER, path="*training*training*"), [200, 200, 200, 200]),
        (Fault(Effect.ANSWER, probability=0, count=None), [200, 200, 200, 200]),
    ],
)
def test_fault_hits_the_matching_requests_only(api: Api, fault: Fault, struck: list[int]) -> None:
    api.app.faults.add(fault)
    assert statuses(api, 4) == struck


def test_throttled_answer_says_how_long_to_wait(api: Api) -> None:
    api.app.faults.add(Fault(Effect.ANSWER, status=429, code="APIGW.0308", message="Slow.", retry_after_s=7))
    response = api.post(SEARCH, json={})
    assert response.headers["Retry-After"] == "7"
    assert response.json == {
        "error_msg": "Slow.",
        "error_code": "APIGW.0308",
        "request_id": response.headers["X-Request-Id"],
    }


@pytest.mark.parametrize(
    ("effect", "made"),
    [
        (Effect.ANSWER, 0),
        (Effect.ANSWER_AFTER, 1),
        (Effect.LOST_BEFORE, 0),
        (Effect.LOST_AFTER, 1),
        (Effect.TRUNCATED, 1),
        (Effect.UNREADABLE, 1),
    ],
)
def test_failed_create_makes_the_job_only_if_the_effect_says_so(api: Api, effect: Effect, made: int) -> None:
    api.app.faults.add(Fault(effect, status=504, code="APIGW.0201"))
    if effect in {Effect.LOST_BEFORE, Effect.LOST_AFTER}:
        with pytest.raises(ResponseLost):
            api.post(JOBS, json=a_job())
        assert api.app.requests[-1].status == 0
    else:
        api.post(JOBS, json=a_job())
    assert api.store.count("project") == made


def test_truncated_answer_is_shorter_than_announced(api: Api) -> None:
    api.app.faults.add(Fault(Effect.TRUNCATED))
    response = api.post(SEARCH, json={})
    assert len(response.data) == int(response.headers["Content-Length"]) // 2


def test_unreadable_answer_has_the_right_length(api: Api) -> None:
    api.app.faults.add(Fault(Effect.UNREADABLE))
    response = api.post(SEARCH, json={})
    assert (response.status_code, len(response.data)) == (200, int(response.headers["Content-Length"]))
    with pytest.raises(json.JSONDecodeError):
        json.loads(response.data)


def test_malformed_job_fault_spoils_the_first_job_only(api: Api) -> None:
    api.create("one")
    api.create("two")
    api.app.faults.add(Fault(Effect.MALFORMED_JOB))
    items = api.post(SEARCH, json={}).json["items"]
    assert [type(job["status"]["phase"]) for job in items] == [list, str]


@pytest.mark.parametrize("path", ["search", "details"])
def test_unknown_phase_is_reported_as_it_is(api: Api, path: str) -> None:
    job_id = api.create()
    api.app.faults.add(Fault(Effect.UNKNOWN_PHASE))
    if path == "search":
        job = api.post(SEARCH, json={}).json["items"][0]
    else:
        job = api.get(f"{JOBS}/{job_id}").json
    assert job["status"]["phase"] == "Hibernating"
    assert api.get(f"{JOBS}/{job_id}").json["status"]["phase"] == "Creating"


@pytest.mark.parametrize("effect", [Effect.MALFORMED_JOB, Effect.UNKNOWN_PHASE, Effect.UNREADABLE])
def test_job_fault_leaves_an_answer_without_a_job_unchanged(api: Api, effect: Effect) -> None:
    api.app.faults.add(Fault(effect, count=2))
    assert api.post(SEARCH, json={}).status_code == 200
    assert api.put(f"{JOBS}/nowhere", json={}).status_code == 400


# ── a list that moves ──────────────────────────────────────────────────────────────────────────────


def pages(client: Client, count: int, **body: Any) -> list[tuple[int, list[str]]]:
    """Return the totals and names of successive pages of two."""
    answers = [
        client.post(SEARCH, json={"limit": 2, "order": "asc", "offset": n, **body}).json for n in range(count)
    ]
    return [(told["total"], [job["metadata"]["name"] for job in told["items"]]) for told in answers]


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        # One item before the page is gone: the first of the page moved to the previous page.
        ({}, [(5, ["a", "b"]), (4, ["d", "e"]), (5, ["e"])]),
        ({"shift": 2}, [(5, ["a", "b"]), (3, ["e"]), (5, ["e"])]),
        # One item before the page is new: the last of the previous page repeats.
        ({"shift": -1}, [(5, ["a", "b"]), (6, ["b", "c"]), (5, ["e"])]),
        ({"shift": -9}, [(5, ["a", "b"]), (14, ["a", "b"]), (5, ["e"])]),
        ({"nth": 2}, [(5, ["a", "b"]), (5, ["c", "d"]), (4, [])]),
        ({"count": None}, [(5, ["a", "b"]), (4, ["d", "e"]), (4, [])]),
        ({"operation": "CreateTrainingJob"}, [(5, ["a", "b"]), (5, ["c", "d"]), (5, ["e"])]),
    ],
)
def test_moved_list_fault_shifts_a_page(api: Api, fault: dict[str, Any], read: list[Any]) -> None:
    for name in "abcde":
        api.create(name)
    api.app.faults.add(Fault(Effect.MOVED_LIST, **fault))
    assert pages(api, 3) == read


def test_moved_list_fault_shifts_item_offsets(api: Api) -> None:
    for name in "abcde":
        api.create(name)
    api.app.offset_counts = "items"
    api.app.faults.add(Fault(Effect.MOVED_LIST))
    assert [names for _, names in pages(api, 2)] == [["a", "b"], ["c", "d"]]


def test_moved_list_fault_affects_no_other_request(api: Api) -> None:
    api.app.faults.add(Fault(Effect.MOVED_LIST, count=None))
    job_id = api.create()
    assert api.get(f"{JOBS}/{job_id}").status_code == 200
    assert api.post(SEARCH, data=b"?").json["error_code"] == "ModelArts.2787"
    assert api.post(SEARCH, json={"offset": "1"}).json["error_code"] == "ModelArts.2825"
    assert api.post(SEARCH, json={"offset": 3}).json["total"] == 0


# ── codes that the emulator never answers by itself ────────────────────────────────────────────────

ONLY_AS_A_FAULT = re.findall(
    r"^\| `([\w.]+)` \| (\d+)",
    (Path(__file__).parents[2] / "docs/operations/emulator.md").read_text("utf-8"),
    re.M,
)


def test_documentation_lists_the_fault_codes() -> None:
    assert len(ONLY_AS_A_FAULT) > 12


@pytest.mark.parametrize(("code", "status"), ONLY_AS_A_FAULT)
def test_fault_can_answer_any_code(api: Api, code: str, status: str) -> None:
    fault = {"effect": "answer", "status": int(status), "code": code, "message": "So it is."}
    assert api.post("/emulator/faults", json=fault).status_code == 200
    response = api.post(SEARCH, json={})
    assert (response.status_code, response.json["error_code"]) == (int(status), code)
    assert response.json["error_msg"] == "So it is."
    assert ("request_id" in dict(response.json or {})) is code.startswith("APIG")


def test_delay_waits_real_seconds(store: Store) -> None:
    waited: list[float] = []
    client = Client(create_app(store, faults=[Fault(Effect.DELAY, delay_s=2.5)], sleep=waited.append))
    assert statuses(client, 2) == [200, 200]
    assert waited == [2.5]


def test_fault_with_probability_is_repeatable_by_its_seed(store: Store) -> None:
    def run(seed: int) -> list[int]:
        fault = Fault(Effect.ANSWER, count=None, probability=0.5, seed=seed)
        return statuses(Client(create_app(store, faults=[fault])), 40)

    assert run(1) == run(1) != run(2)
    assert set(run(1)) == {200, 500}


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
    api.create()
    api.get("/v2/project/training-jobs/none")
    api.get("/nowhere")
    api.get("/emulator/jobs")
    served = [tuple(one.values()) for one in api.get("/emulator/requests").json["requests"]]
    assert served == [
        ("POST", "/v2/project/training-jobs", "CreateTrainingJob", 201),
        ("GET", "/v2/project/training-jobs/none", "ShowTrainingJobDetails", 400),
        ("GET", "/nowhere", "", 404),
    ]
    first = api.get("/emulator/requests").json["requests"][0]
    assert first.keys() == {"method", "path", "operation", "status"}
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
