"""The calls about jobs with typed questions and answers, on every cloud and in every way of asking."""

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
from reconciler.emulator.app import Application
from reconciler.errors import NameTaken, NotFound, Rejected, Throttled, UnreadableAnswer, WrongPhase
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.connect import connect_inprocess
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.job_models import ActionBody, Jobs
from tests.modelarts.building import PROJECT, StoppedClock, a_body, an_answer
from tests.modelarts.documented import has_place
from tests.modelarts.locations import NOBODY, Place
from tests.modelarts.serving import Canned


def named(text: str) -> Search:
    return Search(filters=[Filter(key="name", operator="like", value=[text])])


def answering(*answers: object, cloud: Cloud = Cloud.HUAWEI) -> tuple[Jobs, Canned]:
    """The jobs of a service that answers so, whatever it is asked."""
    app = Canned(*((200, json.dumps(answer)) for answer in answers))
    return connect_inprocess(app, project_id=PROJECT, cloud=cloud).jobs, app


def sent(app: Canned) -> Any:
    return json.load(app.environs[-1]["wsgi.input"])


# ── the contract ───────────────────────────────────────────────────────────────────────────────────


def test_job_in_details_and_search_is_typed(place: Place) -> None:
    job_id = place.create(description="for a test").id
    jobs = place.backend.jobs
    details = jobs.details(job_id)
    [found] = jobs.search(named(place.name("resnet50")))
    assert [job.metadata for job in (details, found)] == [details.metadata] * 2
    assert (details.metadata.id, details.metadata.description) == (job_id, "for a test")
    assert details.metadata.create_time is not None
    assert details.spec is not None
    assert details.spec.resource is not None
    assert details.spec.resource.node_count == place.body()["spec"]["resource"]["node_count"]


def test_job_is_created_and_deleted(place: Place) -> None:
    jobs = place.backend.jobs
    template = place.body()
    said = {key: template[key] for key in ("kind", "algorithm", "spec")}
    created = jobs.create(place.name("typed"), JobBody.model_validate({**said, "description": "by hand"}))
    assert (created.metadata.name, created.metadata.description) == (place.name("typed"), "by hand")
    assert created.metadata.workspace_id == place.backend.workspace_id
    with pytest.raises(NameTaken):
        jobs.create(place.name("typed"), JobBody.model_validate(said))
    job_id = created.metadata.id
    jobs.terminate(job_id)
    place.wait(lambda: jobs.details(job_id).status.phase == "Terminated")
    jobs.delete(job_id)
    place.wait(lambda: place.is_gone(job_id))


def test_job_is_changed_and_terminated(place: Place) -> None:
    job_id = place.create().id
    jobs = place.backend.jobs
    jobs.update(job_id, UpdateBody(description="changed"))
    assert jobs.details(job_id).metadata.description == "changed"
    jobs.update(job_id, UpdateBody(description=""))
    assert jobs.details(job_id).metadata.description == ""
    assert jobs.terminate(job_id).status.phase in {"Terminating", "Terminated"}
    place.wait(lambda: jobs.details(job_id).status.phase == "Terminated")
    with pytest.raises(WrongPhase):
        jobs.terminate(job_id)


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.details(NOBODY),
        lambda jobs: jobs.update(NOBODY, UpdateBody(description="x")),
        lambda jobs: jobs.terminate(NOBODY),
        lambda jobs: jobs.delete(NOBODY),
        lambda jobs: jobs.details("../x"),
    ],
)
def test_call_for_a_missing_job_raises_not_found(place: Place, call: Callable[[Jobs], object]) -> None:
    with pytest.raises(NotFound):
        call(place.backend.jobs)


# ── searching ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def many(emulator: Application) -> Application:
    """A workspace of 130 jobs."""
    for n in range(130):
        emulator.store.create(PROJECT, a_body(f"job-{n:03}"))
        emulator.store.clock.advance(seconds=1)
    return emulator


@pytest.mark.parametrize(
    ("search", "limit", "names", "requests"),
    [
        (Search(), None, [f"job-{n:03}" for n in range(130)], 3),
        (Search(order="desc"), 60, [f"job-{n:03}" for n in range(129, 69, -1)], 2),
        (SearchBody(offset=1, limit=1), 2, ["job-000", "job-001"], 1),  # pages are turned by us
        (named("job-12"), 3, ["job-120", "job-121", "job-122"], 1),
    ],
)
def test_search_reads_further_pages_up_to_the_limit(
    many: Application,
    local: ModelArtsBackend,
    search: Search,
    limit: int | None,
    names: list[str],
    requests: int,
) -> None:
    assert [job.metadata.name for job in local.jobs.search(search, limit)] == names
    assert len(many.requests) == requests


def test_single_page_is_returned_as_the_service_sends_it(many: Application, local: ModelArtsBackend) -> None:
    page = local.jobs.page(SearchBody(offset=2, limit=50, order="asc", sort_by="create_time"))
    assert [job.metadata.name for job in page.items] == [f"job-{n}" for n in range(100, 130)]
    assert (page.total, page.limit, page.offset, page.order, page.workspace_id) == (130, 50, 2, "asc", "0")


def test_jobs_are_found_by_their_tags(emulator: Application, local: ModelArtsBackend) -> None:
    ids = [emulator.store.create(PROJECT, a_body(name)).id for name in ("a", "b")]
    emulator.store.tag(PROJECT, ids[1], {"team": "vision"})
    for tag in (TagFilter(key="team"), TagFilter(key="team", values=["nlp", "vision"])):
        assert [job.metadata.id for job in local.jobs.search(Search(tags=[tag]))] == ids[1:]
    untagged = local.tags.find({}, without_any=True)
    assert [job.resource_id for job in untagged] == ids[:1]
    assert local.tags.count({}, name="B") == 1


def test_search_sends_its_whole_body() -> None:
    body = SearchBody(
        offset=0,
        limit=7,
        sort_by="create_time",
        order="desc",
        group_by="",
        workspace_id="w1",
        train_type="job",
        unified_jobs=False,
        filters=[Filter(key="phase", operator="not", value=["Failed"])],
        tags=[TagFilter(key="team")],
        host_ips=["192.168.0.1"],
    )
    jobs, app = answering({"items": None, "count": 0})
    assert jobs.page(body).items == ()
    assert sent(app) == {
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


def test_failure_of_the_service_is_raised(clock: StoppedClock) -> None:
    app = Canned((429, "{}", {"Retry-After": "0"}))
    with pytest.raises(Throttled):
        connect_inprocess(app, project_id=PROJECT, options=SessionOptions(clock=clock)).jobs.search()


# ── changing ───────────────────────────────────────────────────────────────────────────────────────

KEYS = {"ssh": {"key_pair_names": ()}}


def test_update_sends_only_the_given_fields() -> None:
    jobs, app = answering(None)
    changes = UpdateBody(spec={"schedule_policy": {"preemptible": False}}, endpoints=KEYS)
    jobs.update("job-1", changes)
    assert sent(app) == {
        "spec": {"schedule_policy": {"preemptible": False}},
        "endpoints": {"ssh": {"key_pair_names": []}},
    }


def test_update_accepts_the_mutable_fields_only() -> None:
    wanted = {path for path in mutable_paths() if path != ("description",)}
    found = {path for path in wanted if has_place(UpdateBody, ".".join(path))}
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
    assert "reconciler.modelarts.backend" in loaded
    assert (
        not {f"reconciler.modelarts.{name}" for name in ("jobs", "models", "operations", "job_models")}
        & loaded
    )
