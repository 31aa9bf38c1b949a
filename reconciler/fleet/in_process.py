"""The stacks of a fleet in this process: several at once, for each waits for the service most of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from reconciler.decide.fleet import StackResult
from reconciler.fleet.request import FleetRequest, StackTask
from reconciler.fleet.stack_check import StackRunner

#: So many stacks are checked at once in a process: more would wait for the interpreter, not for the service.
AT_ONCE = 4
TakeResult = Callable[[StackResult], None]


def check_here(
    runner: StackRunner,
    request: FleetRequest,
    tasks: Sequence[StackTask],
    take: TakeResult,
    at_once: int = AT_ONCE,
) -> None:
    """Check the stacks; `take` is given each result as it comes, in the thread that calls this.

    An interrupt ends it at once: nothing more is begun, and what waits is told to end.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, min(at_once, len(tasks))), thread_name_prefix="stack")
    try:
        futures = [pool.submit(runner.check, request, task) for task in tasks]
        for future in as_completed(futures):
            take(future.result())
    except BaseException:
        if runner.stop is not None:
            runner.stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
