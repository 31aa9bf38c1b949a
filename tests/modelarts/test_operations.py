"""The service's other calls, logs and catalog, typed jobs, and answers in either of two spellings."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests

from reconciler.core.catalog import FlavorOffer, RecordQuota
from reconciler.core.fields.field_types import Cloud
from reconciler.emulator.app import Application
from reconciler.errors import Interrupted, NotFound, Rejected, Throttled, Unanswered, UnreadableAnswer
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.connect import ModelArtsBackend, WsgiAdapter, connect_inprocess
from reconciler.modelarts.http import ServiceSession, SessionOptions
from reconciler.modelarts.operations import ReportedJob
from tests.modelarts.building import PROJECT, StoppedClock
from tests.modelarts.conftest import LocalBackend
from tests.modelarts.serving import Canned

JOB = "66ff6991-fd66-40b6-8101-0829a46d3731"


@pytest.mark.parametrize("task_id", ["", ".", ".."])
def test_invalid_task_is_refused_unsent(task_id: str) -> None:
    with pytest.raises(NotFound):
        telling({}).logs.preview(JOB, task_id)


def test_hundred_jobs_are_deleted_by_one_request(local: LocalBackend) -> None:
    ids = local.add(*(f"job-{n}" for n in range(101)))
    with pytest.raises(NotFound):
        local.delete_many({**dict.fromkeys(ids, "job"), "..": "job"})
    local.delete_many(dict.fromkeys(ids, "job"))
    local.emulator.store.clock.advance(hours=1)
    assert local.observe().jobs == ()
    assert [served.operation for served in local.emulator.requests][:2] == ["BatchDeleteTrainingJob"] * 2


@pytest.mark.parametrize("cloud", Cloud)
def test_no_record_is_deleted_after_a_stop_request(emulator: Application, cloud: Cloud) -> None:
    stop = threading.Event()
    stop.set()
    backend = connect_inprocess(emulator, project_id=PROJECT, cloud=cloud, options=SessionOptions(stop=stop))
    with pytest.raises(Interrupted):
        backend.delete_many({JOB: "job"})
    assert not emulator.requests


# ── both spellings ─────────────────────────────────────────────────────────────────────────────────


def telling(answer: object, status: int = 200) -> ModelArtsBackend:
    return connect_inprocess(Canned((status, json.dumps(answer))), project_id=PROJECT)


def flavor(**info: object) -> object:
    return {"flavors": [{"flavor_id": "f", "flavor_info": info, "new": 1}]}


@pytest.mark.parametrize(
    ("answer", "read", "value"),
    [
        ({"content": "hello"}, lambda it: it.logs.preview(JOB, "worker-0").content, "hello"),
        ({"context": "hello"}, lambda it: it.logs.preview(JOB, "worker-0").content, "hello"),
        (
            {"metrics": [{"metric": "npuUtil", "value": [-1, "-1", 7, "8.5"]}]},
            lambda it: it.logs.metrics(JOB, "worker-0")[0].value,
            (None, None, 7, 8.5),
        ),
        (flavor(gpu={"product_name": "V"}), lambda it: the_flavor(it).cards, " x V"),
        (flavor(gpu={"product_nume": "V"}, npu=None), lambda it: the_flavor(it).cards, " x V"),
        (flavor(npu={"unit_num": 8, "memory": "32GB"}), lambda it: the_flavor(it).cards, "8 x  (32GB)"),
        (flavor(gpu={"unit_num": "8"}), lambda it: the_flavor(it).cards, "8 x "),
        (flavor(memory={"size": 50, "unit": "GB"}), lambda it: the_flavor(it).memory, "50 GB"),
        (flavor(memory={"size": "50"}), lambda it: the_flavor(it).memory, "50"),
        (flavor(memory={"size": ""}, cpu=[]), lambda it: the_flavor(it).memory, ""),
        (flavor(max_num="7"), lambda it: the_flavor(it).max_nodes, 7),
        (flavor(), lambda it: the_flavor(it).reported["new"], 1),
        ({"items": [{"run_user": "1102"}]}, lambda it: it.catalog.engine_offers().items[0].run_user, "1102"),
        ({"items": [{"run_user": 1102}]}, lambda it: it.catalog.engine_offers().items[0].run_user, "1102"),
        ({"items": [{"run_user": None}]}, lambda it: it.catalog.engine_offers().items[0].run_user, ""),
    ],
)
def test_catalog_value_is_read_in_either_spelling(
    answer: object, read: Callable[[Any], Any], value: object
) -> None:
    assert read(telling(answer)) == value


def the_flavor(backend: ModelArtsBackend) -> FlavorOffer:
    return backend.catalog.flavor_offers().items[0]


def test_job_has_typed_known_fields_and_keeps_unknown_ones() -> None:
    answer = {
        "metadata": {"id": "1", "name": "a", "create_time": "17", "description": None, "new": {"x": [1]}},
        "status": {"phase": "Running", "duration": {}, "tasks": None},
        "spec": {"resource": {"node_count": 2}},
    }
    job: Any = ReportedJob.model_validate(answer)
    assert (job.metadata.create_time, job.metadata.description, job.metadata.new) == (17, "", {"x": [1]})
    assert (job.status.phase, job.status.duration, job.status.tasks) == ("Running", None, ())
    assert job.spec == {"resource": {"node_count": 2}}
    assert repr(job) == str(job) == "<ReportedJob a 1: Running>"
    assert ReportedJob.model_validate({"status": 7}).status.phase == ""


@pytest.mark.parametrize("answer", [[], "x", {"events": 7}, {"events": ["x"]}])
def test_answer_of_unexpected_shape_is_unreadable(answer: object) -> None:
    with pytest.raises(UnreadableAnswer):
        telling(answer).logs.events(JOB)


# ── the catalog: a list with gaps, or an entry that cannot be read, says nothing ─────────────────────


def records(quota: object, used: object, **more: Any) -> dict[str, Any]:
    return {"resource": "job-num", "quota": quota, "used": used, **more}


@pytest.mark.parametrize(
    ("ids", "total", "is_whole"),
    [
        ([], None, False),
        ([], 0, False),
        (["a"], None, True),
        (["a", "b"], 2, True),
        (["a", "b"], "2", True),
        (["a", "b"], 1, True),
        (["a"], 2, False),
        (["a", "a"], 2, False),
        (["a", None], None, False),
        (["a", {"of": "another shape"}], None, False),
        (["a", ""], 2, False),
    ],
)
def test_list_is_whole_if_each_entry_was_read(ids: list[object], total: object, is_whole: bool) -> None:
    flavors = telling({"total_count": total, "flavors": [{"flavor_id": one} for one in ids]})
    assert flavors.catalog.flavor_offers().is_whole is is_whole
    engines = telling({"total": total, "items": [{"engine_id": one} for one in ids]})
    assert engines.catalog.engine_offers().is_whole is is_whole


@pytest.mark.parametrize(
    ("quotas", "quota"),
    [
        ([], None),
        ([records(100, 3)], RecordQuota(100, 3)),
        ([records("100", "3")], RecordQuota(100, 3)),
        ([records(None, 3)], RecordQuota(None, 3)),
        ([records(-1, 3)], RecordQuota(-1, 3)),
        ([records(1, 1, resource="job-retention-enabled")], None),
        ([records(1, 1, resource="job-retention-enabled"), records(100, 3)], RecordQuota(100, 3)),
        ([{"quota": 100, "used": 3}], RecordQuota(100, 3)),
        ([{"quota": 1, "used": 1}, {"quota": 100, "used": 3}], None),
    ],
)
def test_quota_is_that_of_job_records(quotas: list[dict[str, Any]], quota: RecordQuota | None) -> None:
    assert telling({"quotas": quotas}).catalog.record_quota() == quota


@pytest.mark.parametrize("code", ["ModelArts.2890", "ModelArts.2886", "ModelArts.2887"])
@pytest.mark.parametrize("flavor_id", [None, "modelarts.pool.visual.xlarge"])
def test_pool_refusal_has_its_code(code: str, flavor_id: str | None) -> None:
    backend = telling({"error_code": code, "error_msg": "no"}, 400)
    refusal = backend.catalog.pool_refusal("pool1", flavor_id)
    assert refusal is not None
    assert refusal.code == code


def test_unknown_flavor_refuses_a_pool_only_if_a_flavor_was_requested() -> None:
    backend = telling({"error_code": "ModelArts.2781", "error_msg": "flavor  not found"}, 400)
    assert backend.catalog.pool_refusal("pool1", "modelarts.pool.visual.xlarge") is not None
    with pytest.raises(Rejected):  # an unsupported request says nothing about the pool
        backend.catalog.pool_refusal("pool1", None)


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({}, 5), ({"Retry-After": "10"}, 2), ({"Retry-After": "20"}, 1), ({"Retry-After": "600"}, 1)],
)
def test_throttled_catalog_is_given_up_soon(headers: dict[str, str], sent: int) -> None:
    app, clock = Canned((429, "{}", headers)), StoppedClock()
    backend = connect_inprocess(app, project_id=PROJECT, options=SessionOptions(clock=clock))
    with pytest.raises(Throttled):
        backend.catalog.record_quota()
    assert len(app.environs) == sent
    assert sum(clock.slept) <= 15


def test_unresponsive_catalog_is_read_once() -> None:
    app, clock = Canned((200, "{}")), StoppedClock()

    class Silent(WsgiAdapter):
        def send(self, *args: Any, **options: Any) -> requests.Response:
            super().send(*args, **options)
            clock.sleep(60)
            raise requests.ReadTimeout

    options = SessionOptions(clock=clock, make_adapter=lambda: Silent(app))
    backend = ModelArtsBackend(ServiceSession("http://localhost", Anonymous(), options), PROJECT)
    with pytest.raises(Unanswered):
        backend.catalog.engine_offers()
    assert len(app.environs) == 1
