"""A fleet in one process, and on three workers of a dask cluster, one of which is killed half-way.

    python benchmarks/fleet.py [--stacks 200] [--jobs 50] [--delay 0.05] [--threads 4] [--rounds 3] [--check]

Every stack has its own project in one emulator, a process that responds after `--delay` seconds, and all of
its jobs run. `reconciler plan --fleet --json` and the same with --scheduler are measured alternately. In each
round one worker is killed when half of the stacks are done, and another one is started for the next. The
reports must be equal, except for times; the ratio is that of the wall-clock times.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import reconciler
from benchmarks.sides import ROOT, TOKEN, emulator

#: `--check` fails if the cluster takes more than this share of the time of one process.
MOST = 0.7
WORKERS = 3
_HEAD = """\
apiVersion: reconciler/v1
stack: s{number:03}
targets:
  prod: {{kind: modelarts, endpoint: '{url}', project_id: p{number:03}}}
jobs:
"""
_JOB = """\
  train-{n:03}:
    description: ResNet-50 on split {n}, nightly
    algorithm:
      code_dir: obs://vision-data/resnet/v{n}/
      boot_file: obs://vision-data/resnet/v{n}/train.py
      engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}
      parameters: {{epochs: 90, lr: 0.{n:03}1, batch_size: 256}}
      inputs: {{data_url: obs://vision-data/imagenet/split-{n}/}}
      outputs: {{train_url: obs://vision-data/out/{n}/}}
      environments: {{NCCL_DEBUG: INFO, EMULATOR_RUN_SECONDS: 86400000}}
    spec:
      resource: {{flavor_id: modelarts.p3.large.public, node_count: 1}}
"""
#: Values that differ between two reports of the same stacks.
_TIMES = re.compile(rb'"created_at": "[^"]*"')


class Timed(NamedTuple):
    """One run: its duration, and its report without times."""

    wall_s: float
    report: bytes


def write_fleet(top: Path, url: str, stacks: int, jobs: int) -> list[Path]:
    """Write the manifests of all stacks, ten to a directory."""
    roots = []
    for number in range(stacks):
        root = top / f"team-{number // 10:02}" / f"s{number:03}"
        root.mkdir(parents=True)
        text = _HEAD.format(number=number, url=url) + "".join(_JOB.format(n=n) for n in range(jobs))
        (root / "stack.yaml").write_text(text, encoding="utf-8")
        roots.append(root)
    return roots


def apply_all(roots: list[Path]) -> None:
    """Create all jobs, so that every plan keeps them."""
    for root in roots:
        with reconciler.load(root).connect(environ={"MODELARTS_AUTH_TOKEN": TOKEN}) as session:
            session.apply(session.plan(allow="empty")).raise_for_failures()


def delay(url: str, seconds: float) -> None:
    """Delay the emulator's responses."""
    fault = {"effect": "delay", "delay_s": seconds, "count": None}
    request = Request(f"{url}/emulator/faults", json.dumps(fault).encode(), {"X-Auth-Token": TOKEN})
    with urlopen(request) as answer:
        answer.read()


class Cluster:
    """A scheduler and its workers, each a separate process."""

    def __init__(self, threads: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._threads = threads
        self._scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", self.address.rpartition(":")[2]
        )
        self.workers: list[subprocess.Popen[bytes]] = []

    def fill(self) -> None:
        """Start workers until there are three."""
        while len(self.workers) < WORKERS:
            self.workers.append(
                self._start(
                    "dask_worker",
                    self.address,
                    "--nthreads",
                    str(self._threads),
                    "--no-nanny",
                    "--host",
                    "127.0.0.1",
                )
            )
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(WORKERS, timeout=60)
            client.run(_import_reconciler)

    def kill_one(self) -> None:
        """Kill a worker, like the system when it runs out of memory."""
        worker = self.workers.pop()
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def close(self) -> None:
        """End all processes."""
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()

    @staticmethod
    def _start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments, "--no-dashboard"]
        return subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def _import_reconciler() -> None:
    """Import the program, as on a worker that has been running for a while."""
    import reconciler.fleet  # noqa: F401


def environment() -> dict[str, str]:
    """The environment of all processes."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    return {**environ, "MODELARTS_AUTH_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}


def plan(top: Path, *more: str, when_half_done: Callable[[], None] | None = None) -> Timed:
    """Plan the fleet, and call a function when half of the stacks are done.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "reconciler", "plan", "--fleet", "--json", "--detailed-exitcode", "-v"]
    begun = time.perf_counter()
    with (
        tempfile.TemporaryFile() as report,
        subprocess.Popen(
            [*command, *more, str(top)],
            cwd=ROOT,
            env=environment(),
            stdout=report,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            done = re.match(r"debug: (\d+) of (\d+) stacks done", line)
            if when_half_done is not None and done and 2 * int(done[1]) >= int(done[2]):
                when_half_done()
                when_half_done = None
        code = process.wait()
        wall_s = time.perf_counter() - begun
        report.seek(0)
        text = report.read()
    if code:
        raise RuntimeError(f"exited with {code}\n{''.join(said[-20:])}{text[:2000].decode()}")
    return Timed(wall_s, _TIMES.sub(b"", text))


def plan_with_a_loss(cluster: Cluster, top: Path) -> Timed:
    """Plan the fleet on the cluster, and kill a worker half-way."""
    cluster.fill()
    timed = plan(top, "--scheduler", cluster.address, when_half_done=cluster.kill_one)
    if len(cluster.workers) != WORKERS - 1:
        raise RuntimeError("no worker was killed")
    return timed


@contextmanager
def prepared(asked: Any) -> Iterator[tuple[Path, Cluster]]:
    """A fleet whose jobs run, and a cluster."""
    with ExitStack() as cleanup:
        top = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        url = cleanup.enter_context(emulator())
        begun = time.perf_counter()
        apply_all(write_fleet(top, url, asked.stacks, asked.jobs))
        print(f"applied {asked.stacks} x {asked.jobs} jobs in {time.perf_counter() - begun:.0f} s")
        delay(url, asked.delay)
        cluster = Cluster(asked.threads)
        cleanup.callback(cluster.close)
        cluster.fill()
        yield top, cluster


def main() -> int:
    """Measure, print, and with --check judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stacks", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds")
    parser.add_argument("--threads", type=int, default=4, help="of each worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    with prepared(asked) as (top, cluster):
        warm = plan(top)
        here, there = [], []
        for _ in range(asked.rounds):
            here.append(plan(top))
            there.append(plan_with_a_loss(cluster, top))
    if any(run.report != warm.report for run in (*here, *there)):
        print("the reports differ")
        return 1
    ratios = [on_cluster.wall_s / alone.wall_s for alone, on_cluster in zip(here, there, strict=True)]
    for name, runs in (("one process", here), ("three workers, one killed", there)):
        walls = sorted(run.wall_s for run in runs)
        print(f"{name:<26} median {statistics.median(walls):6.2f} s   ({walls[0]:.2f} to {walls[-1]:.2f})")
    print(f"reports equal: {len(warm.report):,} bytes; load of the machine {os.getloadavg()[0]:.1f}")
    ratio = statistics.median(ratios)
    print(f"ratio, pair by pair: median {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 1 if asked.check and ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
