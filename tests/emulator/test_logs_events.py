"""Events, tasks, stages, logs and metrics of a job."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index"

from __future__ import annotations

import pytest
from werkzeug.test import Client

from reconciler.emulator import Store, create_app
from tests.emulator.conftest import Api


@pytest.fixture
def running_job(api: Api) -> str:
    """The path of a job of two nodes that has run for a minute and a half."""
    job_id = api.create(edits={"spec.resource.node_count": 2})
    api.clock.advance(seconds=93)
    return f"/v2/project/training-jobs/{job_id}"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("order=asc&limit=2", 2),
        ("offset=2", 1),
        ("pattern=queuing", 1),
        ("level=Error", 0),
        ("level=Info", 3),
        ("start_time=2026-08-06T07:06:41Z", 2),
        ("end_time=2026-08-06T07:06:41Z", 2),
    ],
)
def test_events_can_be_filtered_and_paged(api: Api, running_job: str, query: str, count: int) -> None:
    assert len(api.get(f"{running_job}/events?{query}").json["events"]) == count


@pytest.mark.parametrize(
    ("cloud", "source", "count"),
    [
        ("otc", "Job", 3),
        ("otc", "Task", 0),
        ("otc", "K8S", 0),
        ("otc", "", 3),
        ("otc", "Weather", None),
        ("otc", "job", None),
        # A parameter that Huawei Cloud does not have.
        ("huawei", "Task", 3),
        ("huawei", "Weather", 3),
    ],
)
def test_events_can_be_filtered_by_source_on_otc_only(
    store: Store, running_job: str, cloud: str, source: str, count: int | None
) -> None:
    response = Client(create_app(store, cloud=cloud)).get(f"{running_job}/events?source={source}")
    if count is None:
        assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.50004000")
    else:
        assert len(response.json["events"]) == response.json["total"] == count


def test_route_plan_is_reported_as_failed(api: Api, running_job: str) -> None:
    assert api.get(f"{running_job}/route_plan").json == {
        "job_id": running_job.rpartition("/")[2],
        "status": "failed",
        "rank_mapping": "0-0,1-1",
    }


@pytest.mark.parametrize(
    "query", ["limit=101", "limit=0", "limit=x", "offset=-1", "order=up", "level=Loud", "start_time=noon"]
)
def test_invalid_events_query_is_refused(api: Api, running_job: str, query: str) -> None:
    response = api.get(f"{running_job}/events?{query}")
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.50004000")


def test_failed_job_has_an_error_event(api: Api, running_job: str) -> None:
    api.store.set_phase(running_job.rpartition("/")[2], "Failed")
    newest = api.get(f"{running_job}/events").json["events"][0]
    assert (newest["level"], newest["message"]) == ("Error", "Training job failed.")


@pytest.mark.usefixtures("_growing_logs")
@pytest.mark.parametrize(
    ("query", "start", "lines"),
    [
        ("", "0", 10),
        ("lines=3", "7", 3),
        ("lines=3&order=asc", "0", 3),
        ("lines=3&order=asc&base_line=2", "3", 3),
        ("lines=3&base_line=7", "4", 3),
    ],
)
def test_log_lines_are_selected_by_number_order_and_base(
    api: Api, running_job: str, query: str, start: str, lines: int
) -> None:
    answer = api.get(f"{running_job}/logs/worker-0?{query}").json
    assert (answer["start_line"], answer["lines"]) == (start, lines)
    assert answer["content"].count("\n") == lines


def test_no_log_and_no_metrics_are_invented(api: Api, running_job: str) -> None:
    [line] = api.get(f"{running_job}/tasks/worker-1/logs/preview").json["content"].splitlines()
    assert line == "emulator: jobs are pretended, so there is no log"
    metrics = api.get(f"{running_job}/metrics/worker-1").json["metrics"]
    assert {tuple(one["value"]) for one in metrics} == {(-1, -1)}


WATCHED = ["tasks/{task}/logs/preview", "tasks/{task}/logs/url", "logs/{task}", "metrics/{task}"]


@pytest.mark.parametrize("path", WATCHED)
def test_unknown_task_is_refused(api: Api, running_job: str, path: str) -> None:
    response = api.get(f"{running_job}/{path.format(task='worker-2')}")
    assert (response.status_code, response.json["error_code"]) == (400, "ModelArts.2820")
