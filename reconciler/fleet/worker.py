"""What a worker of a cluster does: it checks a batch of stacks as this process would do it by itself.

Credentials, and the values of variables that come from the environment, are those of the worker.
"""

from __future__ import annotations

import os
import time

from reconciler.decide.fleet import StackResult
from reconciler.errors import Diagnostic, ExitCode
from reconciler.fleet.in_process import check_here
from reconciler.fleet.plain_data import to_json
from reconciler.fleet.request import FleetBatch, FleetRequest, ShownBatch, StackTask
from reconciler.fleet.stack_check import StackRunner
from reconciler.modelarts.clock import RateLimiter
from reconciler.modelarts.connect import PROCESS_LIMITER
from reconciler.version import __version__


def version() -> str:
    """The version of reconciler that is installed here."""
    return __version__


def check_batch(text: str) -> str:
    """Check the stacks of a `FleetBatch`; it and the results are JSON."""
    batch = FleetBatch.from_json(text)
    if batch.request.version != __version__:  # a worker that came after the others were asked
        return to_json([_other_version(batch.request, task) for task in batch.tasks])
    results: list[StackResult] = []
    runner = StackRunner(os.environ, limiter=limiter_of(batch.share, time.time()))
    check_here(runner, batch.request, batch.tasks, results.append, batch.at_once)
    return to_json(results)


def mark_shown(text: str) -> str:
    """Write down what was shown, a `ShownBatch`; it and the results are JSON."""
    batch = ShownBatch.from_json(text)
    runner = StackRunner(os.environ)
    return to_json([runner.mark_shown(batch.request, task, shown) for task, shown in batch.shown])


def _other_version(request: FleetRequest, task: StackTask) -> StackResult:
    why = f"it has {__version__}, and the command was started with {request.version}"
    problem = Diagnostic("another version on a worker", why, "install the same version on all workers")
    return StackResult(task.root, task.name, ExitCode.FAILED, errors=(problem,))


def limiter_of(share: float, now_s: float) -> RateLimiter:
    """A limiter, from now on, for a share of the rate that one process may use.

    It begins without a burst, so that one batch after the other is no faster than one that lasts.
    """
    limiter = RateLimiter(PROCESS_LIMITER.per_second * share, burst=0)
    limiter.reserve(now_s)
    return limiter
