"""Parsing a job: fields read, tolerated values, and unreadable jobs."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.modelarts.observe import read_job
from tests.modelarts.building import MARKER, an_answer


def test_job_times_are_converted_to_seconds() -> None:
    job = read_job(an_answer())
    assert isinstance(job, ObservedJob)
    assert (job.created_at_s, job.started_at_s, job.duration_s) == (1_641_892_642.625, 1_641_892_655.0, 268.0)


def test_unknown_fields_stay_in_the_body() -> None:
    job = read_job(an_answer(status__mood="good"))
    assert isinstance(job, ObservedJob)
    assert job.body["status"]["mood"] == "good"


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"metadata__description": None}, "description", ""),
        ({"metadata__description": ...}, "description", ""),
        ({"status__start_time": "1641892655000"}, "started_at_s", 1_641_892_655.0),
        ({"status__start_time": 0}, "started_at_s", None),
        ({"status__start_time": ""}, "started_at_s", None),
        ({"status__start_time": True}, "started_at_s", None),
        ({"status__start_time": 10**20}, "started_at_s", None),
        ({"status__duration": "268000"}, "duration_s", 268.0),
        ({"status__duration": None}, "duration_s", None),
        ({"metadata__create_time": []}, "created_at_s", None),
        ({"status__secondary_phase": 7}, "secondary_phase", ""),
        ({"status__phase": "Hibernating"}, "phase", None),
        ({"spec__resource__node_count": "4"}, "node_count", 4),
        ({"spec__resource__node_count": None}, "node_count", 1),
        ({"spec": None}, "node_count", 1),
        ({"spec": ..., "tasks": [{"task_resource": {"node_count": n}} for n in (2, 3)]}, "node_count", 5),
    ],
)
def test_odd_optional_value_is_read_as_default_or_converted(
    changes: dict[str, Any], field: str, value: object
) -> None:
    job = read_job(an_answer(**changes))
    assert isinstance(job, ObservedJob)
    assert getattr(job, field) == value


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"metadata__id": ...}, "metadata.id"),
        ({"metadata__id": 7}, "metadata.id"),
        ({"metadata__name": ""}, "metadata.name"),
        ({"metadata__description": ["x"]}, "metadata.description"),
        ({"status": None}, "status.phase"),
        ({"status__phase": 3}, "status.phase"),
        ({"metadata": None}, "metadata"),
    ],
)
def test_unreadable_job_names_the_wrong_field(changes: dict[str, Any], wrong: str) -> None:
    job = read_job(an_answer(**changes))
    assert isinstance(job, Unreadable)
    assert wrong in job.why


@pytest.mark.parametrize("item", [None, "job", 7, []])
def test_job_that_is_no_object_is_unreadable(item: object) -> None:
    assert isinstance(read_job(item), Unreadable)


def test_unreadable_job_keeps_its_marker() -> None:
    job = read_job(an_answer(status="broken"))
    assert isinstance(job, Unreadable)
    assert (job.name, job.id) == ("resnet50", "66ff6991-fd66-40b6-8101-0829a46d3731")
    assert str(job.claimed) == MARKER
