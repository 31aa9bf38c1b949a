"""A fleet on the workers of a dask.distributed cluster: what is sent, and how answers are read.

Plain text travels: which stacks, and the options of the command, none that holds a secret, for what is sent
stands in the memory of the scheduler and may stand in its logs. The scheduler needs nothing of ours, the
workers need the same version. What a lost worker had to do is done by another one.

What comes back is data: results as JSON, and no pickle that could run code here. A worker runs code of ours
with credentials of its own, and whoever can connect to a scheduler can run code on its workers; so nothing of
what they send is believed to be more than text.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reconciler.core.addresses import passwords_in
from reconciler.decide.fleet import StackResult
from reconciler.errors import Diagnostic, ExitCode, ReconcilerError, WrongUsage
from reconciler.fleet import (
    AT_ONCE,
    BATCH,
    LOOK_EVERY_S,
    RESULTS,
    FleetBatch,
    FleetRequest,
    StackTask,
    TakeResult,
    run_batches,
)
from reconciler.manifest.files import files_digest, find_stack
from reconciler.manifest.variables import declared_sensitive
from reconciler.text import printable
from reconciler.version import __version__

#: distributed has no types.
Client = Any
_ADDRESS = re.compile(r"(tcp|tls)://[^/\s:]+(:[^/\s:]+)*:\d{1,5}|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d{1,5}")
#: Seconds for the scheduler to answer, for a worker to appear where there is none, and for a record.
CONNECT_S, NO_WORKERS_S, MARK_S = 10.0, 60.0, 60.0
_WORKER = "reconciler.fleet"
_INSTALL = f"on all workers: pip install reconciler=={__version__}"
#: Of these a pickle may name: dask has it for each text of an error, and it runs nothing.
_HARMLESS = frozenset({("builtins", "bytes")})


class ClusterUnavailable(ReconcilerError):
    """The scheduler cannot be reached, or has no workers."""

    exit_code = ExitCode.UNKNOWN


class OtherVersion(ReconcilerError):
    """A worker has another version of reconciler, or none."""

    exit_code = ExitCode.FAILED


class InvalidAnswer(ValueError):
    """What a worker sent is not what it was asked for."""


class _FailedThere(Exception):
    """A call failed on a worker: the name of its exception, and of the module that is missing, if one is."""

    def __init__(self, kind: str, module: str, why: str) -> None:
        self.kind, self.module = kind, module
        super().__init__(why)


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────


def sent(request: FleetRequest, *, is_records_from_environment: bool) -> FleetRequest:
    """The request as it is sent; the address of the record store is left out if the environment gave it.

    Raises:
        WrongUsage: the address on the command line holds a password.
    """
    url = request.options.get("records")
    if url and is_records_from_environment:
        return replace(request, options={**request.options, "records": None})
    if url and any(passwords_in(url)):
        why = "a password is never sent to a scheduler"
        fix = "set RECONCILER_RECORDS in the environment of the workers"
        raise WrongUsage(Diagnostic("--records with a password and --scheduler", why, fix))
    return request


def with_digest(task: StackTask, request: FleetRequest) -> StackTask:
    """The task with the digest of the stack's files, which a worker compares with what it sees."""
    return replace(task, digest=files_digest(Path(task.directory), request.var_files))


def check_variables(request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackTask]:
    """Check that no value of a sensitive variable is sent; return the stacks that cannot be judged.

    Raises:
        WrongUsage: a stack declares a variable as sensitive that --var gives.
    """
    given = {name for name, _ in request.options.get("variables") or ()}
    unclear = []
    for task in tasks if given else ():
        try:
            documents = find_stack([Path(task.directory)], request.var_files).documents
        except ReconcilerError:
            unclear.append(task)
            continue
        if any(document.is_broken for document in documents):
            unclear.append(task)
        elif secret := sorted(given & declared_sensitive(documents)):
            why = f"{task.root} declares {secret[0]} as sensitive, and its value is never sent to a scheduler"
            fix = f"declare `env` for {secret[0]}, and set that variable in the environment of the workers"
            raise WrongUsage(Diagnostic("--var of a sensitive variable with --scheduler", why, fix))
    return unclear


# ── what comes back ──────────────────────────────────────────────────────────────────────────────────


class _Pickles:
    """While there are connections no pickle may name a class or a function, whichever library reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections = 0
        self._has_hook = False

    @contextmanager
    def refused(self) -> Iterator[None]:
        with self._lock:
            self._connections += 1
            if not self._has_hook:  # nothing can take it out again
                sys.addaudithook(self._hear)
                self._has_hook = True
        try:
            yield
        finally:
            with self._lock:
                self._connections -= 1

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and self._connections and arguments not in _HARMLESS:
            # A TypeError, which dask takes for a pickle that it cannot read.
            raise TypeError(f"a pickle of {'.'.join(map(str, arguments))} is not read")


no_unpickling = _Pickles().refused


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


def results_from(text: object, roots: Sequence[str]) -> list[StackResult]:
    """Read results from JSON: one for each of the stacks that were asked for, and none for others.

    Raises:
        InvalidAnswer: they are something else.
    """
    if not isinstance(text, str):
        raise InvalidAnswer("it is no text")
    try:
        results = RESULTS.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidAnswer(f"{place}: {first['msg']}") from None
    if sorted(result.root for result in results) != sorted(roots):
        raise InvalidAnswer("it is about other stacks")
    return results


# ── running it ───────────────────────────────────────────────────────────────────────────────────────


def check_on_cluster(
    address: str, request: FleetRequest, tasks: Sequence[StackTask], take: TakeResult
) -> None:
    """Check the stacks on a cluster; `take` gets each result as it comes. An interrupt cancels the rest.

    Raises:
        WrongUsage: the address is invalid, or the extra `fleet` is not installed.
        ClusterUnavailable: the scheduler cannot be reached, or has no workers.
        OtherVersion: a worker has another version.
    """
    with _connected(address) as client:
        call = _remote()
        found = client.run(call, _WORKER, "version", on_error="return")
        # What raises here is the connection of a worker that was lost meanwhile.
        versions = {name: _version(one) for name, one in found.items() if not isinstance(one, Exception)}
        if wrong := [name for name in sorted(versions) if versions[name] != __version__]:
            raise OtherVersion(*(_other_version(name, versions[name]) for name in wrong))
        workers = _Workers(client, address)
        size = max(1, min(AT_ONCE, len(tasks) // (2 * workers.slots())))
        groups = [tuple(tasks[at : at + size]) for at in range(0, len(tasks), size)]
        executor = _DaskExecutor(client)

        def submit(batch: FleetBatch) -> Future[Any]:
            at_once = max(1, AT_ONCE * len(workers.found) // workers.slots())
            text = BATCH.dump_json(replace(batch, at_once=at_once)).decode()
            return executor.submit(call, _WORKER, "check_batch", text)

        batches = [FleetBatch(request, group) for group in groups]
        run_batches(executor, batches, submit, workers.results, take, workers.slots)


def mark_on_cluster(address: str, request: FleetRequest, tasks: Sequence[StackTask]) -> list[StackResult]:
    """Record on the cluster what drift was shown; returns the result of each stack.

    Raises:
        ClusterUnavailable: the scheduler cannot be reached, or did not answer.
    """
    text = BATCH.dump_json(FleetBatch(request, tuple(tasks))).decode()
    with _connected(address) as client:
        future = client.submit(_remote(), _WORKER, "check_batch", text, pure=False)
        try:
            return results_from(_answer(future.result(timeout=MARK_S)), [task.root for task in tasks])
        # What it failed of on a worker is an exception of any kind, since it is not read.
        except (Exception, CancelledError) as error:
            raise _unavailable(f"{address}: {_reason(error)}", "run it again") from None


class _DaskExecutor(Executor):
    """An executor whose futures result in dask's, once these have ended; they are read by `_Workers.results`.

    That of `Client.get_executor()` reads results by itself, and hangs where one cannot be read.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._futures: set[Any] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Let a worker call the function."""
        ended = Future[Any]()

        def end(future: Any) -> None:
            self._futures.discard(future)
            ended.set_result(future)

        future = self._client.submit(fn, *args, pure=False)
        self._futures.add(future)
        future.add_done_callback(end)
        return ended

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not begun."""
        with suppress(Exception):
            self._client.cancel(list(self._futures), force=True)


class _Workers:
    """The workers of a cluster, as they come and go."""

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._address = client, address
        self.found: Mapping[str, int] = {}
        self._looked_at_s = float("-inf")
        self._seen_at_s = time.monotonic()

    def slots(self) -> int:
        """How many batches they can do at once; looks at them now and then.

        Raises:
            ClusterUnavailable: there has been none for a while, or the scheduler has gone.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            try:
                self.found = self._client.nthreads()
            except (OSError, ValueError, RuntimeError) as error:
                raise self._lost(f": {_reason(error)}") from None
            if self.found:
                self._seen_at_s = now_s
            elif now_s - self._seen_at_s > NO_WORKERS_S:
                fix = f"start some: dask worker {self._address}"
                raise _unavailable(f"{self._address} has no workers", fix)
        return max(1, sum(self.found.values()))

    def results(self, future: Future[Any], batch: FleetBatch) -> list[StackResult] | None:
        """The results of a batch, or why there are none, for each of its stacks.

        None where workers were lost with several stacks: one of them may be why, and each by itself does no
        harm to the others.

        Raises:
            ClusterUnavailable: the scheduler has gone.
        """
        answer = future.result()
        if answer.cancelled():
            raise self._lost("")
        error = answer.exception()
        if error is not None and _is_lost(error) and len(batch.tasks) > 1:
            return None
        try:
            if error is not None:
                raise error
            return results_from(_answer(answer.result()), [task.root for task in batch.tasks])
        except Exception as failure:
            problem = _problem_of(failure)
            return [
                StackResult(task.root, task.name, ExitCode.UNKNOWN, errors=(problem,)) for task in batch.tasks
            ]
        finally:
            answer.release()

    def _lost(self, why: str) -> ClusterUnavailable:
        return _unavailable(f"the connection to {self._address} was lost{why}", "run it again")


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    if not _ADDRESS.fullmatch(address):
        why = f'"{address}" is not tcp://HOST:PORT'
        raise WrongUsage(Diagnostic("invalid scheduler", why, "use the address that `dask scheduler` prints"))
    try:
        import distributed
    except ImportError:
        why, fix = "--scheduler needs the package distributed", "pip install 'reconciler[fleet]'"
        raise WrongUsage(Diagnostic("the extra fleet is not installed", why, fix)) from None
    # What dask logs goes where the log of any library goes, and not to stderr by itself.
    logger = logging.getLogger("distributed")
    logger.handlers.clear()
    logger.propagate = True
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


def _unavailable(why: str, fix: str) -> ClusterUnavailable:
    return ClusterUnavailable(Diagnostic("the scheduler is unavailable", why, fix))


def _reason(error: BaseException) -> str:
    """The first line of an error, or of what caused it, if that has one."""
    words, one = type(error).__name__, error
    while one is not None:
        words = str(one) or words
        one = one.__cause__  # type: ignore[assignment]
    return words.splitlines()[0]


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
