"""Searching as people do: newest first, no further than the limit; and the clock that answers tell of."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler import Search, SearchBody
from reconciler.core.fields.field_types import Cloud
from reconciler.emulator.app import Application
from reconciler.errors import Rejected, Unauthorized
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.connect import connect_inprocess
from reconciler.modelarts.http import SessionOptions
from tests.modelarts.building import PROJECT, StoppedClock, a_body
from tests.modelarts.serving import Canned


@pytest.fixture
def many(emulator: Application) -> Application:
    """A workspace of 130 jobs."""
    for n in range(130):
        emulator.store.create(PROJECT, a_body(f"job-{n:03}"))
        emulator.store.clock.advance(seconds=1)
    return emulator


@pytest.mark.parametrize(("limit", "requests"), [(1, 1), (50, 1), (51, 2), (100, 2), (130, 3), (None, 3)])
def test_search_reads_only_the_pages_needed_for_its_limit(
    many: Application, local: ModelArtsBackend, limit: int | None, requests: int
) -> None:
    found = local.search(order="desc", limit=limit)
    assert [job.name for job in found.jobs][:2] == ["job-129", "job-128"]
    assert len(found.jobs) >= min(limit or 130, 130)
    assert found.problem is None
    assert len(many.requests) == requests


def test_search_limit_counts_wanted_jobs_only(many: Application, local: ModelArtsBackend) -> None:
    found = local.search(limit=1, wanted=lambda job: job.name == "job-120")
    assert "job-120" in {job.name for job in found.jobs}
    assert len(many.requests) == 3


def test_further_fields_of_the_search_are_sent(emulator: Application, local: ModelArtsBackend) -> None:
    tagged, _ = (emulator.store.create(PROJECT, a_body(name)) for name in ("tagged", "plain"))
    emulator.store.tag(PROJECT, tagged.id, {"team": "vision"})
    tags = [{"key": "team", "values": ["vision"]}]
    assert [job.name for job in local.search(more={"tags": tags}).jobs] == ["tagged"]


@pytest.mark.parametrize(
    "more",
    [
        {"tags": [{"key": "team"}]},
        {"host_ips": ["192.168.0.1"]},
        {"train_type": "job"},
        {"unified_jobs": False},
    ],
)
def test_search_field_unknown_to_otc_is_refused_unsent(more: dict[str, Any]) -> None:
    """It would be ignored, and the answer taken for what was asked."""
    app = Canned((200, '{"items": []}'))
    [field] = more
    with connect_inprocess(app, project_id=PROJECT, cloud=Cloud.OTC) as backend:
        for ask in (
            lambda: backend.search(more=more),
            lambda: backend.ask_for_page(more),
            lambda: backend.jobs.search(Search.model_validate(more)),
            lambda: backend.jobs.page(SearchBody.model_validate(more)),
        ):
            with pytest.raises(Rejected, match=f"does not support searching by {field}"):
                ask()
        assert app.environs == []
        backend.search(more=dict.fromkeys(more))
        backend.search(more={"tags": [], "host_ips": (), "train_type": ""})
    assert len(app.environs) == 2


DATE = "Thu, 06 Aug 2026 06:26:40 GMT"  # 1 785 997 600 s


def asking(clock: StoppedClock, status: int, headers: dict[str, str]) -> ModelArtsBackend:
    body: Any = '{"error_code": "APIGW.0301", "error_msg": "Incorrect IAM authentication information"}'
    return connect_inprocess(
        Canned((status, body, headers)), project_id=PROJECT, options=SessionOptions(clock=clock)
    )


@pytest.mark.parametrize(
    ("headers", "skew_s"), [({}, None), ({"Date": DATE}, 1200.0), ({"Date": "yesterday"}, None)]
)
def test_clock_skew_is_read_from_the_date_header(headers: dict[str, str], skew_s: float | None) -> None:
    backend = asking(StoppedClock(1_785_997_600 + 1200), 401, headers)
    assert backend.session.skew_s is None
    with pytest.raises(Unauthorized):
        backend.search()
    assert backend.session.skew_s == skew_s


@pytest.mark.parametrize(
    ("ahead_s", "fix"),
    [
        (1200, "it is 20 min ahead of the service's"),
        (-1200, "it is 20 min behind the service's"),
        (890, "check the credentials"),
    ],
)
def test_unauthorized_answer_with_clock_skew_names_the_clock(ahead_s: float, fix: str) -> None:
    with pytest.raises(Unauthorized) as refusal:
        asking(StoppedClock(1_785_997_600 + ahead_s), 401, {"Date": DATE}).search()
    assert fix in (refusal.value.diagnostics[0].fix or "")


def test_forbidden_answer_does_not_blame_the_clock() -> None:
    with pytest.raises(Unauthorized) as refusal:
        asking(StoppedClock(1_785_997_600 + 1200), 403, {"Date": DATE}).search()
    assert "clock: it is" not in (refusal.value.diagnostics[0].fix or "")
