"""The service's other calls, and answers in either of two spellings."""

from __future__ import annotations

import json

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.emulator.app import Application
from reconciler.errors import NotFound, Rejected, UnreadableAnswer
from reconciler.modelarts.connect import ModelArtsBackend
from reconciler.modelarts.inprocess import connect_inprocess
from tests.modelarts.building import PROJECT, a_body
from tests.modelarts.serving import Canned

JOB = "66ff6991-fd66-40b6-8101-0829a46d3731"


@pytest.fixture
def job_id(emulator: Application) -> str:
    """A job that has run for ten minutes."""
    job = emulator.store.create(PROJECT, a_body())
    emulator.store.clock.advance(minutes=15)
    emulator.store.set_phase(job.id, "Running")
    emulator.store.hold(job.id)
    emulator.store.clock.advance(minutes=10)
    return job.id


def test_log_and_metrics_of_a_running_task_are_read(local: ModelArtsBackend, job_id: str) -> None:
    backend = local
    preview = backend.logs.preview(job_id, "worker-0")
    lines = backend.logs.lines(job_id, "worker-0", lines=2)
    assert preview is not None
    assert preview.current_size == preview.full_size == len(preview.content)
    assert lines is not None
    assert lines.content == "".join(preview.content.splitlines(keepends=True)[-2:])
    assert (backend.logs.url(job_id, "worker-0") or "").endswith("preview")
    assert (backend.logs.url(job_id, "worker-0", download=True) or "").endswith("download")
    by_name = {metric.metric: metric.value for metric in backend.logs.metrics(job_id, "worker-0") or ()}
    assert by_name["cpuUsage"][0] == 40 + 8 * 7 % 50
    assert set(by_name["npuUtil"]) == {None}


def test_log_url_is_signed_and_sent_as_any_other_request(backend: ModelArtsBackend) -> None:
    created = backend.create(a_body())
    assert backend.logs.url(created.id, "worker-0") is None


@pytest.mark.parametrize("task_id", ["", ".", "..", "worker-9", "a/../b"])
def test_unknown_or_invalid_task_is_refused(local: ModelArtsBackend, job_id: str, task_id: str) -> None:
    with pytest.raises(Rejected):
        local.logs.preview(job_id, task_id)


def test_hundred_jobs_are_deleted_by_one_request(emulator: Application, local: ModelArtsBackend) -> None:
    ids = [emulator.store.create(PROJECT, a_body(f"job-{n}")).id for n in range(101)]
    with pytest.raises(NotFound):
        local.delete_many({**dict.fromkeys(ids, "job"), "..": "job"})
    local.delete_many(dict.fromkeys(ids, "job"))
    emulator.store.clock.advance(hours=1)
    assert local.observe().jobs == ()
    assert [served.operation for served in emulator.requests][:2] == ["BatchDeleteTrainingJob"] * 2


def test_pool_is_not_asked_for_on_otc() -> None:
    app = Canned((200, "{}"))
    backend = connect_inprocess(app, project_id=PROJECT, cloud=Cloud.OTC)
    with pytest.raises(Rejected, match="does not support"):
        backend.catalog.pool_refusal("pool", None)
    assert app.environs == []


def test_event_source_is_sent_to_otc_only() -> None:
    app = Canned((200, "{}"))
    for cloud in Cloud:
        backend = connect_inprocess(app, project_id=PROJECT, cloud=cloud)
        if cloud is Cloud.OTC:
            backend.logs.events(JOB, source="K8S")
        else:
            with pytest.raises(Rejected, match="source"):
                backend.logs.events(JOB, source="K8S")
    assert [environ["QUERY_STRING"] for environ in app.environs] == ["source=K8S"]


# ── both spellings ─────────────────────────────────────────────────────────────────────────────────


def telling(answer: object) -> ModelArtsBackend:
    return connect_inprocess(Canned((200, json.dumps(answer))), project_id=PROJECT)


@pytest.mark.parametrize("total", [7, "7"])
def test_events_total_is_read_from_text(total: object) -> None:
    assert telling({"total": total, "events": None}).logs.events(JOB).total == 7


@pytest.mark.parametrize("field", ["content", "context"])
def test_log_preview_is_read_from_content_or_context(field: str) -> None:
    preview = telling({field: "hello"}).logs.preview(JOB, "worker-0")
    assert preview is not None
    assert preview.content == "hello"


@pytest.mark.parametrize("spelling", ["product_name", "product_nume"])
@pytest.mark.parametrize("unit_num", [8, "8"])
@pytest.mark.parametrize("size", [50, "50", ""])
def test_flavor_is_read_in_either_spelling(spelling: str, unit_num: object, size: object) -> None:
    info = {"gpu": {"unit_num": unit_num, spelling: "V100"}, "npu": None, "disk": {"size": size}}
    (flavor,) = telling({"flavors": [{"flavor_id": "f", "flavor_info": info, "new": 1}]}).catalog.flavors()
    assert flavor.flavor_info is not None
    assert flavor.flavor_info.gpu is not None
    assert (flavor.flavor_info.gpu.unit_num, flavor.flavor_info.gpu.product_name) == (8, "V100")
    assert flavor.flavor_info.disk is not None
    assert flavor.flavor_info.disk.size in {50, None}
    assert flavor.model_extra == {"new": 1}


@pytest.mark.parametrize("run_user", ["1102", 1102, None])
def test_engine_run_user_is_read_from_text_or_number(run_user: object) -> None:
    (engine,) = telling({"items": [{"engine_id": "e", "run_user": run_user}]}).catalog.engines()
    assert engine.run_user in {"1102", ""}


@pytest.mark.parametrize("answer", [[], "x", {"events": 7}, {"events": ["x"]}])
def test_answer_of_unexpected_shape_is_unreadable(answer: object) -> None:
    with pytest.raises(UnreadableAnswer):
        telling(answer).logs.events(JOB)
