"""docs/semantics.md, "Listing jobs", sentence by sentence, against the emulator's own pages.

`test_paging` has the finer points.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reconciler.core.stack import Target
from reconciler.emulator import Application, Effect, Fault, running
from reconciler.modelarts.backend import ModelArtsBackend
from reconciler.modelarts.connect import connect, connect_inprocess
from reconciler.modelarts.http import SessionOptions
from reconciler.modelarts.observe import MOVED
from tests.modelarts.building import PROJECT, TOKEN, StoppedClock, a_body
from tests.modelarts.wrapping import Search, Searches, counting_items, telling

#: A list is read once, and again three times at most.
READINGS = 4
#: So many pages at least are asked for at the same time.
AT_ONCE = 6

Change = Callable[[dict[str, Any], Search], Any]


def as_it_is(body: dict[str, Any], search: Search) -> Any:
    return search(body)


def fill(app: Application, count: int) -> list[str]:
    names = [f"job-{n:03}" for n in range(count)]
    with app.store.database.transaction(write=True):
        for name in names:
            app.store.create(PROJECT, a_body(name))
    return names


@contextmanager
def reading(app: Application, change: Change = as_it_is) -> Iterator[tuple[ModelArtsBackend, Searches]]:
    """A backend on a list that behaves otherwise."""
    searches = Searches(app, change)
    with connect_inprocess(
        searches, project_id=PROJECT, options=SessionOptions(clock=StoppedClock())
    ) as backend:
        yield backend, searches


# Search answers pages of at most 50; a short page is the end.


@pytest.mark.parametrize(("count", "requests"), [(0, 1), (49, 1), (50, 2), (99, 2), (100, 3)])
def test_pages_have_50_jobs_and_a_short_page_ends_the_list(
    emulator: Application, count: int, requests: int
) -> None:
    names = fill(emulator, count)
    with reading(emulator) as (backend, searches):
        assert [job.name for job in backend.observe().jobs] == names
    assert [(asked["offset"], asked["limit"]) for asked in searches.asked] == [
        (n, 50) for n in range(requests)
    ]


# `total` and `count` cannot be trusted for the end of the list.


@pytest.mark.parametrize(
    "lies",
    [
        {"total": 0, "count": 0},
        {"total": 1, "count": 1},
        {"total": "page", "count": "page"},
        {"total": 10**6, "count": 10**6},
        {"total": "120", "count": "120"},
        {"total": ..., "count": ...},
        {"total": None, "count": None},
        {"total": "many", "count": -1},
    ],
    ids=str,
)
def test_wrong_total_and_count_do_not_change_the_scan(emulator: Application, lies: dict[str, Any]) -> None:
    names = fill(emulator, 120)
    with reading(emulator, telling(**lies)) as (backend, _):
        seen = backend.observe()
        assert [job.name for job in seen.jobs] == names
        assert (seen.is_whole, seen.requests) == (True, 3)
        assert backend.find("job-119")


# Sorted by create_time ascending, so that new jobs land behind what was read.


def test_list_is_read_oldest_first_so_that_new_jobs_come_last(emulator: Application) -> None:
    names = fill(emulator, 60)

    def change(body: dict[str, Any], search: Search) -> Any:
        answer = search(body)
        if body["offset"] == 0:
            emulator.store.create(PROJECT, a_body("new"))
        return answer

    with reading(emulator, change) as (backend, searches):
        assert [job.name for job in backend.observe().jobs] == [*names, "new"]
    assert len(searches.asked) == 2, "nothing is read again"
    assert {(asked["sort_by"], asked["order"]) for asked in searches.asked} == {("create_time", "asc")}


# Ids seen twice are taken once. A list that moved under the reader is read again, at most three times,
# then its jobs are unknown.


@pytest.mark.parametrize("moves", range(READINGS + 1))
def test_changed_list_is_read_again_up_to_a_limit(emulator: Application, moves: int) -> None:
    names = fill(emulator, 160)
    gone: list[str] = []

    def delete_one(body: dict[str, Any], search: Search) -> Any:
        if body["offset"] == 1 and len(gone) < moves:
            # Its neighbour slips to a page that was read already.
            oldest = emulator.store.jobs()[0]
            emulator.store.delete(PROJECT, oldest.id)
            gone.append(oldest.name)
        return search(body)

    with reading(emulator, delete_one) as (backend, _):
        seen = backend.observe(["job-150"], lambda observation: True)
        left = {name for name in names if name not in gone}
        if moves < READINGS:
            assert {job.name for job in seen.jobs} == left
            assert seen.is_whole
        else:
            assert (seen.is_whole, seen.problem) == (False, MOVED)
            assert {job.name for job in seen.jobs} <= set(names), "what was read is there, all the same"


@pytest.mark.parametrize("shift", [1, 2, -1])
@pytest.mark.parametrize("moves", [1, READINGS - 1, READINGS, None])
def test_shifting_list_is_read_again_or_incomplete(
    emulator: Application, moves: int | None, shift: int
) -> None:
    names = fill(emulator, 160)
    emulator.faults.add(Fault(Effect.MOVED_LIST, count=moves, shift=shift))
    with reading(emulator) as (backend, _):
        seen = backend.observe()
    assert {job.name for job in seen.jobs} <= set(names)
    if moves is not None and moves < READINGS:
        assert ([job.name for job in seen.jobs], seen.is_whole) == (names, True)
    else:
        assert (seen.is_whole, seen.problem) == (False, MOVED)


# If page 1 overlaps page 0, the service counts items, and the reader adapts.


@pytest.mark.parametrize("count", [49, 50, 51, 75, 130, 200])
def test_service_with_item_offsets_is_detected_at_run_time(emulator: Application, count: int) -> None:
    names = fill(emulator, count)
    with running(searches := Searches(emulator, counting_items)) as url:
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        with connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN}) as backend:
            seen, again = backend.observe(), backend.observe()
            assert backend.find(names[-1])
    assert [job.name for job in seen.jobs] == [job.name for job in again.jobs] == names
    assert seen.is_whole
    assert again.is_whole
    assert again.requests == 1 + count // 50, "it is remembered"
    assert {asked["offset"] for asked in searches.asked} >= set(range(0, count, 50))


@pytest.mark.parametrize("count", [49, 50, 75, 130])
def test_emulator_with_item_offsets_is_detected(emulator: Application, count: int) -> None:
    names = fill(emulator, count)
    emulator.control_settings.offset_counts = "items"
    with reading(emulator) as (backend, _):
        seen, again = backend.observe(), backend.observe()
    assert [job.name for job in seen.jobs] == [job.name for job in again.jobs] == names
    assert (seen.is_whole, again.is_whole, again.requests) == (True, True, 1 + count // 50)


# Pages are read concurrently when the service is slow.


@pytest.mark.parametrize("change", [as_it_is, counting_items])
def test_slow_pages_are_read_concurrently(emulator: Application, change: Change) -> None:
    names = fill(emulator, 320)
    clock, together = StoppedClock(), threading.Barrier(AT_ONCE, timeout=5)
    is_known = threading.Event()

    def wait_for_the_others(body: dict[str, Any], search: Search) -> Any:
        clock.now_s += 0.3  # it takes its time
        if is_known.is_set() and body["offset"] > 0:
            together.wait()  # breaks if they come one after the other
        return change(body, search)

    with running(searches := Searches(emulator, wait_for_the_others)) as url:
        target = Target.model_validate({"kind": "modelarts", "endpoint": url, "project_id": PROJECT})
        with connect(target, {"MODELARTS_AUTH_TOKEN": TOKEN}, SessionOptions(clock=clock)) as backend:
            first = backend.observe()
            is_known.set()
            seen = backend.observe()
    assert [job.name for job in first.jobs] == [job.name for job in seen.jobs] == names
    assert (first.is_whole, seen.is_whole, seen.requests) == (True, True, 7)
    assert len(searches.asked) == first.requests + seen.requests


# The cheaper of one scan and filtered searches is taken; a cloud that refuses the filter is scanned.


@pytest.mark.parametrize(
    ("declared", "requests", "strategy"),
    [(1, 3, "2 filtered"), (3, 5, "4 filtered"), (7, 13, "full scan")],
)
def test_cheaper_read_strategy_is_chosen(
    emulator: Application, declared: int, requests: int, strategy: str
) -> None:
    names = fill(emulator, 620)
    emulator.store.clock.advance(hours=1)
    with reading(emulator) as (backend, searches):
        seen = backend.observe([f"job-{n}00" for n in range(declared)], lambda observation: False)
    assert seen.strategy.startswith(strategy)
    assert seen.requests == len(searches.asked) == requests
    assert {f"job-{n}00" for n in range(declared)} <= {job.name for job in seen.jobs} <= set(names)
