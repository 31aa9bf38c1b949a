"""Searching for jobs: pages, order, filters."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index,union-attr"

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import Store, create_app
from reconciler.emulator.catalog import WORKSPACES
from tests.emulator.conftest import Api

SEARCH = "/v2/project/training-job-searches"


def names(client: Client, **body: Any) -> list[str]:
    response = client.post(SEARCH, json=body)
    assert response.status_code == 200, response.text
    return [job["metadata"]["name"] for job in response.json["items"]]


def refusal(client: Client, **body: Any) -> tuple[int, str]:
    response = client.post(SEARCH, json=body)
    return response.status_code, response.json["error_code"].removeprefix("ModelArts.")


def at(ms: int, **shift: float) -> str:
    return (datetime.fromtimestamp(ms / 1000, UTC) + timedelta(**shift)).isoformat()


def between(first: str, last: str) -> dict[str, Any]:
    return {"key": "create_time", "operator": "between", "value": [first, last]}


def test_empty_search_returns_the_first_page_with_defaults(api: Api) -> None:
    api.create("one")
    answer = api.post(SEARCH, json={}).json
    items = answer.pop("items")
    assert answer == {
        "total": 1,
        "count": 1,
        "limit": 10,
        "offset": 0,
        "sort_by": "create_time",
        "order": "desc",
        "group_by": "",
        "workspace_id": "0",
        "ai_project": "default-ai-project",
    }
    assert [job["metadata"]["name"] for job in items] == ["one"]


def test_offset_counts_pages(api: Api) -> None:
    for number in range(5):
        api.create(f"job-{number}")
    pages = [names(api, order="asc", limit=2, offset=page) for page in range(4)]
    assert pages == [["job-0", "job-1"], ["job-2", "job-3"], ["job-4"], []]
    assert names(api, limit=2) == ["job-4", "job-3"]


def test_jobs_of_the_same_millisecond_keep_their_order(api: Api) -> None:
    wanted = [f"job-{number}" for number in range(30)]
    for name in wanted:
        api.create(name)
    assert names(api, order="asc", limit=50) == wanted


def test_search_returns_jobs_of_its_workspace_only(api: Api) -> None:
    api.create("here")
    api.create("there", {"metadata.workspace_id": "w" * 32})
    assert names(api) == names(api, workspace_id="0") == ["here"]
    assert names(api, workspace_id="w" * 32) == ["there"]


@pytest.mark.parametrize(
    ("key", "operator", "values", "found"),
    [
        ("name", "like", ["NET-A"], ["net-a"]),
        ("name", "like", ["_"], ["under_score"]),
        ("name", "like", ["%"], []),
        ("name", "in", ["net-a", "net"], ["net-a"]),
        ("name", "like", [""], ["net-a", "net-b", "under_score"]),
        ("name", "in", [], ["net-a", "net-b", "under_score"]),
        ("phase", "not", ["Creating", ""], ["under_score"]),
        ("pool_id", "in", ["pool-1"], ["net-b"]),
        ("priority", "in", ["2"], ["net-b"]),
        ("algorithm_id", "in", ["alg"], ["under_score"]),
    ],
)
def test_filter_selects_the_matching_jobs(
    api: Api, key: str, operator: str, values: list[str], found: list[str]
) -> None:
    api.create("net-a")
    api.create("net-b", {"spec.resource": {"pool_id": "pool-1"}, "spec.schedule_policy": {"priority": 2}})
    api.store.set_phase(api.create("under_score", {"algorithm": {"id": "alg"}}), "Running")
    assert names(api, order="asc", filters=[{"key": key, "operator": operator, "value": values}]) == found


def test_jobs_can_be_filtered_by_create_time(api: Api) -> None:
    start = api.clock.now_ms()
    for name in ("day-0", "day-1", "day-2"):
        api.create(name)
        api.clock.advance(hours=24)
    span = [at(start, hours=12), at(start, hours=36).replace("+00:00", "Z")]
    assert names(api, filters=[{"key": "create_time", "operator": "between", "value": span}]) == ["day-1"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"limit": 51}, "2816"),
        ({"limit": 0}, "2788"),
        ({"offset": -1}, "2788"),
        ({"limit": "10"}, "2825"),
        ({"limit": 1.5}, "2825"),
        ({"filters": {}}, "2825"),
        ({"filters": [{"key": "name", "operator": "in", "value": "a"}]}, "2825"),
        ({"sort_by": "name"}, "2790"),
        ({"order": "random"}, "2790"),
        ({"train_type": "any"}, "2789"),
        ({"workspace_id": "7"}, "2788"),
        ({"filters": [{"key": "mood", "operator": "in", "value": ["a"]}]}, "2807"),
        ({"filters": [{"operator": "in", "value": ["a"]}]}, "2807"),
        ({"filters": [{"key": "name", "operator": "equals", "value": ["a"]}]}, "2808"),
        ({"filters": [{"key": "name", "value": ["a"]}]}, "2808"),
        ({"filters": [{"key": "phase", "operator": "like", "value": ["a"]}]}, "2808"),
        ({"filters": [{"key": "name", "operator": "in", "value": ["a"] * 11}]}, "2809"),
        ({"filters": [{"key": "phase", "operator": "in", "value": ["Running", "Sleeping"]}]}, "2809"),
        ({"filters": [{"key": "phase", "operator": "not", "value": ["Waiting"]}]}, "2809"),
        ({"filters": [{"key": "phase", "operator": "in", "value": ["running"]}]}, "2809"),
        ({"tags": [{"key": f"k{n}"} for n in range(11)]}, "2816"),
        ({"tags": [{"key": "k", "values": [str(n) for n in range(11)]}]}, "2816"),
        ({"tags": [{"key": "k"}, {"key": "k", "values": ["v"]}]}, "2788"),
        ({"tags": [{"key": "k", "values": ["v", "v"]}]}, "2788"),
        ({"host_ips": [f"192.168.0.{n}" for n in range(1, 12)]}, "2816"),
        (
            {"filters": [{"key": "create_time", "operator": "between", "value": ["2026-01-01T00:00:00Z"]}]},
            "2809",
        ),
        ({"filters": [between("2026-W01-1", "2026-W01-2")]}, "2809"),
        ({"filters": [between("20260101", "20260102")]}, "2809"),
        ({"filters": [{"key": "kind", "operator": "in", "value": ["Job"]}]}, "2809"),
        ({"filters": [{"key": "priority", "operator": "in", "value": ["4"]}]}, "2809"),
        ({"filters": [{"key": "runtime_type", "operator": "not", "value": ["x"]}]}, "2809"),
        ({"tags": [{"values": ["v"]}]}, "2788"),
        ({"host_ips": ["nowhere"]}, "2788"),
        ({"host_ips": ["192.168.0.99999999999999999999"]}, "2788"),
        ({"filters": [between("x", "y")]}, "2809"),
        ({"filters": [between("2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z")]}, "2809"),
    ],
)
def test_invalid_search_is_refused(api: Api, body: dict[str, Any], code: str) -> None:
    assert refusal(api, **body) == (400, code)


@pytest.mark.parametrize(
    "body",
    [
        {"tags": [{"key": f"k{n}", "values": [str(m) for m in range(10)]} for n in range(10)]},
        {"host_ips": [f"192.168.0.{n}" for n in range(1, 11)]},
        {"filters": [{"key": "phase", "operator": "in", "value": ["Running", "", "Abnormal"]}]},
    ],
)
def test_search_at_its_limits_is_accepted(api: Api, body: dict[str, Any]) -> None:
    assert names(api, **body) == []


@pytest.mark.parametrize(
    ("workspace", "status"), [("0", 200), (max(WORKSPACES, key=len), 200), ("w" * 32, 400)]
)
def test_strict_service_refuses_an_unknown_workspace(store: Store, workspace: str, status: int) -> None:
    client = Client(create_app(store, strict_catalogue=True))
    response = client.post(SEARCH, json={"workspace_id": workspace})
    assert response.status_code == status
    assert response.json.get("error_code") == (None if status == 200 else "ModelArts.0102")


def test_fine_tuning_jobs_are_searched_by_train_type(api: Api) -> None:
    api.create("plain")
    api.create("tuned", {"train_type": "LORA", "ftjob_config": {}})
    assert names(api, train_type="ftjob") == ["tuned"]
    assert names(api, train_type="job") == ["plain"]


def test_search_by_tags_covers_31_days(api: Api) -> None:
    def tag(job_id: str) -> None:
        path = f"/v2/project/modelarts-training-job/{job_id}/tags/create"
        assert api.post(path, json={"tags": [{"key": "team", "value": "ml"}]}).status_code == 204

    tag(api.create("old"))
    api.clock.advance(hours=24 * 32)
    tag(api.create("new"))
    api.create("untagged")
    assert names(api, tags=[{"key": "team", "values": ["ml", "x"]}]) == ["new"]
    assert names(api, tags=[{"key": "team"}]) == ["new"]
    assert names(api, tags=[{"key": "team", "values": ["other"]}]) == []


def test_jobs_can_be_searched_by_host_address(api: Api) -> None:
    api.store.set_phase(api.create("two-nodes", {"spec.resource.node_count": 2}), "Running")
    api.create("queued")
    assert names(api, host_ips=["192.168.0.2"]) == ["two-nodes"]
    assert names(api, host_ips=["192.168.0.3"]) == names(api, host_ips=["10.0.0.1"]) == []


TAGS = "/v2/project/modelarts-training-job"


def tag(client: Client, job_id: str, **values: str) -> int:
    tags = [{"key": key, "value": value} for key, value in values.items()]
    return client.post(f"{TAGS}/{job_id}/tags/create", json={"tags": tags}).status_code


def test_tags_are_deleted_with_their_job(api: Api) -> None:
    job_id = api.create()
    tag(api, job_id, team="ml")
    api.delete(f"/v2/project/training-jobs/{job_id}")
    assert api.get(f"{TAGS}/tags").json == {"tags": []}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["three", "two", "one"]),
        ({"tags": [{"key": "team", "values": ["ml", "cv"]}]}, ["two", "one"]),
        ({"tags": [{"key": "team", "values": ["ml"]}, {"key": "stage", "values": []}]}, ["one"]),
        ({"without_any_tag": True}, ["three"]),
        ({"matches": [{"key": "resource_name", "value": "T"}]}, ["three", "two"]),
        ({"workspace_id": "w" * 32}, []),
    ],
)
def test_jobs_can_be_found_and_counted_by_tags(api: Api, asked: dict[str, Any], found: list[str]) -> None:
    tag(api, api.create("one"), team="ml", stage="test")
    tag(api, api.create("two"), team="cv")
    api.create("three")
    answer = api.post(f"{TAGS}/resource-instances/filter", json=asked).json
    assert [resource["resource_name"] for resource in answer["resources"]] == found
    assert answer["total_count"] == len(found)
    assert api.post(f"{TAGS}/resource-instances/count", json=asked).json == {"total_count": len(found)}


@pytest.mark.parametrize(
    "asked",
    [
        {"tags": [{"key": "team"}, {"key": "team", "values": ["ml"]}]},
        {"tags": [{"key": "team", "values": ["ml", "ml"]}]},
        {"matches": [{"key": "resource_name", "value": "a"}, {"key": "resource_name", "value": "b"}]},
        {"matches": [{"key": "mood", "value": "a"}]},
    ],
)
def test_invalid_tag_filter_is_refused(api: Api, asked: dict[str, Any]) -> None:
    for path in ("filter", "count"):
        response = api.post(f"{TAGS}/resource-instances/{path}", json=asked)
        assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2788")


@pytest.mark.parametrize(
    "tags",
    [
        [],
        [{"value": "x"}],
        [{"key": "_sys_a"}],
        [{"key": " a"}],
        [{"key": "a/b"}],
        [{"key": "a", "value": "?"}],
    ],
)
def test_invalid_tags_are_refused(api: Api, tags: list[dict[str, str]]) -> None:
    response = api.post(f"{TAGS}/{api.create()}/tags/create", json={"tags": tags})
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2788")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_invalid_tag_page_is_refused(api: Api, query: str) -> None:
    assert api.get(f"{TAGS}/tags?{query}").json["error_code"] == "ModelArts.2764"
