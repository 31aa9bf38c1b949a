"""The cost of an apply compared with the service's response time: 500 creates, 50 ms each, 8 at once.

    python benchmarks/apply_throughput.py [--jobs 500] [--latency-ms 50] [--parallelism 8]
        [--rounds 3] [--check]

If only the responses to creates took time, N of them would take N x latency / parallelism. The time from the
first action's start to the last one's end is divided by that. Each create is preceded by a lookup and
surrounded by two journal entries on disk: neither may add a response time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.sides import JOB, MANIFEST_HEAD, ROOT, control, emulator, environment, write_in_files

#: `--check` fails above this ratio.
MOST = 1.15


def apply(directory: Path, parallelism: int) -> float:
    """Apply, and return the seconds from the first `action_started` to `apply_completed`."""
    command = [sys.executable, "-m", "reconciler", "apply", "--yes", "--json"]
    command += ["--parallelism", str(parallelism), str(directory)]
    begun = ended = 0.0
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for told in process.stdout:
            now, event = time.perf_counter(), json.loads(told)
            if event["type"] == "action_started" and not begun:
                begun = now
            if event["type"] == "apply_completed":
                ended = now
                summary = event["summary"]
    if process.returncode or summary["done"] == 0:
        raise SystemExit(f"apply exited with {process.returncode}: {summary}")
    return ended - begun


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time an apply of new jobs on a slow service.")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST:g}")
    asked = parser.parse_args()
    least_s = asked.jobs * asked.latency_ms / 1000 / asked.parallelism
    ratios = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as scratch, emulator() as url:
            directory = Path(scratch) / "stack"
            write_in_files(directory, ".yaml", JOB, asked.jobs, head="jobs:\n")
            (directory / "stack.yaml").write_text(MANIFEST_HEAD.format(url=url), encoding="utf-8")
            slow = {"effect": "delay", "delay_s": asked.latency_ms / 1000, "count": None}
            control(url, "POST", "faults", slow)
            took_s = apply(directory, asked.parallelism)
            ratios.append(took_s / least_s)
            print(f"{asked.jobs} creates: {took_s:.3f} s, {ratios[-1]:.3f} x {least_s:.3f} s")
    ratio = statistics.median(ratios)
    print(f"ratio: median {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return 1 if asked.check and ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
