"""What the emulator costs as its jobs become many: 1,000 creates, and 10,000.

    python benchmarks/emulator_growth.py [--few 1000] [--many 10000] [--rounds 3] [--apply] [--check]

Each create is looked up first, as an apply does it; both calls go to the application in the same process,
and its jobs lie in a file. Processor time counts, since nothing else is waited for. With `--apply` it is that
of a whole `reconciler apply` on a local target instead. If a call cost the same however many jobs there are,
ten times the jobs would take ten times as long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import run
from benchmarks.sides import JOB, ROOT, write_in_files
from reconciler.emulator import Store, create_app
from reconciler.modelarts.connect import connect_inprocess

#: `--check` fails above this ratio for ten times the jobs.
MOST = 12.0
LOCAL = "apiVersion: reconciler/v1\nstack: bench\ntargets: {here: {kind: local}}\n"


def body(number: int) -> dict[str, Any]:
    """The create request of one job."""
    return {
        "kind": "job",
        "metadata": {"name": f"train-{number:06d}", "description": "one of many"},
        "algorithm": {
            "code_dir": "obs://bucket/code/",
            "boot_file": "obs://bucket/code/train.py",
            "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
            "parameters": [{"name": "lr", "value": "0.1"}],
            "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "/bucket/data/"}}}],
            "outputs": [{"name": "train_url", "remote": {"obs": {"obs_url": "/bucket/out/"}}}],
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}},
    }


def calls(count: int) -> float:
    """Look up and create so many jobs; return the seconds of processor time."""
    with tempfile.TemporaryDirectory() as scratch, Store(Path(scratch) / "jobs.sqlite3") as store:
        store.quota = max(store.quota, count)
        with connect_inprocess(create_app(store), project_id="bench", workspace_id="0") as backend:
            begun = time.process_time()
            for number in range(count):
                request = body(number)
                assert not backend.find(request["metadata"]["name"])
                backend.create(request)
            return time.process_time() - begun


def apply(count: int) -> float:
    """Apply so many jobs to a local target, as a process; return the seconds of processor time."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        write_in_files(directory / "jobs", ".yaml", JOB, count, head="jobs:\n")
        (directory / "stack.yaml").write_text(LOCAL, encoding="utf-8")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
        command = [sys.executable, "-m", "reconciler", "apply", "--yes", scratch]
        return run(command, cwd=ROOT, environ=environ).cpu_s


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time few and many creates on the emulator.")
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apply", action="store_true", help="a whole apply on a local target")
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST:g} for ten times the jobs")
    asked = parser.parse_args()
    measure: Callable[[int], float] = apply if asked.apply else calls
    measure(min(asked.few, 100))
    ratios = []
    for _ in range(asked.rounds):
        few_s, many_s = measure(asked.few), measure(asked.many)
        ratios.append(many_s / few_s)
        print(f"{asked.few}: {few_s:.2f} s   {asked.many}: {many_s:.2f} s   ratio {ratios[-1]:.2f}")
    ratio = statistics.median(ratios)
    print(f"ratio: median {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return 1 if asked.check and ratio > MOST * asked.many / asked.few / 10 else 0


if __name__ == "__main__":
    sys.exit(main())
