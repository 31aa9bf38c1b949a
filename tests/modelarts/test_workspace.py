"""What a plan costs: one scan, or filtered searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from reconciler.core.observed import Observation, SearchFilter
from reconciler.emulator.app import Application, create_app
from reconciler.emulator.control import Effect, Fault
from reconciler.emulator.database import ManualClock
from reconciler.emulator.store import Store
from reconciler.errors import Unauthorized
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.connect import connect_inprocess
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.observe import SearchPage
from tests.modelarts.building import PROJECT, StoppedClock, a_body

DECLARED = ["resnet50", "bert", "lr-sweep"]


def fill(app: Application, names: list[str]) -> None:
    with app.store.database.transaction(write=True):
        for name in names:
            app.store.create(PROJECT, a_body(name))


@pytest.fixture(scope="module")
def old_project() -> Iterator[Application]:
    """5,000 finished jobs, and three that run."""
    with Store(clock=ManualClock()) as store:
        app = create_app(store, project_id=PROJECT)
        fill(app, [f"old-{n}" for n in range(5000)])
        store.clock.advance(hours=1000)
        fill(app, [*DECLARED, "resnet50-r2"])
        yield app


def test_three_jobs_among_5000_finished_ones_need_5_requests(old_project: Application) -> None:
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        seen = backend.observe(DECLARED, lambda observation: False)
    assert {job.name for job in seen.jobs} == {*DECLARED, "resnet50-r2"}
    assert seen.requests == 5
    assert not seen.is_whole
    assert seen.problem is None
    assert "filtered" in seen.strategy


def test_absence_of_a_job_is_proven_by_a_full_scan(old_project: Application) -> None:
    def is_missing(seen: Observation) -> bool:
        return not any(job.name == "new" for job in seen.jobs)

    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        seen = backend.observe([*DECLARED, "new"], is_missing)
    assert seen.is_whole
    assert len(seen.jobs) == 5004
    assert seen.requests == 6 + 101
    assert "then full scan" in seen.strategy


def test_name_contained_in_many_others_needs_no_more_than_the_scan(old_project: Application) -> None:
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        seen = backend.observe(["old", "ol"], lambda observation: False)
    assert len(seen.jobs) == 5004
    assert seen.requests == 101 + 2, "the first page of a search tells how many there are"
    assert seen.strategy == "filtered searches, abandoned; then full scan"


@pytest.mark.parametrize(
    ("told", "at_most"),
    [
        (lambda page: None, 152),  # it says nothing: given up half-way
        (lambda page: 5004, 152),  # it counts all jobs, whatever the filter: no hint
        (lambda page: 51, 152),  # it promises too little
        (lambda page: 4999, 103),
    ],
)
def test_wrong_match_count_does_not_make_the_observation_incomplete(
    old_project: Application, told: Callable[[SearchPage], int | None], at_most: int
) -> None:
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        fetch = backend._page

        def telling(offset: int, filters: Sequence[SearchFilter], *more: Any) -> SearchPage:
            page = fetch(offset, filters, *more)
            return page._replace(matching=told(page)) if filters else page

        backend._page = telling  # type: ignore[method-assign, assignment]
        seen = backend.observe(["ol"], lambda observation: False)
    assert len(seen.jobs) == 5004
    assert 101 < seen.requests <= at_most


def test_total_of_all_jobs_does_not_prevent_filtered_searches(old_project: Application) -> None:
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        fetch = backend._page
        backend._page = lambda *asked: fetch(*asked)._replace(matching=5004)  # type: ignore[method-assign]
        seen = backend.observe(["old-12", *DECLARED], lambda observation: False)
    assert seen.strategy == "5 filtered searches (active jobs, 4 names)"
    assert seen.requests < 20, "pages may be asked for ahead"


def test_thousand_unchanged_jobs_need_21_requests(emulator: Application, local: ModelArtsBackend) -> None:
    names = [f"job-{n}" for n in range(1000)]
    fill(emulator, names)
    seen = local.observe(names, lambda observation: True)
    assert seen.is_whole
    assert seen.requests == len(emulator.requests) == 21
    assert seen.strategy == "full scan"


def test_small_project_needs_one_request(emulator: Application, local: ModelArtsBackend) -> None:
    fill(emulator, ["a", "b"])
    seen = local.observe(["a", "c"], lambda observation: True)
    assert (seen.is_whole, seen.requests) == (True, 1)


def test_scan_without_a_total_stops_at_the_cost_of_filtered_searches(
    old_project: Application,
) -> None:
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        fetch = backend._page
        backend._page = lambda *asked: fetch(*asked)._replace(total=None)  # type: ignore[method-assign]
        seen = backend.observe(DECLARED, lambda observation: False)
    assert {job.name for job in seen.jobs} == {*DECLARED, "resnet50-r2"}
    assert not seen.is_whole
    assert seen.strategy.startswith("full scan, abandoned; then 4 filtered searches")


def test_cloud_that_refuses_the_filter_gets_a_full_scan(old_project: Application) -> None:
    old_project.faults.add(
        Fault(Effect.ANSWER, operation="ListTrainingJobs", nth=2, status=400, code="ModelArts.2807")
    )
    with connect_inprocess(old_project, project_id=PROJECT) as backend:
        seen = backend.observe(DECLARED, lambda observation: False)
    old_project.faults.clear()
    assert seen.is_whole
    assert seen.strategy == "filtered searches, abandoned; then full scan"
    assert len(seen.jobs) == 5004


def test_server_error_is_a_problem_and_no_empty_workspace(
    emulator: Application, local: ModelArtsBackend
) -> None:
    fill(emulator, ["a"])
    emulator.faults.add(Fault(Effect.ANSWER, count=None, status=503, code="ModelArts.4302"))
    seen = local.observe()
    assert (seen.is_whole, seen.jobs) == (False, ())
    assert "ModelArts.4302" in (seen.problem or "")


def test_read_of_another_project_raises_unauthorized(emulator: Application, clock: StoppedClock) -> None:
    with connect_inprocess(emulator, project_id="another", options=SessionOptions(clock=clock)) as backend:
        with pytest.raises(Unauthorized, match="2786"):
            backend.observe()
        with pytest.raises(Unauthorized):
            backend.name_is_taken("x")


def test_jobs_of_other_workspaces_are_left_out(emulator: Application, local: ModelArtsBackend) -> None:
    fill(emulator, ["ours", "theirs"])
    theirs = emulator.store.jobs()[1]
    head = theirs.head.replace('"workspace_id":"0"', '"workspace_id":"w"')
    emulator.store.database.run("UPDATE jobs SET head = ? WHERE id = ?", (head, theirs.id))
    assert [job.name for job in local.observe().jobs] == ["ours"]
