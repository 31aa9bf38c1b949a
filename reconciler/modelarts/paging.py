"""Reading a list of jobs page by page, from a service that says little about its pages.

- A page holds at most 50 jobs; one that is shorter is the last. `total` and `count` end nothing.
- The oldest job comes first, so that new ones land behind what was read.
- `offset` counts pages. Some documents say items: if page 1 repeats page 0, the reader counts items.
- A list that moved under the reader is read again, at most three times. It moved if an id comes back
  that was read before, or if `total` fell: a job was deleted, and another one slipped through the gap.
- Of a slow service the next pages are asked for before this one has come; a list that moved is read again
  in single file. A quick one is asked for one page after the other: threads would only get in its way.

Source: docs/modelarts.md, "Search"; docs/semantics.md, "Listing jobs".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from reconciler.core.listing import Listing
from reconciler.core.observed_job import ObservedJob, Unreadable
from reconciler.errors import ServiceError, Unauthorized
from reconciler.modelarts.job_parser import number, read_job

PAGE_SIZE = 50
MAX_READINGS = 4
#: 50,000 jobs, five times the service's quota: a list without an end must not hold us for ever.
MAX_PAGES = 1000
#: Threads pay for waiting only: below this they cost a client more than they save.
SLOW_S = 0.02
#: The same for a first page, which may have had to connect.
SLOW_START_S = 0.1
WIDTH = 6

MOVED = f"the list changed while it was read, {MAX_READINGS} times in a row"
ENDLESS = f"the list does not end after {MAX_PAGES} pages"


class SearchPage(NamedTuple):
    """One answer of the search. `requests` is how many it took, `seconds` how long the last one.

    `total` and `matching` are how many jobs there are, and match, as far as the service seems to say it.
    """

    items: list[Any]
    total: int | None = None
    requests: int = 1
    seconds: float = 0.0
    matching: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether the list ends here."""
        return len(self.items) < PAGE_SIZE


#: Fetches the page that begins at `offset` (pages or items, as the service counts).
FetchPage = Callable[[int], SearchPage]


class PageReader:
    """Reads lists of one service, and remembers how it counts `offset`.

    `is_ours` leaves out what was not asked for; such jobs still count for the pages.
    """

    def __init__(self, is_ours: Callable[[ObservedJob], bool] = lambda _: True) -> None:
        self.counts_items = False
        self._is_ours = is_ours

    def read(self, fetch: FetchPage, first: SearchPage | None = None) -> Listing:
        """Read the whole list; what cannot be read is said in the answer. `first` was fetched already.

        Raises:
            Unauthorized: nobody is allowed to read it.
        """
        seen = _Seen(self._is_ours)
        counted = _Counted(fetch, first.requests if first else 0)
        for reading in range(MAX_READINGS):
            seen.start_again()
            try:
                end = self._read_once(counted, seen, None if reading else first, 1 if reading else WIDTH)
            except Unauthorized:
                raise
            except ServiceError as failure:
                return seen.listing(failure, counted.requests)
            if end is not _MOVED:
                return seen.listing(end, counted.requests)
        return seen.listing(MOVED, counted.requests)

    def _read_once(self, fetch: FetchPage, seen: _Seen, first: SearchPage | None, width: int) -> str | None:
        page, pages, ended = first or fetch(0), 0, False
        with _Ahead(fetch, width) as ahead:
            while True:
                repeated = seen.take(page)
                if self._counts_otherwise(pages, repeated):
                    ahead.forget()  # it was counted otherwise
                elif repeated or seen.has_moved(page, ended=ended):
                    return _MOVED
                pages += 1
                ended = ended or page.is_last
                if ended and not ahead.count:
                    return None
                if pages == MAX_PAGES:
                    return ENDLESS
                if not ended:
                    is_slow = page.seconds > (SLOW_START_S if pages == 1 else SLOW_S)
                    wanted = seen.pages_left(width) if is_slow else 1
                    ahead.ask(self._offsets(pages, seen.count, range(ahead.count, wanted)))
                page = ahead.next()

    def _offsets(self, pages: int, items: int, steps: range) -> list[int]:
        """The offsets of pages to come, so many steps behind the `pages` with `items` that were read."""
        begin, step = (items, PAGE_SIZE) if self.counts_items else (pages, 1)
        return [begin + step * k for k in steps]

    def _counts_otherwise(self, pages: int, repeated: int) -> bool:
        """Whether page 1 shows, by repeating page 0, that items are counted; known from then on."""
        if pages != 1 or self.counts_items or repeated <= PAGE_SIZE // 2:
            return False
        self.counts_items = True
        return True


_MOVED = "moved"

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def at_once(work: Callable[[_In], _Out], things: list[_In], width: int = WIDTH) -> Iterator[_Out]:
    """Do the same to several things at the same time; yield the results in the order of the things.

    What `work` raises is raised at its place in that order.
    """
    if len(things) == 1:
        yield work(things[0])
        return
    with ThreadPoolExecutor(width, "reading") as pool:
        futures = [pool.submit(work, thing) for thing in things]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


class _Ahead:
    """Pages that are asked for before anybody reads them, in order; a single one waits for its reader."""

    def __init__(self, fetch: FetchPage, width: int) -> None:
        self._fetch = fetch
        self._pool = ThreadPoolExecutor(width, "reading")
        self._asked: deque[Callable[[], SearchPage]] = deque()

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def count(self) -> int:
        return len(self._asked)

    def ask(self, offsets: list[int]) -> None:
        if self.count + len(offsets) == 1:
            self._asked += [partial(self._fetch, offset) for offset in offsets]
        else:
            self._asked += [self._pool.submit(self._fetch, offset).result for offset in offsets]

    def forget(self) -> None:
        self._asked.clear()

    def next(self) -> SearchPage:
        return self._asked.popleft()()


class _Counted:
    """Fetches pages and counts requests, those of a wave that nobody waits for any more included."""

    def __init__(self, fetch: FetchPage, requests: int) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self.requests = requests

    def __call__(self, offset: int) -> SearchPage:
        requests = 1
        try:
            page = self._fetch(offset)
            requests = page.requests
        finally:
            with self._lock:
                self.requests += requests
        return page


class _Seen:
    """The jobs of all readings, by id; an id counts as repeated within one reading only."""

    def __init__(self, is_ours: Callable[[ObservedJob], bool]) -> None:
        self._is_ours = is_ours
        self._jobs: dict[str, ObservedJob | Unreadable] = {}
        self._earlier: dict[str, ObservedJob | Unreadable] = {}
        self._nameless: list[Unreadable] = []
        self.start_again()

    def start_again(self) -> None:
        self.count = 0
        self.total_fell = False
        self._total: int | None = None
        self._earlier |= self._jobs
        self._jobs = {}
        self._nameless = []

    def has_moved(self, page: SearchPage, *, ended: bool) -> bool:
        """Whether the list became shorter, or goes on behind its end."""
        return self.total_fell or (ended and bool(page.items))

    def pages_left(self, at_most: int) -> int:
        """How many pages to ask for next: what `total` promises, at least 1."""
        if self._total is None:
            return at_most
        return max(1, min(at_most, (self._total - self.count) // PAGE_SIZE + 1))

    def take(self, page: SearchPage) -> int:
        """Take the jobs of a page; return how many of them were there before."""
        repeated = 0
        for item in page.items:
            job = read_job(item)
            if job.id is None:
                assert isinstance(job, Unreadable)
                self._nameless.append(job)
                self.count += 1
                continue
            if job.id in self._jobs:
                repeated += 1
            else:
                self.count += 1
            self._jobs[job.id] = job
        self.total_fell = page.total is not None and self._total is not None and page.total < self._total
        self._total = page.total
        return repeated

    def listing(self, problem: ServiceError | str | None, requests: int) -> Listing:
        # What an earlier reading showed exists as far as anybody knows, unless a whole one says otherwise.
        found = self._jobs if problem is None else {**self._earlier, **self._jobs}
        return Listing(
            jobs=[job for job in found.values() if isinstance(job, ObservedJob) and self._is_ours(job)],
            unreadable=[job for job in found.values() if isinstance(job, Unreadable)] + self._nameless,
            problem=problem,
            requests=requests,
        )


class LimitedPages:
    """Fetches pages until `limit` jobs were met that are `wanted`, and says then that the list ends."""

    def __init__(
        self, fetch: FetchPage, limit: int, wanted: Callable[[ObservedJob], bool] = lambda _: True
    ) -> None:
        self._fetch, self._limit, self._wanted = fetch, limit, wanted
        self._lock = threading.Lock()
        self._count, self._furthest = 0, 0

    def __call__(self, offset: int) -> SearchPage:
        with self._lock:
            if offset == 0:
                self._count, self._furthest = 0, 0
            # What lies before a page that was read already is asked for, or the list would have a gap.
            if self._count >= self._limit and offset > self._furthest:
                return SearchPage([], requests=0)
        page = self._fetch(offset)
        jobs = [job for item in page.items if isinstance(job := read_job(item), ObservedJob)]
        with self._lock:
            self._count += sum(map(self._wanted, jobs))
            self._furthest = max(self._furthest, offset)
        return page


def page_of(answer: Any, requests: int = 1, seconds: float = 0.0) -> SearchPage | str:
    """Take an answer of the search apart, or say why that is not possible."""
    if not isinstance(answer, dict) or "items" not in answer:
        return "the search response has no items"
    items, total, count = answer["items"], number(answer.get("total")), number(answer.get("count"))
    if items is None and not count:
        items = []
    if not isinstance(items, list):
        return "the items of the search response are not a list"
    # A service that counts the page, not the list, tells nothing about the list.
    known, matching = (int(n) if n is not None and n > len(items) else None for n in (total, count))
    return SearchPage(items, known, requests, seconds, matching)
