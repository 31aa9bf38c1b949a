"""What the page of a history costs: 500 keys with a revision every night for 90 days.

python benchmarks/timeline.py [--keys 500] [--days 90] [--rounds 3] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import run
from reconciler.decide.history import HistoryExcerpt
from tests.render.browser import installed, started
from tests.render.recorded_histories import nightly

ROOT = Path(__file__).parents[1]
#: `--check` fails above this many seconds of CPU, and above this many megabytes.
MOST_S, MOST_MB = 5.0, 3.0
_RECONCILER = [sys.executable, "-m", "reconciler"]
_ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time the page of a history.")
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST_S:g} s or {MOST_MB:g} MB")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        shutil.copy(ROOT / "examples/first-job/jobs.yaml", directory)
        run([*_RECONCILER, "apply", "--yes"], cwd=directory, environ=_ENVIRON)
        _fill(directory / ".reconciler/records.sqlite3", nightly(asked.keys, asked.days))
        page = directory / "page.html"
        command = [*_RECONCILER, "history", "--html", str(page)]
        begun_s = os.times().children_user
        runs = [run(command, cwd=directory, environ=_ENVIRON) for _ in range(asked.rounds)]
        cpu_s = (os.times().children_user - begun_s) / asked.rounds
        wall_s, size_mb = statistics.median(one.wall_s for one in runs), page.stat().st_size / 1e6
        print(
            f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {asked.keys} keys, {asked.days} days"
        )
        peak_mb = max(one.peak_mb for one in runs)
        print(f"history --html  median {wall_s:.2f} s, {cpu_s:.2f} s of CPU, peak {peak_mb:.0f} MB")
        print(f"the page        {size_mb:.2f} MB")
        _open(page, directory / "profile")
    return 1 if asked.check and (cpu_s > MOST_S or size_mb > MOST_MB) else 0


def _fill(file: Path, shown: HistoryExcerpt) -> None:
    """Put a history in the place of the one that is there."""
    with closing(sqlite3.connect(file)) as store, store:
        (scope,) = store.execute("SELECT id FROM reconciler_scopes").fetchone()
        (declared,) = store.execute("SELECT declared FROM reconciler_revisions").fetchone()
        for table in ("lines", "outcomes", "runs", "revisions"):
            store.execute(f"DELETE FROM reconciler_{table}")
        store.executemany(
            "INSERT INTO reconciler_runs (id, scope_id, kind, who, place, command, commit_id, plan_digest,"
            " at_s, ended_at_s, result, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '{}')",
            ((one.id, scope, one.kind, one.who, one.where, one.command, one.commit, one.plan_digest, one.at_s,
              one.ended_at_s, one.result) for one in shown.runs),
        )  # fmt: skip
        store.executemany(
            "INSERT INTO reconciler_lines (run_id, line, key, action, call, name, job, at_s, ended_at_s, ok,"
            " is_certain, declared) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, ?)",
            _lines(shown, declared),
        )
        store.executemany(
            "INSERT INTO reconciler_outcomes (run_id, position, key, action, reason, status, job)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            ((run_.id, place, one.key, one.action, one.reason, one.status, one.job)
             for run_ in shown.runs for place, one in enumerate(run_.actions, 1)),
        )  # fmt: skip
        store.executemany(
            "INSERT INTO reconciler_revisions (scope_id, key, number, name, job, digest, phase, created_at_s,"
            " started_at_s, duration_s, node_count, seen_at_s, phases, declared)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
            ((scope, one.key, one.number, one.name, one.job, one.digest, one.phase_text, one.created_at_s,
              one.started_at_s, one.duration_s, one.created_at_s,
              json.dumps([[one.phase_text, one.created_at_s]]), declared) for one in shown.revisions),
        )  # fmt: skip


def _lines(shown: HistoryExcerpt, declared: str) -> Iterator[tuple[object, ...]]:
    for one in shown.runs:
        for line, step in enumerate(one.steps, 1):
            times = (step.at_s, step.ended_at_s)
            yield one.id, line, step.key, step.action, step.call, step.name, step.job, *times, declared


def _open(page: Path, profile: Path) -> None:
    program = installed()
    if program is None:
        print("in a browser    needs Chromium (Debian: apt install chromium)")
        return
    with started(program, profile) as browser:
        tab = browser.page()
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=1280, height=1000, deviceScaleFactor=1, mobile=False
        )
        text, begun = page.read_text(encoding="utf-8"), time.perf_counter()
        tab.show(text, page)
        tab.wait_for_frame()
        opened_s = time.perf_counter() - begun
        redraw = (
            "(() => { const at = performance.now(); zoom(0.8); draw(); return performance.now() - at; })()"
        )
        times = [tab.run(redraw) for _ in range(10)]
        print(f"in a browser    drawn after {opened_s:.2f} s, zoomed in {statistics.median(times):.0f} ms")


if __name__ == "__main__":
    sys.exit(main())
