"""The stacks of a fleet on the workers of a dask.distributed cluster.

Plain text travels: which stacks, and the options of the command. The scheduler needs nothing of ours, the
workers need the same version. What a lost worker had to do is done by another one. What comes back is text,
too, and no pickle of a worker is read (`plain_data`).
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from reconciler.decide.fleet import StackResult
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, WrongUsage
from reconciler.fleet.in_process import AT_ONCE, TakeResult
from reconciler.fleet.plain_data import InvalidAnswer, no_unpickling, results_from
from reconciler.fleet.request import FleetBatch, FleetRequest, ShownBatch, StackTask
from reconciler.text import printable
from reconciler.version import __version__

#: distributed has no types.
Client = Any
Future = Any
_ADDRESS = re.compile(r"(tcp|tls)://[^/\s:]+(:[^/\s:]+)*:\d{1,5}|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d{1,5}")
#: Seconds for the scheduler to answer, and for a worker to appear where there is none.
CONNECT_S, NO_WORKERS_S = 10.0, 60.0
#: Seconds for what was shown to be written down.
MARK_S = 60.0
#: Seconds between two looks at which workers there are.
_LOOK_EVERY_S = 1.0
_WORKER = "reconciler.fleet.worker"
_INSTALL = f"on all workers: pip install reconciler=={__version__}"


class ClusterUnavailable(ReconcilerError):
    """The scheduler cannot be reached, or has no workers."""

    exit_code = ExitCode.UNKNOWN


class OtherVersion(ReconcilerError):
    """A worker has another version of reconciler, or none."""

    exit_code = ExitCode.FAILED


def check_on_cluster(
    address: str, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult
) -> None:
    """Check the stacks on a cluster; `take` is given each result as it comes.

    An interrupt cancels what has not begun.

    Raises:
        WrongUsage: the address is none, or the extra `fleet` is not installed.
        ClusterUnavailable: the scheduler cannot be reached, or has no workers.
        OtherVersion: a worker has another version.
    """
    with _connected(address) as client:
        run = _ClusterRun(client, address, request, take)
        run.check_versions()
        run.check(tasks)


def mark_on_cluster(address: str, batch: ShownBatch) -> list[StackResult]:
    """Write down on the cluster what drift was shown; returns what became of each stack.

    Raises:
        ClusterUnavailable: the scheduler cannot be reached, or did not answer.
    """
    with _connected(address) as client:
        future = client.submit(_remote(), _WORKER, "mark_shown", batch.to_json(), pure=False)
        try:
            return results_from(
                _answer(future.result(timeout=MARK_S)), [task.root for task, _ in batch.shown]
            )
        # What it failed of on a worker is an exception of any kind, since it is not read.
        except (Exception, CancelledError) as error:
            raise _unavailable(f"{address}: {_reason(error)}", "run it again") from None


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    if not _ADDRESS.fullmatch(address):
        why = f'"{address}" is not tcp://HOST:PORT'
        raise WrongUsage(Diagnostic("invalid scheduler", why, "use the address that `dask scheduler` prints"))
    try:
        import distributed
    except ImportError:
        why = "--scheduler needs the package distributed"
        raise WrongUsage(
            Diagnostic("the extra fleet is not installed", why, "pip install 'reconciler[fleet]'")
        ) from None
    _redirect_log()
    with no_unpickling():
        try:
            client: Client = distributed.Client(  # type: ignore[no-untyped-call]
                address,
                timeout=CONNECT_S,
                set_as_default=False,
                name="reconciler",
                deserializers=["msgpack", "error"],
            )
        except (OSError, ValueError) as error:
            fix = "start it with `dask scheduler`, or correct the address"
            raise _unavailable(f"{address}: {_reason(error)}", fix) from None
        try:
            yield client
        finally:
            with suppress(Exception):
                client.close(timeout=2)


def _redirect_log() -> None:
    """Let what dask logs go where the log of any library goes, and not to stderr by itself."""
    logger = logging.getLogger("distributed")
    logger.handlers.clear()
    logger.propagate = True


def _reason(error: BaseException) -> str:
    words, cause = type(error).__name__, error.__cause__
    for one in (error, cause):
        words = str(one or "") or words
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
        words = str(cause) or words
    return words.splitlines()[0]


def _unavailable(why: str, fix: str) -> ClusterUnavailable:
    return ClusterUnavailable(Diagnostic("the scheduler is unavailable", why, fix))


def _remote() -> Callable[..., Any]:
    """A function that travels by value, so that who passes it on needs nothing of ours.

    It answers as `_answer` reads it: an exception would come back as a pickle.
    """

    def call(module: str, function: str, *arguments: Any) -> list[str]:
        from importlib import import_module

        try:
            return ["", getattr(import_module(module), function)(*arguments)]
        except Exception as error:
            return [type(error).__name__, str(getattr(error, "name", None) or ""), str(error)]

    return call


class _FailedThere(Exception):
    """A call failed on a worker: the name of its exception, and of the module that is missing, if one is."""

    def __init__(self, kind: str, module: str, why: str) -> None:
        self.kind, self.module = kind, module
        super().__init__(why)


def _answer(found: object) -> str:
    """What a call of `_remote` returned.

    Raises:
        _FailedThere: it failed.
        InvalidAnswer: it is none.
    """
    match found:
        case ("", str(text)):
            return text
        case (str(kind), str(module), str(why)):
            raise _FailedThere(kind, module, why)
    raise InvalidAnswer("it is no text")


@dataclass
class _ClusterRun:
    """One run on a cluster.

    Batches are in flight at the same time as long as their shares are at most the whole: whatever workers
    come and go, they never send more requests together than one process.
    """

    client: Client
    address: str
    request: FleetRequest
    take: TakeResult

    def __post_init__(self) -> None:
        self._call = _remote()
        self._waiting: deque[tuple[StackTask, ...]] = deque()
        self._in_flight: dict[Future, FleetBatch] = {}
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._begun = 0
        self._workers: Mapping[str, int] = {}
        self._looked_at_s = float("-inf")
        self._seen_at_s = time.monotonic()

    def check_versions(self) -> None:
        """See that all workers have our version.

        Raises:
            OtherVersion: one has another, or none.
        """
        found = self.client.run(self._call, _WORKER, "version", on_error="return")
        # What raises here is the connection of a worker that was lost meanwhile.
        answers = {worker: _version(one) for worker, one in found.items() if not isinstance(one, Exception)}
        if wrong := [worker for worker in sorted(answers) if answers[worker] != __version__]:
            raise OtherVersion(*(_other_version(worker, answers[worker]) for worker in wrong))

    def check(self, tasks: Sequence[StackTask]) -> None:
        """Check the stacks."""
        self._look()
        size = max(1, min(AT_ONCE, len(tasks) // (2 * self._slots)))
        self._waiting.extend(tuple(tasks[at : at + size]) for at in range(0, len(tasks), size))
        try:
            while self._waiting or self._in_flight:
                self._look()
                self._submit()
                for future in self._finished():
                    self._take(future, self._in_flight.pop(future))
        except BaseException:
            with suppress(Exception):
                self.client.cancel(list(self._in_flight), force=True)
            raise

    @property
    def _slots(self) -> int:
        """How many batches the workers can do at once."""
        return max(1, sum(self._workers.values()))

    def _look(self) -> None:
        """Look which workers there are, now and then.

        Raises:
            ClusterUnavailable: there has been none for a while, or the scheduler has gone.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        try:
            self._workers = self.client.nthreads()
        except (OSError, ValueError, RuntimeError) as error:
            raise self._lost(error) from None
        if self._workers:
            self._seen_at_s = now_s
        elif now_s - self._seen_at_s > NO_WORKERS_S:
            raise _unavailable(f"{self.address} has no workers", f"start some: dask worker {self.address}")

    def _submit(self) -> None:
        share = 1 / max(1, min(self._slots, len(self._waiting) + len(self._in_flight)))
        while self._waiting and sum(one.share for one in self._in_flight.values()) + share < 1 + 1e-9:
            at_once = max(1, AT_ONCE * len(self._workers) // self._slots)
            batch = FleetBatch(self.request, self._waiting.popleft(), share, at_once)
            self._begun += 1
            future = self.client.submit(
                self._call,
                _WORKER,
                "check_batch",
                batch.to_json(),
                key=f"reconciler-{self.client.id}-{self._begun}",
                pure=False,
            )
            self._in_flight[future] = batch
            future.add_done_callback(self._done.put)

    def _finished(self) -> list[Future]:
        """The batches that ended meanwhile; waits a moment for the first."""
        with suppress(Empty):
            return [self._done.get(timeout=_LOOK_EVERY_S)]
        return []

    def _take(self, future: Future, batch: FleetBatch) -> None:
        """Take the results of a batch, or find out why there are none.

        Raises:
            ClusterUnavailable: the scheduler has gone.
        """
        if future.cancelled():
            raise self._lost(None)
        error = future.exception()
        if error is not None and _is_lost(error) and len(batch.tasks) > 1:
            # One of them may be why: each by itself does no harm to the others.
            self._waiting.extendleft((task,) for task in reversed(batch.tasks))
        else:
            for result in self._results(future, error, batch):
                self.take(result)
        future.release()

    def _results(self, future: Future, error: BaseException | None, batch: FleetBatch) -> list[StackResult]:
        """The results of a batch; where it has none, why that is so, for each of its stacks."""
        try:
            if error is not None:
                raise error
            return results_from(_answer(future.result()), [task.root for task in batch.tasks])
        except Exception as failure:
            problem = _problem_of(failure)
            return [
                StackResult(task.root, task.name, ExitCode.UNKNOWN, errors=(problem,)) for task in batch.tasks
            ]

    def _lost(self, error: BaseException | None) -> ClusterUnavailable:
        why = f": {_reason(error)}" if error is not None else ""
        return _unavailable(f"the connection to {self.address} was lost{why}", "run it again")


def _version(found: object) -> str:
    """The version of a worker, or what it has instead."""
    try:
        return _answer(found)
    except _FailedThere as failed:
        return "none" if failed.module == "reconciler" else "none that knows --fleet"
    except InvalidAnswer as invalid:
        return f"an answer that cannot be read ({invalid})"


def _other_version(worker: str, has: str) -> Diagnostic:
    why = f"{worker} has {printable(has)}, and this is {__version__}"
    return Diagnostic("another version on a worker", why, _INSTALL)


def _is_lost(error: BaseException) -> bool:
    """Whether dask gave up because workers were lost: its KilledWorker, which comes as an unread pickle."""
    return bool(error.args) and isinstance(error.args[0], bytes) and b"KilledWorker" in error.args[0]


def _problem_of(error: BaseException) -> Diagnostic:
    """Why a worker has no result."""
    if _is_lost(error):
        why = "workers were lost again and again while they checked it"
        return Diagnostic("workers were lost", why, "check the memory of the workers, and their logs")
    if isinstance(error, _FailedThere):
        if error.kind == "ModuleNotFoundError" and error.module.startswith("reconciler"):
            return Diagnostic("the worker has no reconciler", "it cannot import reconciler", _INSTALL)
        return Diagnostic("the worker failed", printable(f"{error.kind}: {_reason(error)}"))
    if isinstance(error, InvalidAnswer):
        return Diagnostic("the worker's answer cannot be read", printable(str(error)))
    return Diagnostic("the worker failed", "it could not run the check", "read the logs of the workers")
