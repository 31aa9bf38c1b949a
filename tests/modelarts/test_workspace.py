"""Reading a workspace: full scan or filtered searches, their cost, and the end of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Observation, SearchFilter
from reconciler.emulator.app import Application, create_app
from reconciler.emulator.database import ManualClock
from reconciler.emulator.faults import Effect, Fault
from reconciler.emulator.store import Store
from reconciler.errors import Rejected, Unauthorized, UnreadableAnswer
from reconciler.modelarts.connect import ModelArtsBackend, connect_inprocess
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.observe import SearchPage
from tests.modelarts.building import PROJECT, StoppedClock
from tests.modelarts.conftest import LocalBackend
from tests.modelarts.serving import Canned

DECLARED = ["resnet50", "bert", "lr-sweep"]


@pytest.fixture(scope="module")
def old_project() -> Iterator[ModelArtsBackend]:
    """5,000 finished jobs, and four running ones."""
    with Store(clock=ManualClock()) as store, LocalBackend(create_app(store, project_id=PROJECT)) as backend:
        backend.add(*(f"old-{n}" for n in range(5000)))
        store.clock.advance(hours=1000)
        backend.add(*DECLARED, "resnet50-r2")
        yield backend


def never(seen: Observation) -> bool:
    return False


Told = Callable[[SearchPage], SearchPage]
SEARCHES = "filtered searches"
GIVEN_UP = f"{SEARCHES}, abandoned; then full scan"


@pytest.mark.parametrize(
    ("names", "told", "requests", "strategy"),
    [
        (DECLARED, None, (5, 5), f"4 {SEARCHES} (active jobs, 3 names)"),
        # The first page of a search has the total.
        (["old", "ol"], None, (103, 103), GIVEN_UP),
        # Its total is unreliable: none, all jobs regardless of the filter, too few.
        (["ol"], lambda page: page._replace(matching=None), (102, 152), GIVEN_UP),
        (["ol"], lambda page: page._replace(matching=5004), (102, 152), GIVEN_UP),
        (["ol"], lambda page: page._replace(matching=51), (102, 152), GIVEN_UP),
        (["ol"], lambda page: page._replace(matching=4999), (102, 103), GIVEN_UP),
        # Pages may be prefetched.
        (
            ["old-12", *DECLARED],
            lambda page: page._replace(matching=5004),
            (5, 20),
            f"5 {SEARCHES} (active jobs, 4 names)",
        ),
        (
            DECLARED,
            lambda page: page._replace(total=None),
            (9, 10),
            f"full scan, abandoned; then 4 {SEARCHES} (active jobs, 3 names)",
        ),
    ],
)
def test_cheaper_read_strategy_is_used(
    old_project: ModelArtsBackend,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    told: Told | None,
    requests: tuple[int, int],
    strategy: str,
) -> None:
    fetch = old_project._page

    def telling(offset: int, filters: Sequence[SearchFilter], **more: Any) -> SearchPage:
        page = fetch(offset, filters, **more)
        return told(page) if told and (filters or told(page).total is None) else page

    monkeypatch.setattr(old_project, "_page", telling)
    seen = old_project.observe(names, never)
    assert (seen.problem, seen.strategy) == (None, strategy)
    assert requests[0] <= seen.requests <= requests[1]
    found = {job.name for job in seen.jobs}
    assert {*DECLARED, "resnet50-r2"} <= found
    assert seen.is_whole == (len(found) == 5004) == strategy.endswith("full scan")


def test_absence_of_a_job_is_proven_by_a_full_scan(old_project: ModelArtsBackend) -> None:
    seen = old_project.observe(
        [*DECLARED, "new"], lambda seen: not any(job.name == "new" for job in seen.jobs)
    )
    assert (seen.is_whole, len(seen.jobs), seen.requests) == (True, 5004, 6 + 101)
    assert "then full scan" in seen.strategy


def test_cloud_without_the_filter_gets_a_full_scan(local: LocalBackend) -> None:
    local.add(*(f"job-{n}" for n in range(620)))
    fault = Fault(Effect.ANSWER, operation="ListTrainingJobs", nth=2, status=400, code="ModelArts.2807")
    local.emulator.faults.add(fault)
    seen = local.observe(["job-1"], never)
    assert (seen.is_whole, len(seen.jobs)) == (True, 620)
    assert seen.strategy == "filtered searches, abandoned; then full scan"


def test_server_error_is_a_problem_and_no_empty_workspace(local: LocalBackend) -> None:
    local.add("a")
    local.emulator.faults.add(Fault(Effect.ANSWER, count=None, status=503, code="ModelArts.4302"))
    seen = local.observe()
    assert (seen.is_whole, seen.jobs) == (False, ())
    assert "ModelArts.4302" in (seen.problem or "")


@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER])
def test_failed_search_is_sent_again(local: LocalBackend, effect: Effect) -> None:
    local.add("a")
    local.emulator.faults.add(Fault(effect, operation="ListTrainingJobs", count=2, status=503))
    seen = local.observe()
    assert (len(seen.jobs), seen.problem, seen.requests) == (1, None, 3)


def test_find_raises_for_an_unreadable_job_of_that_name(local: LocalBackend) -> None:
    local.add("resnet50-r2", "resnet50")
    local.emulator.faults.add(Fault(Effect.MALFORMED_JOB, operation="ListTrainingJobs", count=2))
    assert len(local.find("resnet50")) == 1, "the other one hides nothing"
    with pytest.raises(UnreadableAnswer, match="may be resnet50-r2"):
        local.find("resnet50-r2")


def test_read_of_another_project_raises_unauthorized(emulator: Application, clock: StoppedClock) -> None:
    with connect_inprocess(emulator, project_id="another", options=SessionOptions(clock=clock)) as backend:
        with pytest.raises(Unauthorized, match="2786"):
            backend.observe()
        with pytest.raises(Unauthorized):
            backend.name_is_taken("x")


def test_jobs_of_other_workspaces_are_left_out(local: LocalBackend) -> None:
    local.add("ours", "theirs")
    theirs = local.emulator.store.jobs()[1]
    head = theirs.head.replace('"workspace_id":"0"', '"workspace_id":"w"')
    local.emulator.store.database.run("UPDATE jobs SET head = ? WHERE id = ?", (head, theirs.id))
    assert [job.name for job in local.observe().jobs] == ["ours"]


# ── searches ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limit", "wanted", "requests"),
    [(1, "", 1), (50, "", 1), (51, "", 2), (100, "", 2), (130, "", 3), (None, "", 3), (1, "job-20", 3)],
)
def test_search_reads_only_the_pages_needed_for_its_limit(
    local: LocalBackend, limit: int | None, wanted: str, requests: int
) -> None:
    local.add(*(f"job-{n}" for n in range(130)))
    found = local.search(order="desc", limit=limit, wanted=lambda job: wanted in ("", job.name))
    names = [job.name for job in found.jobs]
    assert (names[:2], found.problem) == (["job-129", "job-128"], None)
    assert len(names) >= min(limit or 130, 130)
    assert not wanted or wanted in names
    assert len(local.emulator.requests) == requests


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
    """It would be ignored, and the result misinterpreted."""
    app = Canned((200, '{"items": []}'))
    [field] = more
    with connect_inprocess(app, project_id=PROJECT, cloud=Cloud.OTC) as backend:
        with pytest.raises(Rejected, match=f"does not support searching by {field}"):
            backend.search(more=more)
        assert app.environs == []
        backend.search(more=dict.fromkeys(more))
        backend.search(more={"tags": [], "host_ips": (), "train_type": ""})
    assert len(app.environs) == 2


# ── the clock that answers tell of ─────────────────────────────────────────────────────────────────

DATE = "Thu, 06 Aug 2026 06:26:40 GMT"  # 1 785 997 600 s


@pytest.mark.parametrize(
    ("ahead_s", "status", "date", "skew_s", "fix"),
    [
        (1200, 401, None, None, "check the credentials"),
        (1200, 401, "yesterday", None, "check the credentials"),
        (1200, 401, DATE, 1200.0, "it is 20 min ahead of the service's"),
        (-1200, 401, DATE, -1200.0, "it is 20 min behind the service's"),
        (890, 401, DATE, 890.0, "check the credentials"),
        (1200, 403, DATE, 1200.0, "check the credentials"),  # 403 is unrelated to the clock
    ],
)
def test_unauthorized_answer_with_clock_skew_names_the_clock(
    ahead_s: float, status: int, date: str | None, skew_s: float | None, fix: str
) -> None:
    body = '{"error_code": "APIGW.0301", "error_msg": "Incorrect IAM authentication information"}'
    app = Canned((status, body, {"Date": date} if date else {}))
    options = SessionOptions(clock=StoppedClock(1_785_997_600 + ahead_s))
    backend = connect_inprocess(app, project_id=PROJECT, options=options)
    assert backend.skew_s is None
    with pytest.raises(Unauthorized) as refusal:
        backend.search()
    assert fix in (refusal.value.diagnostics[0].fix or "")
    assert backend.skew_s == skew_s
