"""Tags lie beside the jobs."""

# An answer without JSON fails the test by itself.
# mypy: disable-error-code="index"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from werkzeug.test import Client

TAGS = "/v2/project/modelarts-training-job"
Create = Callable[..., str]


def tag(client: Client, job_id: str, **values: str) -> int:
    tags = [{"key": key, "value": value} for key, value in values.items()]
    return client.post(f"{TAGS}/{job_id}/tags/create", json={"tags": tags}).status_code


def test_tags_are_deleted_with_their_job(client: Client, create: Create) -> None:
    job_id = create()
    tag(client, job_id, team="ml")
    client.delete(f"/v2/project/training-jobs/{job_id}")
    assert client.get(f"{TAGS}/tags").json == {"tags": []}
    assert client.get(f"{TAGS}/{job_id}/tags").json["error_code"] == "ModelArts.2775"


def test_tags_of_a_project_are_grouped_by_key(client: Client, create: Create) -> None:
    tag(client, create("one"), team="ml", stage="test")
    tag(client, create("two"), team="cv", stage="test")
    assert client.get(f"{TAGS}/tags").json["tags"] == [
        {"key": "stage", "values": ["test"]},
        {"key": "team", "values": ["cv", "ml"]},
    ]
    assert len(client.get(f"{TAGS}/tags?limit=1&offset=1").json["tags"]) == 1


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
def test_jobs_can_be_found_and_counted_by_tags(
    client: Client, create: Create, asked: dict[str, Any], found: list[str]
) -> None:
    tag(client, create("one"), team="ml", stage="test")
    tag(client, create("two"), team="cv")
    create("three")
    answer = client.post(f"{TAGS}/resource-instances/filter", json=asked).json
    assert [resource["resource_name"] for resource in answer["resources"]] == found
    assert answer["total_count"] == len(found)
    assert client.post(f"{TAGS}/resource-instances/count", json=asked).json == {"total_count": len(found)}


@pytest.mark.parametrize(
    "asked",
    [
        {"tags": [{"key": "team"}, {"key": "team", "values": ["ml"]}]},
        {"tags": [{"key": "team", "values": ["ml", "ml"]}]},
        {"matches": [{"key": "resource_name", "value": "a"}, {"key": "resource_name", "value": "b"}]},
        {"matches": [{"key": "mood", "value": "a"}]},
    ],
)
def test_invalid_tag_filter_is_refused(client: Client, asked: dict[str, Any]) -> None:
    for path in ("filter", "count"):
        response = client.post(f"{TAGS}/resource-instances/{path}", json=asked)
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
def test_invalid_tags_are_refused(client: Client, create: Create, tags: list[dict[str, str]]) -> None:
    response = client.post(f"{TAGS}/{create()}/tags/create", json={"tags": tags})
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2788")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_invalid_tag_page_is_refused(client: Client, query: str) -> None:
    assert client.get(f"{TAGS}/tags?{query}").json["error_code"] == "ModelArts.2764"
