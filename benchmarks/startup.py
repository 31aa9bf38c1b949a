"""What starting costs: `reconciler --help` beside a Python that imports click and ends.

python benchmarks/startup.py [--rounds 30] [--check]
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import in_turn, line, run

ROOT = Path(__file__).parents[1]
#: `--check` fails above this multiple.
MOST = 1.5


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time `reconciler --help`.")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST:g} times theirs")
    asked = parser.parse_args()
    ours = partial(run, [sys.executable, "-m", "reconciler", "--help"], cwd=ROOT)
    theirs = partial(run, [sys.executable, "-c", "import click"], cwd=ROOT)
    compared = in_turn(ours, theirs, rounds=asked.rounds)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    print(line("reconciler --help", compared.ours))
    print(line("python -c 'import click'", compared.theirs))
    print(f"ratio, pair by pair: median {compared.ratio:.2f}")
    return 1 if asked.check and compared.ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
