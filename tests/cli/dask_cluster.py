"""A real dask cluster with a fast startup: `python -m tests.cli.dask_cluster`.

One process imports everything and forks the scheduler and the workers, each a process of its own; it has no
threads when it forks. A worker that was killed is replaced, as a supervisor does. The first line on stdout is
the address of the scheduler; its process id and those of the workers follow, one a line. When stdin ends, all
end.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
#: A stack with this file kills the worker that checks it.
FATAL_FILE = "fatal.txt"
#: A stack with this file makes the worker respond as the file says: `HOSTILE`.
HOSTILE_FILE = "hostile.txt"
#: Worker losses allowed per task; dask's default is 3.
ALLOWED_FAILURES = 1


def leave_trace(path: str) -> Exception:
    """Code run by unpickling: write the process id to the file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return RuntimeError("a trace was left")


class HostileValue:
    """A value whose pickle runs code when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return leave_trace, (self.path,)


class HostileError(BaseException):
    """An exception whose pickle runs code when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        super().__init__(self.path)

    def __reduce__(self) -> Any:
        return leave_trace, (self.path,)


def _fail(path: Path) -> NoReturn:
    raise HostileError(path)


def _as_pickle(path: Path) -> HostileValue:
    """Send a result as a pickle, whatever the client accepts."""
    from distributed.protocol.serialize import families

    plain, pickled = families["msgpack"], families["pickle"]

    def dumps(value: Any, context: Any = None) -> Any:
        try:  # the same worker may check the other stack, whose result is plain
            return plain[0](value)
        except NotImplementedError:
            return pickled[0](value, context)

    families["msgpack"] = (dumps, *pickled[1:])
    return HostileValue(path)


#: Responses of a hostile worker, by the text of the file; called with the path of the trace.
HOSTILE: Mapping[str, Callable[[Path], Any]] = {
    "value": HostileValue,
    "pickle": _as_pickle,
    "error": _fail,
}


class DaskCluster:
    """The cluster, as seen by a test."""

    def __init__(self, environ: Mapping[str, str], workers: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.dask_cluster", str(workers)],
            cwd=ROOT,
            env={**environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._line()
        self.scheduler = int(self._line())
        self.workers = [int(self._line()) for _ in range(workers)]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill_worker(self) -> None:
        """Kill one of the first workers, like the OOM killer."""
        os.kill(self.workers.pop(), signal.SIGKILL)

    def close(self) -> None:
        """End all processes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


@contextmanager
def dask_cluster(environ: Mapping[str, str], workers: int) -> Iterator[DaskCluster]:
    """Run a cluster whose workers have this environment."""
    cluster = DaskCluster(environ, workers)
    try:
        yield cluster
    finally:
        cluster.close()


def _fork(run: Any) -> int:
    return os.fork() or _child(run)


def _child(run: Any) -> NoReturn:
    with suppress(BaseException):
        asyncio.run(run())
    os._exit(0)


def main(count: int) -> None:
    """Fork, and replace workers until stdin ends."""
    # The configuration is read when the package is imported.
    os.environ["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = str(ALLOWED_FAILURES)
    from distributed import Scheduler, Worker

    from reconciler import fleet as work

    check_sent = work.check_sent

    def check_or_die(text: str) -> Any:
        directory = Path(work.SENT.validate_json(text)[1].directory)
        if (directory / FATAL_FILE).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        file = directory / HOSTILE_FILE
        if file.exists():
            return HOSTILE[file.read_text(encoding="utf-8")](file.with_suffix(".trace"))
        return check_sent(text)

    work.check_sent = check_or_die
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"

    async def schedule() -> None:
        async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as scheduler:
            await scheduler.finished()

    async def run_worker() -> None:
        async with Worker(address, nthreads=1, host="127.0.0.1", dashboard=False) as worker:
            await worker.finished()

    scheduler = _fork(schedule)
    _wait_for(port)
    workers = [_fork(run_worker) for _ in range(count)]
    sys.stdout.write("".join(f"{one}\n" for one in (address, scheduler, *workers)))
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        ended, _ = os.waitpid(-1, os.WNOHANG)
        if ended in workers:
            workers[workers.index(ended)] = _fork(run_worker)
    for pid in (*workers, scheduler):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_for(port: int) -> None:
    for _ in range(1500):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]))
