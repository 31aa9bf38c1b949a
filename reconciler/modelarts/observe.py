"""Reading jobs: one response, a list page by page, a whole workspace.

A job is parsed into an `ObservedJob`, or `Unreadable` if a required field is missing or invalid:
`metadata.id`, `metadata.name`, `status.phase`, and a description that is text or absent. Unknown fields stay
in `body`, numbers may be text, null is absent. Parsed by hand, for speed.

Pages:

- A page holds at most 50 jobs, and a shorter one is the last. `total` and `count` do not tell the end.
- The oldest job comes first, so that new ones are appended behind what was read.
- `offset` counts pages. According to some documents it counts items: if page 1 repeats page 0 without its
  first job, the reader switches to items.
- A list that changes while it is read is read again, at most three times. It has changed if an id is
  repeated, or if `total` falls: after a deletion another job may have been skipped.
- With a slow service the next pages are requested ahead; a list that changed is read again sequentially. With
  a fast one pages are read sequentially, because threads would cost more than they save.

A workspace is read by a full scan or by filtered searches, whichever takes fewer requests. A filtered search
proves presence only. If a decision rests on a job being absent, which `needs_absence` tells, a scan follows.

Source: docs/reference/modelarts.md, "Responses", "Contradictions" and "Search";
docs/concepts/crash-safety.md, "Reading" and "Listing jobs".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, TypeGuard

from reconciler.core.identity import MARKER_BEGIN, Marker, parse_description
from reconciler.core.observed import Listing, Observation, ObservedJob, SearchFilter, Unreadable, named
from reconciler.core.phase import ACTIVE
from reconciler.errors import Rejected, ServiceError, Unauthorized

# --- one job


def read_job(answer: Any) -> ObservedJob | Unreadable:
    """Parse one job. Times are in milliseconds, and 0 means none."""
    if not isinstance(answer, dict):
        return Unreadable("a list entry is not an object")
    metadata, status = answer.get("metadata"), answer.get("status")
    if not isinstance(metadata, dict):
        return Unreadable("metadata is missing or not an object")
    job_id, name, description = metadata.get("id"), metadata.get("name"), metadata.get("description")
    if not isinstance(status, dict):
        status = {}
    phase = status.get("phase")
    is_described = isinstance(description, str | None)
    if not (_is_text(job_id) and _is_text(name) and _is_text(phase) and is_described):
        job_id, name, description = map(_text, (job_id, name, description))
        needed = {"metadata.id": job_id, "metadata.name": name, "status.phase": _text(phase)}
        wrong = [path for path, value in needed.items() if not value]
        wrong += [] if is_described else ["metadata.description"]
        claimed: Marker | None = parse_description(description).marker if description else None
        return Unreadable(f"{', '.join(wrong)} missing or not text", name or None, job_id or None, claimed)
    # Only for jobs with a marker: others are neither compared nor stored.
    if description and MARKER_BEGIN in description and (invalid := find_invalid_value(answer)):
        # These three are shown and compared, so they must be valid Unicode.
        job_id, name, description = (
            text.encode("utf-8", "replace").decode() for text in (job_id, name, description)
        )
        return Unreadable(f"it contains {invalid}", name, job_id, parse_description(description).marker)
    secondary = status.get("secondary_phase")
    return ObservedJob(
        id=job_id,
        name=name,
        description=description or "",
        phase_text=phase,
        secondary_phase=_text(secondary) or "",
        created_at_s=_seconds(metadata.get("create_time")),
        started_at_s=_seconds(status.get("start_time")),
        duration_s=_seconds(status.get("duration")),
        node_count=_node_count(answer),
        body=answer,
    )


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


#: Jobs have at most ten levels, and 64-bit numbers.
_DEEPEST = 64
_LARGEST = 10**30
_CONTAINERS = frozenset({dict, list})
_NUMBERS = frozenset({int, float})


def find_invalid_value(answer: dict[str, Any]) -> str | None:
    """Describe a value of a job that cannot be stored or written as JSON. None if all are valid."""
    holders: list[Any] = [answer]
    for _ in range(_DEEPEST):
        texts: list[str] = []
        below: list[Any] = []
        for holder in holders:
            if holder.__class__ is dict:
                texts += holder
                holder = holder.values()
            for value in holder:
                kind = value.__class__
                if kind is str:
                    texts.append(value)
                elif kind in _CONTAINERS:
                    below.append(value)
                elif kind in _NUMBERS and not -_LARGEST < value < _LARGEST:
                    return "a number that is out of range or not finite"
        if not all(map(str.isascii, texts)):
            try:
                "".join(texts).encode()
            except UnicodeEncodeError:
                return "text that is not valid Unicode"
        if not below:
            return None
        holders = below
    return f"values nested more deeply than {_DEEPEST} levels"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """Parse a finite number, which may be text. None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if isfinite(read) else None


def _seconds(milliseconds: Any) -> float | None:
    if milliseconds.__class__ is int:
        # The fast path for nearly all values.
        return milliseconds / 1000 if 0 < milliseconds < 1 << 60 else None
    read = number(milliseconds)
    return read / 1000 if read and read > 0 else None


def _node_count(answer: dict[str, Any]) -> int:
    """The nodes of a job, or of all tasks of a heterogeneous one. 1 by default."""
    spec = answer.get("spec")
    resource = spec.get("resource") if isinstance(spec, dict) else None
    if isinstance(resource, dict) and "node_count" in resource:
        return _count(resource["node_count"])
    tasks = answer.get("tasks")
    if not isinstance(tasks, list):
        return 1
    resources = [task.get("task_resource") for task in tasks if isinstance(task, dict)]
    return sum(_count(r.get("node_count")) for r in resources if isinstance(r, dict)) or 1


def _count(value: Any) -> int:
    if value.__class__ is int:
        return value if 0 < value < 1 << 60 else 1
    read = number(value)
    return max(1, int(read)) if read else 1


# --- pages


PAGE_SIZE = 50
MAX_READINGS = 4
#: 200,000 jobs, twenty times the service's quota: stops reading a list that does not end.
MAX_PAGES = 4000
#: Responses slower than this are requested ahead. For faster ones threads cost more than they save.
SLOW_S = 0.02
#: The same for a first page, which may have had to connect.
SLOW_START_S = 0.1
WIDTH = 6

MOVED = f"the list changed while it was read, {MAX_READINGS} times in a row"
ENDLESS = f"the list does not end after {MAX_PAGES:,} pages, {MAX_PAGES * PAGE_SIZE:,} jobs"


class SearchPage(NamedTuple):
    """A page of a search. `requests` is the number of attempts, `seconds` the duration of the last one.

    `total` and `matching` are the service's unreliable numbers of all jobs and of matching ones.
    """

    items: list[Any]
    total: int | None = None
    requests: int = 1
    seconds: float = 0.0
    matching: int | None = None

    @property
    def is_last(self) -> bool:
        return len(self.items) < PAGE_SIZE


#: Fetches the page at `offset`, which counts pages or items.
FetchPage = Callable[[int], SearchPage]


class PageReader:
    """Reads lists of one service, and remembers how it counts `offset`.

    `is_ours` filters jobs of other workspaces, which still count for the size of a page.
    """

    def __init__(self, is_ours: Callable[[ObservedJob], bool] = lambda _: True) -> None:
        self.counts_items = False
        self._is_ours = is_ours

    def read(
        self,
        fetch: FetchPage,
        first: SearchPage | None = None,
        limit: int | None = None,
        wanted: Callable[[ObservedJob], bool] = lambda _: True,
    ) -> Listing:
        """Read the whole list. Problems are in the listing. `first` is a page that was fetched already.

        With a `limit` reading ends after the page on which that many `wanted` jobs are reached.

        Raises:
            Unauthorized: the account may not read it.
        """
        requests, lock = first.requests if first else 0, threading.Lock()
        earlier: dict[str, ObservedJob | Unreadable] = {}
        jobs: dict[str, ObservedJob | Unreadable] = {}
        nameless: list[Unreadable] = []

        def counted(offset: int) -> SearchPage:
            nonlocal requests
            needed = 1
            try:
                page = fetch(offset)
                needed = page.requests
            finally:
                # Counts pages that turn out not to be needed, too.
                with lock:
                    requests += needed
            return page

        def listing(problem: ServiceError | str | None) -> Listing:
            # Jobs seen by an earlier reading exist, unless a complete one shows otherwise.
            found = (jobs if problem is None else {**earlier, **jobs}).values()
            return Listing(
                jobs=[job for job in found if isinstance(job, ObservedJob) and self._is_ours(job)],
                unreadable=[job for job in found if isinstance(job, Unreadable)] + nameless,
                problem=problem,
                requests=requests,
            )

        for reading in range(MAX_READINGS):
            earlier |= jobs
            jobs, nameless = {}, []
            page, pages, total, reached, ended = None if reading else first, 0, None, 0, False
            width = 1 if reading else WIDTH
            # Pages requested ahead, in order; a single one is fetched when it is read.
            pool, ahead = ThreadPoolExecutor(width, "reading"), deque[Callable[[], SearchPage]]()
            try:
                page = page or counted(0)
                while True:
                    known, repeated = len(jobs), 0
                    for job in map(read_job, page.items):
                        if job.id is None:
                            assert isinstance(job, Unreadable)
                            nameless.append(job)
                            continue
                        # An id counts as repeated within one reading only.
                        repeated += job.id in jobs
                        jobs[job.id] = job
                        reached += isinstance(job, ObservedJob) and self._is_ours(job) and wanted(job)
                    has_fallen = page.total is not None and total is not None and page.total < total
                    total = page.total
                    is_shifted = repeated > PAGE_SIZE // 2 and len(jobs) <= known + 1
                    if pages == 1 and not self.counts_items and is_shifted:
                        # Items are counted. Discard requested pages.
                        self.counts_items = True
                        ahead.clear()
                    elif repeated or has_fallen or (ended and page.items):
                        break
                    pages += 1
                    ended = ended or page.is_last
                    if (ended and not ahead) or (limit is not None and reached >= limit):
                        return listing(None)
                    if pages == MAX_PAGES:
                        return listing(ENDLESS)
                    if not ended:
                        count, most = len(jobs) + len(nameless), 1
                        if page.seconds > (SLOW_START_S if pages == 1 else SLOW_S):
                            # The pages left according to `total` and to the limit.
                            left = [
                                one - done
                                for one, done in ((total, count), (limit, reached))
                                if one is not None
                            ]
                            most = max(1, min([width, *(one // PAGE_SIZE + 1 for one in left)]))
                        begin, step = (count, PAGE_SIZE) if self.counts_items else (pages, 1)
                        offsets = [begin + step * k for k in range(len(ahead), most)]
                        if len(ahead) + len(offsets) == 1:
                            ahead += [partial(counted, offset) for offset in offsets]
                        else:
                            ahead += [pool.submit(counted, offset).result for offset in offsets]
                    page = ahead.popleft()()
            except Unauthorized:
                raise
            except ServiceError as failure:
                return listing(failure)
            finally:
                pool.shutdown(cancel_futures=True)
        return listing(MOVED)


def page_of(answer: Any, requests: int = 1, seconds: float = 0.0) -> SearchPage | str:
    """Parse a response of the search. Returns the reason if it is invalid."""
    if not isinstance(answer, dict) or "items" not in answer:
        return "the search response has no items"
    items, total, count = answer["items"], number(answer.get("total")), number(answer.get("count"))
    if items is None and not count:
        items = []
    if not isinstance(items, list):
        return "the items of the search response are not a list"
    # Some services report the size of the page instead.
    known, matching = (int(n) if n is not None and n > len(items) else None for n in (total, count))
    return SearchPage(items, known, requests, seconds, matching)


# --- the workspace

#: Fetches one page of a search, given its `offset` and `filters`.
Fetch = Callable[..., SearchPage]
NeedsAbsence = Callable[[Observation], bool]

_ACTIVE = sorted(phase.value for phase in ACTIVE)
ACTIVE_ONLY: SearchFilter = {"key": "phase", "operator": "in", "value": _ACTIVE}


class _BudgetExceeded(Exception):
    """The other strategy may be cheaper."""


class _RequestBudget:
    """Counts the requests of all threads, up to a limit (None: unlimited).

    `whole` is the number of jobs in the workspace, `least` the cost of one page of each search.
    """

    def __init__(self, fetch: Fetch, limit: int | None, whole: int | None = None, least: int = 0) -> None:
        self._fetch, self._limit, self._whole, self._promised = fetch, limit, whole or 0, least
        self.used = 0
        self._lock = threading.Lock()

    def page(self, offset: int, filters: Sequence[SearchFilter]) -> SearchPage:
        with self._lock:
            if self._limit is not None and self.used >= self._limit:
                raise _BudgetExceeded
            self.used += 1
        page = self._fetch(offset, filters)
        # Give up early if the first pages announce more than the budget. The announced number is useless if
        # it equals that of the whole workspace.
        if offset == 0 and not page.is_last and page.matching and page.matching < self._whole:
            with self._lock:
                self._promised += page.matching // PAGE_SIZE
                if self._limit is not None and self._promised > self._limit:
                    raise _BudgetExceeded
        return page


def observe(
    fetch: Fetch,
    reader: PageReader,
    names: Collection[str] | None = None,
    needs_absence: NeedsAbsence | None = None,
) -> Observation:
    """Read a whole workspace or, with `names`, all active jobs and those with similar names.

    Raises:
        Unauthorized: the account may not read it.
    """
    scan = partial(fetch, filters=())
    try:
        first = scan(0)
    except Unauthorized:
        raise
    except ServiceError as failure:
        return _observation(Listing(problem=failure, requests=1), "full scan")
    searches = _searches(names or ())
    # The least number of pages for this many names.
    search_cost = 1 + sum(1 + covered // PAGE_SIZE for covered in searches.values())
    # `total` is good enough as an estimate of the scan's cost.
    scan_cost = None if first.total is None else first.total // PAGE_SIZE
    is_scan_cheaper = scan_cost is not None and search_cost > scan_cost // 2
    if names is None or first.is_last or is_scan_cheaper:
        return _observation(reader.read(scan, first), "full scan")
    abandoned, used = "full scan, abandoned; then ", 0
    if scan_cost is None:
        # With the cost of the searches as its budget, a scan costs at most twice the better choice.
        budget = _RequestBudget(fetch, search_cost)
        try:
            return _observation(reader.read(partial(budget.page, filters=()), first), "full scan")
        except _BudgetExceeded:
            used = budget.used
    # A name may match many jobs, so searches are given up at half of the cost of a scan.
    limit = None if scan_cost is None else scan_cost // 2
    budget = _RequestBudget(fetch, limit, first.total, least=1 + len(searches))
    try:
        searched = _filtered(budget, reader, list(searches), is_slow=first.seconds > SLOW_START_S)
    except (_BudgetExceeded, Rejected):
        abandoned, used = "filtered searches, abandoned; then ", used + budget.used
        searched = _observation(reader.read(scan, first), "full scan")
    strategy = abandoned * bool(used) + searched.strategy
    searched = searched._replace(requests=used + searched.requests, strategy=strategy)
    if searched.is_whole or searched.problem is not None or not (needs_absence and needs_absence(searched)):
        return searched
    whole = _observation(reader.read(scan), "full scan")
    found = {job.id: job for job in whole.jobs}
    if not whole.is_whole:
        # Jobs found by the searches still exist.
        found = {job.id: job for job in searched.jobs} | found
    return whole._replace(
        jobs=tuple(found.values()),
        requests=searched.requests + whole.requests,
        strategy=f"{searched.strategy}; then {whole.strategy}, to prove absence",
    )


def _filtered(
    budget: _RequestBudget, reader: PageReader, searches: Sequence[str], *, is_slow: bool
) -> Observation:
    conditions: list[Sequence[SearchFilter]] = [(ACTIVE_ONLY,), *((named(name),) for name in searches)]
    fetches = [partial(budget.page, filters=filters) for filters in conditions]
    if is_slow:
        with ThreadPoolExecutor(WIDTH, "reading") as pool:
            listings = list(pool.map(reader.read, fetches))
    else:
        listings = [reader.read(fetch) for fetch in fetches]
    whole = Listing(requests=1)
    by_id: dict[str, ObservedJob] = {}
    for listing in listings:
        if isinstance(listing.problem, Rejected):
            # The cloud does not support the filter.
            raise listing.problem
        by_id |= {job.id: job for job in listing.jobs}
        whole.unreadable += [entry for entry in listing.unreadable if entry not in whole.unreadable]
        whole.problem = whole.problem or listing.problem
        whole.requests += listing.requests
    whole.jobs = sorted(by_id.values(), key=lambda job: job.created_at_s or 0.0)
    strategy = f"{len(conditions)} filtered searches (active jobs, {len(searches)} names)"
    return _observation(whole, strategy)._replace(is_whole=False)


def _searches(names: Collection[str]) -> dict[str, int]:
    """Return the prefixes to search for, with the number of names that each covers.

    A search for `x` also finds `x-r2` and `x-large`.
    """
    found: dict[str, int] = {}
    last = ""
    for name in sorted(set(names)):
        # Sorted, so that a name follows its prefixes.
        if not (found and name.startswith(last)):
            last = name
        found[last] = found.get(last, 0) + 1
    return found


def _observation(listing: Listing, strategy: str) -> Observation:
    problem = listing.problem
    if isinstance(problem, ServiceError):
        # The message with its fixes.
        fixes = [diagnostic.fix for diagnostic in problem.diagnostics if diagnostic.fix]
        problem = "; ".join([str(problem), *fixes])
    return Observation(
        jobs=tuple(listing.jobs),
        unreadable=tuple(listing.unreadable),
        is_whole=problem is None,
        problem=problem,
        requests=listing.requests,
        strategy=strategy,
    )
