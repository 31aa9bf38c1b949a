"""docs/concepts/crash-safety.md, "Listing jobs", statement by statement."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.emulator import Effect, Fault
from reconciler.errors import ServerError, Unauthorized
from reconciler.modelarts.connect import connect_inprocess
from reconciler.modelarts.observe import (
    ENDLESS,
    MAX_PAGES,
    MAX_READINGS,
    MOVED,
    PAGE_SIZE,
    SLOW_S,
    SLOW_START_S,
    PageReader,
    SearchPage,
    page_of,
)
from tests.modelarts.building import PROJECT, an_answer
from tests.modelarts.conftest import LocalBackend
from tests.modelarts.serving import Canned

SLOW = 0.3


def jobs(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        an_answer(metadata__id=f"id-{n:04}", metadata__name=f"job-{n}") for n in range(first, first + count)
    ]


class Service:
    """A paged list; `before` is called with the items and the number of each request."""

    def __init__(
        self,
        items: list[Any],
        *,
        before: Callable[[list[Any], int], object] = lambda items, number: None,
        counts_items: bool = False,
        tells_total: bool = True,
        seconds: float = 0.0,
    ) -> None:
        self.items, self.requests, self.seconds = items, 0, seconds
        self._before, self._tells_total = before, tells_total
        self._step = 1 if counts_items else PAGE_SIZE

    def __call__(self, offset: int) -> SearchPage:
        self.requests += 1
        self._before(self.items, self.requests)
        begin = offset * self._step
        total = len(self.items) if self._tells_total else None
        return SearchPage(self.items[begin : begin + PAGE_SIZE], total, seconds=self.seconds)

    @property
    def ids(self) -> list[str]:
        return [item["metadata"]["id"] for item in self.items]


def ids_of(listing: Any) -> list[str]:
    return [job.id for job in listing.jobs]


@pytest.mark.parametrize("seconds", [0.0, SLOW])
@pytest.mark.parametrize("counts_items", [False, True])
@pytest.mark.parametrize("tells_total", [False, True])
@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 99, 100, 101, 150, 420])
def test_full_scan_reads_every_job_once(
    count: int, tells_total: bool, counts_items: bool, seconds: float
) -> None:
    service = Service(jobs(count), tells_total=tells_total, counts_items=counts_items, seconds=seconds)
    listing = PageReader().read(service)
    assert (ids_of(listing), listing.problem) == (service.ids, None)
    assert listing.requests == service.requests


@pytest.mark.parametrize(
    ("count", "seconds", "requests"),
    [
        (0, 0.0, 1),
        (49, 0.0, 1),
        (50, 0.0, 2),
        (999, 0.0, 20),
        (1000, 0.0, 21),
        (1000, SLOW, 21),
        (999, SLOW, 20),
        (60, SLOW, 2),
    ],
)
def test_short_page_ends_the_list(count: int, seconds: float, requests: int) -> None:
    assert PageReader().read(Service(jobs(count), seconds=seconds)).requests == requests


def test_total_of_zero_of_a_slow_list_prefetches_no_pages() -> None:
    service = Service(jobs(420), seconds=SLOW)
    listing = PageReader().read(lambda offset: service(offset)._replace(total=0))
    assert (len(listing.jobs), service.requests) == (420, 9)


def test_scan_requests_pages_of_50_oldest_first() -> None:
    pages = [{"items": jobs(50)}, {"items": jobs(1, first=50)}]
    app = Canned(*((200, json.dumps(page)) for page in pages))
    assert len(connect_inprocess(app, project_id=PROJECT).observe().jobs) == 51
    asked = {"limit": 50, "sort_by": "create_time", "order": "asc", "workspace_id": "0"}
    sent = [json.loads(environ["wsgi.input"].getvalue()) for environ in app.environs]
    assert sent == [{"offset": 0, **asked}, {"offset": 1, **asked}]


# `total` and `count` cannot be trusted for the end of the list.


@pytest.mark.parametrize(
    "lies",
    [
        {"total": 0, "count": 0},
        {"total": 1, "count": 1},
        {"total": 50, "count": 50},
        {"total": 10**6, "count": 10**6},
        {"total": "120", "count": "120"},
        {},
        {"total": None, "count": None},
        {"total": "many", "count": -1},
    ],
    ids=str,
)
def test_wrong_total_and_count_do_not_change_the_scan(lies: dict[str, Any]) -> None:
    items = jobs(120)

    def page(offset: int) -> SearchPage:
        found = page_of({"items": items[50 * offset : 50 * offset + 50], **lies})
        assert isinstance(found, SearchPage)
        return found

    listing = PageReader().read(page)
    assert (len(listing.jobs), listing.problem, listing.requests) == (120, None, 3)


@pytest.mark.parametrize(
    ("total", "told"), [(5059, 5059), ("5059", 5059), (1, None), (None, None), ("x", None)]
)
def test_total_equal_to_the_page_length_is_ignored(total: object, told: int | None) -> None:
    page = page_of({"items": [{}], "total": total})
    assert isinstance(page, SearchPage)
    assert page.total == told


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"items": [], "total": 0}, None),
        ({"items": None, "count": 0}, None),
        ({"items": None, "count": 3}, "not a list"),
        ({"items": {}}, "not a list"),
        ({"total": 3}, "no items"),
        ([], "no items"),
        (None, "no items"),
    ],
)
def test_search_answer_without_an_item_list_is_a_problem(answer: object, problem: str | None) -> None:
    page = page_of(answer)
    assert (problem in page) if isinstance(page, str) and problem else not isinstance(page, str)


# A list that changed while read is reread, at most three times, then its jobs are unknown.


@pytest.mark.parametrize("seconds", [0.0, SLOW])
@pytest.mark.parametrize(
    ("count", "at", "move"),
    [
        (60, 2, lambda items: items.extend(jobs(1, first=60))),
        (120, 2, lambda items: items.pop(0)),
        (120, 3, lambda items: items.insert(0, *jobs(1, first=900))),
    ],
    ids=["created", "deleted", "shifted"],
)
def test_list_that_moves_once_is_read_whole(
    count: int, at: int, move: Callable[[list[Any]], object], seconds: float
) -> None:
    """Without rereading, a job that moved from page 1 to page 0 would seem absent."""
    service = Service(jobs(count), before=lambda items, n: n == at and move(items), seconds=seconds)
    listing = PageReader().read(service)
    assert (sorted(ids_of(listing)), listing.problem) == (sorted(service.ids), None)
    assert service.requests == 2 or count > 60, "a new job lands behind what was read"


def test_list_that_keeps_changing_is_a_problem() -> None:
    service = Service(jobs(500), before=lambda items, _: items.pop(0))
    listing = PageReader().read(service)
    assert (listing.problem, service.requests) == (MOVED, 2 * MAX_READINGS)
    assert listing.jobs, "what was read is there, all the same"


@pytest.mark.parametrize(
    ("shift", "moves"),
    [(1, 1), (2, 3), (-1, 3), (-30, 3), (-48, 1), (1, 4), (-1, 4), (-30, 4), (2, None)],
)
def test_moving_list_of_a_workspace_is_read_again_or_incomplete(
    local: LocalBackend, moves: int | None, shift: int
) -> None:
    names = [f"job-{n}" for n in range(120)]
    local.add(*names)
    local.emulator.faults.add(Fault(Effect.MOVED_LIST, count=moves, shift=shift))
    seen = local.observe()
    if moves is not None and moves < MAX_READINGS:
        assert ([job.name for job in seen.jobs], seen.is_whole) == (names, True)
    else:
        assert (seen.is_whole, seen.problem) == (False, MOVED)


def test_service_that_ignores_the_offset_is_a_problem() -> None:
    items = jobs(PAGE_SIZE)
    assert PageReader().read(lambda _: SearchPage(items)).problem == MOVED


def test_endless_list_is_a_problem_after_the_page_limit() -> None:
    fresh = iter(range(10**9))

    def page(_: int) -> SearchPage:
        number = next(fresh)
        return SearchPage([{"metadata": {"id": f"{number}-{n}"}} for n in range(PAGE_SIZE)])

    listing = PageReader().read(page)
    assert (listing.problem, listing.requests) == (ENDLESS, MAX_PAGES)


def test_job_read_twice_has_its_last_values() -> None:
    def move_on(items: list[Any], number: int) -> None:
        if number == 2:
            del items[0]
            items[5] = an_answer(metadata__id="id-0006", status__phase="Completed")

    listing = PageReader().read(Service(jobs(120), before=move_on))
    assert {job.id: job.phase_text for job in listing.jobs}["id-0006"] == "Completed"


def test_malformed_job_hides_no_other() -> None:
    items = [*jobs(3), an_answer(metadata__id="id-x", status=None), None, *jobs(50, first=3)]
    listing = PageReader().read(Service(items))
    assert (len(listing.jobs), listing.problem) == (53, None)
    assert [entry.id for entry in listing.unreadable] == ["id-x", None]


@pytest.mark.parametrize("seconds", [0.0, SLOW])
def test_failure_between_pages_keeps_the_jobs_already_read(seconds: float) -> None:
    def break_down(_: list[Any], number: int) -> None:
        if number == 3:
            raise ServerError("down", status=503)

    # Sequential pages have an order; in a batch the third to arrive broke.
    listing = PageReader().read(Service(jobs(200), before=break_down, seconds=seconds))
    assert isinstance(listing.problem, ServerError)
    assert len(listing.jobs) >= 50


def test_forbidden_listing_raises_unauthorized() -> None:
    def refuse(_: int) -> SearchPage:
        raise Unauthorized("no", status=403)

    with pytest.raises(Unauthorized):
        PageReader().read(refuse)


# If page 1 overlaps page 0, the service counts items, and the reader adapts.


@pytest.mark.parametrize("count", [49, 50, 75, 130])
def test_service_with_item_offsets_is_detected_and_remembered(local: LocalBackend, count: int) -> None:
    names = [f"job-{n}" for n in range(count)]
    local.add(*names)
    local.emulator.offset_counts = "items"
    seen, again = local.observe(), local.observe()
    assert [job.name for job in seen.jobs] == [job.name for job in again.jobs] == names
    assert (seen.is_whole, again.is_whole, again.requests) == (True, True, 1 + count // 50)


# Pages of a slow service are prefetched, those of a fast one read sequentially.


def test_slow_list_is_read_without_a_pause() -> None:
    """The next page is requested as soon as one was read, not after the whole batch."""
    asked = [threading.Event() for _ in range(20)]

    def page(offset: int) -> SearchPage:
        asked[offset].set()
        if 0 < offset < 17:
            assert asked[offset + 3].wait(5), "six are asked for, and two of them were read"
        return SearchPage(jobs(50 if offset < 19 else 7, first=50 * offset), 957, seconds=SLOW)

    listing = PageReader().read(page)
    assert (len(listing.jobs), listing.problem, listing.requests) == (957, None, 20)


@pytest.mark.parametrize(
    ("seconds", "alone"), [(SLOW_S, 9), (2 * SLOW_S, 2), (SLOW_START_S, 2), (2 * SLOW_START_S, 1)]
)
def test_threads_are_used_for_a_slow_service_only(seconds: float, alone: int) -> None:
    """A slow first page may include connecting; the second one counts."""
    threads: list[threading.Thread] = []
    service = Service(
        jobs(420), before=lambda *_: threads.append(threading.current_thread()), seconds=seconds
    )
    PageReader().read(service)
    assert (len(threads), threads.count(threading.current_thread())) == (9, alone)


def test_item_offsets_of_a_slow_service_are_detected_without_reading_again() -> None:
    offsets = []
    asked = [threading.Event() for _ in range(7)]
    service = Service(jobs(420), counts_items=True, seconds=SLOW)

    def page(offset: int) -> SearchPage:
        offsets.append(offset)
        if offset < len(asked):
            asked[offset].set()
        if offset == 1:
            assert all(event.wait(5) for event in asked[2:]), "five more are asked for at the same time"
        return service(offset)

    assert len(PageReader().read(page).jobs) == 420
    assert sorted(offsets[:7]) == [0, 1, 2, 3, 4, 5, 6]
    assert sorted(offsets[7:]) == [51, 101, 151, 201, 251, 301, 351, 401]
