"""Stories of a list that is read page by page."""

from __future__ import annotations

import threading

import pytest

from reconciler.errors import ServerError, Unauthorized
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
from tests.modelarts.building import an_answer
from tests.modelarts.listing import Service, jobs

SLOW = 0.3


@pytest.mark.parametrize("seconds", [0.0, SLOW])
@pytest.mark.parametrize("counts_items", [False, True])
@pytest.mark.parametrize("tells_total", [False, True])
@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 99, 100, 101, 150, 420])
def test_full_scan_reads_every_job_once(
    count: int, tells_total: bool, counts_items: bool, seconds: float
) -> None:
    service = Service(jobs(count), tells_total=tells_total, counts_items=counts_items, seconds=seconds)
    listing = PageReader().read(service)
    assert [job.id for job in listing.jobs] == [f"id-{n:04}" for n in range(count)]
    assert listing.problem is None
    assert listing.requests == service.requests


@pytest.mark.parametrize(("count", "requests"), [(0, 1), (49, 1), (50, 2), (999, 20), (1000, 21)])
def test_short_page_ends_the_list(count: int, requests: int) -> None:
    assert PageReader().read(Service(jobs(count))).requests == requests


@pytest.mark.parametrize(("count", "requests"), [(1000, 21), (999, 20), (60, 2)])
def test_slow_list_with_a_known_total_needs_no_further_requests(count: int, requests: int) -> None:
    assert PageReader().read(Service(jobs(count), seconds=SLOW)).requests == requests


def test_job_created_between_two_pages_is_read() -> None:
    def create(service: Service, number: int) -> None:
        if number == 2:
            service.items += jobs(1, first=60)

    listing = PageReader().read(Service(jobs(60), before=create))
    assert len(listing.jobs) == 61
    assert listing.requests == 2


@pytest.mark.parametrize("seconds", [0.0, SLOW])
def test_list_with_a_deleted_job_is_read_again(seconds: float) -> None:
    # Without a second reading, the job that slipped from page 1 to page 0 would look absent.
    def delete_the_first(service: Service, number: int) -> None:
        if number == 2:
            del service.items[0]

    listing = PageReader().read(Service(jobs(120), before=delete_the_first, seconds=seconds))
    assert [job.id for job in listing.jobs] == [f"id-{n:04}" for n in range(1, 120)]
    assert listing.problem is None


def test_list_with_a_shifted_job_is_read_again() -> None:
    def put_one_before(service: Service, number: int) -> None:
        if number == 3:
            service.items[:0] = jobs(1, first=900)

    listing = PageReader().read(Service(jobs(120), before=put_one_before))
    assert len(listing.jobs) == 121
    assert listing.problem is None


def test_list_that_keeps_changing_is_a_problem() -> None:
    def delete_one(service: Service, number: int) -> None:
        del service.items[0]

    service = Service(jobs(500), before=delete_one)
    listing = PageReader().read(service)
    assert listing.problem == MOVED
    assert service.requests == 2 * MAX_READINGS
    assert listing.jobs, "what was read is there, all the same"


def test_item_offsets_are_detected_and_remembered() -> None:
    reader = PageReader()
    first = reader.read(Service(jobs(190), counts_items=True))
    again = reader.read(Service(jobs(190), counts_items=True))
    assert len(first.jobs) == len(again.jobs) == 190
    assert (first.requests, again.requests) == (5, 4)


def test_malformed_job_hides_no_other() -> None:
    items = [*jobs(3), an_answer(metadata__id="id-x", status=None), None, *jobs(50, first=3)]
    listing = PageReader().read(Service(items))
    assert len(listing.jobs) == 53
    assert [entry.id for entry in listing.unreadable] == ["id-x", None]
    assert listing.problem is None


def test_job_read_twice_has_its_last_values() -> None:
    def move_on(service: Service, number: int) -> None:
        if number == 2:
            del service.items[0]
            service.items[5] = an_answer(metadata__id="id-0006", status__phase="Completed")

    listing = PageReader().read(Service(jobs(120), before=move_on))
    assert {job.id: job.phase_text for job in listing.jobs}["id-0006"] == "Completed"


@pytest.mark.parametrize("seconds", [0.0, SLOW])
def test_failure_between_pages_keeps_the_jobs_already_read(seconds: float) -> None:
    def break_down(service: Service, number: int) -> None:
        if number == 3:
            raise ServerError("down", status=503)

    # One page at a time knows its order; of a wave, whichever page came third broke.
    listing = PageReader().read(Service(jobs(200), before=break_down, seconds=seconds))
    assert isinstance(listing.problem, ServerError)
    assert len(listing.jobs) >= 50


def test_slow_list_is_read_without_a_pause() -> None:
    """The next page is asked for as soon as one was read, not when the last of a batch was."""
    asked = [threading.Event() for _ in range(20)]

    def page(offset: int) -> SearchPage:
        asked[offset].set()
        if 0 < offset < 17:
            assert asked[offset + 3].wait(5), "six are asked for, and two of them were read"
        return SearchPage(jobs(50 if offset < 19 else 7, first=50 * offset), 957, seconds=SLOW)

    listing = PageReader().read(page)
    assert (len(listing.jobs), listing.problem, listing.requests) == (957, None, 20)


@pytest.mark.parametrize(
    ("seconds", "alone"),
    [(SLOW_S, 9), (2 * SLOW_S, 2), (SLOW_START_S, 2), (2 * SLOW_START_S, 1)],
)
def test_threads_are_used_for_a_slow_service_only(seconds: float, alone: int) -> None:
    """A first page that took long may only have had to connect; a second one says more."""
    threads = []

    def note(service: Service, number: int) -> None:
        threads.append(threading.current_thread())

    PageReader().read(Service(jobs(420), before=note, seconds=seconds))
    assert len(threads) == 9
    assert threads.count(threading.current_thread()) == alone


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


def test_forbidden_listing_raises_unauthorized() -> None:
    def refuse(service: Service, number: int) -> None:
        raise Unauthorized("no", status=403)

    with pytest.raises(Unauthorized):
        PageReader().read(Service(jobs(1), before=refuse))


def test_endless_list_is_a_problem_after_the_page_limit() -> None:
    fresh = iter(range(10**9))

    def page(_: int) -> SearchPage:
        number = next(fresh)
        return SearchPage([an_answer(metadata__id=f"id-{number}-{n}") for n in range(PAGE_SIZE)])

    listing = PageReader().read(page)
    assert listing.problem == ENDLESS
    assert listing.requests == MAX_PAGES


def test_service_that_ignores_the_offset_is_a_problem() -> None:
    items = jobs(PAGE_SIZE)
    assert PageReader().read(lambda _: SearchPage(items)).problem == MOVED


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


@pytest.mark.parametrize(
    ("total", "told"), [(5059, 5059), ("5059", 5059), (1, None), (None, None), ("x", None)]
)
def test_total_equal_to_the_page_length_is_ignored(total: object, told: int | None) -> None:
    page = page_of({"items": [{}], "total": total})
    assert isinstance(page, SearchPage)
    assert page.total == told
