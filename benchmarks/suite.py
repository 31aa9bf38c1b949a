"""The cost of the commands as users run them: whole processes, alternating with Terraform and kubectl.

    python benchmarks/suite.py [--jobs 60 --jobs 1000 --jobs 10000] [--rounds 5] [--only plan] [--write]

`--write` updates the figures in docs/operations/performance.md. A ratio is the median of the ratios of each
pair. Terraform and kubectl are skipped if they are not installed.
"""

from __future__ import annotations

import argparse
import compileall
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import Comparison, Run, in_turn, run
from benchmarks.sides import ROOT, Kubectl, Ours, Terraform, control, emulator, environment, serving

PAGE = ROOT / "docs/operations/performance.md"
LATENCY_S = 0.03


class Row(NamedTuple):
    """One command at one size: its runs, and those of the command that it is compared with."""

    jobs: int | None
    name: str
    beside: str
    compared: Comparison

    def cells(self) -> tuple[str, ...]:
        ours, theirs = self.compared
        return (
            "" if self.jobs is None else f"{self.jobs:,}",
            self.name,
            _seconds(run.wall_s for run in ours),
            _seconds(run.cpu_s for run in ours),
            f"{statistics.median(run.peak_mb for run in ours):.0f} MB",
            self.beside and f"{self.beside} {_seconds(run.wall_s for run in theirs)}",
            f"{self.compared.ratio:.3f}" if theirs else "",
        )


HEAD = ("jobs", "command", "time", "CPU", "memory", "beside it", "ratio")


def _seconds(values: Iterator[float]) -> str:
    return f"{statistics.median(values):.3f} s"


def alone(ours: Callable[[], Run], rounds: int) -> Comparison:
    """Run a command once to warm up, then measure it."""
    ours()
    return Comparison([ours() for _ in range(rounds)], [])


def edited(stack: Ours) -> Callable[[], Run]:
    """Plan with one job of a hundred edited."""
    for file in Path(stack.directory).glob("jobs-*.yaml"):
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"(  train-\d+00:(?s:.*?)epochs: )90", r"\g<1>91", text), encoding="utf-8")
    return partial(stack.run, "plan")


def rows(jobs: int, rounds: int, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """Measure the commands on a stack of `jobs` running jobs without changes."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(emulator())
        ours = Ours(scratch / "ours", url, jobs)
        yield Row(jobs, "apply, all new, once", "", Comparison([ours.applied], []))
        ours.plan()
        others: dict[str, Callable[[], Run]] = {}
        if shutil.which("terraform") and jobs <= 1_000:
            others["terraform plan"] = Terraform(scratch / "terraform", jobs).plan
        if shutil.which("kubectl") and jobs <= 1_000:
            address = stack.enter_context(serving(str(ROOT / "benchmarks" / "fake_kubernetes.py")))
            others["kubectl apply"] = Kubectl(scratch / "kubectl", address, jobs).plan
        for name, theirs in others.items():
            if wanted("plan"):
                yield Row(jobs, "plan, unchanged", name, in_turn(ours.plan, theirs, rounds=rounds))
        if wanted("plan") and not others:
            yield Row(jobs, "plan, unchanged", "", alone(ours.plan, rounds))
        for command in ("validate", "status", "drift"):
            if wanted(command):
                compared = in_turn(partial(ours.run, command), ours.plan, rounds=rounds)
                yield Row(jobs, command, "plan", compared)
        if wanted("latency"):
            control(url, "POST", "faults", {"effect": "delay", "delay_s": LATENCY_S, "count": None})
            yield Row(jobs, f"plan, {LATENCY_S * 1000:.0f} ms an answer", "", alone(ours.plan, rounds))
            control(url, "DELETE", "faults")
        if wanted("edited") and jobs < 10_000:  # the emulator's quota is 10,000 jobs
            yield Row(jobs, "plan, 1 % edited", "", alone(edited(ours), rounds))


def start(rounds: int) -> Row:
    """Measure the startup time, compared with a Python that only imports click."""
    ours = partial(run, [sys.executable, "-m", "reconciler", "--help"], cwd=ROOT, environ=environment())
    theirs = partial(run, [sys.executable, "-c", "import click"], cwd=ROOT)
    return Row(None, "--help", "import click", in_turn(ours, theirs, rounds=rounds * 6))


def machine() -> str:
    """Describe the machine and the versions of the measured tools."""
    versions = [f"{os.cpu_count()} cores", f"Python {platform.python_version()}"]
    if shutil.which("terraform"):
        said = subprocess.run(["terraform", "version"], capture_output=True, text=True, check=True)
        versions.append(said.stdout.splitlines()[0])
    if shutil.which("kubectl"):
        asked = ["kubectl", "version", "--client"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        versions.append("kubectl " + said.stdout.splitlines()[0].split()[-1])
    return f"{date.today()}: {', '.join(versions)}"


def table(found: list[Row]) -> str:
    """Return the figures as a Markdown table."""
    lines = [HEAD, ("---:", "---", "---:", "---:", "---:", "---", "---:"), *(row.cells() for row in found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Measure the commands.")
    parser.add_argument("--jobs", type=int, action="append", help="60, 1000 and 10000 unless given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", default=[], help="plan, validate, status, drift, …")
    parser.add_argument("--write", action="store_true", help="write docs/operations/performance.md")
    asked = parser.parse_args()
    # Installed programs have compiled bytecode; without it each run would compile all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "reconciler", quiet=1)
    print(machine(), flush=True)
    found = [start(asked.rounds)]
    for jobs in asked.jobs or (60, 1_000, 10_000):
        for row in rows(jobs, asked.rounds, lambda name: name in (asked.only or [name])):
            found.append(row)
            print("  ".join(row.cells()), flush=True)
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        new = f"<!-- figures -->\n{machine()}; {asked.rounds} rounds.\n\n{table(found)}<!-- end -->"
        PAGE.write_text(re.sub(r"<!-- figures -->.*<!-- end -->", lambda _: new, text, flags=re.S), "utf-8")


if __name__ == "__main__":
    main()
