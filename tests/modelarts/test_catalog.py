"""What a catalog is taken to say: a list with gaps, or an entry that cannot be read, says nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from reconciler.core.catalog import RecordQuota
from reconciler.errors import Rejected, Throttled, Unanswered
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.connect import ModelArtsBackend
from reconciler.modelarts.http import ServiceSession, SessionOptions
from reconciler.modelarts.inprocess import WsgiAdapter, connect_inprocess
from tests.modelarts.building import PROJECT, StoppedClock
from tests.modelarts.serving import Canned


def telling(answer: object, status: int = 200) -> ModelArtsBackend:
    return connect_inprocess(Canned((status, json.dumps(answer))), project_id=PROJECT)


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
    if not any(isinstance(one, dict) for one in ids):  # an engine of another shape is an unreadable answer
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
def test_pool_is_refused(code: str, flavor_id: str | None) -> None:
    backend = telling({"error_code": code, "error_msg": "no"}, 400)
    refusal = backend.catalog.pool_refusal("pool1", flavor_id)
    assert refusal is not None
    assert refusal.code == code


def test_unknown_flavor_refuses_a_pool_only_where_one_was_wanted() -> None:
    backend = telling({"error_code": "ModelArts.2781", "error_msg": "flavor  not found"}, 400)
    assert backend.catalog.pool_refusal("pool1", "modelarts.pool.visual.xlarge") is not None
    with pytest.raises(Rejected):  # a question that the service does not take says nothing of the pool
        backend.catalog.pool_refusal("pool1", None)


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({}, 5), ({"Retry-After": "10"}, 2), ({"Retry-After": "20"}, 1), ({"Retry-After": "600"}, 1)],
)
def test_catalog_that_throttles_is_soon_given_up(headers: dict[str, str], sent: int) -> None:
    app, clock = Canned((429, "{}", headers)), StoppedClock()
    backend = connect_inprocess(app, project_id=PROJECT, options=SessionOptions(clock=clock))
    with pytest.raises(Throttled):
        backend.catalog.record_quota()
    assert len(app.environs) == sent
    assert sum(clock.slept) <= 15


def test_catalog_that_never_answers_is_asked_once() -> None:
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
