"""The calls about jobs with typed questions and answers; `test_contract` has what holds everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from reconciler import Filter, JobBody, ReportedJob, Search, SearchBody, TagFilter, UpdateBody
from reconciler.core.canonical import mutable_paths
from reconciler.core.fields.field_types import Cloud
from reconciler.errors import Rejected, UnreadableAnswer
from reconciler.modelarts.inprocess import connect_inprocess
from reconciler.modelarts.job_models import ActionBody, Jobs
from tests.modelarts.building import PROJECT, an_answer
from tests.modelarts.conftest import LocalBackend
from tests.modelarts.documented import kind_of
from tests.modelarts.serving import Canned


def answering(*answers: object, cloud: Cloud = Cloud.HUAWEI) -> tuple[Jobs, Canned]:
    app = Canned(*((200, json.dumps(answer)) for answer in answers))
    return connect_inprocess(app, project_id=PROJECT, cloud=cloud).jobs, app


def sent(app: Canned) -> Any:
    return json.load(app.environs[-1]["wsgi.input"])


# ── searching ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("search", "limit", "names", "requests"),
    [
        (Search(), None, [f"job-{n:03}" for n in range(130)], 3),
        (SearchBody(offset=1, limit=1, order="desc"), 60, [f"job-{n:03}" for n in range(129, 69, -1)], 2),
        ("page", None, [f"job-{n}" for n in range(100, 130)], 1),
    ],
)
def test_search_turns_pages_up_to_the_limit_and_a_page_is_as_sent(
    local: LocalBackend, search: Any, limit: int | None, names: list[str], requests: int
) -> None:
    local.add(*(f"job-{n:03}" for n in range(130)))
    if search == "page":
        page = local.jobs.page(SearchBody(offset=2, limit=50, order="asc", sort_by="create_time"))
        told = (page.total, page.limit, page.offset, page.order, page.workspace_id)
        assert told == (130, 50, 2, "asc", "0")
        found = page.items
    else:
        found = local.jobs.search(search, limit)
    assert [job.metadata.name for job in found] == names
    assert len(local.emulator.requests) == requests


def test_jobs_are_found_by_their_tags(local: LocalBackend) -> None:
    ids = local.add("a", "b")
    local.emulator.store.tag(PROJECT, ids[1], {"team": "vision"})
    for tag in (TagFilter(key="team"), TagFilter(key="team", values=["nlp", "vision"])):
        assert [job.metadata.id for job in local.jobs.search(Search(tags=[tag]))] == ids[1:]
    untagged = local.tags.find({}, without_any=True)
    assert [job.resource_id for job in untagged] == ids[:1]
    assert local.tags.count({}, name="B") == 1


def test_search_sends_its_whole_body() -> None:
    body: dict[str, Any] = {
        "offset": 0,
        "limit": 7,
        "sort_by": "create_time",
        "order": "desc",
        "group_by": "",
        "workspace_id": "w1",
        "train_type": "job",
        "unified_jobs": False,
        "filters": [{"key": "phase", "operator": "not", "value": ["Failed"]}],
        "tags": [{"key": "team"}],
        "host_ips": ["192.168.0.1"],
    }
    jobs, app = answering({"items": None, "count": 0})
    assert jobs.page(SearchBody.model_validate(body)).items == ()
    assert sent(app) == body
    jobs.page(SearchBody())
    assert sent(app) == {"workspace_id": "0"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Search.model_validate({"filter": []}),
        lambda: Search(order="up"),
        lambda: SearchBody(limit=51),
        lambda: SearchBody(offset=-1),
        lambda: Filter(key="name", operator="is", value=["x"]),
        lambda: Filter(key="name", operator="in", value=["x"] * 11),
        lambda: UpdateBody(description="x" * 257),
        lambda: UpdateBody.model_validate({"desription": "x"}),
        lambda: ActionBody(action_type="restart"),
    ],
)
def test_invalid_search_update_or_action_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValidationError):
        wrong()


@pytest.mark.parametrize("answer", [[], "x", {}, {"items": 7}, {"items": ["x"]}])
def test_page_of_unexpected_shape_is_unreadable(answer: object) -> None:
    jobs, _ = answering(answer)
    with pytest.raises(UnreadableAnswer):
        jobs.page(SearchBody())
    if answer == {"items": ["x"]}:
        assert [lost.why for lost in jobs.search().unreadable] == ["a list entry is not an object"]
        return
    with pytest.raises(UnreadableAnswer):
        jobs.search()


def test_job_without_fields_needed_by_a_plan_hides_no_other() -> None:
    jobs, _ = answering(
        {"items": [an_answer(status__phase=...), an_answer(metadata__id="b", status__duration={})], "new": 1}
    )
    page = jobs.page(SearchBody())
    assert [job.status.phase for job in page.items] == ["", "Running"]
    assert page.items[1].status.model_extra == {"duration": {}}
    assert page.model_extra == {"new": 1}
    found = jobs.search()
    assert [job.metadata.id for job in found] == ["b"]
    [lost] = found.unreadable
    assert (lost.id, lost.why) == (an_answer()["metadata"]["id"], "status.phase missing or not text")


# ── changing ───────────────────────────────────────────────────────────────────────────────────────

KEYS = {"ssh": {"key_pair_names": ()}}


def test_update_sends_only_the_given_fields() -> None:
    jobs, app = answering(None)
    changes = UpdateBody(spec={"schedule_policy": {"preemptible": False}}, endpoints=KEYS)
    jobs.update("job-1", changes)
    policy, ssh = {"preemptible": False}, {"key_pair_names": list[str]()}
    assert sent(app) == {"spec": {"schedule_policy": policy}, "endpoints": {"ssh": ssh}}


def test_update_accepts_the_mutable_fields_only() -> None:
    wanted = {path for path in mutable_paths() if path != ("description",)}
    found = {path for path in wanted if kind_of(UpdateBody, ".".join(path))}
    assert found == wanted
    with pytest.raises(ValueError, match="Extra inputs"):
        UpdateBody(spec={"resource": {"node_count": 2}})
    with pytest.raises(ValueError, match="less than or equal to 3"):
        UpdateBody(spec={"schedule_policy": {"priority": 4}})


def test_update_not_supported_on_otc_is_refused_unsent() -> None:
    jobs, app = answering(None, cloud=Cloud.OTC)
    with pytest.raises(Rejected, match="can change only the description"):
        jobs.update("job-1", UpdateBody(description="x", endpoints=KEYS))
    assert app.environs == []


def test_create_sends_only_the_given_fields_and_defaults() -> None:
    jobs, app = answering(an_answer())
    said = {
        "algorithm": {"command": "x", "engine": {"image_url": "o/i:1"}, "environments": {"DEBUG": 1}},
        "annotations": {"fault-tolerance/job-retry-num": 3},
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u"}},
    }
    assert jobs.create("typed", JobBody.model_validate(said)).metadata.name == "resnet50"
    assert sent(app) == {
        "kind": "job",
        "metadata": {
            "name": "typed",
            "workspace_id": "0",
            "description": "",
            "annotations": {"fault-tolerance/job-retry-num": "3"},
        },
        "algorithm": {"command": "x", "engine": {"image_url": "o/i:1"}, "environments": {"DEBUG": "1"}},
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
    }
    with pytest.raises(ValidationError):
        JobBody.model_validate({**said, "algoritm": {}})


def test_terminate_returns_the_current_job() -> None:
    jobs, app = answering(an_answer(status__phase="Terminating"))
    assert jobs.terminate("job-1") == ReportedJob.model_validate(an_answer(status__phase="Terminating"))
    assert sent(app) == {"action_type": "terminate"}
    jobs, _ = answering([])
    with pytest.raises(UnreadableAnswer, match="not a job"):
        jobs.terminate("job-1")


def test_plan_imports_no_typed_job_models() -> None:
    probe = "import sys, reconciler.reconcile, reconciler.modelarts.connect; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "reconciler.modelarts.connect" in loaded
    assert (
        not {f"reconciler.modelarts.{name}" for name in ("jobs", "models", "operations", "job_models")}
        & loaded
    )
