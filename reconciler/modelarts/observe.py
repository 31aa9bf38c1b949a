"""Reading what a plan needs of a workspace: full scan, or filtered searches, whichever is less.

A filtered search proves presence only. So if the caller's decision rests on a job not being there, the
scan follows; `needs_absence` says whether it does.

Source: docs/semantics.md, "Reading" and "Listing jobs".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.core.listing import Listing, SearchFilter, named
from reconciler.core.observed_job import Observation, ObservedJob
from reconciler.core.phase import ACTIVE
from reconciler.errors import Rejected, ServiceError, Unauthorized
from reconciler.modelarts.paging import (
    PAGE_SIZE,
    SLOW_START_S,
    WIDTH,
    PageReader,
    SearchPage,
    at_once,
)

#: Fetches one page of a search.
Fetch = Callable[[int, Sequence[SearchFilter]], SearchPage]
NeedsAbsence = Callable[[Observation], bool]

ACTIVE_ONLY: SearchFilter = {
    "key": "phase",
    "operator": "in",
    "value": sorted(phase.value for phase in ACTIVE),
}


class _BudgetExceeded(Exception):
    """The other way of reading may be cheaper."""


@dataclass
class _RequestBudget:
    """Counts requests of all threads, up to a limit (None: there is none).

    `whole` is how many jobs the workspace has, and `least` what a page of each search costs.
    """

    fetch: Fetch
    limit: int | None
    whole: int | None = None
    least: int = 0
    spent: int = 0
    _promised: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self, offset: int, filters: Sequence[SearchFilter]) -> SearchPage:
        with self._lock:
            if self.limit is not None and self.spent >= self.limit:
                raise _BudgetExceeded
            self.spent += 1
        page = self.fetch(offset, filters)
        if offset == 0:
            self._expect(page)
        return page

    def _expect(self, page: SearchPage) -> None:
        """Give up at once if first pages promise more than there is to spend.

        What is said to match ends no list, and is no hint either where it is the whole workspace.
        """
        if self.limit is None or self.whole is None or page.is_last or not page.matching:
            return
        if page.matching < self.whole:
            with self._lock:
                self._promised += page.matching // PAGE_SIZE
                if self.least + self._promised > self.limit:
                    raise _BudgetExceeded


def observe(
    fetch: Fetch,
    reader: PageReader,
    names: Collection[str] | None = None,
    needs_absence: NeedsAbsence | None = None,
) -> Observation:
    """Read a workspace. Without `names`, all of it; else all active jobs, and those with a name like one.

    Raises:
        Unauthorized: nobody is allowed to read it.
    """
    try:
        first = fetch(0, ())
    except Unauthorized:
        raise
    except ServiceError as failure:
        return _observation(_failed(failure), 0, "full scan")
    if names is None or first.is_last:
        return _scan(fetch, reader, first)
    seen = _cheaper(fetch, reader, first, _searches(names))
    if seen.is_whole or seen.problem is not None or needs_absence is None or not needs_absence(seen):
        return seen
    return _also(_scan(fetch, reader, None), seen)


def _cheaper(fetch: Fetch, reader: PageReader, first: SearchPage, searches: Mapping[str, int]) -> Observation:
    """Scan or search, whichever takes fewer requests; what turns out to be dearer is given up."""
    # As many names as there are cannot be found on fewer pages.
    dear = 1 + sum(1 + covered // PAGE_SIZE for covered in searches.values())
    price = _pages_to_come(first)
    if price is not None and dear > price // 2:
        return _scan(fetch, reader, first)
    spent = 0
    if price is None:
        # As far as the searches would cost, a scan costs no more than twice the better choice.
        purse = _RequestBudget(fetch, dear)
        try:
            return _scan(purse.page, reader, first)
        except _BudgetExceeded:
            spent = purse.spent
    # Jobs may be many under few names, so the searches are given up half-way to the price of the scan.
    purse = _RequestBudget(fetch, None if price is None else price // 2, first.total, least=1 + len(searches))
    try:
        partial = _filtered(purse, reader, list(searches), is_slow=first.seconds > SLOW_START_S)
    except (_BudgetExceeded, Rejected):
        return _after("filtered searches", spent + purse.spent, _scan(fetch, reader, first))
    return _after("full scan", spent, partial) if spent else partial


def _pages_to_come(first: SearchPage) -> int | None:
    """What the rest of the scan costs, in requests. `total` ends nothing, but is a hint for the price."""
    return None if first.total is None else first.total // PAGE_SIZE


def _scan(fetch: Fetch, reader: PageReader, first: SearchPage | None) -> Observation:
    listing = reader.read(lambda offset: fetch(offset, ()), first)
    return _observation(listing, 0, "full scan")


def _filtered(
    purse: _RequestBudget, reader: PageReader, searches: Sequence[str], *, is_slow: bool
) -> Observation:
    def read(filters: Sequence[SearchFilter]) -> Listing:
        return reader.read(lambda offset: purse.page(offset, filters))

    conditions: list[Sequence[SearchFilter]] = [(ACTIVE_ONLY,), *((named(name),) for name in searches)]
    if is_slow:
        listings = list(at_once(read, conditions, WIDTH))
    else:
        listings = [read(filters) for filters in conditions]
    whole = Listing()
    by_id: dict[str, ObservedJob] = {}
    for listing in listings:
        if isinstance(listing.problem, Rejected):
            # The cloud does not know the condition.
            raise listing.problem
        by_id |= {job.id: job for job in listing.jobs}
        whole.unreadable += [entry for entry in listing.unreadable if entry not in whole.unreadable]
        whole.problem = whole.problem or listing.problem
        whole.requests += listing.requests
    whole.jobs = sorted(by_id.values(), key=lambda job: job.created_at_s or 0.0)
    strategy = f"{len(conditions)} filtered searches (active jobs, {len(searches)} names)"
    return _observation(whole, 1, strategy, is_whole=False)


def _searches(names: Collection[str]) -> dict[str, int]:
    """Return what to search for, and how many of the names each search finds.

    The search for `x` finds `x-r2` and `x-large` as well.
    """
    found: dict[str, int] = {}
    last = ""
    for name in sorted(set(names)):
        # In this order a name stands behind all that begin like it, and begin like the last one kept.
        if not (found and name.startswith(last)):
            last = name
        found[last] = found.get(last, 0) + 1
    return found


def _after(given_up: str, requests: int, observation: Observation) -> Observation:
    """What was read in another way in the end; the requests of the first one were made all the same."""
    return replace(
        observation,
        requests=requests + observation.requests,
        strategy=f"{given_up}, abandoned; then {observation.strategy}",
    )


def _failed(failure: ServiceError) -> Listing:
    return Listing(problem=failure, requests=1)


def _also(scan: Observation, partial: Observation) -> Observation:
    """The scan that followed a partial look; if it failed, what the look found is still there."""
    found = {job.id: job for job in scan.jobs}
    if not scan.is_whole:
        found = {job.id: job for job in partial.jobs} | found
    return Observation(
        jobs=tuple(found.values()),
        unreadable=scan.unreadable,
        is_whole=scan.is_whole,
        problem=scan.problem,
        requests=partial.requests + scan.requests,
        strategy=f"{partial.strategy}; then {scan.strategy}, to prove absence",
    )


def _observation(listing: Listing, more: int, strategy: str, *, is_whole: bool = True) -> Observation:
    return Observation(
        jobs=tuple(listing.jobs),
        unreadable=tuple(listing.unreadable),
        is_whole=is_whole and listing.problem is None,
        problem=_said(listing.problem),
        requests=listing.requests + more,
        strategy=strategy,
    )


def _said(problem: ServiceError | str | None) -> str | None:
    """A problem in words, and what to do about it where that is known."""
    if not isinstance(problem, ServiceError):
        return problem
    fixes = [diagnostic.fix for diagnostic in problem.diagnostics if diagnostic.fix]
    return "; ".join([str(problem), *fixes])
