"""The workers of a cluster together send no more requests than one process may."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.fleet import limiter_of
from reconciler.modelarts.clock import RateLimiter
from reconciler.modelarts.connect import PROCESS_LIMITER

RATE = PROCESS_LIMITER.per_second
NOW = 1_000_000.0


def _send(limiter: RateLimiter, at_s: float, requests: int, answer_s: float) -> list[float]:
    """When the requests of one batch are sent, each as soon as it may be."""
    times = []
    for _ in range(requests):
        at_s += limiter.reserve(at_s)
        times.append(at_s)
        at_s += answer_s
    return times


def _most_in_a_second(times: list[float]) -> int:
    ordered = sorted(times)
    return max(bisect_left(ordered, one + 1) - place for place, one in enumerate(ordered))


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=8),
    answer_s=st.sampled_from([0.0, 0.001, 0.05]),
)
def test_batches_side_by_side_and_one_after_the_other_keep_to_the_rate_of_one_process(
    batches: list[list[int]], answer_s: float
) -> None:
    """Each inner list is what one worker does, batch by batch; the workers share the rate."""
    times: list[float] = []
    for of_worker in batches:
        at_s = NOW
        for requests in of_worker:
            sent = _send(limiter_of(1 / len(batches), at_s), at_s, requests, answer_s)
            times += sent
            at_s = sent[-1] + answer_s
    assert _most_in_a_second(times) <= RATE + len(batches)


def test_workers_that_are_busy_use_the_whole_rate() -> None:
    times = [time for _ in range(4) for time in _send(limiter_of(1 / 4, NOW), NOW, 250, 0.0)]
    assert (max(times) - NOW) * RATE <= 1.01 * len(times)
