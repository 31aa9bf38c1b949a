"""Tags lie beside the jobs."""

# An answer without JSON fails the test by itself.
# mypy: disable-error-code="index"

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.test import Client

from tests.emulator.conftest import Api

TAGS = "/v2/project/modelarts-training-job"


def tag(client: Client, job_id: str, **values: str) -> int:
    tags = [{"key": key, "value": value} for key, value in values.items()]
    return client.post(f"{TAGS}/{job_id}/tags/create", json={"tags": tags}).status_code


def test_tags_are_deleted_with_their_job(api: Api) -> None:
    job_id = api.create()
    tag(api, job_id, team="ml")
    api.delete(f"/v2/project/training-jobs/{job_id}")
    assert api.get(f"{TAGS}/tags").json == {"tags": []}
    assert api.get(f"{TAGS}/{job_id}/tags").json["error_code"] == "ModelArts.2775"


def test_tags_of_a_project_are_grouped_by_key(api: Api) -> None:
    tag(api, api.create("one"), team="ml", stage="test")
    tag(api, api.create("two"), team="cv", stage="test")
    assert api.get(f"{TAGS}/tags").json["tags"] == [
        {"key": "stage", "values": ["test"]},
        {"key": "team", "values": ["cv", "ml"]},
    ]
    assert len(api.get(f"{TAGS}/tags?limit=1&offset=1").json["tags"]) == 1


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
