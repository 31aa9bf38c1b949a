"""Lists of jobs that behave badly, as functions from an offset to a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.modelarts.observe import PAGE_SIZE, SearchPage
from tests.modelarts.building import an_answer


def jobs(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Jobs named and identified by their number."""
    return [
        an_answer(metadata__id=f"id-{n:04}", metadata__name=f"job-{n}") for n in range(first, first + count)
    ]


class Service:
    """A list that is served in pages; `before` is called with the number of each request, from 1."""

    def __init__(
        self,
        items: list[Any],
        *,
        before: Callable[[Service, int], None] = lambda service, number: None,
        counts_items: bool = False,
        tells_total: bool = True,
        seconds: float = 0.0,
    ) -> None:
        self.items = items
        self.requests = 0
        self._before = before
        self._step = 1 if counts_items else PAGE_SIZE
        self._tells_total = tells_total
        self._seconds = seconds

    def __call__(self, offset: int) -> SearchPage:
        self.requests += 1
        self._before(self, self.requests)
        begin = offset * self._step
        total = len(self.items) if self._tells_total else None
        return SearchPage(self.items[begin : begin + PAGE_SIZE], total, seconds=self._seconds)
