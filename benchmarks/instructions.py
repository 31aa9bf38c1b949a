"""The number of instructions that a command executes, by valgrind: stable on a busy machine, unlike times.

    python benchmarks/instructions.py            # count, and print beside the recorded counts
    python benchmarks/instructions.py --record   # write instructions.json
    python benchmarks/instructions.py --check    # exit with 1 if a count has grown by more than 3 %

Counts are valid for one version of Python and of the libraries, which are recorded with them. With other
versions, `--check` compares nothing, and says so.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.sides import ROOT, TOKEN, Ours, emulator

RECORDED = Path(__file__).with_name("instructions.json")
TOLERANCE = 0.03
LIBRARIES = ("click", "pydantic", "pydantic-core", "requests", "ruamel.yaml", "urllib3")


def count(*arguments: str) -> int:
    """Return the number of instructions that one run executes, in millions."""
    command = [sys.executable, "-m", "reconciler", *arguments]
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    environ = {"PATH": os.environ["PATH"], "HOME": "/", "MODELARTS_AUTH_TOKEN": TOKEN, "PYTHONHASHSEED": "0"}
    ended = subprocess.run([*valgrind, *command], cwd=ROOT, env=environ, capture_output=True, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", ended.stderr)
    if ended.returncode or not found:
        raise SystemExit(f"{' '.join(command)} exited with {ended.returncode}\n{ended.stderr}")
    return round(int(found[1].replace(",", "")) / 1e6)


def counts() -> Iterator[tuple[str, int]]:
    """Count the instructions of each command."""
    yield "--help", count("--help")
    for jobs in (60, 1_000):
        with tempfile.TemporaryDirectory() as scratch, emulator() as url:
            stack = Ours(Path(scratch) / "ours", url, jobs)
            stack.plan()
            if jobs == 60:
                yield "validate, 60 jobs", count("validate", stack.directory)
            yield f"plan, {jobs:,} jobs", count("plan", stack.directory)


def versions() -> dict[str, str]:
    """Return the versions that the counts depend on."""
    ours = {"python": platform.python_version(), "machine": platform.machine()}
    ours["libc"] = " ".join(platform.libc_ver())
    return ours | {name: version(name) for name in LIBRARIES}


def main() -> int:
    """Count, and report."""
    parser = argparse.ArgumentParser(description="Count the instructions of commands.")
    parser.add_argument("--record", action="store_true", help="write what is counted")
    parser.add_argument("--check", action="store_true", help=f"fail where one grew by over {TOLERANCE:.0%}")
    asked = parser.parse_args()
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    if asked.check:
        others = dict(recorded["versions"].items() - versions().items())
        if shutil.which("valgrind") is None or others:
            print(f"not compared: needs valgrind and {others or 'no more'}")
            return 0
    compileall.compile_dir(ROOT / "reconciler", quiet=1)
    found, grown = {}, False
    for name, millions in counts():
        before = recorded.get("millions", {}).get(name)
        found[name] = millions
        print(
            f"{name:<20} {millions:>7,} M   " + (f"{millions / before - 1:+.1%}" if before else ""),
            flush=True,
        )
        grown = grown or bool(before and millions > before * (1 + TOLERANCE))
    if asked.record:
        text = json.dumps({"versions": versions(), "millions": found}, indent=2)
        RECORDED.write_text(text + "\n", encoding="utf-8")
    return 1 if asked.check and grown else 0


if __name__ == "__main__":
    sys.exit(main())
